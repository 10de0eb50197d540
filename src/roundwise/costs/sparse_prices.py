"""Rates of sparse work: how they are checked, and those that ship."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from roundwise.costs.machines import LARGEST, is_number
from roundwise.machine.rates import shipped_rates
from roundwise.methods.sparse import AMOUNTS


@dataclass(frozen=True)
class SparsePrices:
    """Rates of sparse work, which `roundwise.methods.sparse` prices methods by."""

    factor: dict[str, dict[str, list[float]]]  # by method and format, for each of `AMOUNTS`
    solve: dict[str, dict[str, float]]  # by method and format: per entry of L
    matvec: float  # per entry of A
    conversion: float  # per entry of L: of the factors, to apply them in FP64
    spread: dict[str, float] = field(default_factory=dict)
    """By method: measured seconds are within this factor of the fit for nine systems of ten."""
    source: str = ""
    reference: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    """Of the systems of `sparse_calibration`, by name, method and format: the seconds of analysis
    with factorization, and of a solve, on the machine of these prices."""

    @classmethod
    def from_dict(cls, saved: Any) -> SparsePrices:
        """From JSON; a `ValueError` says what is wrong with it."""
        try:
            prices = cls(**saved)
            for method, formats in prices.factor.items():
                for fmt, numbers in formats.items():
                    if len(numbers) != len(AMOUNTS):
                        raise ValueError(f"{method} in {fmt} has no price for each of {AMOUNTS}")
                    check_numbers(f"prices of {method} in {fmt}", *numbers)
                    check_numbers(
                        f"the price of a solve by {method} in {fmt}", prices.solve[method][fmt]
                    )
            check_numbers("matvec and conversion", prices.matvec, prices.conversion)
            check_numbers("spread", *prices.spread.values())
            for methods in prices.reference.values():
                for formats in methods.values():
                    for factor, solve in formats.values():
                        check_numbers("reference", factor, solve)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no prices of sparse work ({error!r})") from error
        return prices


def check_numbers(name: str, *numbers: Any) -> None:
    """Raise a `ValueError` unless these are finite numbers >= 0."""
    for number in numbers:
        if not (is_number(number) and math.isfinite(number) and 0 <= number <= LARGEST):
            raise ValueError(f"{name}: {number!r} is no finite number >= 0")


@cache
def generic_sparse_prices() -> SparsePrices:
    """The prices of sparse work that come with the package."""
    return SparsePrices.from_dict(shipped_rates("cpu")["sparse"])
