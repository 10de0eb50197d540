"""`fill`: compute what a table lacks, in this process, in several, or on a cluster.

One task is one problem with its missing actions of one method and factor format, which share the
factorization. Workers only compute; this process writes each result as it comes, in a transaction
of its own. After Ctrl-C or kill -9 the file holds every task that was finished, and `fill` goes on
from there: at most the tasks that were under way, one for each worker, are computed again.

Runs of a timed backend have the machine for themselves: one task at a time, in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundwise.actions import Action, ActionLike
from roundwise.algorithms import Algorithm
from roundwise.backends import Backend, get_backend
from roundwise.exceptions import UnknownNameError
from roundwise.features import FEATURES
from roundwise.features.definitions import compute_with_factors
from roundwise.formats import FP64, FloatFormat, get_format
from roundwise.machine.identity import Machine
from roundwise.outcomes import workers
from roundwise.outcomes.progress import ProgressCallback
from roundwise.outcomes.records import (
    Setting,
    StoredArithmetic,
    StoredProblem,
    feature_arithmetic,
    format_json,
    origin_json,
    outcome_facts,
    to_json,
)
from roundwise.outcomes.schema import RESULTS_VERSION
from roundwise.outcomes.table import OutcomeTable
from roundwise.outcomes.workers import (
    DEFAULT_REPEATS,
    NATIVE_FEATURES,
    measured_features,
    measured_runs,
)
from roundwise.outcomes.writing import ProblemResults, Row
from roundwise.problems import Problem

PAPER_FEATURES = ("kappa_exact", "norm_inf")
"""The features of `roundwise.tuning.PAPER_CONTEXT`."""


@dataclass(frozen=True)
class Task:
    """One problem, and what is missing of it."""

    algorithm: Algorithm
    setting: Setting  # made here, as a worker may lack the source text of your own classes
    problem: Problem
    actions: tuple[Action, ...]
    arithmetic: str | Backend
    features: tuple[str, ...]
    feature_format: FloatFormat = FP64
    repeats: range | None = None  # the runs to measure; None measures nothing
    memory: bool = False


def fill(
    table: OutcomeTable,
    algorithm: Algorithm,
    problems: Iterable[Problem],
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
    progress: ProgressCallback | None = None,
) -> int:
    """Run the algorithm on every (problem, action) that the table lacks; return how many.

    In emulated arithmetic the result depends neither on the order of arguments, nor on how often
    the run was broken off, nor on `jobs` and `client`: tasks compute with one BLAS thread
    everywhere. (The last bits of features and errors of dense problems depend on the processor.)

    The runs of a timed backend, as the native one, are timed with all threads that
    `roundwise.set_num_threads` and BLAS have, and belong to this machine and that number of threads
    (`Machine.key`). The facts are those of the first repeat.

    No action is left out because a higher one failed: a table holds facts, and that is a guess. To
    save that time, fill the high actions first, and call again for the problems and actions that
    `roundwise.actions.implied_failures` leaves.

    Parameters
    ----------
    actions : iterable of actions
        An `ActionSpace`, or texts or tuples of formats.
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
    table : OutcomeTable
    algorithm : Algorithm
    problems : iterable of Problem
    arithmetic : str or Backend

    Returns
    -------
    int
        Pairs that were computed now.

    Raises
    ------
    WorkersLost
        If worker processes were killed, a Dask cluster lost its scheduler or has no workers, or
        these lack Roundwise. What had arrived is stored, and the same call goes on from there.

    Examples
    --------
    >>> import tempfile
    >>> from roundwise.outcomes import OutcomeTable, fill
    >>> problems = [rw.problems.randsvd(10, 10.0, rng=0)]
    >>> actions = ["fp32-fp64-fp64-fp64", "fp64-fp64-fp64-fp64"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = OutcomeTable(f"{folder}/outcomes.sqlite")
    ...     counts = [fill(table, rw.GmresIR(), problems, actions) for _ in range(2)]
    >>> counts  # the second time nothing is left to do
    [2, 0]
    """
    if jobs is not None and client is not None:
        raise ValueError("jobs and client are both given; choose joblib (jobs) or Dask (client)")
    if jobs is not None and jobs != -1 and (not isinstance(jobs, int) or jobs < 1):
        raise ValueError(f"jobs = {jobs!r}; pass a count of at least 1, or -1 for all cores")
    timed = StoredArithmetic.of(arithmetic).timed
    if timed and (client is not None or jobs not in (None, 1)):
        raise ValueError("timed runs would disturb each other; leave out jobs and client")
    if not timed and (repeats is not None or memory is not None):
        raise ValueError("repeats and memory: for timed runs, as native ones are; leave them out")
    if repeats is not None and (type(repeats) is not int or repeats < 1):
        raise ValueError(f"repeats = {repeats!r}; pass a count of at least 1")
    wanted_repeats = (DEFAULT_REPEATS if repeats is None else repeats) if timed else 0
    if features is None:
        features = NATIVE_FEATURES if timed else PAPER_FEATURES
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
    measured = stored.astype(np.int64)
    if timed:
        measured = table.repeats(algorithm, chosen, formats.values(), arithmetic)
        stored &= measured >= wanted_repeats
    setting, factors_in = Setting.of(algorithm, arithmetic), get_format(feature_format)
    known = table.stored_features(chosen, arithmetic, feature_format)
    tasks = []
    for problem, row, counts in zip(chosen, stored, measured.tolist(), strict=True):
        lacking = tuple(dict.fromkeys(f for f in features if f not in known[problem.fingerprint]))
        # One task for each method and format of the first stage, as its actions share factors: an
        # interruption loses no more than that. The runs of a task are measured equally often.
        groups: dict[tuple[str, FloatFormat, int], list[Action]] = {}
        for action, is_stored, count in zip(formats.values(), row, counts, strict=True):
            if not is_stored:
                key = action.method, action[0], count
                groups.setdefault(key, []).append(action)
        if lacking and not groups:
            groups["", FP64, 0] = []
        for (*_, count), group in groups.items():
            runs = range(count, wanted_repeats) if timed else None
            asked = algorithm, setting, problem, tuple(group), arithmetic, lacking
            tasks.append(Task(*asked, factors_in, runs, timed and memory is not False))
            lacking = ()

    if tasks:
        table.check_writable()
    done = before = int(stored.sum())
    if progress is not None:
        progress(done, stored.size)
    parallel = client is not None or jobs not in (None, 1)
    if parallel and tasks:
        results = workers.results(evaluate, tasks, jobs, client)
    else:
        results = (evaluate(task, threads=None) for task in tasks)
    with closing(results):  # stops the workers
        for result in results:
            _write(table, result)
            done += len({action for action, _ in result.measurements} or result.outcomes)
            if progress is not None:
                progress(done, stored.size)
    return done - before


def evaluate(task: Task, threads: int | None = 1) -> ProblemResults:
    """Compute what is missing of one problem; what workers run."""
    if task.setting.results_version != RESULTS_VERSION:
        raise workers.WorkersLost(
            f"a worker has another Roundwise, whose results have version {RESULTS_VERSION}, not "
            f"{task.setting.results_version}; install the same version everywhere"
        )
    measurements: Mapping[tuple[str, int], Row] = {}
    if task.repeats is not None:
        backend = get_backend(task.arithmetic)
        features = measured_features(task.problem, task.features, backend, task.feature_format)
        outcomes, measurements = measured_runs(
            task.algorithm, task.problem, task.actions, backend, task.repeats, task.memory
        )
        if task.repeats.start > 0:
            outcomes = []  # the table has their facts, from the first repeat
    else:
        with workers.threads_limited(threads):
            features = compute_with_factors(
                task.problem, task.features, task.arithmetic, task.feature_format
            )
            outcomes = task.algorithm.run_all(task.problem, task.actions, task.arithmetic)
    formats = {fmt.name: fmt for action in task.actions for fmt in action}
    return ProblemResults(
        problem=StoredProblem.of(task.problem),
        setting=task.setting,
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
        # Ctrl-C rolled the write back. Write again, which takes milliseconds, to keep the result.
        table.write(result)
        raise


def _by_name(actions: Iterable[Action]) -> dict[str, Action]:
    named: dict[str, FloatFormat] = {}
    found = {}
    for action in actions:
        for fmt in action:
            if named.setdefault(fmt.name, fmt) != fmt:
                raise ValueError(f"two formats are called {fmt.name}; give each its own name")
        found[str(action)] = action
    return found


def _shard(problems: dict[str, Problem], shard: tuple[int, int] | str | None) -> list[Problem]:
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
