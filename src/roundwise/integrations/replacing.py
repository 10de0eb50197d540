"""`replacing_numpy`: a program's calls of NumPy's and SciPy's solvers go through Roundwise.

The functions of `replaced.STANDS` are replaced in their modules, when these are imported, and in
all modules that have imported them by name. Leaving the context puts the originals back.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from roundwise.integrations.calls import Ledger

HOMES = ("numpy.linalg", "scipy.linalg", "scipy.sparse.linalg")

THEIR_OWN = ("numpy", "scipy.linalg", "scipy.sparse.linalg", "roundwise")
"""Packages whose modules keep the functions that they have imported: their own, and ours."""

_LOCK = threading.RLock()
_present: _Replacement | None = None


class AtImport:
    """Calls a function for each of some modules, once it has been imported."""

    def __init__(self, names: Sequence[str], then: Callable[[ModuleType], None]) -> None:
        self._waiting, self._then = set(names), then

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        self._waiting.discard(name)  # so that the next question reaches the others
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then(module)

        loader.exec_module = exec_module
        return spec


class _Replacement:
    """The functions that are replaced, and where."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.users = ledger, 1
        self._changed: list[tuple[Any, str, Any, Any]] = []  # module, name, original, ours
        loaded = [name for name in HOMES if name in sys.modules]
        self._finder = AtImport([name for name in HOMES if name not in loaded], self._replace)
        sys.meta_path.insert(0, self._finder)
        for name in loaded:
            self._replace(sys.modules[name])

    def _replace(self, module: ModuleType) -> None:
        from roundwise.integrations.replaced import STANDS

        ours: dict[int, tuple[Any, Any]] = {}
        for stand in STANDS:
            if stand.home == module.__name__:
                original = getattr(module, stand.name)
                ours[id(original)] = original, stand.function(original, self.ledger)
        for where in [module, *list(sys.modules.values())]:
            name = getattr(where, "__name__", None)
            if where is not module and (not isinstance(name, str) or _is_theirs(name)):
                continue
            for key, value in list(getattr(where, "__dict__", {}).items()):
                if id(value) in ours and ours[id(value)][0] is value:
                    setattr(where, key, ours[id(value)][1])
                    self._changed.append((where, key, *ours[id(value)]))

    def undo(self) -> None:
        sys.meta_path.remove(self._finder)
        every = {id(ours): original for _, _, original, ours in self._changed}
        for where, key, original, ours in self._changed:
            if getattr(where, key, None) is ours:
                setattr(where, key, original)
        for where in list(sys.modules.values()):  # those that were imported meanwhile
            for key, value in list(getattr(where, "__dict__", {}).items()):
                if id(value) in every:
                    setattr(where, key, every[id(value)])


def _is_theirs(name: str) -> bool:
    return any(name == own or name.startswith(f"{own}.") for own in THEIR_OWN)


@contextmanager
def replacing_numpy(*, check: bool = False) -> Iterator[Ledger]:
    """Let NumPy's and SciPy's solvers go through Roundwise where that is expected to be faster.

    In all threads, until the block ends: `solve`, `lstsq` of `numpy.linalg` and `scipy.linalg`,
    `lu_factor`, `lu_solve`, `cho_factor`, `cho_solve`, and `spsolve`, `splu`, `factorized` of
    `scipy.sparse.linalg`. Where ours would raise or warn, the original function is called and its
    result returned. Answers pass the gate of `solve`; their last bits may differ.

    Parameters
    ----------
    check : bool
        Call the original function each time, too, and compare.

    Yields
    ------
    Ledger
        ``print(calls)`` shows a table of the calls, by place in the program, and what was gained.

    Examples
    --------
    >>> with rw.replacing_numpy() as calls:
    ...     x = np.linalg.solve(np.eye(100), np.ones(100))
    >>> [(one.name, one.calls, one.ours) for one in calls.places]
    [('numpy.linalg.solve', 1, 1)]
    """
    global _present
    with _LOCK:
        if _present is None:
            _present = _Replacement(Ledger(check=check))
        else:
            _present.users += 1
        mine = _present
    try:
        yield mine.ledger
    finally:
        with _LOCK:
            mine.users -= 1
            if not mine.users:
                mine.undo()
                _present = None
