"""`OutcomeTable`: which action did what on which problem, kept in one file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionLike
from roundwise.algorithms import Algorithm
from roundwise.backends import Backend
from roundwise.formats import FP64, FloatFormat
from roundwise.outcomes.reading import (
    MEASUREMENTS,
    OUTCOMES,
    OutcomeView,
    fingerprint_of,
    selected,
    stored_features,
)
from roundwise.outcomes.records import feature_arithmetic, from_json, to_json
from roundwise.outcomes.schema import (
    RESULTS_VERSION,
    DamagedText,
    OutcomeTableError,
    opened,
    prepare,
)
from roundwise.outcomes.writing import (
    COLUMNS,
    ProblemResults,
    check_writable,
    merge_table,
    write_results,
)
from roundwise.problems import Problem


class OutcomeTable:
    """Outcomes of (problem, action) pairs and features of problems, in one SQLite file.

    A pair is keyed by the problem's fingerprint, the algorithm with all its settings, the
    arithmetic model, the action, and `RESULTS_VERSION`. `fill` computes what is missing, `view`
    reads; ``docs/outcome-table.md`` documents the file.

    The file at `path` is made if it does not exist; with `must_exist`, for callers that only
    read, that is an error.

    A file that is no outcome table, is damaged, or was written by a newer Roundwise is an
    `OutcomeTableError`.

    Parameters
    ----------
    path : path
    must_exist : bool
        Refuse to make a new file.

    Examples
    --------
    >>> import tempfile
    >>> from roundwise.outcomes import OutcomeTable, fill
    >>> problems, actions = [rw.problems.randsvd(10, 10.0, rng=0)], ["fp64-fp64-fp64-fp64"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = OutcomeTable(f"{folder}/outcomes.sqlite")
    ...     done = fill(table, rw.GmresIR(), problems, actions)
    ...     view = table.view(rw.GmresIR(), problems, actions)
    >>> view.ferr.shape
    (1, 1)
    """

    def __init__(self, path: str | PathLike[str], *, must_exist: bool = False) -> None:
        self.path = Path(path)
        if must_exist and not (self.path.is_file() and self.path.stat().st_size):
            what = "an empty file" if self.path.is_file() else "no such file"
            raise OutcomeTableError(f"{self.path}: {what}; check the path, or fill it first")
        prepare(self.path)

    def __repr__(self) -> str:
        return f"OutcomeTable({str(self.path)!r})"

    def __len__(self) -> int:
        """The number of outcomes in the file, of all settings."""
        with opened(self.path) as connection:
            return int(connection.execute("SELECT count(*) FROM outcome").fetchone()[0])

    def __bool__(self) -> bool:
        return True  # an empty table is a table

    def check_writable(self) -> None:
        """Refuse a table that can only be read; `fill` asks before it computes anything."""
        check_writable(self.path)

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
        problems: Iterable[Problem | str],
        actions: Iterable[ActionLike],
        arithmetic: str | Backend = "operation",
    ) -> NDArray[np.bool_]:
        """Which pairs are in the table, as an array (problems x actions)."""
        with selected(self.path, algorithm, problems, actions, arithmetic) as selection:
            selection.check_formats()
            return selection.counts(OUTCOMES) > 0

    def repeats(
        self,
        algorithm: Algorithm,
        problems: Iterable[Problem | str],
        actions: Iterable[ActionLike],
        arithmetic: str | Backend = "native",
    ) -> NDArray[np.int64]:
        """How often each pair was measured, as an array (problems x actions)."""
        with selected(self.path, algorithm, problems, actions, arithmetic) as selection:
            return selection.counts(MEASUREMENTS)

    def arithmetics(self) -> list[str]:
        """The arithmetic models with outcomes in the file; native ones with their machine.

        Each may be passed as `arithmetic` to read them, on any machine.
        """
        query = "SELECT DISTINCT arithmetic FROM setting ORDER BY arithmetic"
        with opened(self.path) as connection:
            return [arithmetic for (arithmetic,) in connection.execute(query)]

    def stored_features(
        self,
        problems: Iterable[Problem | str],
        arithmetic: str | Backend = "operation",
        feature_format: str | FloatFormat = FP64,
    ) -> dict[str, set[str]]:
        """The names of the features that `fill` stored with these arguments, by fingerprint."""
        source = feature_arithmetic(arithmetic, feature_format)
        fingerprints = [fingerprint_of(problem) for problem in problems]
        with opened(self.path) as connection:
            found = stored_features(connection, fingerprints, source)
        return {fingerprint: set(features) for fingerprint, features in found.items()}

    def view(
        self,
        algorithm: Algorithm,
        problems: Iterable[Problem | str] | None,
        actions: Iterable[ActionLike],
        arithmetic: str | Backend = "operation",
        features: Sequence[str] | None = None,
        feature_format: str | FloatFormat = FP64,
    ) -> OutcomeView:
        """The outcomes of all pairs as arrays.

        Without problems it takes every one with an outcome of this algorithm and arithmetic, in the
        order of their fingerprints; without features all that every problem has, in alphabetical
        order. The arithmetic ``"native"`` is that of this machine with its present number of
        threads; for another, pass its text, which `arithmetics` lists. `feature_format` is what
        `fill` was given. Missing pairs or features are an `OutcomeTableError`, which says how many,
        and how to fill them.
        """
        source = feature_arithmetic(arithmetic, feature_format)
        with selected(self.path, algorithm, problems, actions, arithmetic) as selection:
            selection.check_formats()
            return selection.view(features, source)

    def content(self) -> list[str]:
        """All facts as sorted lines of text: equal for two tables that know the same.

        Neither the order in which facts were written nor what is no fact of a computation
        (measured seconds, names, meta data, origins) is in it.
        """
        facts = {table: ", ".join(columns.facts) for table, columns in COLUMNS.items()}
        queries = {
            "format": "SELECT name, definition FROM format",
            "problem": f"SELECT fingerprint, {facts['problem']} FROM problem",
            "feature": "SELECT fingerprint, results_version, arithmetic, feature.name, value "
            "FROM feature JOIN problem ON problem.id = feature.problem",
            "outcome": "SELECT fingerprint, algorithm, arithmetic, results_version, action, "
            f"{facts['outcome']} FROM {OUTCOMES}",
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
            rows = connection.execute("SELECT facts FROM origin ORDER BY facts")
            return [from_json(text) for (text,) in rows]


def table_summary(path: Path) -> dict[str, Any]:
    """The content of a table, by setting; see docs/outcome-table.md for its columns."""
    table = OutcomeTable(path, must_exist=True)
    with opened(table.path) as connection:
        connection.execute("BEGIN")  # one snapshot for all queries
        problem_count, n_min, n_max = connection.execute(
            "SELECT count(*), min(n), max(n) FROM problem"
        ).fetchone()
        features = connection.execute(
            "SELECT name, count(*) FROM feature WHERE results_version = ? GROUP BY name",
            (RESULTS_VERSION,),
        ).fetchall()
        settings = connection.execute(
            "SELECT setting.id, algorithm, arithmetic, results_version, count(*), "
            "count(DISTINCT problem), count(DISTINCT action) "
            "FROM outcome JOIN setting ON setting.id = outcome.setting "
            "GROUP BY setting.id ORDER BY algorithm, arithmetic, results_version"
        ).fetchall()
        measurements = dict(
            connection.execute("SELECT setting, count(*) FROM measurement GROUP BY setting")
        )
        statuses = connection.execute(
            "SELECT setting, status, count(*) FROM outcome GROUP BY setting, status ORDER BY status"
        ).fetchall()
        described = {algorithm: from_json(algorithm) for _, algorithm, *_ in settings}
        for saved in described.values():
            stages = saved.get("stages")
            if "algorithm" not in saved or not isinstance(stages, list):
                raise DamagedText("the settings of an algorithm are incomplete")
    names = "arithmetic", "results_version", "outcomes", "problems", "actions"
    return {
        "table": str(path),
        "problems": problem_count,
        "n": None if n_min is None else [n_min, n_max],
        "features": dict(features),
        "settings": [
            described[algorithm]  # algorithm, stages
            | dict(zip(names, facts, strict=True))
            | {
                "measurements": measurements.get(setting, 0),
                "statuses": {name: count for other, name, count in statuses if other == setting},
            }
            for setting, algorithm, *facts in settings
        ],
        "origins": table.origins(),
    }
