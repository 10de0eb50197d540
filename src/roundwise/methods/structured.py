"""Dense matrices with many zeros in known places: bands, and triangles, perhaps in disorder.

Both begin with a pass over A, which finds the outermost diagonals. The LU of a band then takes
seconds for each entry of its ``n diagonals`` and for each of its about ``n diagonals^2 / 2`` flops;
a triangle needs no factorization, only a copy where its rows are in disorder. Corrections read A
for the residual, and the band or half of A for the substitution.
"""

from __future__ import annotations

from roundwise.formats import FP64
from roundwise.methods.contract import Method, Rates, Seconds, Shape
from roundwise.methods.dense import BASIS, matrix_pass


def banded_price(rates: Rates, shape: Shape, fmt: str) -> Seconds | None:
    known = rates.structured
    if fmt != FP64.name or not known or FP64.name not in rates.profile.rates:
        return None
    entries = shape.n * shape.diagonals
    flops = entries * shape.diagonals / 2
    factors = known["band_entry"] * entries + known["band_flop"] * flops
    return _seconds(rates, shape, factors, known["band_entry"] * entries)


def triangular_price(rates: Rates, shape: Shape, fmt: str) -> Seconds | None:
    known = rates.structured
    if fmt != FP64.name or not known or FP64.name not in rates.profile.rates:
        return None
    return _seconds(rates, shape, 0.0, known["triangle_entry"] * shape.n**2)


def _seconds(rates: Rates, shape: Shape, factors: float, substitution: float) -> Seconds:
    """Seconds of all parts, from those of the factorization and of one column's substitution."""
    n, columns, profile = shape.n, shape.columns, rates.profile
    single = matrix_pass(rates, n, FP64.name, 1)
    product = matrix_pass(rates, n, FP64.name, columns)
    return Seconds(
        single + factors + profile.run_overhead,
        0.0,
        columns * substitution + product + profile.outer_overhead,
        substitution + (1 + 2 * BASIS / n) * single + profile.inner_overhead,
    )


def banded_memory(shape: Shape, fmt: str) -> float:
    """The band, and half as many diagonals again for what pivoting fills in."""
    return 1.5 * FP64.storage_bytes * shape.n * shape.diagonals


def triangular_memory(shape: Shape, fmt: str) -> float:
    """A copy of A, with its rows and columns in order."""
    return float(FP64.storage_bytes) * shape.n**2


BANDED = Method(
    "banded",
    sparse=False,
    formats=(FP64,),
    then=("lu",),
    needs=("banded",),
    price=banded_price,
    memory=banded_memory,
)
TRIANGULAR = Method(
    "triangular",
    sparse=False,
    formats=(FP64,),
    then=("lu",),
    needs=("triangular",),
    price=triangular_price,
    memory=triangular_memory,
)
