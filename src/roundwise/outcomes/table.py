"""`OutcomeTable`: which action did what on which problem, kept in one file."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms import Algorithm
from roundwise.algorithms.base import Action, ActionLike
from roundwise.backends import Backend
from roundwise.formats import FP64, FloatFormat
from roundwise.outcomes.measurements import measurement_arrays
from roundwise.outcomes.records import (
    Setting,
    StoredProblem,
    feature_arithmetic,
    format_json,
    from_column,
    from_json,
    status_named,
    to_json,
)
from roundwise.outcomes.schema import (
    RESULTS_VERSION,
    OutcomeTableError,
    opened,
    prepare,
)
from roundwise.outcomes.view import STATUSES, OutcomeView
from roundwise.outcomes.writing import COLUMNS, ProblemResults, merge_table, write_results
from roundwise.problems import LinearSystem

# Joined with these two, an outcome has its whole key.
_OUTCOMES = (
    "outcome JOIN setting ON setting.id = outcome.setting "
    "JOIN problem ON problem.id = outcome.problem"
)
_MEASUREMENTS = _OUTCOMES.replace("outcome", "measurement")
_OF_SETTING = "algorithm = ? AND arithmetic = ? AND results_version = ?"
_OF_PROBLEMS = "fingerprint IN (SELECT value FROM json_each(?))"


class OutcomeTable:
    """Outcomes of (problem, action) pairs and features of problems, in one SQLite file.

    A pair is keyed by the problem's fingerprint, the algorithm with all its settings, the
    arithmetic model, the action, and `RESULTS_VERSION`. `fill` computes what is missing, `view`
    reads; ``docs/outcome-table.md`` documents the file.

    Parameters
    ----------
    path : path-like
        The file; made if it does not exist.
    must_exist : bool
        Refuse a path without a file, for callers that only read.

    Raises
    ------
    OutcomeTableError
        If the file is no outcome table, is damaged, or was written by a newer Roundwise.
    """

    def __init__(self, path: str | PathLike[str], *, must_exist: bool = False) -> None:
        self.path = Path(path)
        if must_exist and not self.path.is_file():
            raise OutcomeTableError(f"{self.path}: no such file; check the path, or fill it first")
        if must_exist and self.path.stat().st_size == 0:
            raise OutcomeTableError(f"{self.path}: an empty file; check the path, or fill it first")
        prepare(self.path)

    def __repr__(self) -> str:
        return f"OutcomeTable({str(self.path)!r})"

    def __len__(self) -> int:
        """The number of outcomes in the file, of all settings."""
        with opened(self.path) as connection:
            return int(connection.execute("SELECT count(*) FROM outcome").fetchone()[0])

    def __bool__(self) -> bool:
        return True  # an empty table is a table

    def write(self, results: ProblemResults) -> None:
        """Store the results of one problem, all or nothing; what is stored already is kept."""
        write_results(self.path, results)

    def merge(self, others: Iterable[str | PathLike[str]]) -> None:
        """Take over what other tables know, say the shards of one job.

        Facts that both have must agree, bit for bit; if not, `OutcomeTableError` names the key,
        and nothing of that file is taken over. Measured times, names and meta data of what is
        stored already are kept.
        """
        if isinstance(others, str | PathLike):
            raise TypeError(f"others is the path {others!r}; pass a list of paths: [{others!r}]")
        tables = [OutcomeTable(other, must_exist=True) for other in others]  # complain first
        for table in tables:
            if table.path.samefile(self.path):
                raise OutcomeTableError(f"{table.path} is this table; name the other ones only")
        for table in tables:
            merge_table(self.path, table.path)

    def stored(
        self,
        algorithm: Algorithm,
        problems: Iterable[LinearSystem | str],
        actions: Iterable[ActionLike],
        arithmetic: str | Backend = "operation",
    ) -> NDArray[np.bool_]:
        """Which pairs are in the table, as an array (problems x actions)."""
        fingerprints = [fingerprint_of(problem) for problem in problems]
        formats = [algorithm.formats(action) for action in actions]
        with opened(self.path) as connection:
            self._check_formats(connection, formats)
            rows = connection.execute(
                f"SELECT fingerprint, action FROM {_OUTCOMES} WHERE {_OF_SETTING} "
                f"AND {_OF_PROBLEMS}",
                (*Setting.of(algorithm, arithmetic).key, json.dumps(fingerprints)),
            )
            present = set(rows)
        wanted = [[(f, action_name(action)) in present for action in formats] for f in fingerprints]
        return np.array(wanted, dtype=bool).reshape(len(fingerprints), len(formats))

    def repeats(
        self,
        algorithm: Algorithm,
        problems: Iterable[LinearSystem | str],
        actions: Iterable[ActionLike],
        arithmetic: str | Backend = "native",
    ) -> NDArray[np.int64]:
        """How often each pair was measured, as an array (problems x actions)."""
        fingerprints = [fingerprint_of(problem) for problem in problems]
        names = [action_name(algorithm.formats(action)) for action in actions]
        with opened(self.path) as connection:
            rows = connection.execute(
                f"SELECT fingerprint, action, count(*) FROM {_MEASUREMENTS} WHERE {_OF_SETTING} "
                f"AND {_OF_PROBLEMS} GROUP BY fingerprint, action",
                (*Setting.of(algorithm, arithmetic).key, json.dumps(fingerprints)),
            )
            counts = {(fingerprint, action): count for fingerprint, action, count in rows}
        wanted = [[counts.get((f, name), 0) for name in names] for f in fingerprints]
        return np.array(wanted, dtype=np.int64).reshape(len(fingerprints), len(names))

    def arithmetics(self) -> list[str]:
        """The arithmetic models with outcomes in the file; native ones with their machine.

        Each may be passed as `arithmetic` to read them, on any machine.
        """
        query = "SELECT DISTINCT arithmetic FROM setting ORDER BY arithmetic"
        with opened(self.path) as connection:
            return [arithmetic for (arithmetic,) in connection.execute(query)]

    def stored_features(
        self,
        problems: Iterable[LinearSystem | str],
        arithmetic: str | Backend = "operation",
        feature_format: str | FloatFormat = FP64,
    ) -> dict[str, set[str]]:
        """The names of the stored features of each problem, by fingerprint.

        `arithmetic` and `feature_format` are those that `fill` was given.
        """
        source = feature_arithmetic(arithmetic, feature_format)
        fingerprints = [fingerprint_of(problem) for problem in problems]
        names: dict[str, set[str]] = {fingerprint: set() for fingerprint in fingerprints}
        with opened(self.path) as connection:
            for fingerprint, name, _, _ in _features(connection, fingerprints, source):
                names[fingerprint].add(name)
        return names

    def view(
        self,
        algorithm: Algorithm,
        problems: Iterable[LinearSystem | str] | None,
        actions: Iterable[ActionLike],
        arithmetic: str | Backend = "operation",
        features: Sequence[str] | None = None,
        feature_format: str | FloatFormat = FP64,
    ) -> OutcomeView:
        """The outcomes of all pairs as arrays.

        Parameters
        ----------
        algorithm : Algorithm
        problems : iterable of LinearSystem or fingerprints, or None
            None takes every problem with an outcome of this algorithm and arithmetic, in the
            order of their fingerprints.
        actions : iterable of actions
            An `ActionSpace`, or texts or tuples of formats.
        arithmetic : str or Backend
            ``"native"`` is that of this machine with its present number of threads. For another,
            pass its text; `arithmetics` lists them.
        features : sequence of str, optional
            By default all that every one of these problems has, in alphabetical order.
        feature_format : str or FloatFormat
            What `fill` was given.

        Raises
        ------
        OutcomeTableError
            If pairs or features are missing; it says how many, and how to fill them.
        """
        setting = Setting.of(algorithm, arithmetic)
        formats = tuple(algorithm.formats(action) for action in actions)
        with opened(self.path) as connection:
            connection.execute("BEGIN")  # one snapshot for all queries
            self._check_formats(connection, formats)
            if problems is None:
                found = connection.execute(
                    f"SELECT DISTINCT fingerprint FROM {_OUTCOMES} WHERE {_OF_SETTING} "
                    "ORDER BY fingerprint",
                    setting.key,
                )
                fingerprints = [fingerprint for (fingerprint,) in found]
            else:
                fingerprints = [fingerprint_of(problem) for problem in problems]
            table = self._outcomes(connection, setting, fingerprints, formats)
            facts = _problem_facts(connection, fingerprints)
            source = feature_arithmetic(arithmetic, feature_format)
            names, values, seconds = self._feature_arrays(
                connection, fingerprints, features, source
            )
            measured = self._measurements(
                connection, setting, fingerprints, formats, algorithm.stages
            )
        columns = dict(zip(COLUMNS["outcome"].facts, np.moveaxis(table, 2, 0), strict=True))
        return OutcomeView(
            algorithm=setting.algorithm,
            arithmetic=setting.arithmetic,
            stages=algorithm.stages,
            problems=tuple(facts[fingerprint] for fingerprint in fingerprints),
            actions=formats,
            status=_status_codes(columns["status"]),
            **{name: columns[name].astype(np.float64) for name in ("ferr", "nbe", "cbe")},
            outer=columns["outer_iterations"].astype(np.int64),
            inner=columns["inner_iterations"].astype(np.int64),
            feature_names=names,
            features=values,
            feature_seconds=seconds,
            **measured,
            reasons=columns["reason"],
            operations_json=columns["operations"],
            history_json=columns["history"],
        )

    def content(self) -> list[str]:
        """All facts as sorted lines of text: equal for two tables that know the same.

        Neither the order in which facts were written nor what is no fact of a computation
        (measured seconds, names, meta data, origins) is in it.
        """
        of_problem = ", ".join(COLUMNS["problem"].facts)
        of_outcome = ", ".join(COLUMNS["outcome"].facts)
        queries = {
            "format": "SELECT name, definition FROM format",
            "problem": f"SELECT fingerprint, {of_problem} FROM problem",
            "feature": "SELECT fingerprint, results_version, arithmetic, feature.name, value "
            "FROM feature JOIN problem ON problem.id = feature.problem",
            "outcome": "SELECT fingerprint, algorithm, arithmetic, results_version, action, "
            f"{of_outcome} FROM {_OUTCOMES}",
        }
        with opened(self.path) as connection:
            connection.execute("BEGIN")
            return sorted(
                f"{kind} {to_json(row)}"
                for kind, query in queries.items()
                for row in connection.execute(query)
            )

    def digest(self) -> str:
        """A 128-bit BLAKE2b hash of `content`, as 32 hexadecimal digits."""
        return hashlib.blake2b("\n".join(self.content()).encode(), digest_size=16).hexdigest()

    def origins(self) -> list[dict[str, str]]:
        """Where the facts were computed: versions, machine, instruction set."""
        with opened(self.path) as connection:
            rows = connection.execute("SELECT facts FROM origin ORDER BY facts").fetchall()
        return [from_json(text) for (text,) in rows]

    def _check_formats(self, connection: sqlite3.Connection, actions: Iterable[Action]) -> None:
        """An action is stored as text: refuse formats that bear a name of another one."""
        known = dict(connection.execute("SELECT name, definition FROM format"))
        for fmt in {fmt for action in actions for fmt in action}:
            if known.get(fmt.name, format_json(fmt)) != format_json(fmt):
                raise OutcomeTableError(
                    f"{self.path}: {fmt.name} is {known[fmt.name]} there, but {format_json(fmt)} "
                    "here; give one format one name"
                )

    def _outcomes(
        self,
        connection: sqlite3.Connection,
        setting: Setting,
        fingerprints: Sequence[str],
        actions: Sequence[Action],
    ) -> NDArray[Any]:
        """Columns of all pairs, (problems, actions, columns)."""
        facts = COLUMNS["outcome"].facts
        rows = connection.execute(
            f"SELECT fingerprint, action, {', '.join(facts)} FROM {_OUTCOMES} "
            f"WHERE {_OF_SETTING} AND {_OF_PROBLEMS}",
            (*setting.key, json.dumps(fingerprints)),
        )
        found = {(fingerprint, action): row for fingerprint, action, *row in rows}
        names = [action_name(action) for action in actions]
        pairs = [(fingerprint, name) for fingerprint in fingerprints for name in names]
        missing = [pair for pair in pairs if pair not in found]
        if missing:
            model, of_machine, machine = setting.arithmetic.partition(" on ")
            there = f" on {machine}, or pass one of arithmetics()" if of_machine else ""
            raise OutcomeTableError(
                f"{self.path}: {len(missing)} of {len(pairs)} outcomes are missing, e.g. action "
                f"{missing[0][1]} on problem {missing[0][0]}; first call fill(table, algorithm, "
                f"problems, actions, arithmetic={model!r}) with the same arguments{there}"
            )
        table = np.empty((len(pairs), len(facts)), dtype=object)
        for place, pair in enumerate(pairs):
            table[place] = found[pair]
        return table.reshape(len(fingerprints), len(names), len(facts))

    def _measurements(
        self,
        connection: sqlite3.Connection,
        setting: Setting,
        fingerprints: Sequence[str],
        actions: Sequence[Action],
        stages: Sequence[str],
    ) -> dict[str, Any]:
        rows = connection.execute(
            f"SELECT fingerprint, action, seconds, timings, peak_bytes FROM {_MEASUREMENTS} "
            f"WHERE {_OF_SETTING} AND {_OF_PROBLEMS}",
            (*setting.key, json.dumps(fingerprints)),
        )
        names = [action_name(action) for action in actions]
        pairs = [(fingerprint, name) for fingerprint in fingerprints for name in names]
        return measurement_arrays(rows, pairs, (len(fingerprints), len(names)), stages)

    def _feature_arrays(
        self,
        connection: sqlite3.Connection,
        fingerprints: Sequence[str],
        wanted: Sequence[str] | None,
        source: str,
    ) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64]]:
        """Names, and values and seconds of all problems."""
        found = {(f, name): pair for f, name, *pair in _features(connection, fingerprints, source)}
        if wanted is None:
            names: dict[str, set[str]] = {fingerprint: set() for fingerprint in fingerprints}
            for fingerprint, name in found:
                names[fingerprint].add(name)
            wanted = sorted(set.intersection(*names.values())) if names else []
        missing = [(f, name) for f in fingerprints for name in wanted if (f, name) not in found]
        if missing:
            raise OutcomeTableError(
                f"{self.path}: {len(missing)} features are missing, e.g. {missing[0][1]} of "
                f"problem {missing[0][0]}; call fill with features={tuple(wanted)!r} first"
            )
        pairs = [[found[f, name] for name in wanted] for f in fingerprints]
        table = np.array(pairs, dtype=np.float64).reshape(len(fingerprints), len(wanted), 2)
        return tuple(wanted), table[..., 0], table[..., 1]


def action_name(action: Action) -> str:
    """The text of an action, like ``bf16-fp32-fp64-fp64``."""
    return "-".join(fmt.name for fmt in action)


def fingerprint_of(problem: LinearSystem | str) -> str:
    """The fingerprint of a problem, or that text itself."""
    return problem if isinstance(problem, str) else problem.fingerprint


def _features(
    connection: sqlite3.Connection, fingerprints: Sequence[str], source: str
) -> sqlite3.Cursor:
    return connection.execute(
        "SELECT fingerprint, feature.name, value, seconds FROM feature "
        "JOIN problem ON problem.id = feature.problem "
        f"WHERE results_version = ? AND arithmetic = ? AND {_OF_PROBLEMS}",
        (RESULTS_VERSION, source, json.dumps(fingerprints)),
    )


def _problem_facts(
    connection: sqlite3.Connection, fingerprints: Sequence[str]
) -> dict[str, StoredProblem]:
    names = ("fingerprint", "n", "name", "norm_A", "norm_x_true", "norm_b")
    rows = connection.execute(
        f"SELECT {', '.join(names)}, meta FROM problem WHERE {_OF_PROBLEMS}",
        (json.dumps(fingerprints),),
    )
    facts = {}
    for *row, meta in rows:
        columns = {name: from_column(value) for name, value in zip(names, row, strict=True)}
        facts[row[0]] = StoredProblem(**columns, meta=from_json(meta))
    return facts


def _status_codes(names: NDArray[Any]) -> NDArray[np.int8]:
    codes = {name: STATUSES.index(status_named(name)) for name in set(names.ravel())}
    return np.array([codes[name] for name in names.ravel()], dtype=np.int8).reshape(names.shape)
