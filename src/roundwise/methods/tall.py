"""Methods of least squares, which factorize the tall one of A and A', m-by-n.

Cholesky of A'A takes ``m n^2 + n^3 / 3`` operations, all in products that run on all threads, and
bears condition numbers up to 1e7. Householder's QR takes ``2 m n^2 - 2/3 n^3``, in one
compiled call with all that follows; it bears condition numbers up to 1e15 and sees which
columns depend on others. The SVD, of about ``14 m n^2``, tells the rank where QR leaves doubt.
"""

from __future__ import annotations

from roundwise.formats import FP32, FP64
from roundwise.methods.contract import Method, Rates, Seconds, Shape

CLIMB = 2e-4
"""Seconds of a climb in Python, whatever the sizes: `lstsq` of 20 x 5 numbers with the policy
``cholesky:fp64-fp64-fp64-fp64``, least of 300, two cores of an AMD EPYC (AVX-512)."""

QR_SPEED, LARGE = 1.6, 2000
"""The rate of QR over that of LU with n = 2000, both on one thread. `solve_at_once` of 1200 x 1190
numbers took 32 ms on the same machine, 70 Gflop/s; less where A is larger than the cache."""

ENTRY_PASS = 1.45e-10
"""Seconds per entry and column of what follows QR. `solve_at_once` of 600 x 590 numbers with 100
columns took 8.05 ms on one thread of the same machine, and 3.00 ms with one; Cholesky's climb 17.6
and 5.5, about twice as much."""


def cholesky_price(rates: Rates, shape: Shape, fmt: str) -> Seconds | None:
    """Seconds of Cholesky of A'A, in the rates of all threads."""
    n, m = shape.n, shape.entries / shape.n
    seconds = (m * n * n + n**3 / 3) / rates.profile.rate(fmt, n).flops_per_second
    return Seconds(seconds + CLIMB, step=2 * ENTRY_PASS * shape.entries * shape.columns)


def qr_price(rates: Rates, shape: Shape, fmt: str) -> Seconds | None:
    """Seconds of Householder's QR, in the rates of one thread."""
    n, m = shape.n, shape.entries / shape.n
    rate = QR_SPEED * rates.of_one_thread.profile.rate(FP64.name, LARGE).flops_per_second
    seconds = (2 * m * n * n - 2 / 3 * n**3) / rate
    return Seconds(seconds, step=ENTRY_PASS * shape.entries * shape.columns)


SVD = Method("svd", sparse=False, formats=(FP64,), chosen=False)

TALL: dict[str, Method] = {
    method.name: method
    for method in (
        Method("cholesky", sparse=False, formats=(FP32, FP64), then=("qr",), price=cholesky_price),
        Method("qr", sparse=False, formats=(FP32, FP64), then=("svd",), price=qr_price),
        Method("cholesky/amd", sparse=True, formats=(FP32, FP64), then=("superlu/colamd",)),
        Method("superlu/colamd", sparse=True, formats=(FP32, FP64), then=("svd",)),
        SVD,
    )
}
"""The methods for least squares, by name; the first sparse one is tried first."""


def tall_methods(sparse: bool) -> tuple[str, ...]:
    """The names of those for a dense or a sparse A; an SVD is for both."""
    return tuple(name for name, one in TALL.items() if one.sparse == sparse or one is SVD)
