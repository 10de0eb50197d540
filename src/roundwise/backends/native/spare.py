"""The memory of the last large work array, kept for the next one of its size.

When a solve is over, nobody needs its factors any more. The next one would get new memory from the
system, which clears it page by page: at n = 4000 on sixteen cores that was more than half of the
conversion (`make stages`, "convert"). What is kept is marked as free (MADV_FREE): the system takes
it back when memory is short.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from roundwise._forking import ForkSafeLock

LEAST, MOST = 4 << 20, 1 << 30
"""Bytes: smaller arrays get memory that was used before from the C library; larger ones spend so
long in a factorization that clearing them does not matter."""

KEEPS = hasattr(mmap, "MADV_FREE") and hasattr(mmap, "MADV_HUGEPAGE")
"""Linux does; elsewhere all arrays are NumPy's."""

_lock = ForkSafeLock()
_kept: mmap.mmap | None = None


def empty(shape: tuple[int, int], dtype: DTypeLike) -> NDArray[Any]:
    """A Fortran-ordered array whose numbers may be anything."""
    global _kept
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if not (LEAST <= size <= MOST and KEEPS):
        return np.empty(shape, dtype, order="F")
    with _lock:
        memory, _kept = _kept, None
    if memory is None or len(memory) != size:
        del memory  # before there is new memory beside it
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            return np.empty(shape, dtype, order="F")  # raises MemoryError, as users expect
        with suppress(OSError):  # not every Linux has huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.ndarray(shape, dtype, buffer=memory, order="F")


def keep(array: NDArray[Any]) -> None:
    """For a caller who knows that nobody will use an array any more: the next one may be there."""
    global _kept
    memory: Any = array.base
    if isinstance(memory, mmap.mmap):
        with suppress(OSError):  # a system that refuses gets the memory back at once
            memory.madvise(mmap.MADV_FREE)
            with _lock:
                _kept = memory
