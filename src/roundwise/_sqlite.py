"""SQLite files of Roundwise: checks before they are used, and errors that name the remedy."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from roundwise._files import one_line
from roundwise.exceptions import RoundwiseError

SECONDS_TO_WAIT = 60.0  # for the transaction of another process

Upgrades = tuple[tuple[str, ...], ...]
"""The statements that lead from each version of a file to the newest; version 0 is empty."""


@dataclass(frozen=True)
class FileKind:
    """A kind of file; `application_id`, in its header, tells it from other SQLite files.

    `if_damaged` and `if_locked` say what a user can do about it; `error` is what is raised.
    """

    name: str
    application_id: int
    error: type[RoundwiseError]
    if_damaged: str
    if_locked: str

    @contextmanager
    def errors(self, path: Path | None) -> Iterator[None]:
        """Turn SQLite's errors into one line that names the remedy."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self.error(f"{path}: {self.remedy(error)}") from error
        except UnicodeDecodeError as error:  # SQLite quotes what a damaged file says
            raise self.damaged(path, error) from error

    def check(self, connection: sqlite3.Connection, path: Path | None, newest: int) -> None:
        """Refuse, without writing, a file that is foreign, newer or damaged."""
        connection.execute("PRAGMA trusted_schema = OFF")  # it may not be ours
        with snapshot(connection):  # else another process may make the file between two looks
            self._version(connection, path, newest)
        damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if damage != "ok":
            raise self.damaged(path, damage)

    def damaged(self, path: Path | None, what: object) -> RoundwiseError:
        """The error about a file with this damage."""
        return self.error(f"{path}: damaged ({one_line(what)}); {self.if_damaged}")

    def upgrade(
        self, connection: sqlite3.Connection, path: Path | None, upgrades: Upgrades
    ) -> None:
        """Run the statements ``upgrades[version]``, which lead to version ``len(upgrades)``.

        A file that then lacks a table or column is refused.
        """
        newest = len(upgrades)
        with snapshot(connection):
            version = self._version(connection, path, newest)
        if version < newest:
            with transaction(connection):
                version = self._version(connection, path, newest)
                if version < newest:  # else another process was first
                    for statement in upgrades[version]:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {self.application_id}")
                    connection.execute(f"PRAGMA user_version = {newest}")
        found = _columns(connection)
        for table, columns in _expected_columns(upgrades).items():
            if found.get(table) != columns:
                raise self.damaged(path, f"the columns of its table {table} are not those it needs")

    def _version(self, connection: sqlite3.Connection, path: Path | None, newest: int) -> int:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != self.application_id and (application or version or tables):
            raise self.error(f"{path}: a database, but no {self.name}; choose another path")
        if version > newest:
            raise self.error(
                f"{path}: has schema version {version}, newer than this Roundwise knows "
                f"({newest}); upgrade roundwise, or choose another path"
            )
        if version < 0:
            raise self.damaged(path, f"its schema version is {version}")
        return int(version)

    def remedy(self, error: sqlite3.DatabaseError) -> str:
        """The error, and what a user can do about it, in one line."""
        locked = f"locked by another process; {self.if_locked}"
        remedies = {
            sqlite3.SQLITE_NOTADB: f"no {self.name}; choose another path",
            sqlite3.SQLITE_CORRUPT: f"damaged ({one_line(error)}); {self.if_damaged}",
            sqlite3.SQLITE_BUSY: locked,
            sqlite3.SQLITE_LOCKED: locked,
            sqlite3.SQLITE_READONLY: "cannot be written; give write permission to it and its "
            "folder, or copy it",
            sqlite3.SQLITE_FULL: "the disk is full; free some space and run this again: what was "
            "stored before is kept",
            sqlite3.SQLITE_IOERR: f"{error}; check that its disk works and has space: what was "
            "stored before is kept",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder exists and may be "
            "written",
        }
        return remedies.get(code_of(error), f"SQLite reports: {one_line(error)}")


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary code of an error, like `sqlite3.SQLITE_BUSY`; 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF  # the rest tells details


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing: commits at the end, and rolls back if anything is raised."""
    with connection:  # commits or rolls back, also if a signal interrupts; it does not close
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """A block whose reads all see the file as it was at the first one."""
    try:
        connection.execute("BEGIN")
        yield
    finally:
        connection.rollback()  # nothing to do where an error of SQLite has ended the transaction


def use_write_ahead_log(connection: sqlite3.Connection, seconds: float) -> None:
    """Switch the journal; SQLite does not wait for other processes here, so this does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


Columns = dict[str, list[tuple[str, str, int, int]]]


def _columns(connection: sqlite3.Connection) -> Columns:
    """The columns of each table: name, type, whether NULL is refused, place in the key."""
    found: Columns = {}
    rows = connection.execute(
        'SELECT t.name, c.name, c.type, c."notnull", c.pk '
        "FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY c.cid"
    )
    for table, *column in rows:
        found.setdefault(table, []).append(tuple(column))
    return found


@cache
def _expected_columns(upgrades: Upgrades) -> Columns:
    with closing(sqlite3.connect(":memory:")) as made:
        for statement in upgrades[0]:
            made.execute(statement)
        return _columns(made)
