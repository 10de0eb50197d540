"""Where tasks are computed: in several processes by joblib, or on a Dask cluster; timed runs in
this process, each alone on the machine, several times, and with its peak memory.

Peak memory is what Linux counts; other systems are not supported.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os
import re
import statistics
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from roundwise._lazy import require
from roundwise.actions import Action
from roundwise.algorithms import Algorithm, Outcome, Shared
from roundwise.backends import Backend
from roundwise.exceptions import RoundwiseError
from roundwise.features.definitions import FeatureValue, compute_with_factors
from roundwise.formats import FloatFormat
from roundwise.machine import threads as runtime
from roundwise.outcomes.records import measurement_facts
from roundwise.outcomes.writing import Row
from roundwise.problems import Problem

T = TypeVar("T")
R = TypeVar("R")

SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_WITHOUT_WORKERS = 60.0
"""How long a Dask cluster may be without workers: those that died may be started again."""

_KEPT = "what was finished is stored: run this again"
_LOST_WORKER = f"a worker process was killed, perhaps for lack of memory; {_KEPT}, with fewer jobs"
_LOST_DASK_WORKER = (
    "Dask workers died again and again while they computed one task, perhaps for lack of memory; "
    f"{_KEPT}, with fewer threads or more memory for each worker"
)
_NO_WORKERS = (
    f"the Dask cluster has had no worker for {SECONDS_WITHOUT_WORKERS:.0f} s; {_KEPT} once it has "
    "some: start them with `dask worker ADDRESS`, or wait for them with client.wait_for_workers(1)"
)
_LOST_SCHEDULER = (
    f"the connection to the Dask scheduler is lost; {_KEPT} once it is there: start it with "
    "`dask scheduler`, and its workers"
)
_INSTALL = "install Roundwise, in the version of this process, for the scheduler and all workers"


class WorkersLost(RoundwiseError):
    """Worker processes have died, or cannot compute; the message says what to do.

    The results that had arrived are stored.
    """


def results(
    compute: Callable[[T], R], tasks: Sequence[T], jobs: int | None, client: Any
) -> Generator[R, None, None]:
    """Results of ``compute(task)``, as several processes or a cluster finish them, in any order.

    Closing the generator stops the workers.
    """
    if client is not None:
        yield from _by_dask(compute, tasks, client)
        return
    joblib = require("joblib", "tune")
    processes = joblib.cpu_count() if jobs == -1 else jobs or 1
    with joblib.parallel_config("loky", n_jobs=processes, inner_max_num_threads=1):
        # Problems travel through pipes, not through temporary files, which kill -9 would leave.
        parallel = joblib.Parallel(
            return_as="generator_unordered",
            batch_size=1,
            max_nbytes=None,
            initializer=_leave_with,
            initargs=(os.getpid(),),
        )
    lost = importlib.import_module("joblib.externals.loky.process_executor").BrokenProcessPool
    try:
        yield from parallel(joblib.delayed(compute)(task) for task in tasks)
    except lost as error:
        raise WorkersLost(_LOST_WORKER) from error


def _leave_with(parent: int) -> None:
    """End this worker when its parent has been killed; joblib's would idle for minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1.0)
        os._exit(1)  # there is nobody left to clean up for

    if os.name == "posix":  # elsewhere the number of the parent does not change
        threading.Thread(target=watch, daemon=True).start()


def _by_dask(compute: Callable[[T], R], tasks: Sequence[T], client: Any) -> Iterator[R]:
    distributed, dask = require("distributed", "dask"), require("dask", "dask")
    waiting = iter(tasks)
    under_way: set[Any] = set()

    def submit() -> None:
        """Keep two tasks under way for each thread of the cluster, which may grow and shrink."""
        count = 2 * max(1, _threads_of(client)) - len(under_way)
        # A task travels as an argument, so that it survives the loss of a worker, which scattered
        # data would not; few are under way, so that Dask need not warn of large ones.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            for task in islice(waiting, max(0, count)):
                under_way.add(client.submit(compute, task, pure=False))

    try:
        submit()
        while under_way:
            for future in _finished(client, under_way, distributed):
                result = _result(future, distributed)
                under_way.remove(future)
                submit()
                yield result
    finally:
        if client.status == "running":
            client.cancel(list(under_way))


def _threads_of(client: Any) -> int:
    """How many threads the cluster has now."""
    if client.status == "running":
        try:
            return sum(client.nthreads().values())
        except OSError as error:
            raise WorkersLost(_LOST_SCHEDULER) from error
    raise WorkersLost(_LOST_SCHEDULER)


def _finished(client: Any, futures: set[Any], distributed: Any) -> set[Any]:
    """Wait until some futures are done, and return these."""
    idle_since: float | None = None  # since when there has been no worker
    while True:
        try:
            done: set[Any] = distributed.wait(
                list(futures), timeout=SECONDS_BETWEEN_LOOKS, return_when="FIRST_COMPLETED"
            ).done
            return done
        except CancelledError as error:  # so Dask tells that it lost the scheduler
            raise WorkersLost(_LOST_SCHEDULER) from error
        except TimeoutError:
            pass  # nothing has finished yet
        if _threads_of(client):
            idle_since = None
            continue
        idle_since = monotonic() if idle_since is None else idle_since
        if monotonic() - idle_since >= SECONDS_WITHOUT_WORKERS:
            raise WorkersLost(_NO_WORKERS)


def _result(future: Any, distributed: Any) -> Any:
    try:
        return future.result()
    except distributed.KilledWorker as error:
        raise WorkersLost(_LOST_DASK_WORKER) from error
    except CancelledError as error:
        raise WorkersLost(_LOST_SCHEDULER) from error
    except (ModuleNotFoundError, RuntimeError) as error:
        # The scheduler reads tasks, too, and tells of its trouble in this way.
        missing = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if not isinstance(missing, ImportError | AttributeError):
            raise
        raise WorkersLost(f"the Dask cluster cannot read a task ({missing}); {_INSTALL}") from error


class _Limits:
    """Limits the threads of BLAS and of our kernels while some thread of this process needs it.

    A worker of Dask has several threads, each with a task of its own.
    """

    def __init__(self) -> None:
        self._holders: list[int] = []  # the threads whose tasks need the limits
        self._restore = ExitStack()
        self._lock = threading.RLock()  # a fork waits for it

    def hold(self, kernel_threads: int | None) -> None:
        threadpoolctl = require("threadpoolctl", "tune")
        with self._lock:
            if not self._holders:
                self._restore.enter_context(threadpoolctl.threadpool_limits(1))
                if kernel_threads is not None:
                    self._restore.callback(runtime.set_num_threads, runtime.get_num_threads())
                    runtime.set_num_threads(kernel_threads)
            self._holders.append(threading.get_ident())

    def release(self) -> None:
        with self._lock:
            here = self._holders.index(threading.get_ident())
            self._keep(self._holders[:here] + self._holders[here + 1 :])

    def _keep(self, holders: list[int]) -> None:
        self._holders = holders
        if not holders:
            self._restore.close()

    def before_fork(self) -> None:
        self._lock.acquire()

    def in_parent(self) -> None:
        self._lock.release()

    def in_child(self) -> None:
        """Forget the other threads of the parent, which a fork does not copy."""
        self._keep([thread for thread in self._holders if thread == threading.get_ident()])
        self._lock.release()


_limits = _Limits()

if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_limits.before_fork,
        after_in_parent=_limits.in_parent,
        after_in_child=_limits.in_child,
    )


@contextmanager
def threads_limited(kernel_threads: int | None) -> Iterator[None]:
    """Within the block, BLAS has one thread, and our kernels `kernel_threads` (None: no change).

    The limits are those of the process: the first task sets them, the last puts them back.
    """
    _limits.hold(kernel_threads)
    try:
        yield
    finally:
        _limits.release()


DEFAULT_REPEATS = 3
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

NATIVE_FEATURES = ("n", "norm_inf", "kappa_est")
"""The default features beside timed outcomes; their cost counts, so that none takes an SVD."""


def measured_runs(
    algorithm: Algorithm,
    problem: Problem,
    actions: Sequence[Action],
    backend: Backend,
    repeats: range,
    memory: bool,
) -> tuple[list[Outcome], Mapping[tuple[str, int], Row]]:
    """Outcomes of the first repeat, and the times of all, by action and number of the repeat.

    The actions share their factors within a repeat, and each is charged for them. Peak memory
    takes one more run of each action, without sharing. These runs come first, so that they warm
    caches and threads up for the timed ones.
    """
    peaks = {
        action: peak_bytes(partial(algorithm.run, problem, action, backend))
        for action in (actions if memory else ())
    }
    first: list[Outcome] = []
    measurements = {}
    for repeat in repeats:
        shared = Shared()
        outcomes = [algorithm.run(problem, action, backend, shared) for action in actions]
        first = first or outcomes
        for action, outcome in zip(actions, outcomes, strict=True):
            peak = peaks.get(action) if repeat == repeats.start else None
            measurements[outcome.action, repeat] = measurement_facts(outcome, peak)
    return first, measurements


def measured_features(
    problem: Problem, names: Sequence[str], backend: Backend, feature_format: FloatFormat
) -> dict[str, FeatureValue]:
    """Features with the median of their seconds; their values are those of the first repeat."""
    runs = [
        compute_with_factors(problem, names, backend, feature_format)
        for _ in range(DEFAULT_REPEATS if names else 0)
    ]
    return {
        name: dataclasses.replace(
            runs[0][name], seconds=statistics.median(run[name].seconds for run in runs)
        )
        for name in names
    }


class _Watched(Shared):
    """Counts the bytes that a run needs beyond those in use when it began.

    Diagnostics are not part of a run: neither their peak nor what they leave allocated counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        _forget_peak()
        self._base = _resident("VmRSS")

    def count(self) -> None:
        self.bytes = max(self.bytes, _resident("VmHWM") - self._base)

    @contextmanager
    def diagnostics(self) -> Iterator[None]:
        self.count()
        before = _resident("VmRSS")
        with super().diagnostics():
            yield
        _forget_peak()
        self._base += _resident("VmRSS") - before


def can_measure() -> bool:
    """Whether this system tells a process its peak memory and lets it reset it."""
    if not _CLEAR.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return False
    try:
        _forget_peak()
    except PermissionError:
        return False  # some sandboxes forbid it
    return True


def peak_bytes(run: Callable[[Shared], object]) -> int | None:
    """The peak memory of ``run(shared)`` beyond that of its problem; None where not measurable.

    Linux counts pages, and sums the counts of several cores with a delay: a run that needs less
    than some megabytes cannot be told from that error.
    """
    if not can_measure():
        return None
    watched = _Watched()
    run(watched)
    watched.count()
    return watched.bytes


def _forget_peak() -> None:
    """Give freed memory back to the system, and forget the peak so far."""
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR.write_text("5")  # sets VmHWM to VmRSS; see proc(5)


def _resident(name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{_STATUS} has no {name}; pass memory=False")
    return int(found[1]) * 1024
