"""The file of a `Memory`: its SQLite schema, how it is opened, which of its rows are believed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from roundwise._sqlite import FileKind, code_of, transaction, use_write_ahead_log
from roundwise.exceptions import RoundwiseError

APPLICATION_ID = 0x52574D45  # "RWME"

_CREATE = """
    CREATE TABLE arm (
        machine TEXT NOT NULL,
        cell TEXT NOT NULL,       -- the systems that it is about: `Seen.bin` or `Seen.series`
        action TEXT NOT NULL,     -- that solves started with
        count INTEGER NOT NULL,   -- solves
        weight REAL NOT NULL,     -- the same, older ones discounted
        cost REAL NOT NULL,       -- sum of seconds over priced seconds in FP64, discounted
        priced REAL NOT NULL,     -- the same of what the work was priced at
        PRIMARY KEY (machine, cell, action)
    ) WITHOUT ROWID"""

_UPGRADES = (
    (_CREATE,),
    # Version 2 stores bins by number, and starts as actions. The keys of version 1 were sentences;
    # its numbers stay in the file.
    ("ALTER TABLE arm RENAME TO arm_1", _CREATE),
)

LARGEST_COUNT, LARGEST_NUMBER = 2**53, 1e30
"""Counts and numbers beyond, or below 0 and 1 / LARGEST_NUMBER, were not learned from solves."""

SOUND = " AND ".join(
    [
        f"typeof(cell) = 'text' AND typeof(action) = 'text' AND count BETWEEN 0 AND {LARGEST_COUNT}"
        " AND typeof(count) = 'integer'",
        *(
            f"typeof({name}) = 'real' AND {name} BETWEEN {1 / LARGEST_NUMBER} AND {LARGEST_NUMBER}"
            for name in ("weight", "cost", "priced")
        ),
    ]
)
"""SQL's condition for a row that solves can have taught; others are passed over and replaced."""

_REMOVE_UNSOUND = f"""
    DELETE FROM arm
    WHERE machine = :machine AND cell = :cell AND action = :action AND NOT ({SOUND})"""

_ADD = f"""
    INSERT INTO arm VALUES (:machine, :cell, :action, :count, :weight, :cost, :priced)
    ON CONFLICT DO UPDATE SET
        count = min(count + excluded.count, {LARGEST_COUNT}),
        weight = weight * :discount + excluded.weight,
        cost = cost * :discount + excluded.cost,
        priced = priced * :discount + excluded.priced"""


class MemoryFileError(RoundwiseError):
    """A file that cannot serve as a solver's memory; the message says why and what to do."""


FILE = FileKind(
    name="solver's memory",
    application_id=APPLICATION_ID,
    error=MemoryFileError,
    if_damaged="move or delete it, and learning starts anew",
    if_locked="wait for it, or choose another path",
)


def opened(path: Path | None, seconds: float) -> tuple[sqlite3.Connection, bool]:
    """A connection, and whether it can write; waits so long for another process.

    If the file or its folder is read-only, the connection is to a copy in memory.
    """
    if path is not None and path.is_file() and not os.access(path, os.W_OK):
        return _copied(path), False  # SQLite would leave a read-only log beside it
    try:
        return _opened(path, seconds), True
    except sqlite3.DatabaseError as error:
        unwritable = code_of(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
        if path is None or not path.is_file() or not unwritable:
            raise
    except UnicodeDecodeError as error:  # SQLite quotes what a damaged file says
        raise FILE.damaged(path, error) from error
    return _copied(path), False


def _opened(path: Path | None, seconds: float) -> sqlite3.Connection:
    target = ":memory:" if path is None else path
    connection = sqlite3.connect(
        target, timeout=seconds, isolation_level=None, check_same_thread=False
    )
    with ExitStack() as unless_ready:
        unless_ready.callback(connection.close)
        FILE.check(connection, path, len(_UPGRADES))
        use_write_ahead_log(connection, seconds)
        connection.execute("PRAGMA synchronous = NORMAL")
        FILE.upgrade(connection, path, _UPGRADES)
        unless_ready.pop_all()
    return connection


def _copied(path: Path) -> sqlite3.Connection:
    """A copy in memory of a file that cannot be written, or SQLite's log beside it."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with ExitStack() as unless_ready:
        unless_ready.callback(connection.close)
        logged = path.with_name(f"{path.name}-wal").exists()  # another process may write to it
        address = f"{path.absolute().as_uri()}?mode=ro&immutable={int(not logged)}"
        with closing(sqlite3.connect(address, uri=True)) as source:
            source.backup(connection)
        FILE.check(connection, path, len(_UPGRADES))
        FILE.upgrade(connection, path, _UPGRADES)
        unless_ready.pop_all()
    return connection


def write(connection: sqlite3.Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add observations, with the machine that each was made on: all or none."""
    rows = list(rows)
    with transaction(connection):
        connection.executemany(_REMOVE_UNSOUND, rows)
        connection.executemany(_ADD, rows)
