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


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode, closed at the end; errors of SQLite get one clear line."""
    try:
        # Waits up to a minute for another process to finish its transaction.
        with closing(sqlite3.connect(path, timeout=60.0, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            yield connection
    except sqlite3.DatabaseError as error:
        raise OutcomeTableError(f"{path}: {_remedy(path, error)}") from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing: commits at the end, and rolls back if anything is raised."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits or rolls back; it does not close
        yield


def prepare(path: Path) -> None:
    """Check that the file is a sound outcome table; make it if it is empty or not there."""
    newest = len(MIGRATIONS)
    with opened(path) as connection:
        version = _checked_version(connection, path)
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise OutcomeTableError(f"{path}: damaged ({' '.join(damage.split())}); {_RESTORE}")
        if version < newest:
            with transaction(connection):
                # Another process may have been first.
                for statements in MIGRATIONS[_checked_version(connection, path) :]:
                    for statement in statements:
                        connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {newest}")


def _checked_version(connection: sqlite3.Connection, path: Path) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise OutcomeTableError(f"{path}: a database, but no outcome table; {_OTHER_PATH}")
    if version > len(MIGRATIONS):
        raise OutcomeTableError(
            f"{path}: has schema version {version}, newer than this Roundwise knows "
            f"({len(MIGRATIONS)}); upgrade roundwise"
        )
    return int(version)


_OTHER_PATH = "choose another path"
_RESTORE = "restore it from a copy, or delete it and fill it again"


def _remedy(path: Path, error: sqlite3.DatabaseError) -> str:
    # Python 3.11 and later give SQLite's own code; the low byte is the primary one.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return f"no outcome table; {_OTHER_PATH}"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"damaged ({error}); {_RESTORE}"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "locked by another process for a minute; give each its own file and merge them"
    if code == sqlite3.SQLITE_READONLY:
        return "cannot be written; give write permission to it and its folder, or copy it"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full; free some space and fill again: finished problems are stored"
    if code == sqlite3.SQLITE_CANTOPEN:
        return "cannot be opened; check that its folder exists and may be written"
    return f"SQLite reports: {error}"
