"""The threads and the instruction set of the compiled kernels, and the arithmetic of a thread.

Emulated results are the same bits for every setting here. Native results, and the errors measured
for dense systems, may differ in their last bits.

The number of threads starts as ``ROUNDWISE_NUM_THREADS``, else ``OMP_NUM_THREADS`` (which joblib
and Dask workers set), else the cores this process may use now: those that its affinity allows, and
no more than its control groups pay for (`paid_cores`). Dense work takes no more than BLAS may use
at the moment, so that threadpoolctl limits it, too. Calls of several threads share these cores
(cpp/common/pool.hpp). ``ROUNDWISE_SIMD`` chooses the instruction set, for example
``ROUNDWISE_SIMD=baseline``. Until `set_num_threads` is called, BLAS keeps its own number of
threads, which ``OPENBLAS_NUM_THREADS`` sets.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path, PurePosixPath

import roundwise._kernels as _kernels
from roundwise.machine import blas

_MOST_THREADS = 1024
UNLIMITED = 2**20
_threads: int | None = None
_AS_IT_IS = nullcontext()


def usable_cores() -> int:
    """The logical cores that this process may use now."""
    return min(_kernels.usable_cores(), _quota())


@cache
def _quota() -> int:
    return paid_cores()


def _threads_from_environment() -> int | None:
    """The number that the environment asks for; None if it says nothing."""
    if ours := os.environ.get("ROUNDWISE_NUM_THREADS"):
        if not ours.isdecimal() or not 1 <= int(ours) <= _MOST_THREADS:
            raise ValueError(f"ROUNDWISE_NUM_THREADS={ours!r}; set it to 1 to {_MOST_THREADS}")
        return int(ours)
    # OpenMP allows a list, one number for each level of nesting; other text is ignored.
    outermost = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if outermost.isdecimal() and int(outermost) >= 1:
        return min(int(outermost), _MOST_THREADS)
    return None


@cache
def _asked_for() -> int | None:
    return _threads_from_environment()


def get_num_threads() -> int:
    """Threads that one kernel call may use.

    Examples
    --------
    >>> rw.get_num_threads() >= 1
    True
    """
    return _threads or _asked_for() or min(_kernels.usable_cores(), _quota())


def factorization_threads() -> int:
    """Threads of our dense LU: no more than BLAS may use now, since it stands in for LAPACK's.

    Whatever limits BLAS (``OPENBLAS_NUM_THREADS``, threadpoolctl) limits it too.
    """
    of_blas, threads = _blas_threads(), get_num_threads()
    return threads if of_blas is None else min(threads, of_blas())


@cache
def _blas_threads() -> Callable[[], int] | None:
    """A function that tells the threads SciPy's BLAS may use now; None where it cannot be asked."""
    library = blas.bundled("scipy")
    return None if library is None else library.asks_threads


def thread_setting() -> tuple[int, int, int | None, str]:
    """Settings that may change within a process, and prices with them: cores, threads, level.

    Takes about two microseconds: what is remembered by it is looked up in every solve.
    """
    of_blas = _blas_threads()
    return (
        usable_cores(),
        get_num_threads(),
        None if of_blas is None else of_blas(),
        _kernels.active_level(),
    )


ONE_THREAD = 1

PASS = 2**17
"""Entries of a matrix from which a pass over it takes more than one thread: below, waking others
costs more time than they save (`threads_for` in cpp/common/parallel.hpp has the same bound)."""


def pass_threads(entries: int) -> int:
    """Threads for one pass over so many entries of a dense matrix."""
    return ONE_THREAD if entries < PASS else factorization_threads()


def set_num_threads(threads: int) -> None:
    """Let one call of a kernel, of BLAS or of LAPACK use up to this many threads.

    BLAS and LAPACK are those that the wheels of SciPy and NumPy bundle (OpenBLAS). Where these
    packages use another BLAS, its threads stay as they are: set them by its own means.
    ``roundwise info`` tells which BLAS it is and how many threads it has.

    Parameters
    ----------
    threads : int
        At least 1.

    Examples
    --------
    >>> before = rw.get_num_threads()
    >>> rw.set_num_threads(1)
    >>> rw.get_num_threads()
    1
    >>> rw.set_num_threads(before)
    """
    global _threads
    if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
        raise ValueError(f"threads = {threads!r}; pass a whole number from 1 to {_MOST_THREADS}")
    _threads = threads
    blas.set_threads(threads)


def ieee_arithmetic() -> AbstractContextManager[None]:
    """Within it, the calling thread rounds to nearest and keeps subnormal numbers.

    A shared library that was linked with -ffast-math flushes subnormal numbers to zero in the
    thread that loads it, and a caller may round in another direction. Kernels set the mode for
    themselves; what NumPy, LAPACK and Python compute between them (scaling, norms, comparisons)
    needs it as well: a matrix of subnormal numbers would be zero, and one that has some of them
    another matrix.
    """
    return _AS_IT_IS if _kernels.has_ieee_arithmetic() else _kernels.IeeeArithmetic()


FEW_CORES = 4
"""Where this process has no more, no other thread is moved: too few cores would be left."""

ORDERS = range(500, 8001)
"""Of matrices: below, moving threads takes as long as what is gained; above, a solve takes so long
that they sleep for most of it."""

WATCHED, SHARE = 20_000, 0.5
"""A thread is taken for spinning if it runs for such a share of so many nanoseconds."""

_WAITING = {
    ("threading", "wait"),
    ("selectors", "select"),
    ("concurrent.futures.thread", "_worker"),
    ("ipykernel.heartbeat", "run"),
    ("ipykernel.parentpoller", "run"),
}
"""Functions, with their modules, that do nothing but wait while they are on top of a stack."""


class _Here(threading.local):
    """The state of the calling thread."""

    solves = False


_here = _Here()


def spinning_threads_aside(order: int) -> AbstractContextManager[None]:
    """For a dense solve of this order: threads of other libraries do not spin on its cores.

    Just after a product, OpenBLAS's threads spin for a tenth of a second, those of OpenMP (torch,
    MKL) for some milliseconds. Linux shares every core between such a thread and one of ours, and
    whenever one of ours has lost its core, the others wait for it. So a solve that finds at least
    half as many threads spinning as there are cores moves them to one core, uses the other cores,
    and moves them back at its end. ``make stages`` compares a solve just after a product with one
    at rest.

    Such threads may also do useful work, which waits meanwhile. So nothing is moved unless all
    other threads of Python wait, nor for a solve that takes longer than some tenths of a second.
    Where this process has few cores, nothing is moved, as too few would be left.
    ``ROUNDWISE_MOVE_SPINNING=0`` in the environment leaves all threads where they are.
    """
    if order not in ORDERS or _here.solves or usable_cores() <= FEW_CORES or not _is_wanted():
        return _AS_IT_IS
    return _others_aside() if _others_wait() else _AS_IT_IS


@contextmanager
def _others_aside() -> Iterator[None]:
    _here.solves = True
    try:
        # Those of Python may have begun to work since they were seen to wait.
        spared = [thread.native_id or 0 for thread in threading.enumerate()]
        _kernels.move_others_aside(WATCHED, SHARE, spared)
        yield
    finally:
        _here.solves = False
        _kernels.move_others_back()


def _is_wanted() -> bool:
    return os.environ.get("ROUNDWISE_MOVE_SPINNING") != "0"


def _others_wait() -> bool:
    """Whether every thread of Python but the calling one does nothing but wait."""
    me = threading.get_ident()
    return all(
        thread == me or (frame.f_globals.get("__name__"), frame.f_code.co_name) in _WAITING
        for thread, frame in sys._current_frames().items()
    )


def simd_levels() -> list[str]:
    """The instruction-set levels this machine can run, slowest first.

    Examples
    --------
    >>> rw.machine.threads.get_simd_level() in rw.machine.threads.simd_levels()
    True
    """
    return _kernels.available_levels()


def get_simd_level() -> str:
    """The level in use; by default the fastest.

    Examples
    --------
    >>> rw.machine.threads.get_simd_level() in rw.machine.threads.simd_levels()
    True
    """
    return _kernels.active_level()


def set_simd_level(level: str) -> None:
    """Use this level, one of `simd_levels()`.

    Parameters
    ----------
    level : str

    Examples
    --------
    >>> threads = rw.machine.threads
    >>> best = threads.get_simd_level()
    >>> threads.set_simd_level(threads.simd_levels()[0])  # slowest: emulated bits are the same
    >>> threads.set_simd_level(best)
    """
    _kernels.set_level(level)


def paid_cores(root: Path = Path("/")) -> int:
    """The cores that the control groups of this process pay for: Linux containers are limited so.

    Version 2 says ``cpu.max`` ("quota period", in microseconds, or "max"), version 1
    ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``. A group cannot use more than the groups above
    it, so that the least of all counts; rounded up. A process that runs more threads than that is
    stopped for the rest of each period, with whatever work its threads have claimed. `UNLIMITED`
    if nothing is limited or known.
    """
    limits = [UNLIMITED]
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        mounted = root / "sys/fs/cgroup"
        if number == "0" and not controllers:
            limits += [_version_2(folder) for folder in _upwards(mounted, group)]
        elif "cpu" in controllers.split(","):
            names = dict.fromkeys((controllers, "cpu", "cpu,cpuacct"))
            folders = [f for name in names for f in _upwards(mounted / name, group)]
            limits += [_version_1(folder) for folder in folders]
    return min(limits)


def free_memory(root: Path = Path("/")) -> float:
    """The bytes that this process can still take without swapping; infinite if nobody knows.

    What Linux calls available, and what control groups leave: their limit, less what is used and
    cannot be dropped.
    """
    found = [math.inf]
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            found.append(1024.0 * int(rest.split()[0]))
    for line in _lines(root / "proc/self/cgroup"):
        number, _, tail = line.partition(":")
        controllers, _, group = tail.partition(":")
        mounted = root / "sys/fs/cgroup"
        if number == "0" and not controllers:
            names = "memory.max", "memory.current", "inactive_file"
            found += [_left(folder, *names) for folder in _upwards(mounted, group)]
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            found += [_left(folder, *names) for folder in _upwards(mounted / "memory", group)]
    return max(0.0, min(found))


def _left(folder: Path, limit: str, used: str, dropped: str) -> float:
    """Memory that a control group has left; infinite if it has no limit."""
    most, taken = ("".join(_lines(folder / name)).strip() for name in (limit, used))
    if not (most.isdecimal() and taken.isdecimal()):
        return math.inf
    cached = [
        line.split()[1] for line in _lines(folder / "memory.stat") if line.split()[:1] == [dropped]
    ]
    return float(most) - float(taken) + sum(map(float, cached))


def _upwards(mounted: Path, group: str) -> list[Path]:
    """The folder of a group and those above it; in a container, only the last may be there."""
    path = PurePosixPath(group.lstrip("/"))
    inside = [path, *path.parents] if ".." not in path.parts else [PurePosixPath()]
    return [mounted / part for part in inside]


def _version_2(folder: Path) -> int:
    numbers = " ".join(_lines(folder / "cpu.max")).split()
    return _whole(*numbers) if len(numbers) == 2 else UNLIMITED


def _version_1(folder: Path) -> int:
    numbers = [
        " ".join(_lines(folder / f"cpu.cfs_{name}_us")).strip() for name in ("quota", "period")
    ]
    return _whole(*numbers)


def _whole(quota: str, period: str) -> int:
    """Rounded up: a part of a core is worth a thread."""
    if not (quota.isdecimal() and period.isdecimal() and int(quota) and int(period)):
        return UNLIMITED  # "max", -1, or not there
    return math.ceil(int(quota) / int(period))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no Linux, no such group, or hidden from us: nothing is known of a limit
        return []


def require_python(in_main: bool, has_lock: bool) -> None:
    """Refuse an interpreter in which solves may hang or go wrong."""
    if not in_main:
        raise ImportError(
            "roundwise runs in the main interpreter alone: NumPy and SciPy, which it calls, do not "
            "support others, and hang there; use threads or processes"
        )
    if not has_lock:
        raise ImportError(
            "roundwise needs Python's global lock, which this process was told to do without; "
            "leave out -X gil=0 and PYTHON_GIL=0: kernels run in parallel all the same"
        )


# Python without the lock turns it on when a module that needs it is imported, unless it must not.
require_python(_kernels.in_main_interpreter(), getattr(sys, "_is_gil_enabled", lambda: True)())
if os.environ.get("ROUNDWISE_SIMD"):
    set_simd_level(os.environ["ROUNDWISE_SIMD"])
