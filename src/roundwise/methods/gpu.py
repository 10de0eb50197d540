"""Factorizations on a GPU: bolder ways to pivot, whose failures cuSOLVER's LU in FP64 mends.

A factorization is bound by its panels where n is small, and by products where it is large:

    launch + n column + share 2/3 n^3 / rate

with the seconds that do not depend on n (`launch`), those of a `column` of a panel, and the rate of
products, all by method and format. A correction is a substitution and a residual, bound by memory.
`roundwise calibrate --device cuda` measures these rates.
"""

from __future__ import annotations

from roundwise.formats import FP16, FP16X2, FP64
from roundwise.methods.contract import DevicePrice, DeviceRates, Method, Seconds, Shape


def price_of(name: str, share: float = 1.0) -> DevicePrice:
    """The price of a dense factorization with this share of LU's flops."""

    def price(rates: DeviceRates, shape: Shape, fmt: str) -> Seconds | None:
        known = rates.factors.get(name, {}).get(fmt)
        if known is None:
            return None
        n = shape.n
        factor = known.launch + n * known.column + share * 2 / 3 * n**3 / known.flops_per_second
        step = correction(rates, fmt, n, shape.columns)
        return Seconds(factor, 0.0, step, correction(rates, FP64.name, n, 1))

    return price


def correction(rates: DeviceRates, fmt: str, n: int, columns: int) -> float:
    """Seconds of a substitution with the factors, and of a residual, for each column."""
    factors = 8 if fmt == FP64.name else 4
    passes = n * n * (8 + factors) / rates.bytes_per_second
    each: float = rates.step + n * rates.step_column + passes
    return columns * each


def _own(name: str) -> Method:
    formats = (FP16, FP16X2, FP64)
    return Method(name, False, formats, ("lu",), device_price=price_of(name))


DIAGONAL = _own("lu/diagonal")
BUTTERFLY = _own("lu/butterfly")
LOCAL = _own("lu/local")
TOURNAMENT = _own("lu/tournament")
