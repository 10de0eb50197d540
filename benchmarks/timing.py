"""How the benchmarks take times: contenders take turns, with a pause before each call.

A busy moment then meets all of them, and none runs beside threads that the one before left
spinning.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")
Name = TypeVar("Name")
Clock = Callable[[], float]

PAUSE = 0.15
"""Seconds before each call: the threads of a BLAS go on spinning for up to a tenth of a second."""


def in_turns(
    repeats: int, *contenders: Callable[[], T], pause: float | None = None
) -> list[list[T]]:
    """What the calls of each contender return; `pause` is `PAUSE` unless given."""
    found: list[list[T]] = [[] for _ in contenders]
    for _ in range(repeats):
        for call, results in zip(contenders, found, strict=True):
            time.sleep(PAUSE if pause is None else pause)
            results.append(call())
    return found


def timed(call: Callable[[], object], clock: Clock = time.perf_counter, calls: int = 1) -> float:
    """The seconds of one call, the mean of several; `time.process_time` counts all threads'."""
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


def medians(
    repeats: int, contenders: Mapping[Name, Callable[[], float]], pause: float | None = None
) -> dict[Name, float]:
    """The median of the seconds that each contender says it took; the first turn warms up."""
    found = in_turns(repeats + 1, *contenders.values(), pause=pause)
    return {
        name: statistics.median(taken[1:]) for name, taken in zip(contenders, found, strict=True)
    }


def median_seconds(
    repeats: int,
    *contenders: Callable[[], object],
    pause: float | None = None,
    clock: Clock = time.perf_counter,
) -> list[float]:
    """The median time of each contender."""
    calls = [lambda call=call: timed(call, clock) for call in contenders]
    return [statistics.median(taken) for taken in in_turns(repeats, *calls, pause=pause)]


def least_seconds(
    repeats: int, *contenders: Callable[[], object], clock: Clock = time.perf_counter
) -> list[float]:
    """The least time of each contender, without pauses: for work of one thread."""
    calls = [lambda call=call: timed(call, clock) for call in contenders]
    return [min(taken) for taken in in_turns(repeats, *calls, pause=0.0)]


def add_clock(parser: argparse.ArgumentParser) -> None:
    """An option whose value, `clock`, is wall-clock time unless it is given."""
    parser.add_argument(
        "--processor-time",
        dest="clock",
        action="store_const",
        const=time.process_time,
        default=time.perf_counter,
        help="for a machine that is not idle, with one thread",
    )
