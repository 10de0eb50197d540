"""Prices of sparse work: what they depend on, how they are checked, and those that ship."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from roundwise.costs.machines import LARGEST, is_number
from roundwise.exceptions import RoundwiseError

SCHEMA = "roundwise-generic-prices"
VERSION = 5  # 5: reference times, and our own engines begin with an order

AMOUNTS = ("a matrix", "n", "entries of A", "entries of L", "flops", "row squares")
FLOPS = AMOUNTS.index("flops")

SAME_PRICE = {"cholesky/nd": "cholesky/amd", "lu/nd": "lu/amd"}
"""Once its flops are counted, the order is found: the rest costs what it costs in AMD's order."""


@dataclass(frozen=True)
class Shape:
    """The sizes that prices depend on.

    Parameters
    ----------
    n : int
        Unknowns.
    entries : int
        Of A that are stored: n^2 if it is dense.
    columns : int
        Right-hand sides.
    filled, flops, nd_flops, row_squares : float
        For a sparse A: entries of L in the order of approximate minimum degree, operations of the
        factorization in that order and in that of nested dissection, and the sum of the squares of
        the rows' entries.

    Examples
    --------
    >>> from roundwise.costs import Shape
    >>> Shape(100, 100**2).columns
    1
    """

    n: int
    entries: int  # stored ones of A: n^2 if it is dense
    columns: int = 1  # right-hand sides
    filled: float = 0.0  # for a sparse A: entries of Cholesky's L in AMD's order
    flops: float = 0.0  # of this factorization
    nd_flops: float = 0.0  # in the order of nested dissection; 0 if nobody counted
    row_squares: float = 0.0  # sum of the squares of the rows' entries

    def amounts(self, method: str) -> tuple[float, ...]:
        """What the seconds of a sparse factorization are linear in (see `AMOUNTS`)."""
        flops = self.nd_flops if method.endswith("/nd") and self.nd_flops else self.flops
        return 1.0, self.n, self.entries, self.filled, flops, self.row_squares


@dataclass(frozen=True)
class SparsePrices:
    """Seconds of sparse work.

    Analysis and factorization by a method in a format take a nonnegative combination of `AMOUNTS`,
    which are known before: entries and flops are those of Cholesky on the pattern of A + A' in the
    order of approximate minimum degree. Other orders fill in more or less; the fitted numbers
    include the mean difference. Prices of our own engines leave out the ordering, which counting
    has found already. Solves are priced per entry of L. A method without prices is never chosen.
    """

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

    def factor_seconds(self, shape: Shape, method: str, fmt: str) -> float:
        """Seconds of analysis and factorization."""
        pairs = zip(self.factor[method][fmt], shape.amounts(method), strict=True)
        return sum(price * amount for price, amount in pairs)

    @classmethod
    def from_dict(cls, saved: Any) -> SparsePrices:
        """From JSON; a `ValueError` says what is wrong with it."""
        try:
            prices = cls(**saved)
            for method, formats in prices.factor.items():
                for fmt, numbers in formats.items():
                    if len(numbers) != len(AMOUNTS):
                        raise ValueError(f"{method} in {fmt} has no price for each of {AMOUNTS}")
                    _check(f"prices of {method} in {fmt}", *numbers)
                    _check(f"the price of a solve by {method} in {fmt}", prices.solve[method][fmt])
            _check("matvec and conversion", prices.matvec, prices.conversion)
            _check("spread", *prices.spread.values())
            for methods in prices.reference.values():
                for formats in methods.values():
                    for factor, solve in formats.values():
                        _check("reference", factor, solve)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no prices of sparse work ({error!r})") from error
        return prices


def _check(name: str, *numbers: Any) -> None:
    for number in numbers:
        if not (is_number(number) and math.isfinite(number) and 0 <= number <= LARGEST):
            raise ValueError(f"{name}: {number!r} is no finite number >= 0")


def readable(saved: Any) -> dict[str, Any]:
    """What `Prices.to_dict` wrote, by this version; anything else is refused."""
    known = {"schema": SCHEMA, "version": VERSION}
    if not isinstance(saved, dict) or {name: saved.get(name) for name in known} != known:
        raise RoundwiseError("no prices that this Roundwise reads; install it again")
    return saved


@cache
def shipped() -> dict[str, Any]:
    """The file of prices that comes with the package."""
    text = files("roundwise.costs").joinpath("generic_prices.json").read_text(encoding="utf-8")
    return readable(json.loads(text))


@cache
def generic_sparse_prices() -> SparsePrices:
    """The prices of sparse work that come with the package."""
    return SparsePrices.from_dict(shipped()["sparse"])
