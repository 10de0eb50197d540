"""How the compiled kernels run: threads and instruction set. Never what they compute:
results are the same bits for every setting here.

The number of threads starts as ``ROUNDWISE_NUM_THREADS``, else ``OMP_NUM_THREADS`` (which
joblib and Dask workers set), else the cores this process may use. ``ROUNDWISE_SIMD`` caps the
instruction set, for example ``ROUNDWISE_SIMD=baseline``.
"""

from __future__ import annotations

import os

import roundwise._kernels as _kernels

_threads: int | None = None


def _threads_from_environment() -> int:
    for variable in ("ROUNDWISE_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(variable, "")
        if text:
            if not text.isdecimal() or int(text) < 1:
                raise ValueError(f"{variable}={text!r}; set it to a whole number of at least 1")
            return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_num_threads() -> int:
    """Threads that one kernel call may use."""
    global _threads
    if _threads is None:
        _threads = _threads_from_environment()
    return _threads


def set_num_threads(threads: int) -> None:
    """Let one kernel call use up to this many threads."""
    global _threads
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads = {threads!r}; pass a whole number of at least 1")
    _threads = threads


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
