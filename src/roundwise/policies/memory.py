"""What an `OnlinePolicy` remembers: an SQLite file that several threads and processes may share.

Every change is one transaction, so that nothing is lost between processes and a process that is
killed leaves a valid file. The journal is a write-ahead log: a commit then needs no wait for the
disk. (A power failure may take the last commits with it, but leaves the file valid, too.) Keep the
file on a local disk: write-ahead logs do not work over a network.
"""

from __future__ import annotations

import ctypes
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from roundwise._forking import ForkSafeLock
from roundwise._sqlite import SECONDS_TO_WAIT, FileKind, transaction, use_write_ahead_log
from roundwise.exceptions import RoundwiseError
from roundwise.machine import Machine

APPLICATION_ID = 0x52574D45  # "RWME"

SECONDS_TO_FORK = 5.0
"""How long a fork waits for a transaction of another thread; it takes milliseconds, unless another
process has locked the file."""

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

_ADD = """
    INSERT INTO arm VALUES (:machine, :cell, :action, :count, 1.0, :cost, :priced)
    ON CONFLICT DO UPDATE SET
        count = count + excluded.count,
        weight = weight * :discount + 1.0,
        cost = cost * :discount + excluded.cost,
        priced = priced * :discount + excluded.priced"""


class MemoryFileError(RoundwiseError):
    """A file that cannot serve as a solver's memory; the message says why and what to do."""


_FILE = FileKind(
    name="solver's memory",
    application_id=APPLICATION_ID,
    error=MemoryFileError,
    if_damaged="move or delete it, and learning starts anew",
    if_locked="choose another path",
)


@dataclass(frozen=True)
class Arm:
    """What starting with an action took, on the systems of a cell."""

    count: int = 0
    weight: float = 0.0
    cost: float = 0.0
    priced: float = 0.0

    def faded(self, share: float) -> Arm:
        """A copy whose sums are scaled by `share`."""
        return Arm(
            int(share * self.count), *(share * x for x in (self.weight, self.cost, self.priced))
        )


@dataclass(frozen=True)
class Observation:
    """What starting with an action took; `count` is 0 if it is inferred from another start."""

    cell: str
    action: str
    count: int
    cost: float
    priced: float
    discount: float


class Memory:
    """Arms by cell, for the machine as it is set now: in a file, or in this process alone.

    Threads may share it. SQLite's connections do not survive a fork, not even to be closed in the
    child. So a fork waits until the connection is idle; that to a file is closed before it, and
    opened again when it is next needed.
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._connection: sqlite3.Connection | None = self._open()
        self._was_cut_off = False  # by a fork in the middle of a transaction
        self._lock = ForkSafeLock(self, SECONDS_TO_FORK)

    def before_fork(self) -> None:
        if self.path is not None:
            self._disconnect()

    def in_forked_child(self, whole: bool) -> None:
        if self._connection is not None and not (whole and self.path is None):
            # Never to be closed, not even when the process ends: closing it here could remove
            # locks, or the log, that the parent relies on.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            self._was_cut_off = True

    @property
    def machine(self) -> str:
        """Whose times these are; another number of threads is another machine."""
        return Machine.this().key

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy opens the same file; without one it takes along what is remembered."""
        rows = None if self.path is not None else self._execute("SELECT * FROM arm")
        return _copied, (self.path, rows)

    def cell(self, name: str) -> dict[str, Arm]:
        """What is remembered, by action."""
        rows = self._execute(
            "SELECT action, count, weight, cost, priced FROM arm WHERE machine = ? AND cell = ?",
            (self.machine, name),
        )
        return {row[0]: Arm(*row[1:]) for row in rows}

    def cells(self) -> dict[str, dict[str, Arm]]:
        """Everything that is remembered of this machine."""
        query = "SELECT DISTINCT cell FROM arm WHERE machine = ? ORDER BY cell"
        names = [name for (name,) in self._execute(query, (self.machine,))]
        return {name: self.cell(name) for name in names}

    def clear(self) -> None:
        """Forget what is remembered of this machine."""
        self._execute("DELETE FROM arm WHERE machine = ?", (self.machine,))

    def put(self, cell: str, action: str, arm: Arm) -> None:
        """Remember an arm as it is."""
        values = (self.machine, cell, action, arm.count, arm.weight, arm.cost, arm.priced)
        self._execute("INSERT OR REPLACE INTO arm VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def add(self, observations: Iterable[Observation]) -> None:
        """Add these, all or none."""
        machine = self.machine
        rows = [vars(observation) | {"machine": machine} for observation in observations]
        with self._connected() as connection, transaction(connection):
            connection.executemany(_ADD, rows)

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, query: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            return connection.execute(query, arguments).fetchall()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time."""
        with self._lock, _FILE.errors(self.path):
            if self._was_cut_off:
                raise MemoryFileError(
                    "this process was forked while another thread was learning, so that it cannot "
                    "learn; fork at another time, or start processes by 'spawn'"
                )
            if self._connection is None:
                self._connection = self._open()
            yield self._connection

    def _open(self) -> sqlite3.Connection:
        target = ":memory:" if self.path is None else self.path
        with _FILE.errors(self.path):
            connection = sqlite3.connect(
                target, timeout=SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False
            )
            with ExitStack() as unless_ready:
                unless_ready.callback(connection.close)
                _FILE.check(connection, self.path, len(_UPGRADES))
                use_write_ahead_log(connection)
                connection.execute("PRAGMA synchronous = NORMAL")
                _FILE.upgrade(connection, self.path, _UPGRADES)
                unless_ready.pop_all()
        return connection


def _copied(path: Path | None, rows: list[tuple[Any, ...]] | None) -> Memory:
    memory = Memory(path)
    for row in rows or ():
        memory._execute("INSERT INTO arm VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return memory
