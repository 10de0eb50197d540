"""Sparse factorizations behind one contract: a new engine is a new file and a line in `ENGINES`."""

from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.superlu import SuperLUEngine, suits_symmetric_mode
from roundwise.backends.engines.supernodal import CholeskyEngine, LdlEngine, LuEngine

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (CholeskyEngine(), LdlEngine(), LuEngine(), SuperLUEngine())
}
