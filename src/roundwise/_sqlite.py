"""SQLite files of Roundwise: checks before they are used, and errors that name the remedy."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from roundwise.exceptions import RoundwiseError

SECONDS_TO_WAIT = 60.0  # for the transaction of another process


@dataclass(frozen=True)
class FileKind:
    """What a file holds; `application_id`, in its header, tells it from other SQLite files.

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
            raise self.error(f"{path}: {self._remedy(error)}") from error

    def check(self, connection: sqlite3.Connection, path: Path | None, newest: int) -> None:
        """Refuse, without writing, a file that is foreign, newer or damaged."""
        with snapshot(connection):  # else another process may make the file between two looks
            self._version(connection, path, newest)
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise self.error(f"{path}: damaged ({' '.join(damage.split())}); {self.if_damaged}")

    def upgrade(
        self,
        connection: sqlite3.Connection,
        path: Path | None,
        upgrades: Sequence[Sequence[str]],
    ) -> None:
        """Run the statements ``upgrades[version]``, which lead to version ``len(upgrades)``.

        An empty file has version 0.
        """
        newest = len(upgrades)
        with snapshot(connection):
            version = self._version(connection, path, newest)
        if version == newest:
            return
        with transaction(connection):
            version = self._version(connection, path, newest)
            if version == newest:
                return  # another process was first
            for statement in upgrades[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self.application_id}")
            connection.execute(f"PRAGMA user_version = {newest}")

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
        return int(version)

    def _remedy(self, error: sqlite3.DatabaseError) -> str:
        locked = f"locked by another process for a minute; {self.if_locked}"
        remedies = {
            sqlite3.SQLITE_NOTADB: f"no {self.name}; choose another path",
            sqlite3.SQLITE_CORRUPT: f"damaged ({error}); {self.if_damaged}",
            sqlite3.SQLITE_BUSY: locked,
            sqlite3.SQLITE_LOCKED: locked,
            sqlite3.SQLITE_READONLY: "cannot be written; give write permission to it and its "
            "folder, or copy it",
            sqlite3.SQLITE_FULL: "the disk is full; free some space and run this again: what was "
            "stored before is kept",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder exists and may be "
            "written",
        }
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code
        return remedies.get(code, f"SQLite reports: {error}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing: commits at the end, and rolls back if anything is raised."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits or rolls back; it does not close
        yield


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """What is read within sees the file as it was at the first look."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the journal; SQLite does not wait for other processes here, so this does."""
    deadline = time.monotonic() + SECONDS_TO_WAIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
