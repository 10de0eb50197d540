"""The memory of the last large work arrays, kept for the next ones of their sizes.

When a solve is over, nobody needs its factors any more. The next one would get new memory from the
system, which clears it page by page: at n = 4000 on sixteen cores that was more than half of the
conversion (`make stages`, "convert"). What is kept is marked as free (MADV_FREE): the system takes
it back when memory is short. Several are kept, for solves in several threads and formats.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LEAST, MOST = 4 << 20, 1 << 30
"""Bytes: smaller arrays get memory that was used before from the C library; larger ones spend so
long in a factorization that clearing them does not matter."""

KEEPS = hasattr(mmap, "MADV_FREE") and hasattr(mmap, "MADV_HUGEPAGE")
"""Linux does; elsewhere all arrays are NumPy's."""

KEPT = 4
"""Arrays at most; together they have no more than MOST bytes."""

# By identity. No lock: adding and `pop` are one step each for other threads and for signals.
_kept: dict[int, mmap.mmap] = {}


def empty(shape: tuple[int, int], dtype: DTypeLike) -> NDArray[Any]:
    """A Fortran-ordered array whose numbers may be anything."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if not (LEAST <= size <= MOST and KEEPS):
        return np.empty(shape, dtype, order="F")
    memory = _taken(size)
    if memory is None:
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            return np.empty(shape, dtype, order="F")  # raises MemoryError, as users expect
        with suppress(OSError):  # not every Linux has huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.ndarray(shape, dtype, buffer=memory, order="F")


def _taken(size: int) -> mmap.mmap | None:
    """Kept memory of this size."""
    for key, memory in _kept.copy().items():
        if len(memory) == size and _kept.pop(key, None) is not None:
            return memory
    return None


def keep(array: NDArray[Any]) -> None:
    """For a caller who knows that nobody will use an array any more: the next one may be there."""
    memory: Any = array.base
    if isinstance(memory, mmap.mmap):
        with suppress(OSError):  # a system that refuses gets the memory back at once
            memory.madvise(mmap.MADV_FREE)
            _kept[id(memory)] = memory
            for key in _kept.copy():  # the oldest first
                if len(_kept) <= KEPT and sum(map(len, _kept.copy().values())) <= MOST:
                    break
                _kept.pop(key, None)
