"""Where tasks are computed: in this process, in several by joblib, or on a Dask cluster."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from time import sleep
from typing import Any, TypeVar

from roundwise._forking import ForkSafeLock
from roundwise.exceptions import RoundwiseError
from roundwise.machine import threads as runtime
from roundwise.outcomes.optional import require

T = TypeVar("T")
R = TypeVar("R")

_LOST_WORKER = (
    "a worker process was killed, perhaps for lack of memory; what was finished is stored: run "
    "again, with fewer jobs"
)


def results(
    compute: Callable[[T], R], tasks: Sequence[T], jobs: int | None, client: Any
) -> Generator[R, None, None]:
    """``compute(task)`` of several processes or a cluster, in the order in which they are ready.

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
        raise RoundwiseError(_LOST_WORKER) from error


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

    def submit() -> list[Any]:
        """Two tasks for each thread that the cluster has now; it may grow and shrink."""
        count = 2 * max(1, sum(client.nthreads().values())) - len(under_way)
        # A task travels as an argument, so that it survives the loss of a worker, which scattered
        # data would not; few are under way, so that Dask need not warn of large ones.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            new = [
                client.submit(compute, task, pure=False) for task in islice(waiting, max(0, count))
            ]
        under_way.update(new)
        return new

    try:
        completed = distributed.as_completed(submit())
        for future in completed:
            try:
                result = future.result()
            except distributed.KilledWorker as error:
                raise RoundwiseError(_LOST_WORKER) from error
            under_way.remove(future)
            completed.update(submit())
            yield result
    finally:
        client.cancel(list(under_way))


class _Limits:
    """The limits of this process's threads, and who holds them: a worker of Dask has several."""

    def __init__(self) -> None:
        self._holders: list[int] = []  # the threads whose tasks need the limits
        self._restore = ExitStack()
        self._lock = ForkSafeLock(self, patience=1.0)

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
        """Nothing to do."""

    def in_forked_child(self, whole: bool) -> None:
        """The other threads, which do not live here, no longer need the limits."""
        self._keep([thread for thread in self._holders if thread == threading.get_ident()])


_limits = _Limits()


@contextmanager
def threads_limited(kernel_threads: int | None) -> Iterator[None]:
    """One BLAS thread, and so many of our kernels' (None: as many as set) within the block.

    The limits are those of the process: the first task sets them, the last puts them back.
    """
    _limits.hold(kernel_threads)
    try:
        yield
    finally:
        _limits.release()
