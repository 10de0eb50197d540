"""`fill`: compute what a table lacks, in this process, in several, or on a cluster.

One task is one problem with its missing actions of one factor format, which share the
factorization. Workers only compute; this process writes each result as it comes, in a transaction
of its own. After Ctrl-C or kill -9 the file holds every task that was finished, and `fill` goes on
from there: at most the tasks that were under way, one for each worker, are computed again.

Native runs are timed, so they have the machine for themselves: one task at a time, in this process.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from time import sleep
from typing import Any

import numpy as np

from roundwise.actions import format_action
from roundwise.algorithms import Algorithm
from roundwise.algorithms.base import Action, ActionLike
from roundwise.backends import Backend, get_backend
from roundwise.exceptions import RoundwiseError, UnknownNameError
from roundwise.features import FEATURES, compute_with_factors
from roundwise.formats import FP64, FloatFormat, get_format
from roundwise.machine import threads as runtime
from roundwise.machine.identity import Machine
from roundwise.outcomes.optional import require
from roundwise.outcomes.records import (
    Setting,
    StoredProblem,
    feature_arithmetic,
    format_json,
    is_native,
    origin_json,
    outcome_facts,
    to_json,
)
from roundwise.outcomes.table import OutcomeTable
from roundwise.outcomes.timed_runs import (
    DEFAULT_REPEATS,
    NATIVE_FEATURES,
    measured_features,
    measured_runs,
)
from roundwise.outcomes.writing import ProblemResults, Row
from roundwise.problems import LinearSystem

Progress = Callable[[int, int], None]

PAPER_FEATURES = ("kappa_exact", "norm_inf")
"""What `roundwise.features.paper_context` needs."""


@dataclass(frozen=True)
class Task:
    """One problem, and what is missing of it."""

    algorithm: Algorithm
    problem: LinearSystem
    actions: tuple[Action, ...]
    arithmetic: str | Backend
    features: tuple[str, ...]
    feature_format: FloatFormat = FP64
    repeats: range | None = None  # the runs to measure; None measures nothing
    memory: bool = False


_LOST_WORKER = (
    "a worker process was killed, perhaps for lack of memory; what was finished is stored: run "
    "again, with fewer jobs"
)


def fill(
    table: OutcomeTable,
    algorithm: Algorithm,
    problems: Iterable[LinearSystem],
    actions: Iterable[ActionLike],
    *,
    arithmetic: str | Backend = "operation",
    features: Sequence[str] | None = None,
    feature_format: str | FloatFormat = FP64,
    repeats: int | None = None,
    memory: bool | None = None,
    jobs: int | None = None,
    client: Any = None,
    shard: tuple[int, int] | str | None = None,
    progress: Progress | None = None,
) -> int:
    """Run the algorithm on every (problem, action) that the table lacks; return how many.

    In emulated arithmetic the result does not depend on the order of arguments, on how often the
    run was broken off, nor on `jobs` and `client`: tasks compute with one BLAS thread everywhere,
    since BLAS results, which some features contain, depend on it. (Features and errors of dense
    problems also depend on the processor: on a cluster of unlike ones, their last bits tell where
    they were computed.)

    In native arithmetic the runs are timed, with all threads that `roundwise.set_num_threads` and
    BLAS have, and belong to this machine and that number of threads (`Machine.key`). The facts are
    those of the first repeat.

    No action is left out because a higher one failed: a table holds facts, and that is a guess. To
    save that time, fill the high actions first, and call again for the problems and actions that
    `roundwise.actions.implied_failures` leaves.

    Parameters
    ----------
    table : OutcomeTable
    algorithm : Algorithm
    problems : iterable of LinearSystem
    actions : iterable of actions
        An `ActionSpace`, or texts or tuples of formats.
    arithmetic : str or Backend
    features : sequence of str, optional
        Keys of `FEATURES`, computed once per problem; by default `PAPER_FEATURES`, and
        `NATIVE_FEATURES` for native arithmetic. `compute_with_factors` says where the factors come
        from that some need, and when their cost is in the seconds.
    feature_format : str or FloatFormat
        The format of these factors.
    repeats : int, optional
        How often a native run is measured; 3 if not given. A pair that was measured less often is
        run again.
    memory : bool, optional
        Whether a native run's peak memory is measured too, in one more run that is not timed. By
        default it is, where the system tells (Linux).
    jobs : int, optional
        Processes, by joblib; -1 for all cores. 1, the default, computes in this process.
    client : dask.distributed.Client, optional
        Computes on its cluster instead.
    shard : (i, n) or "i/n", optional
        Take the i-th of n parts (i = 1..n) of the problems: every n-th in the order of their
        fingerprints. Run each part with the same problems and a table of its own, then
        `OutcomeTable.merge` them.
    progress : callable, optional
        ``progress(done, total)``, in (problem, action) pairs of this shard; first called with what
        is stored already.
    """
    if jobs is not None and client is not None:
        raise ValueError("jobs and client are both given; choose joblib (jobs) or Dask (client)")
    if jobs is not None and jobs != -1 and (not isinstance(jobs, int) or jobs < 1):
        raise ValueError(f"jobs = {jobs!r}; pass a count of at least 1, or -1 for all cores")
    native = is_native(arithmetic)
    if native and (client is not None or jobs not in (None, 1)):
        raise ValueError(
            "native runs are timed and would disturb each other; leave out jobs and client"
        )
    if not native and (repeats is not None or memory is not None):
        raise ValueError(
            "repeats and memory are for native runs, as emulated ones are not timed; leave them out"
        )
    if repeats is not None and (type(repeats) is not int or repeats < 1):
        raise ValueError(f"repeats = {repeats!r}; pass a count of at least 1")
    wanted_repeats = (DEFAULT_REPEATS if repeats is None else repeats) if native else 0
    if features is None:
        features = NATIVE_FEATURES if native else PAPER_FEATURES
    if isinstance(features, str):
        raise TypeError(f"features is the text {features!r}; pass a list: [{features!r}]")
    for name in features:
        if name not in FEATURES:
            raise UnknownNameError("feature", name, list(FEATURES))
    # The same action or problem may be given twice, and is computed once.
    formats = _by_name(algorithm.formats(action) for action in actions)
    chosen = _shard({problem.fingerprint: problem for problem in problems}, shard)
    for problem in chosen:
        to_json(problem.meta)  # what cannot be stored is refused before it is computed

    stored = table.stored(algorithm, chosen, formats.values(), arithmetic)
    if native:
        measured = table.repeats(algorithm, chosen, formats.values(), arithmetic)
        stored &= measured >= wanted_repeats
    else:
        measured = np.zeros(stored.shape, dtype=np.int64)
    known = table.stored_features(chosen, arithmetic, feature_format)
    tasks = []
    for problem, row, counts in zip(chosen, stored, measured.tolist(), strict=True):
        lacking = tuple(dict.fromkeys(f for f in features if f not in known[problem.fingerprint]))
        # One task for each format of the first stage, whose factors its actions share: an
        # interruption loses no more than that. Runs to be measured share their number too.
        groups: dict[tuple[FloatFormat, int], list[Action]] = {}
        for action, is_stored, count in zip(formats.values(), row, counts, strict=True):
            if not is_stored:
                groups.setdefault((action[0], count), []).append(action)
        for (_, count), group in groups.items() or ([((FP64, 0), [])] if lacking else []):
            tasks.append(
                Task(
                    algorithm,
                    problem,
                    tuple(group),
                    arithmetic,
                    lacking,
                    get_format(feature_format),
                    range(count, wanted_repeats) if native else None,
                    native and memory is not False,
                )
            )
            lacking = ()

    done = int(stored.sum())
    computed = 0
    report = progress if progress is not None else _no_progress
    report(done, stored.size)
    with closing(_results(tasks, jobs, client)) as results:
        for result in results:
            _write(table, result)
            computed += len({action for action, _ in result.measurements} or result.outcomes)
            report(done + computed, stored.size)
    return computed


def evaluate(task: Task, threads: int | None = 1) -> ProblemResults:
    """Compute what is missing of one problem; what workers run."""
    measurements: Mapping[tuple[str, int], Row] = {}
    if task.repeats is not None:
        backend = get_backend(task.arithmetic)
        features = measured_features(task.problem, task.features, backend, task.feature_format)
        outcomes, measurements = measured_runs(
            task.algorithm, task.problem, task.actions, backend, task.repeats, task.memory
        )
        if task.repeats.start > 0:
            outcomes = []  # their facts are stored: those of the first repeat
    else:
        with _threads_limited(threads):
            features = compute_with_factors(
                task.problem, task.features, task.arithmetic, task.feature_format
            )
            outcomes = task.algorithm.run_all(task.problem, task.actions, task.arithmetic)
    formats = {fmt.name: fmt for action in task.actions for fmt in action}
    return ProblemResults(
        problem=StoredProblem.of(task.problem),
        setting=Setting.of(task.algorithm, task.arithmetic),
        origin=origin_json(None if task.repeats is None else Machine.this()),
        outcomes={outcome.action: outcome_facts(outcome) for outcome in outcomes},
        features=features,
        feature_arithmetic=feature_arithmetic(task.arithmetic, task.feature_format),
        measurements=measurements,
        formats={name: format_json(fmt) for name, fmt in formats.items()},
    )


def _write(table: OutcomeTable, result: ProblemResults) -> None:
    try:
        table.write(result)
    except KeyboardInterrupt:
        # What is computed shall not be lost: the write that was rolled back takes milliseconds.
        table.write(result)
        raise


def _by_name(actions: Iterable[Action]) -> dict[str, Action]:
    named: dict[str, FloatFormat] = {}
    found = {}
    for action in actions:
        for fmt in action:
            if named.setdefault(fmt.name, fmt) != fmt:
                raise ValueError(f"two formats are called {fmt.name}; give each its own name")
        found[format_action(action)] = action
    return found


def _shard(
    problems: dict[str, LinearSystem], shard: tuple[int, int] | str | None
) -> list[LinearSystem]:
    if shard is None:
        return list(problems.values())
    try:
        i, n = (int(part) for part in (shard.split("/") if isinstance(shard, str) else shard))
    except (TypeError, ValueError):
        i, n = 0, 0
    if not 1 <= i <= n:
        raise ValueError(f"shard = {shard!r}; pass 'i/n' or (i, n) with 1 <= i <= n, e.g. '1/4'")
    taken = set(sorted(problems)[i - 1 :: n])
    return [problem for fingerprint, problem in problems.items() if fingerprint in taken]


def _results(
    tasks: Sequence[Task], jobs: int | None, client: Any
) -> Generator[ProblemResults, None, None]:
    """Results in the order in which they are ready; closing it stops the workers."""
    if not tasks:
        return
    if client is not None:
        yield from _by_dask(tasks, client)
    elif (processes := _processes(jobs)) > 1:
        yield from _by_joblib(tasks, processes)
    else:
        for task in tasks:
            yield evaluate(task, threads=None)


def _processes(jobs: int | None) -> int:
    if jobs == -1:
        return int(require("joblib", "tune").cpu_count())
    return 1 if jobs is None else jobs


def _by_joblib(tasks: Sequence[Task], jobs: int) -> Iterator[ProblemResults]:
    joblib = require("joblib", "tune")
    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
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
        yield from parallel(joblib.delayed(evaluate)(task) for task in tasks)
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


def _by_dask(tasks: Sequence[Task], client: Any) -> Generator[ProblemResults, None, None]:
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
                client.submit(evaluate, task, pure=False) for task in islice(waiting, max(0, count))
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


def _no_progress(done: int, total: int) -> None:
    """Nobody asked."""


class _Threads:
    """How many tasks of this process hold the limits; a worker of Dask may run several."""

    lock = threading.Lock()
    holders = 0
    restore = ExitStack()


@contextmanager
def _threads_limited(kernel_threads: int | None) -> Iterator[None]:
    """One BLAS thread, and so many of our kernels' (None: as many as set) within the block.

    The limits are those of the process: the first task sets them, the last puts them back.
    """
    threadpoolctl = require("threadpoolctl", "tune")
    with _Threads.lock:
        if _Threads.holders == 0:
            _Threads.restore.enter_context(threadpoolctl.threadpool_limits(1))
            if kernel_threads is not None:
                _Threads.restore.callback(runtime.set_num_threads, runtime.get_num_threads())
                runtime.set_num_threads(kernel_threads)
        _Threads.holders += 1
    try:
        yield
    finally:
        with _Threads.lock:
            _Threads.holders -= 1
            if _Threads.holders == 0:
                _Threads.restore.close()
