"""How the benchmarks take times: contenders take turns, with a pause before each call.

A busy moment then meets all of them, and none runs beside threads that the one before left
spinning.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

PAUSE = 0.15
"""Seconds before each call: the threads of a BLAS go on spinning for up to a tenth of a second."""


def median_seconds(
    repeats: int, *contenders: Callable[[], object], pause: float = PAUSE
) -> list[float]:
    """The median time of each contender."""
    times: list[list[float]] = [[] for _ in contenders]
    for _ in range(repeats):
        for call, taken in zip(contenders, times, strict=True):
            time.sleep(pause)
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]
