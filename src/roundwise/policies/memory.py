"""The memory of an `OnlinePolicy`: an SQLite file that threads and processes may share.

Every change is one transaction, so that nothing is lost between processes and a process that is
killed leaves a valid file. The journal is a write-ahead log: a commit then needs no wait for the
disk. (A power failure may take the last commits with it, but leaves the file valid, too.) Keep the
file on a local disk: write-ahead logs do not work over a network.

A solve does not wait for the file. What cannot be written (another process has locked the file, it
is read-only, the disk is full) waits in this process, which remembers it meanwhile, and is written
with what is learned next, at the latest when the process ends. Without a file everything waits.

SQLite's connections do not survive a fork, not even to be closed in the child, and its locks count
per process: a child that opened a file which its parent had open would believe that it holds the
parent's locks. So a fork waits for the statement that another thread executes, and closes the
connections before; both processes open the file again when they need it.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from roundwise._sqlite import code_of
from roundwise.machine import Machine
from roundwise.policies.memory_file import (
    FILE,
    LARGEST_COUNT,
    LARGEST_NUMBER,
    SOUND,
    MemoryFileError,
    Row,
    opened,
    write,
)

T = TypeVar("T")

SECONDS_TO_OPEN, SECONDS_TO_WRITE, SECONDS_AT_END = 1.0, 0.1, 5.0
"""How long to wait for another process that has locked the file: when it is opened; when a solve
writes (after one wait in vain no more, until a write succeeds); and when this process ends."""

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class MemoryFileWarning(UserWarning):
    """The file of a solver's memory cannot be used for now; answers do not depend on it."""


@dataclass(frozen=True)
class Arm:
    """Sums over the solves of a cell that started with one action."""

    count: int = 0
    weight: float = 0.0
    cost: float = 0.0
    priced: float = 0.0

    @property
    def relative_time(self) -> float:
        """Mean of measured time / predicted FP64 time."""
        return self.cost / self.weight

    def faded(self, share: float) -> Arm:
        """A copy whose sums are scaled by `share`."""
        return Arm(
            int(share * self.count), *(share * x for x in (self.weight, self.cost, self.priced))
        )

    @property
    def is_sound(self) -> bool:
        """Whether solves can have taught this."""
        numbers = self.weight, self.cost, self.priced
        return 0 <= self.count <= LARGEST_COUNT and all(
            1 / LARGEST_NUMBER <= x <= LARGEST_NUMBER for x in numbers
        )


@dataclass(frozen=True)
class Observation:
    """The cost of starting with an action; `count` is 0 if it is inferred from another start.

    Added to an arm, it multiplies the arm's sums by `discount` first.
    """

    cell: str
    action: str
    count: int
    cost: float
    priced: float
    discount: float
    weight: float = 1.0

    def then(self, later: Observation) -> Observation:
        """One observation that changes an arm as this one and then `later` would."""
        d = later.discount
        return Observation(
            self.cell,
            self.action,
            self.count + later.count,
            self.cost * d + later.cost,
            self.priced * d + later.priced,
            self.discount * d,
            self.weight * d + later.weight,
        )

    def added_to(self, arm: Arm) -> Arm:
        d = self.discount
        sums = arm.weight * d + self.weight, arm.cost * d + self.cost, arm.priced * d + self.priced
        return Arm(arm.count + self.count, *sums)


Waiting = dict[tuple[str, str], dict[str, Observation]]
"""Observations still to be written, by machine and cell, and by action."""

_using = RLock()
"""Held by whoever uses a connection or changes what waits: for a statement, or to open a file."""

_with_files: weakref.WeakSet[Memory] = weakref.WeakSet()


class Memory:
    """Arms by cell, for the machine as it is set now: in a file, or in this process alone.

    A file that is foreign, damaged, of a newer version, or cannot be made raises `MemoryFileError`.
    A file that is locked or read-only, or breaks later, causes one `MemoryFileWarning`; what is
    learned then waits in this process. Rows with impossible numbers are skipped.

    Threads may share it, and a forked process goes on with it: without a file with a copy. What
    waits to be written to a file is the parent's.

    Parameters
    ----------
    path : path, optional
        A file; this process alone if not given.

    Examples
    --------
    >>> from roundwise.policies import Memory
    >>> memory = Memory()
    >>> memory.cells()
    {}
    >>> memory.close()
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._connection: sqlite3.Connection | None = None
        self._told: set[str] = set()  # reasons of warnings
        self._in_use = True  # False from a warning to the next write: one is enough
        self._begin()
        if self.path is None:
            return
        with _using:
            _with_files.add(self)
        try:
            self._open(SECONDS_TO_OPEN)
        except sqlite3.DatabaseError as error:
            if code_of(error) not in _LOCKED:
                raise MemoryFileError(f"{self.path}: {FILE.remedy(error)}") from error
            self._warn(f"{self.path}: {FILE.remedy(error)}")

    @property
    def machine(self) -> str:
        """The key under which times are stored: another number of threads is another machine."""
        return Machine.this().key

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy opens the same file; without one it takes along what is remembered."""
        with _using:
            known = {key: arms.copy() for key, arms in self._waiting.items()}
        return _copied, (self.path, {} if self.path else known)

    def cell(self, name: str) -> dict[str, Arm]:
        """The arms of a cell, by action."""
        machine = self.machine
        rows = self._rows(
            "SELECT action, count, weight, cost, priced FROM arm "
            f"WHERE machine = ? AND cell = ? AND {SOUND}",
            (machine, name),
        )
        arms = {action: Arm(*numbers) for action, *numbers in rows}
        for action, observation in self._waiting.get((machine, name), {}).copy().items():
            arms[action] = observation.added_to(arms.get(action, Arm()))
        return arms

    def cells(self) -> dict[str, dict[str, Arm]]:
        """Everything that is remembered of this machine."""
        machine = self.machine
        query = f"SELECT DISTINCT cell FROM arm WHERE machine = ? AND {SOUND}"
        names = {name for (name,) in self._rows(query, (machine,))}
        names |= {cell for theirs, cell in self._waiting.copy() if theirs == machine}
        return {name: self.cell(name) for name in sorted(names)}

    def clear(self) -> None:
        """Forget what is remembered of this machine."""
        machine = self.machine
        if self.path is not None:
            self._execute("DELETE FROM arm WHERE machine = ?", (machine,))
        for key in self._waiting.copy():
            if key[0] == machine:
                self._waiting.pop(key, None)

    def put(self, cell: str, action: str, arm: Arm) -> None:
        """Remember an arm as it is."""
        machine, numbers = self.machine, (arm.count, arm.weight, arm.cost, arm.priced)
        if self.path is not None:
            query = "INSERT OR REPLACE INTO arm VALUES (?, ?, ?, ?, ?, ?, ?)"
            self._execute(query, (machine, cell, action, *numbers))
            return
        known = Observation(cell, action, arm.count, arm.cost, arm.priced, 1.0, arm.weight)
        with _using:
            self._waiting.setdefault((machine, cell), {})[action] = known

    def add(self, observations: Iterable[Observation]) -> None:
        """Add observations, all or none. If the file cannot be written now, warn and keep them."""
        machine, added = self.machine, list(observations)  # which may look at this memory
        with _using:
            for new in added:
                arms = self._waiting.setdefault((machine, new.cell), {})
                known = arms.get(new.action)
                arms[new.action] = new if known is None else known.then(new)
        if self.path is not None:
            self._tried(self._write_waiting)

    def close(self) -> None:
        """Write what waits, if that is possible within seconds, and close the file."""
        with _using:
            self._disconnect()
        self._end()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._writable = None, False

    def _begin(self) -> None:
        """Start without a connection, and with no observations that are to be written."""
        self._waiting: Waiting = {}
        self._connection, self._writable = None, False
        self._patience = SECONDS_TO_WRITE
        self._end = weakref.finalize(self, _end, self.path, self._waiting, os.getpid())

    def _open(self, seconds: float) -> sqlite3.Connection:
        assert self.path is not None
        with _using:
            self._disconnect()
            self._connection, self._writable = opened(self.path, seconds)
            self._be_patient(self._patience)
            return self._connection

    def _be_patient(self, seconds: float) -> None:
        with _using:
            self._patience = seconds
            if self._connection is not None:
                self._connection.execute(f"PRAGMA busy_timeout = {round(1e3 * seconds)}")

    def _rows(self, query: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows that a query finds; none, with a warning, if the file cannot be read now."""
        if self.path is None:
            return []
        return self._tried(lambda: self._fetch(query, arguments)) or []

    def _execute(self, query: str, arguments: Sequence[Any]) -> None:
        """Change the file; a `MemoryFileError` if it cannot be used now."""
        with FILE.errors(self.path):
            self._fetch(query, arguments)

    def _fetch(self, query: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        with _using:
            connection = self._connection or self._open(self._patience)
            return connection.execute(query, arguments).fetchall()

    def _write_waiting(self) -> None:
        with _using:
            if self._connection is None or not self._writable:
                self._open(self._patience)
            if self._connection is None or not self._writable:
                raise MemoryFileError(
                    f"{self.path}: cannot be written; give write permission to it and its folder"
                )
            write(self._connection, _rows_of(self._waiting))
            self._waiting.clear()
            self._in_use = True
            if self._patience == 0.0:
                self._be_patient(SECONDS_TO_WRITE)

    def _tried(self, use: Callable[[], T]) -> T | None:
        """Return ``use()``; if the file cannot be used now, warn and return None.

        If another process has locked it, do not wait for it again until a write has succeeded.
        """
        try:
            return use()
        except sqlite3.DatabaseError as error:
            if code_of(error) in _LOCKED:
                self._be_patient(0.0)
            else:
                self._writable = False  # opened again by the next write: it may have been mended
            self._warn(f"{self.path}: {FILE.remedy(error)}")
        except MemoryFileError as error:
            self._warn(str(error))
        return None

    def _warn(self, reason: str) -> None:
        told, self._in_use = reason in self._told or not self._in_use, False
        if not told:
            self._told.add(reason)
            warnings.warn(
                f"{reason}. Until then, what solves teach is kept in this process.",
                MemoryFileWarning,
                stacklevel=2,
            )


def _close_before_fork() -> None:
    """Wait for the statements of other threads, and keep them from beginning others."""
    _using.acquire()
    for memory in _with_files:
        memory._disconnect()


def _go_on_in_child() -> None:
    for memory in _with_files:
        memory._begin()
    _using.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_close_before_fork, after_in_parent=_using.release, after_in_child=_go_on_in_child
    )


def _rows_of(waiting: Waiting) -> list[Row]:
    return [
        (machine, new.cell, new.action, new.count, new.weight, new.cost, new.priced, new.discount)
        for (machine, _), arms in waiting.items()
        for new in arms.values()
    ]


def _end(path: Path | None, waiting: Waiting, process: int) -> None:
    """Write what still waits, as the `Memory` is no longer used or the process ends."""
    if path is None or not waiting or process != os.getpid():
        return
    try:
        with _using:
            connection, writable = opened(path, SECONDS_AT_END)
            with closing(connection):
                if writable:
                    write(connection, _rows_of(waiting))
                    waiting.clear()
        reason = f"{path}: cannot be written"
    except sqlite3.DatabaseError as error:
        reason = f"{path}: {FILE.remedy(error)}"
    except MemoryFileError as error:
        reason = str(error)
    if waiting:
        told = f"{reason}. What the last solves taught is lost."
        warnings.warn(told, MemoryFileWarning, stacklevel=2)


def _copied(path: Path | None, known: Waiting) -> Memory:
    memory = Memory(path)
    memory._waiting.update(known)
    return memory
