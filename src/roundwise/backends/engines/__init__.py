"""Sparse factorizations behind one contract: a new engine is a new file and a line below."""

from roundwise.backends.engines.amg import AMGEngine
from roundwise.backends.engines.contract import Engine, EngineError, Symbolic
from roundwise.backends.engines.cudss import ComplexCudssLU, CudssCholesky, CudssLU
from roundwise.backends.engines.iterative import IcEngine, IluEngine, MultigridEngine
from roundwise.backends.engines.klu import KLUEngine
from roundwise.backends.engines.pardiso import (
    ComplexPardisoLU,
    PardisoCholesky,
    PardisoLDL,
    PardisoLU,
)
from roundwise.backends.engines.scikit_sparse import CholmodEngine, UmfpackEngine
from roundwise.backends.engines.structure import suits_symmetric_mode
from roundwise.backends.engines.superlu import SuperLUEngine
from roundwise.backends.engines.supernodal import CholeskyEngine, LdlEngine, LuEngine

KNOWN_ENGINES: tuple[Engine, ...] = (
    CholeskyEngine(),
    LdlEngine(),
    LuEngine(),
    SuperLUEngine(),
    PardisoLU(),
    PardisoCholesky(),
    PardisoLDL(),
    KLUEngine(),
    CholmodEngine(),
    UmfpackEngine(),
    AMGEngine(),
    MultigridEngine(),
    IcEngine(),
    IluEngine(),
    CudssLU(),
    CudssCholesky(),
)

ENGINES = {engine.name: engine for engine in KNOWN_ENGINES if engine.installed}
"""The engines whose packages are installed, by name."""

COMPLEX_ENGINES = {
    engine.name: engine
    for engine in (SuperLUEngine(), ComplexPardisoLU(), ComplexCudssLU())
    if engine.installed
}
"""Those for complex matrices: the others, called by us, are for real ones."""
