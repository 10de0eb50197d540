"""The threads and the instruction set of the compiled kernels.

Emulated results are the same bits for every setting here. Native results, and the errors measured
for dense systems, may differ in their last bits.

The number of threads starts as ``ROUNDWISE_NUM_THREADS``, else ``OMP_NUM_THREADS`` (which
joblib and Dask workers set), else the cores this process may use. ``ROUNDWISE_SIMD`` chooses
the instruction set, for example ``ROUNDWISE_SIMD=baseline``. Until `set_num_threads` is called,
BLAS keeps its own number of threads, which ``OPENBLAS_NUM_THREADS`` sets.
"""

from __future__ import annotations

import os

import roundwise._kernels as _kernels
from roundwise.machine import blas

_MOST_THREADS = 1024
_threads: int | None = None


def usable_cores() -> int:
    """The logical cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _threads_from_environment() -> int:
    if ours := os.environ.get("ROUNDWISE_NUM_THREADS"):
        if not ours.isdecimal() or not 1 <= int(ours) <= _MOST_THREADS:
            raise ValueError(f"ROUNDWISE_NUM_THREADS={ours!r}; set it to 1 to {_MOST_THREADS}")
        return int(ours)
    # OpenMP allows a list, one number for each level of nesting; other text is ignored.
    outermost = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if outermost.isdecimal() and int(outermost) >= 1:
        return min(int(outermost), _MOST_THREADS)
    return usable_cores()


def get_num_threads() -> int:
    """Threads that one kernel call may use."""
    global _threads
    if _threads is None:
        _threads = _threads_from_environment()
    return _threads


def factorization_threads() -> int:
    """Threads of our dense LU: no more than BLAS may use now, since it stands in for LAPACK's.

    Whatever limits BLAS (``OPENBLAS_NUM_THREADS``, threadpoolctl) limits it too.
    """
    library = blas.bundled("scipy")
    return get_num_threads() if library is None else min(get_num_threads(), library.threads)


def set_num_threads(threads: int) -> None:
    """Let one call of a kernel, of BLAS or of LAPACK use up to this many threads.

    BLAS and LAPACK are those that the wheels of SciPy and NumPy bundle (OpenBLAS). Where these
    packages use another BLAS, its threads stay as they are: set them by its own means.
    ``roundwise info`` tells which BLAS it is and how many threads it has.
    """
    global _threads
    if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
        raise ValueError(f"threads = {threads!r}; pass a whole number from 1 to {_MOST_THREADS}")
    _threads = threads
    blas.set_threads(threads)


def simd_levels() -> list[str]:
    """The instruction-set levels this machine can run, slowest first."""
    return _kernels.available_levels()


def get_simd_level() -> str:
    """The level in use; by default the fastest."""
    return _kernels.active_level()


def set_simd_level(level: str) -> None:
    """Use this level, one of `simd_levels()`."""
    _kernels.set_level(level)


if os.environ.get("ROUNDWISE_SIMD"):
    set_simd_level(os.environ["ROUNDWISE_SIMD"])
