"""How the benchmarks take times: contenders take turns, with a pause before each call.

A busy moment then meets all of them, and none runs beside threads that the one before left
spinning.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Clock = Callable[[], float]

PAUSE = 0.15
"""Seconds before each call: the threads of a BLAS go on spinning for up to a tenth of a second."""


def in_turns(repeats: int, *contenders: Callable[[], T], pause: float = PAUSE) -> list[list[T]]:
    """What the calls of each contender return."""
    found: list[list[T]] = [[] for _ in contenders]
    for _ in range(repeats):
        for call, results in zip(contenders, found, strict=True):
            time.sleep(pause)
            results.append(call())
    return found


def timed(call: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """The seconds of one call; `time.process_time` counts those of all threads."""
    start = clock()
    call()
    return clock() - start


def median_seconds(
    repeats: int,
    *contenders: Callable[[], object],
    pause: float = PAUSE,
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
