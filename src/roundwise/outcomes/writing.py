"""Writing to an outcome table: the rows of one problem, or those of another table.

A fact is written once. Writing it again changes nothing if it is the same, and is an error that
names its key if it is not; so repeating a write that was cut off is always safe.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from roundwise._files import one_line
from roundwise._sqlite import transaction
from roundwise.features.definitions import FeatureValue
from roundwise.outcomes.records import Setting, StoredProblem, to_json
from roundwise.outcomes.schema import FILE, OutcomeTableError, opened

Row = Mapping[str, Any]


class Columns(NamedTuple):
    """The columns of a table: its key, the facts under that key, and what is no fact of it."""

    key: tuple[str, ...]
    facts: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # for people, or measured: the first to be written is kept


COLUMNS = {
    "format": Columns(("name",), ("definition",)),
    "problem": Columns(
        ("fingerprint",), ("n", "norm_A", "norm_x_true", "norm_b"), ("name", "meta")
    ),
    "setting": Columns(("algorithm", "arithmetic", "results_version")),
    "origin": Columns(("facts",)),
    "feature": Columns(
        ("problem", "results_version", "arithmetic", "name"), ("value",), ("seconds", "origin")
    ),
    "outcome": Columns(
        ("setting", "problem", "action"),
        (
            *("status", "ferr", "nbe", "cbe", "outer_iterations", "inner_iterations"),
            *("reason", "operations", "history"),
        ),
        ("origin",),
    ),
    "measurement": Columns(
        ("setting", "problem", "action", "repeat"),
        (),
        ("seconds", "timings", "peak_bytes", "origin"),
    ),
}


@dataclass(frozen=True)
class ProblemResults:
    """The results of one task on one problem."""

    problem: StoredProblem
    setting: Setting
    origin: str
    outcomes: Mapping[str, Row]  # action text to `outcome_facts`
    features: Mapping[str, FeatureValue] = field(default_factory=dict)
    feature_arithmetic: str = "operation"
    measurements: Mapping[tuple[str, int], Row] = field(default_factory=dict)  # (action, repeat)
    formats: Mapping[str, str] = field(default_factory=dict)  # name to definition


def check_writable(path: Path) -> None:
    """Try a write that changes nothing; permissions do not tell, as SQLite needs a journal."""
    with opened(path) as connection, transaction(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version}")


def write_results(path: Path, results: ProblemResults) -> None:
    """Write the results of one task, all or nothing."""
    with opened(path) as connection, transaction(connection):
        for name, definition in results.formats.items():
            _insert(connection, "format", {"name": name, "definition": definition})
        facts = vars(results.problem) | {"meta": to_json(results.problem.meta)}
        problem = _identify(connection, "problem", facts)
        origin = _identify(connection, "origin", {"facts": results.origin})
        setting = _identify(connection, "setting", vars(results.setting))
        run = {"problem": problem, "origin": origin, "setting": setting}
        version = results.setting.results_version
        computed = {"results_version": version, "arithmetic": results.feature_arithmetic}
        for feature in results.features.values():
            _insert(connection, "feature", vars(feature) | computed | run)
        for action, row in results.outcomes.items():
            _insert(connection, "outcome", {**row, **run, "action": action})
        for (action, repeat), row in results.measurements.items():
            _insert(connection, "measurement", {**row, **run, "action": action, "repeat": repeat})


def merge_table(path: Path, other: Path) -> None:
    """Copy what the table at `other` knows and that at `path` does not, all or nothing."""
    with opened(path) as connection:
        connection.execute("ATTACH DATABASE ? AS other", (str(other),))
        try:
            with transaction(connection):
                for row in _rows_of(other, connection, "format"):
                    _insert(connection, "format", row)
                ids = {  # the numbers of rows there, to those here
                    table: {
                        row["id"]: _identify(connection, table, row)
                        for row in _rows_of(other, connection, table)
                    }
                    for table in ("problem", "setting", "origin")
                }
                for table in ("feature", "outcome", "measurement"):
                    for row in _rows_of(other, connection, table):
                        references = {name: ids[name][row[name]] for name in ids if name in row}
                        _insert(connection, table, {**row, **references})
        except OutcomeTableError as error:
            raise OutcomeTableError(f"{other} contradicts {path}: {error}") from None


def _rows_of(other: Path, connection: sqlite3.Connection, table: str) -> Iterator[Row]:
    """The rows of the attached table; errors in reading them name its file."""
    with FILE.errors(other):
        cursor = connection.execute(f"SELECT * FROM other.{table}")
        names = [column[0] for column in cursor.description]
        yield from (dict(zip(names, row, strict=True)) for row in cursor)


def _identify(connection: sqlite3.Connection, table: str, row: Row) -> int:
    """Insert a row if it is new, and return its number."""
    _insert(connection, table, row)
    key = COLUMNS[table].key
    found = connection.execute(f"SELECT id FROM {table} WHERE {_equal(key)}", _values(row, key))
    return int(found.fetchone()[0])


def _insert(connection: sqlite3.Connection, table: str, row: Row) -> None:
    """Insert a row, unless the table has its key with the same facts."""
    key, facts, others = COLUMNS[table]
    stored = connection.execute(
        f"SELECT {', '.join(facts) or '1'} FROM main.{table} WHERE {_equal(key)}", _values(row, key)
    ).fetchone()
    if stored is None:
        columns = key + facts + others
        places = ", ".join("?" * len(columns))
        connection.execute(
            f"INSERT INTO main.{table} ({', '.join(columns)}) VALUES ({places})",
            _values(row, columns),
        )
        return
    for name, old, new in zip(facts, stored, _values(row, facts), strict=False):
        if old != new:
            raise OutcomeTableError(
                f"{_describe(connection, table, row)}: {name} is {one_line(old)} in the table, but "
                f"{one_line(new)} was given; the two were computed or named differently, so keep "
                "them in two tables"
            )


def _equal(columns: tuple[str, ...]) -> str:
    return " AND ".join(f"{name} = ?" for name in columns)


def _values(row: Row, columns: tuple[str, ...]) -> tuple[Any, ...]:
    # NaN is NULL in SQLite, and None equals None.
    values = (row[name] for name in columns)
    return tuple(None if isinstance(v, float) and math.isnan(v) else v for v in values)


def _describe(connection: sqlite3.Connection, table: str, row: Row) -> str:
    """A key in words, with the numbers of other rows replaced by what they stand for."""
    words = {name: row[name] for name in COLUMNS[table].key}
    for reference in ("problem", "setting"):
        if reference in words:
            columns = ", ".join(COLUMNS[reference].key)
            found = connection.execute(
                f"SELECT {columns} FROM main.{reference} WHERE id = ?", (words[reference],)
            )
            words[reference] = " ".join(str(value) for value in found.fetchone())
    return f"{table} with " + ", ".join(f"{name} {value}" for name, value in words.items())
