"""Dense factorizations: LU with partial pivoting, Cholesky, and QR as the last resort.

A factorization is bound by arithmetic, ``share 2/3 n^3 / rate``, where `share` is Cholesky's time
over that of LU. A substitution or a residual reads n^2 numbers: it is bound by memory, or by
arithmetic if there are many right-hand sides.
"""

from __future__ import annotations

from roundwise.formats import BF16, FP32, FP64, get_format
from roundwise.methods import gpu
from roundwise.methods.contract import Method, Rates, Seconds, Shape

BASIS = 15
"""Krylov vectors that an Arnoldi step orthogonalizes against, on average: half of a restart."""


def factorization(rates: Rates, shape: Shape, fmt: str, share: float = 1.0) -> Seconds:
    """The price of a dense factorization whose time is this share of LU's."""
    n, profile = shape.n, rates.profile
    rate = profile.rate(fmt, n)
    factor = share * 2 / 3 * n**3 / rate.flops_per_second + profile.run_overhead
    product = matrix_pass(rates, n, FP64.name, shape.columns)
    step = matrix_pass(rates, n, fmt, shape.columns) + product + profile.outer_overhead
    single = matrix_pass(rates, n, FP64.name, 1)
    applied = rates.applied[fmt] * n * n if fmt in rates.applied else single
    iteration = applied + (1 + 2 * BASIS / n) * single + profile.inner_overhead
    return Seconds(factor, 0.0, step, iteration)


def matrix_pass(rates: Rates, n: int, fmt: str, columns: int) -> float:
    """The seconds of a product or a triangular solve with a block of columns."""
    rate = rates.profile.rate(fmt, n)
    compute: float = 2 * n * n * columns / rate.flops_per_second
    if rate.bytes_per_second is None:
        return compute
    traffic: float = n * n * get_format(fmt).storage_bytes / rate.bytes_per_second
    return max(compute, traffic)


def lu_price(rates: Rates, shape: Shape, fmt: str) -> Seconds | None:
    return factorization(rates, shape, fmt) if fmt in rates.profile.rates else None


def cholesky_price(rates: Rates, shape: Shape, fmt: str) -> Seconds | None:
    if fmt not in rates.cholesky or fmt not in rates.profile.rates:
        return None
    return factorization(rates, shape, fmt, rates.cholesky[fmt])


PACKED = 1000
"""Columns that a factorization packs or copies at a time, on up to two threads. A fact of the
peaks that ``tests/methods/test_memory.py`` compares forecasts with."""


def memory(shape: Shape, fmt: str) -> float:
    """A copy of A, which becomes the factors. What is narrower than FP32 is computed in that."""
    return max(get_format(fmt).storage_bytes, 4) * float(shape.n) * (shape.n + min(shape.n, PACKED))


def qr_memory(shape: Shape, fmt: str) -> float:
    """Factors, and a byte for each number that is looked at for overflow."""
    return memory(shape, fmt) + float(shape.n) ** 2


CHOLESKY = Method(
    "cholesky",
    sparse=False,
    formats=(FP32, FP64),
    then=("lu",),
    needs=("looks_positive_definite",),
    price=cholesky_price,
    device_price=gpu.price_of("cholesky", share=0.5),
    memory=memory,
)
LU = Method(
    "lu",
    sparse=False,
    formats=(BF16, FP32, FP64),
    then=("qr", "superlu/colamd"),
    price=lu_price,
    device_price=gpu.price_of("lu"),
    memory=memory,
)
# Backward stable where LU's entries grow. It comes after LU in FP64, never first: no price.
QR = Method("qr", sparse=False, formats=(FP64,), chosen=False, memory=qr_memory)
