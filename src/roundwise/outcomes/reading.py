"""Reading from an outcome table: what it knows of some problems and actions, as arrays."""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._files import one_line
from roundwise._forking import cached_property
from roundwise.actions import Action, ActionLike
from roundwise.algorithms import Algorithm, Outcome, OutcomeStatus
from roundwise.backends import Backend
from roundwise.outcomes.records import (
    Setting,
    StoredArithmetic,
    StoredProblem,
    format_json,
    from_json,
    history_from_json,
    numbers_of,
    operations_from_json,
)
from roundwise.outcomes.schema import FILE, RESULTS_VERSION, DamagedText, OutcomeTableError, opened
from roundwise.outcomes.writing import COLUMNS
from roundwise.problems import Problem

Pair = tuple[str, str]  # fingerprint, action

# Joined with setting and problem, a row has its whole key.
OUTCOMES = (
    "outcome JOIN setting ON setting.id = outcome.setting "
    "JOIN problem ON problem.id = outcome.problem"
)
MEASUREMENTS = OUTCOMES.replace("outcome", "measurement")
_OF_SETTING = "algorithm = ? AND arithmetic = ? AND results_version = ?"
_OF_PROBLEMS = "fingerprint IN (SELECT value FROM json_each(?))"


def fingerprint_of(problem: Problem | str) -> str:
    """The fingerprint of a problem, or that text itself."""
    return problem if isinstance(problem, str) else problem.fingerprint


@contextmanager
def selected(
    path: Path,
    algorithm: Algorithm,
    problems: Iterable[Problem | str] | None,
    actions: Iterable[ActionLike],
    arithmetic: str | Backend,
) -> Iterator[Selection]:
    """Select pairs in one snapshot of the table; None takes all problems that have outcomes."""
    setting = Setting.of(algorithm, arithmetic)
    formats = tuple(algorithm.formats(action) for action in actions)
    with opened(path) as connection:
        connection.execute("BEGIN")
        if problems is None:
            found = connection.execute(
                f"SELECT DISTINCT fingerprint FROM {OUTCOMES} WHERE {_OF_SETTING} "
                "ORDER BY fingerprint",
                setting.key,
            )
            fingerprints = [fingerprint for (fingerprint,) in found]
        else:
            fingerprints = [fingerprint_of(problem) for problem in problems]
        yield Selection(path, connection, setting, algorithm.stages, fingerprints, formats)


@dataclass(frozen=True)
class Selection:
    """Pairs of problems and actions, of one algorithm and arithmetic, in an open table."""

    path: Path
    connection: sqlite3.Connection
    setting: Setting
    stages: tuple[str, ...]
    fingerprints: Sequence[str]
    actions: tuple[Action, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.fingerprints), len(self.actions)

    @property
    def pairs(self) -> list[Pair]:
        """Fingerprint and text of the action, problem by problem."""
        names = [str(action) for action in self.actions]
        return [(fingerprint, name) for fingerprint in self.fingerprints for name in names]

    def check_formats(self) -> None:
        """An action is stored as text: refuse formats that bear a name of another one."""
        known = dict(self.connection.execute("SELECT name, definition FROM format"))
        for fmt in {fmt for action in self.actions for fmt in action}:
            if known.get(fmt.name, format_json(fmt)) != format_json(fmt):
                raise OutcomeTableError(
                    f"{self.path}: {fmt.name} is {one_line(known[fmt.name])} there, but "
                    f"{format_json(fmt)} here; give one format one name"
                )

    def counts(self, kind: str) -> NDArray[np.int64]:
        """How many rows of `OUTCOMES` or `MEASUREMENTS` each pair has, (problems, actions)."""
        counts = Counter(self._rows(kind))
        found = [counts[pair] for pair in self.pairs]
        return np.array(found, dtype=np.int64).reshape(self.shape)

    def outcomes(self) -> dict[str, NDArray[Any]]:
        """The columns of all pairs by name, each (problems, actions)."""
        facts = COLUMNS["outcome"].facts
        found = {(f, action): row for f, action, *row in self._rows(OUTCOMES, *facts)}
        pairs = self.pairs
        missing = [pair for pair in pairs if pair not in found]
        if missing:
            stored = StoredArithmetic.parse(self.setting.arithmetic)
            machine = stored.machine
            there = f" on {machine}, or pass one of arithmetics()" if machine else ""
            raise OutcomeTableError(
                f"{self.path}: {len(missing)} of {len(pairs)} outcomes are missing, e.g. action "
                f"{missing[0][1]} on problem {missing[0][0]}; first call fill(table, algorithm, "
                f"problems, actions, arithmetic={stored.model!r}) with the same arguments{there}"
            )
        table = np.empty((len(pairs), len(facts)), dtype=object)
        for place, pair in enumerate(pairs):
            table[place] = found[pair]
        return {name: table[:, k].reshape(self.shape) for k, name in enumerate(facts)}

    def view(self, features: Sequence[str] | None, source: str) -> OutcomeView:
        """All that is known of the pairs, and these features or all that every problem has."""
        columns = self.outcomes()
        names, values, seconds = self.features(features, source)
        rows = self._rows(MEASUREMENTS, "seconds", "timings", "peak_bytes")
        return OutcomeView(
            algorithm=self.setting.algorithm,
            arithmetic=self.setting.arithmetic,
            stages=self.stages,
            problems=self.problems(),
            actions=self.actions,
            status=_status_codes(columns["status"]),
            source=self.path,
            ferr=columns["ferr"].astype(np.float64),
            nbe=columns["nbe"].astype(np.float64),
            cbe=columns["cbe"].astype(np.float64),
            outer=columns["outer_iterations"].astype(np.int64),
            inner=columns["inner_iterations"].astype(np.int64),
            feature_names=names,
            features=values,
            feature_seconds=seconds,
            **measurement_arrays(rows, self.pairs, self.shape, self.stages),
            reasons=columns["reason"],
            operations_json=columns["operations"],
            history_json=columns["history"],
        )

    def problems(self) -> tuple[StoredProblem, ...]:
        rows = self.connection.execute(
            "SELECT fingerprint, n, norm_A, norm_x_true, norm_b, name, meta FROM problem "
            f"WHERE {_OF_PROBLEMS}",
            (json.dumps(self.fingerprints),),
        )
        facts = {}
        for fingerprint, n, *norms, name, meta in rows:
            A, x_true, b = (math.nan if norm is None else norm for norm in norms)
            facts[fingerprint] = StoredProblem(fingerprint, n, A, x_true, b, name, from_json(meta))
        return tuple(facts[fingerprint] for fingerprint in self.fingerprints)

    def features(
        self, wanted: Sequence[str] | None, source: str
    ) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64]]:
        """Names, values and seconds of features; by default of those that every problem has."""
        stored = stored_features(self.connection, self.fingerprints, source)
        if wanted is None:
            wanted = sorted(set.intersection(*map(set, stored.values()))) if stored else []
        missing = [(f, name) for f in self.fingerprints for name in wanted if name not in stored[f]]
        if missing:
            raise OutcomeTableError(
                f"{self.path}: {len(missing)} features are missing, e.g. {missing[0][1]} of "
                f"problem {missing[0][0]}; call fill with features={tuple(wanted)!r} first"
            )
        pairs = [[stored[f][name] for name in wanted] for f in self.fingerprints]
        table = np.array(pairs, dtype=np.float64).reshape(len(pairs), len(wanted), 2)
        return tuple(wanted), table[..., 0], table[..., 1]

    def _rows(self, kind: str, *columns: str) -> sqlite3.Cursor:
        """The rows of the selected problems: fingerprint, action and these columns."""
        return self.connection.execute(
            f"SELECT {', '.join(('fingerprint', 'action', *columns))} FROM {kind} "
            f"WHERE {_OF_SETTING} AND {_OF_PROBLEMS}",
            (*self.setting.key, json.dumps(self.fingerprints)),
        )


def stored_features(
    connection: sqlite3.Connection, fingerprints: Sequence[str], source: str
) -> dict[str, dict[str, tuple[float | None, float | None]]]:
    """Value and seconds of the features of each problem, by fingerprint and name."""
    rows = connection.execute(
        "SELECT fingerprint, feature.name, value, seconds FROM feature "
        "JOIN problem ON problem.id = feature.problem "
        f"WHERE results_version = ? AND arithmetic = ? AND {_OF_PROBLEMS}",
        (RESULTS_VERSION, source, json.dumps(fingerprints)),
    )
    found: dict[str, dict[str, tuple[float | None, float | None]]] = {f: {} for f in fingerprints}
    for fingerprint, name, value, seconds in rows:
        found[fingerprint][name] = value, seconds
    return found


def measurement_arrays(
    rows: Iterable[tuple[str, str, float, str, int | None]],
    pairs: Sequence[Pair],
    shape: tuple[int, int],
    stages: Sequence[str],
) -> dict[str, Any]:
    """What `OutcomeView` has of measured runs, from (fingerprint, action, seconds, timings, peak).

    Medians over the repeats; NaN, and 0 repeats, where nothing was measured.
    """
    names = tuple(dict.fromkeys((*stages, "verify")))
    found: dict[Pair, list[list[float]]] = {}  # seconds, peak memory, timings
    for fingerprint, action, seconds, timings, peak in rows:
        times = numbers_of(from_json(timings))
        run = [np.nan if x is None else x for x in (seconds, peak)]
        run += [times.get(k, 0.0) for k in names]
        found.setdefault((fingerprint, action), []).append(run)
    medians = np.full((len(pairs), 2 + len(names)), np.nan)
    peak_bytes = np.full(len(pairs), np.nan)
    for place, pair in enumerate(pairs):
        if runs := found.get(pair):
            medians[place] = np.median(runs, axis=0)
            peak_bytes[place] = np.fmax.reduce([run[1] for run in runs])
    repeats = np.array([len(found.get(pair, ())) for pair in pairs], dtype=np.int64)
    return {
        "timing_names": names,
        "seconds": medians[:, 0].reshape(shape),
        "repeats": repeats.reshape(shape),
        "timings": medians[:, 2:].reshape(*shape, len(names)),
        "peak_bytes": peak_bytes.reshape(shape),
    }


def _status_codes(names: NDArray[Any]) -> NDArray[np.int8]:
    """The statuses as indices into `STATUSES`."""
    codes = {status.name: code for code, status in enumerate(STATUSES)}
    return np.array([codes[name] for name in names.flat], dtype=np.int8).reshape(names.shape)


STATUSES = tuple(OutcomeStatus)
"""The status that each code in `OutcomeView.status` stands for."""


@dataclass(frozen=True, eq=False)
class OutcomeView:
    """N problems by A actions, read once from a table; what rewards and policies replay on.

    Arrays have a row for each problem and a column for each action, in the order that was asked
    for. Only runs of a timed backend are measured: `seconds`, `timings` and `peak_bytes` are NaN,
    and `repeats` 0, where none was.

    Parameters
    ----------
    algorithm, arithmetic : str
        What was run.
    stages, problems, actions : tuple
    others
        Arrays of facts; `OutcomeTable.view` makes them.

    Examples
    --------
    >>> import tempfile
    >>> from roundwise.outcomes import OutcomeTable, fill
    >>> problems, actions = [rw.problems.randsvd(10, 10.0, rng=0)], ["fp64-fp64-fp64-fp64"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = OutcomeTable(f"{folder}/outcomes.sqlite")
    ...     done = fill(table, rw.GmresIR(), problems, actions)
    ...     view = table.view(rw.GmresIR(), problems, actions)
    >>> view.row(0)[0].action, bool(view.nbe[0, 0] < 1e-15)
    ('fp64-fp64-fp64-fp64', True)
    """

    algorithm: str  # with its settings, as canonical JSON
    arithmetic: str
    stages: tuple[str, ...]
    problems: tuple[StoredProblem, ...]
    actions: tuple[Action, ...]
    status: NDArray[np.int8]  # indices into `STATUSES`
    ferr: NDArray[np.float64]
    nbe: NDArray[np.float64]
    cbe: NDArray[np.float64]
    outer: NDArray[np.int64]  # iterations
    inner: NDArray[np.int64]
    feature_names: tuple[str, ...]
    features: NDArray[np.float64]  # (N, number of features)
    feature_seconds: NDArray[np.float64]  # what each took to compute
    seconds: NDArray[np.float64]  # the median over the repeats
    repeats: NDArray[np.int64]
    timing_names: tuple[str, ...]  # the stages and "verify"
    timings: NDArray[np.float64]  # (N, A, timing names); medians need not add up to `seconds`
    peak_bytes: NDArray[np.float64]  # memory beyond that of the problem, largest of the repeats
    # (N, A) arrays of JSON texts, parsed on request only: most rewards do not read them.
    reasons: NDArray[Any] = field(repr=False)
    operations_json: NDArray[Any] = field(repr=False)
    history_json: NDArray[Any] = field(repr=False)
    source: Path | None = None  # the table that it was read from

    @property
    def shape(self) -> tuple[int, int]:
        """(N, A)."""
        return len(self.problems), len(self.actions)

    @cached_property
    def action_names(self) -> tuple[str, ...]:
        """The actions as text, like ``bf16-fp32-fp64-fp64``."""
        return tuple(str(action) for action in self.actions)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Where an arithmetic failure broke the run off, (N, A)."""
        return np.array([status.failed for status in STATUSES])[self.status]

    def outcome(self, problem: int, action: int) -> Outcome:
        """One outcome, as the algorithm returned it but for x, which is not stored.

        Of measured runs, `seconds` and `timings` are medians.
        """
        at = problem, action
        measured = bool(self.repeats[at])
        timings = zip(self.timing_names, self.timings[at].tolist(), strict=True)
        try:
            history = history_from_json(self.history_json[at])
            operations = operations_from_json(self.operations_json[at])
        except DamagedText as error:
            raise FILE.damaged(self.source, error) from error
        return Outcome(
            STATUSES[self.status[at]],
            None,
            ferr=float(self.ferr[at]),
            nbe=float(self.nbe[at]),
            cbe=float(self.cbe[at]),
            outer_iterations=int(self.outer[at]),
            inner_iterations=int(self.inner[at]),
            history=history,
            reason=self.reasons[at],
            action=self.action_names[action],
            arithmetic=StoredArithmetic.parse(self.arithmetic).model,
            operations=operations,
            seconds=float(self.seconds[at]) if measured else None,
            timings=dict(timings) if measured else {},
        )

    def row(self, problem: int) -> list[Outcome]:
        """The outcomes of one problem, in the order of the actions."""
        return [self.outcome(problem, action) for action in range(len(self.actions))]

    def features_of(self, problem: int) -> dict[str, float]:
        """The features of one problem by name."""
        return dict(zip(self.feature_names, self.features[problem].tolist(), strict=True))

    def take(self, problems: Iterable[int]) -> OutcomeView:
        """The view of some of the problems, given by index; for splits and bootstraps."""
        rows = np.asarray(list(problems), dtype=np.intp)
        arrays: dict[str, Any] = {
            f.name: getattr(self, f.name)[rows]
            for f in dataclasses.fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        chosen = tuple(self.problems[row] for row in rows)
        return dataclasses.replace(self, problems=chosen, **arrays)
