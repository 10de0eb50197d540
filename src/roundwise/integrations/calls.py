"""A program's calls of replaced functions: where they are, what they took, what was gained.

A `Ledger` has a line for every place in the program that calls one of these functions. Where
Roundwise answered, the original function is now and then called as well, and timed: at most for
`SHARE` of the time that the program has run.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

SHARE = 0.02
"""How much of a program's time the original functions may take to be compared with. A taste: what
is lost is then below what two runs of a program differ by."""

REFUSALS = 3
"""A place where so many calls, and a quarter of all, were refused, goes on with the original one: a
taste, as a refused call takes about twice as long."""


@dataclass
class Place:
    """One place in a program, and its calls of one function."""

    where: str
    name: str
    calls: int = 0
    ours: int = 0  # how many of them Roundwise answered
    refused: int = 0  # and how many it tried to
    seconds: float = 0.0  # of all
    seconds_ours: float = 0.0  # of those that Roundwise answered
    wasted: float = 0.0  # of refused calls, before the original one was called
    ratios: list[float] = field(default_factory=list)  # original / ours, of calls compared
    smallest: tuple[int, ...] = ()
    largest: tuple[int, ...] = ()
    difference: float = 0.0  # the largest one that a check found, relative to the answer
    avoided: str = ""  # why the original function is called here from now on

    def count(self, size: tuple[int, ...], seconds: float, calls: int = 1) -> None:
        self.calls += calls
        self.seconds += seconds * calls
        if size:
            self.smallest = min(self.smallest or size, size)
            self.largest = max(self.largest, size)

    def refuse(self, wasted: float) -> None:
        self.refused += 1
        self.wasted += wasted
        if self.refused >= REFUSALS and 4 * self.refused >= self.calls:
            self.avoided = "ours often refused"

    def add(self, other: Place) -> None:
        """What another process has found at the same place."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        sizes = [one for one in (self.smallest, other.smallest) if one]
        self.smallest = min(sizes) if sizes else ()
        self.largest = max(self.largest, other.largest)
        self.difference = max(self.difference, other.difference)
        self.avoided = self.avoided or other.avoided

    @property
    def original(self) -> float | None:
        """The seconds that the original function would have taken; None if nothing was compared."""
        theirs = self.seconds - self.seconds_ours - self.wasted
        if not self.ours:
            return theirs
        if not self.ratios:
            return None
        from statistics import median  # a program is not to wait for it

        return theirs + self.seconds_ours * median(self.ratios)


COUNTS = (*("calls", "ours", "refused", "seconds", "seconds_ours", "wasted"), "ratios")


@dataclass
class Ledger:
    """The calls of one process, and of those that it has started.

    Parameters
    ----------
    check : bool
        Compare every answer with the original function's.
    """

    check: bool = False
    start: float = field(default_factory=perf_counter)
    spent: float = 0.0  # seconds of comparisons
    waited: float = 0.0  # seconds of calls that ours could have answered, had it been loaded
    loading: float = 0.0  # seconds that loading ours took
    _places: dict[tuple[CodeType, int, str], Place] = field(default_factory=dict)
    _others: list[Place] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def place(self, frame: FrameType, name: str) -> Place:
        """That of a call from this frame."""
        key = frame.f_code, frame.f_lasti, name
        found = self._places.get(key)
        if found is None:
            where = f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"
            found = self._places.setdefault(key, Place(where, name))
        return found

    def may_compare(self, place: Place, seconds: float) -> bool:
        """Whether the original function is to be timed after a call that took so long."""
        if self.check:
            return True
        if len(place.ratios) > place.ours.bit_length():
            return False
        return self.spent + 3 * seconds <= SHARE * (perf_counter() - self.start)

    def is_worth_loading(self, waited: float, elapsed: float) -> bool:
        """Whether calls that ours could have answered, and the program, have taken as long."""
        return self.waited >= waited and perf_counter() - self.start >= elapsed

    def clear(self) -> None:
        """Forget all calls: what a forked process inherits are its parent's."""
        self._places, self._others, self.lock = {}, [], threading.Lock()
        self.start, self.spent, self.loading = perf_counter(), 0.0, 0.0

    @property
    def places(self) -> list[Place]:
        """All of them, also of other processes, those that took longest first."""
        merged: dict[tuple[str, str], Place] = {}
        for one in (*self._places.values(), *self._others):
            merged.setdefault((one.where, one.name), Place(one.where, one.name)).add(one)
        return sorted(merged.values(), key=lambda one: -one.seconds)

    def save(self, path: Path) -> None:
        """For the process that started this one."""
        path.write_text(json.dumps([asdict(one) for one in self.places]))

    def read(self, paths: Iterable[Path]) -> None:
        """What other processes have saved."""
        for path in paths:
            for saved in json.loads(path.read_text()):
                sizes = {name: tuple(saved[name]) for name in ("smallest", "largest")}
                self._others.append(Place(**saved | sizes))

    def __str__(self) -> str:
        return table(self.places, perf_counter() - self.start, self.loading, self.check)


def table(places: list[Place], elapsed: float, loading: float, check: bool) -> str:
    """What `python -m roundwise run` writes at the end."""
    if not places:
        return "roundwise: the program called none of the functions that are replaced"
    head = ["where", "function", "calls", "size", "seconds", "by roundwise", "originally", "gain"]
    rows = [head + ["difference"] * check]
    gain, unknown = -loading, 0
    for one in places:
        was = one.original
        gain += 0.0 if was is None else was - one.seconds
        unknown += was is None
        by = f"{one.ours} of {one.calls}" if one.ours else "-"
        by += f" ({one.refused} refused)" * bool(one.refused)
        told = [one.where, one.name, str(one.calls), _sizes(one), _seconds(one.seconds), by]
        told += [_seconds(was), "?" if was is None else _seconds(was - one.seconds)]
        rows.append(told + [f"{one.difference:.0e}" if one.ours else "-"] * check)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {0, 1, 3, 5}
    lines = [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    verdict = f"{gain:.3g} s gained" if gain >= 0 else f"{-gain:.3g} s lost"
    lines.append(f"roundwise: about {verdict} in a program of {elapsed:.3g} s")
    if loading:
        lines[-1] += f", {loading:.2g} s for loading roundwise included"
    if unknown:
        lines.append(
            f'"?" at {unknown} of {len(places)} places: the program was too short to compare '
            "with the original function; --check does"
        )
    return "\n".join(lines)


def _sizes(one: Place) -> str:
    if not one.largest:
        return "-"
    ends = [" x ".join(map(str, size)) for size in (one.smallest, one.largest)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _seconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.3f}"


def _short(path: str) -> str:
    """A file's name as people know it: from its package on, or below the working folder."""
    given = Path(path)
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        if given.is_relative_to(folder):
            return str(given.relative_to(folder))
    return path


Answer = Callable[..., Any]
