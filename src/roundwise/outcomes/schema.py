"""The file behind an `OutcomeTable`: its SQLite schema, how it is opened, and its errors.

`docs/outcome-table.md` describes the format for readers of the file. Two decisions matter:

- The journal is SQLite's rollback journal, not WAL. A transaction is as atomic under kill -9 with
  either, but WAL needs memory shared between all users of the file, which a network file system
  does not give, and keeps committed results in a second file beside the table. What WAL would
  gain, readers that never wait, is nothing here: a write takes milliseconds.
- Every operation opens the file, and closes it. No connection outlives a call, so a table object
  can be copied, pickled and used from any thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from roundwise._sqlite import SECONDS_TO_WAIT, FileKind
from roundwise.algorithms import OutcomeStatus
from roundwise.exceptions import RoundwiseError

APPLICATION_ID = 0x52574F54  # "RWOT"; in the header of the file, where `file` and SQLite show it

RESULTS_VERSION = 2
"""Part of the key of every outcome and feature: which numbers the library computes.

Raise it whenever a change to kernels, algorithms, error measures or features changes a bit of a
result: stored facts then stay in the file, but are no longer found, and are computed anew. The
version of the package would be the wrong key: most releases change no number, and would throw
days of computation away, while a change between two releases would go unnoticed. It is stored
as provenance.
"""

# Columns that hold a float64 have no declared type: REAL would lose the sign of -0.0. SQLite has
# no NaN; NULL stands for it.
_TABLES = (
    """
    CREATE TABLE problem (
        id INTEGER PRIMARY KEY,
        fingerprint TEXT NOT NULL UNIQUE,
        n INTEGER NOT NULL,
        norm_A,       -- max_i sum_j |a_ij|
        norm_x_true,  -- max_i |x_i|, NULL if the solution is not known
        norm_b,       -- sqrt(sum_i b_i^2)
        name TEXT NOT NULL,
        meta TEXT NOT NULL  -- JSON object
    )""",
    """
    CREATE TABLE format (
        name TEXT PRIMARY KEY,
        definition TEXT NOT NULL  -- JSON object
    )""",
    """
    CREATE TABLE setting (
        id INTEGER PRIMARY KEY,
        algorithm TEXT NOT NULL,  -- canonical JSON
        arithmetic TEXT NOT NULL,
        results_version INTEGER NOT NULL,
        UNIQUE (algorithm, arithmetic, results_version)
    )""",
    """
    CREATE TABLE origin (
        id INTEGER PRIMARY KEY,
        facts TEXT NOT NULL UNIQUE  -- JSON object: package versions, machine, instruction set
    )""",
    """
    CREATE TABLE feature (
        problem INTEGER NOT NULL REFERENCES problem,
        results_version INTEGER NOT NULL,
        name TEXT NOT NULL,
        value,
        seconds,
        origin INTEGER NOT NULL REFERENCES origin,
        PRIMARY KEY (problem, results_version, name)
    ) WITHOUT ROWID""",
    """
    CREATE TABLE outcome (
        setting INTEGER NOT NULL REFERENCES setting,
        problem INTEGER NOT NULL REFERENCES problem,
        action TEXT NOT NULL,
        status TEXT NOT NULL,
        ferr,
        nbe,
        cbe,
        outer_iterations INTEGER NOT NULL,
        inner_iterations INTEGER NOT NULL,
        reason TEXT NOT NULL,
        operations TEXT NOT NULL,  -- JSON object {stage: {format, flops, bytes}}
        history TEXT NOT NULL,     -- JSON array of objects, one per outer step
        origin INTEGER NOT NULL REFERENCES origin,
        PRIMARY KEY (setting, problem, action)
    )""",
)

# Version 2: times of native runs. What a feature costs depends on the machine too, and its value
# on the factors it came from: both are now part of its key.
_MEASUREMENTS = (
    """
    CREATE TABLE measurement (
        setting INTEGER NOT NULL REFERENCES setting,
        problem INTEGER NOT NULL REFERENCES problem,
        action TEXT NOT NULL,
        repeat INTEGER NOT NULL,  -- 0, 1, ...
        seconds,
        timings TEXT NOT NULL,  -- JSON object {stage or "verify": seconds}
        peak_bytes INTEGER,     -- NULL if not measured
        origin INTEGER NOT NULL REFERENCES origin,
        PRIMARY KEY (setting, problem, action, repeat)
    ) WITHOUT ROWID""",
    "ALTER TABLE feature RENAME TO feature_1",
    """
    CREATE TABLE feature (
        problem INTEGER NOT NULL REFERENCES problem,
        results_version INTEGER NOT NULL,
        arithmetic TEXT NOT NULL,
        name TEXT NOT NULL,
        value,
        seconds,
        origin INTEGER NOT NULL REFERENCES origin,
        PRIMARY KEY (problem, results_version, arithmetic, name)
    ) WITHOUT ROWID""",
    """
    INSERT INTO feature (problem, results_version, arithmetic, name, value, seconds, origin)
    SELECT problem, results_version, 'operation', name, value, seconds, origin FROM feature_1""",
    "DROP TABLE feature_1",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_TABLES, _MEASUREMENTS)
"""Statements that lead from each schema version to the next; version 0 is an empty file.

To change the schema, append a step, change none, and name new columns in
`roundwise.outcomes.writing.COLUMNS`.
"""


class OutcomeTableError(RoundwiseError):
    """An outcome table that cannot be read or written, or whose facts contradict others."""


class DamagedText(ValueError):
    """A text in a table does not say what it should; `opened` adds the table's name."""


FILE = FileKind(
    name="outcome table",
    application_id=APPLICATION_ID,
    error=OutcomeTableError,
    if_damaged="restore it from a copy, or delete it and fill it again",
    if_locked="give each its own file and merge them",
)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode, closed at the end; errors of SQLite get one clear line."""
    with (
        FILE.errors(path),
        closing(sqlite3.connect(path, timeout=SECONDS_TO_WAIT, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        try:
            yield connection
        except DamagedText as error:
            raise FILE.damaged(path, error) from error


def prepare(path: Path) -> None:
    """Check that the file is a sound outcome table; make it if it is empty or not there."""
    upgrades = tuple(sum(MIGRATIONS[version:], ()) for version in range(len(MIGRATIONS)))
    with opened(path) as connection:
        FILE.check(connection, path, len(upgrades))
        FILE.upgrade(connection, path, upgrades)
        for table, condition in _CONDITIONS.items():
            query = f"SELECT count(*) FROM {table} WHERE NOT ({condition})"
            (wrong,) = connection.execute(query).fetchone()
            if wrong:
                raise FILE.damaged(
                    path, f"what {wrong} rows of its table {table} hold is no {table}"
                )
        if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise FILE.damaged(path, "rows refer to others that are missing")


def _are(types: str, *names: str) -> str:
    """SQL: the values of these columns are of one of the types."""
    return " AND ".join(f"typeof({name}) IN ({types})" for name in names)


def _is_json(name: str, kind: str) -> str:
    """SQL: this column holds a JSON text of this kind; CASE, as SQLite may evaluate all of AND."""
    return (
        f"CASE WHEN typeof({name}) = 'text' AND json_valid({name}) "
        f"THEN json_type({name}) = '{kind}' ELSE 0 END"
    )


_TEXT, _NUMBER, _COUNT = "'text'", "'real', 'integer', 'null'", "'integer'"
_STATUSES = ", ".join(f"'{status.name}'" for status in OutcomeStatus)

_CONDITIONS = {
    table: " AND ".join(conditions)
    for table, conditions in {
        "problem": (
            _are(_TEXT, "fingerprint", "name"),
            _are(_COUNT, "n"),
            "n >= 1",
            _are(_NUMBER, "norm_A", "norm_x_true", "norm_b"),
            _is_json("meta", "object"),
        ),
        "format": (_are(_TEXT, "name"), _is_json("definition", "object")),
        "setting": (
            _are(_TEXT, "arithmetic"),
            _are(_COUNT, "results_version"),
            _is_json("algorithm", "object"),
        ),
        "origin": (_is_json("facts", "object"),),
        "feature": (
            _are(_TEXT, "arithmetic", "name"),
            _are(_COUNT, "results_version"),
            _are(_NUMBER, "value", "seconds"),
        ),
        "outcome": (
            _are(_TEXT, "action", "reason"),
            f"status IN ({_STATUSES})",
            _are(_NUMBER, "ferr", "nbe", "cbe"),
            _are(_COUNT, "outer_iterations", "inner_iterations"),
            "outer_iterations >= 0 AND inner_iterations >= 0",
            _is_json("operations", "object"),
            _is_json("history", "array"),
        ),
        "measurement": (
            _are(_TEXT, "action"),
            _are(_COUNT, "repeat"),
            _are(_NUMBER, "seconds"),
            _are("'integer', 'null'", "peak_bytes"),
            _is_json("timings", "object"),
        ),
    }.items()
}
"""Conditions on every row, as SQL: a foreign file can hold anything anywhere."""
