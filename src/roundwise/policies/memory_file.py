"""The file of a `Memory`: its SQLite schema, how it is opened, which of its rows are believed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from roundwise._sqlite import FileKind, code_of, use_write_ahead_log
from roundwise.exceptions import RoundwiseError

Row = tuple[str, str, str, int, float, float, float, float]
"""Machine, cell, action; count, weight, cost, priced, to be added; discount of what is there."""

APPLICATION_ID = 0x52574D45  # "RWME"

_CREATE = """
    CREATE TABLE arm (
        machine TEXT NOT NULL,
        cell TEXT NOT NULL,       -- the systems that it is about: `Profile.bin` or `Profile.series`
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

_ADD = f"""
    INSERT OR REPLACE INTO arm
    WITH new(its_machine, its_cell, its_action, more, w, c, p, discount) AS (VALUES {{rows}})
    SELECT its_machine, its_cell, its_action, min(coalesce(count, 0) + more, {LARGEST_COUNT}),
        coalesce(weight, 0) * discount + w,
        coalesce(cost, 0) * discount + c,
        coalesce(priced, 0) * discount + p
    FROM new LEFT JOIN arm
    ON machine = its_machine AND cell = its_cell AND action = its_action AND {SOUND}"""
_PARAMETERS = 8
"""Numbers that a row has."""


class MemoryFileError(RoundwiseError):
    """A file that cannot serve as a solver's memory; the message says why and what to do."""


FILE = FileKind(
    name="solver's memory",
    application_id=APPLICATION_ID,
    error=MemoryFileError,
    if_damaged="move or delete it, and learning starts anew",
    if_locked="wait for it, or choose another path",
)


def opened(path: Path, seconds: float) -> tuple[sqlite3.Connection, bool]:
    """A connection, and whether it can write; waits so long for another process.

    If the file or its folder is read-only, the connection is to a copy in memory.
    """
    if path.is_file() and not os.access(path, os.W_OK):
        return _copied(path), False  # SQLite would leave a read-only log beside it
    try:
        return _opened(path, seconds), True
    except sqlite3.DatabaseError as error:
        unwritable = code_of(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
        if not path.is_file() or not unwritable:
            raise
    except UnicodeDecodeError as error:  # SQLite quotes what a damaged file says
        raise FILE.damaged(path, error) from error
    return _copied(path), False


def _opened(path: Path, seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=seconds, isolation_level=None, check_same_thread=False
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


def write(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Add observations, each with its own key, in one statement: all or none, whatever interrupts.

    More than SQLite's parameters have room for are written some thousands at a time.
    """
    most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // _PARAMETERS
    for start in range(0, len(rows), most):
        block = rows[start : start + most]
        places = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * len(block))
        connection.execute(_ADD.format(rows=places), [value for row in block for value in row])
