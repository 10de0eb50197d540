"""How many threads a factorization of a small matrix takes: as many as pay.

Waking a thread and waiting for it takes microseconds for every panel, which small matrices do not
have to spare. ``rates.json`` has the milliseconds of our LU by order and number of threads,
measured on a machine with few cores and on one with many by ``python benchmarks/lu_threads.py
--write``. The number to take is the one with the lowest price there.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from roundwise.exceptions import RoundwiseError
from roundwise.machine.rates import shipped_rates

WORTH = 1.03
"""A larger number of threads is taken only if LU is faster by this factor: others may need them. A
taste."""

COLUMNS_EACH = 48
"""Columns that a thread gets at least, for orders beyond those measured. A taste."""

Prices = Mapping[int, float]
"""Milliseconds by number of threads."""


@dataclass(frozen=True)
class Measured:
    """Times of LU on one machine."""

    source: str
    cores: int
    prices: Mapping[int, Mapping[int, Prices]]  # by the bytes of a number, and by order

    def at(self, bytes_of_number: int, order: int) -> Prices | None:
        """Prices for an order, between two that were measured; None beyond the largest one."""
        by_order = self.prices[bytes_of_number]
        orders = sorted(by_order)
        place = bisect_left(orders, order)
        if place == len(orders):
            return None
        high = orders[place]
        if place == 0 or high == order:
            return by_order[high]
        low = orders[place - 1]
        share = math.log(order / low) / math.log(high / low)
        return {
            count: by_order[low][count] ** (1 - share) * by_order[high][count] ** share
            for count in by_order[high]
        }


def cheapest(prices: Prices, granted: int) -> int:
    """The number of threads, at most those granted, with the lowest price, or nearly so."""
    counts = sorted(count for count in prices if count <= granted)
    best = counts[0]
    for count in counts[1:]:
        if prices[count] * WORTH < prices[best]:
            best = count
    return best


@lru_cache(maxsize=4096)
def lu_threads(order: int, bytes_of_number: int, granted: int) -> int:
    """The threads that a factorization of this order takes, at most those granted."""
    if granted == 1:
        return 1
    machines = shipped()
    machine = next((m for m in machines if m.cores >= granted), machines[-1])
    prices = machine.at(bytes_of_number, order)
    if prices is None:
        return min(granted, max(machine.cores, order // COLUMNS_EACH))
    return cheapest(prices, granted)


@cache
def shipped() -> tuple[Measured, ...]:
    """The measurements that come with the package, by number of cores."""
    return from_json(shipped_rates("lu_threads"))


def from_json(saved: Any) -> tuple[Measured, ...]:
    """The object that `to_json` wrote."""

    def numbered(content: Any, depth: int) -> Any:
        if not depth:
            return float(content)
        return {int(key): numbered(value, depth - 1) for key, value in content.items()}

    try:
        machines = [
            Measured(one["source"], int(one["cores"]), numbered(one["milliseconds"], 3))
            for one in saved
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RoundwiseError(
            f"no milliseconds of LU by threads ({error!r}); install Roundwise again"
        ) from error
    return tuple(sorted(machines, key=lambda machine: machine.cores))


def to_json(machines: tuple[Measured, ...]) -> list[dict[str, Any]]:
    """For `write_rates`; milliseconds have three digits."""

    def named(content: Any) -> Any:
        if isinstance(content, Mapping):
            return {str(key): named(value) for key, value in content.items()}
        return float(f"{content:.3g}")

    return [
        {"source": one.source, "cores": one.cores, "milliseconds": named(one.prices)}
        for one in machines
    ]
