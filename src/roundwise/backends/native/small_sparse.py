"""Sparse systems that take some milliseconds, at once: the calls of an FP64 solve, no choice.

SuperLU takes 40 microseconds for a hundred unknowns; analysing, choosing and building matrices,
stages and rules takes ten times as long, and a few milliseconds for larger systems. The LU
factorization of our own that is tried first (`cpp/sparse/left_looking.hpp`) takes half of SuperLU's
time or less, as long as it stays with few multiplications for each entry of A. It counts them
before. Where they are too many, and A is symmetric or has a strong diagonal, our supernodal engine
goes on with the order that was found; a lower format would gain less than looking for it takes.
Where pivots are bound to leave the diagonal, SuperLU is best, and a closer look would find nothing
better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise.backends.contract import ArithmeticFailure
from roundwise.backends.emulated.ordering import superlu
from roundwise.backends.engines.orderings import Orders, banded_counts
from roundwise.backends.engines.superlu import OPTIONS
from roundwise.backends.engines.supernodal import SupernodalSymbolic
from roundwise.backends.native import exact
from roundwise.formats import FP64

Array = NDArray[np.float64]
Solve = Callable[[Array], Array]

SMALL, MEDIUM, LARGEST = 12_500, 30_000, 200_000
"""Entries of A. Small systems take SuperLU some milliseconds, so that no look at them pays; medium
ones only if they take many flops. Beyond the largest, a look takes a small part of the time."""

WORK = {MEDIUM: 500.0, LARGEST: 150.0}
"""By the entries of A: the multiplications for each of them up to which the left-looking LU is
tried. The larger A is, the more do engines gain that work on large blocks."""

CHOLESKY_FROM, LU_FROM = 55.0, 70.0
"""The same where the supernodal engine follows, whose dense panels are faster from there on."""

LONG_ROWS = 6
"""A that looks positive definite, with so many entries in a row on average, takes more than that,
unless it is a narrow band."""

MOST_FLOPS = 2e8
"""Of the supernodal engine. Beyond, it takes ten milliseconds and more: a lower format, or another
method, may gain more than looking for it takes."""

IF_WEAK = 20.0
"""The same for a small system where pivots will leave the diagonal: it takes more than was counted.
For larger ones it is not even counted, as ordering takes a good part of SuperLU's time."""

FEW_FLOPS = 600.0
"""Multiplications for each entry of A up to which SuperLU takes no longer for a medium system than
the look at it and another engine."""

DENSER = 1.25
"""SuperLU factorizes A or its transpose, as it is stored, unless the sum of squares that bounds the
fill is so many times that of the other."""

LOOK_FROM = 4000
"""Smaller systems take less time than a look whether A, or its pattern, is symmetric gains."""

CERTAIN = 1e-5
"""What an estimated error, a lower bound perhaps, may be of an x with three right digits."""

RESOLVED = 0.25
"""Factors that lose less than that of a vector they stretch tell A from a singular matrix."""

CORRECTIONS = 2
"""Corrections of an x with a backward error that is too large, or with few digits."""


@dataclass(frozen=True)
class Inverse:
    """What applies ``A^-1``; `is_exact` unless small pivots were replaced by larger ones."""

    solve: Solve
    method: str
    is_exact: bool = True
    orders: Orders | None = None  # that it was found with


def solve_sparse_at_once(
    A: Any, b: Array, tolerance: float, panels: bool = True
) -> tuple[Array, float, str] | Orders | None:
    """x for b, a vector or columns, in FP64, its backward error, and the method's name.

    Otherwise a look is needed.

    That is so if A is singular in FP64, x may have less than three right digits, or there is so
    much work that a choice pays. If the orders of A's pattern are known then, they are returned.
    They are as well where the supernodal engine would follow, unless it may (`panels`).

    A is in compressed rows or columns, in canonical form and with indices of 32 bits; its numbers
    are float64, as b's are. x is corrected where its backward error is above the tolerance or its
    digits are few. Inf and NaN are left to the caller.
    """
    inverse = factorized(A, panels)
    return solved(A, b, tolerance, inverse) if isinstance(inverse, Inverse) else inverse


def solved(
    A: Any, b: Array, tolerance: float, inverse: Inverse
) -> tuple[Array, float, str] | Orders | None:
    """The same with factors that were made before."""
    solve, b = inverse.solve, np.asfortranarray(b)
    sums, residuals = np.empty(len(b)), np.empty_like(b)
    x = solve(b)
    error, by_row = exact.sparse_backward_errors(A, x, b, sums, residuals)
    for _ in range(CORRECTIONS):
        if not tolerance < error < 1.0:
            break
        x = x + solve(residuals)
        error, by_row = exact.sparse_backward_errors(A, x, b, sums, residuals)
    # With R the diagonal matrix of the 1-norms of A's rows,
    #   ||x - A^-1 b|| <= 2 || |A^-1| R || ||x|| max_i |r_i| / (R_ii ||x|| + |b_i|),
    # and the first norm is estimated from A^-1 R v for a random v. Rows of different sizes do not
    # matter to it.
    image = sums * _random_vector(len(b))
    stretched = solve(image)
    stretch = float(np.abs(stretched).max())
    if inverse.is_exact and stretch * max(by_row, FP64.unit_roundoff) < CERTAIN:
        return x, error, inverse.method
    corrected = _corrected(A, b, x, error, solve, residuals, stretched, image)
    return inverse.orders if corrected is None else (*corrected, inverse.method)


def _corrected(
    A: Any, b: Array, x: Array, error: float, solve: Solve, residuals: Array, y: Array, image: Array
) -> tuple[Array, float] | None:
    """x, corrected until it has more than three right digits for sure; None if that is not known.

    y is ``M^-1 image`` with factors M of A. If M tells A from a singular matrix, ``y - M^-1 A y``
    is small beside y; then a correction by M is about the error of x. Both are compared in units
    that make the largest entries of A's columns 1: those of a column of tiny numbers are huge, and
    would hide others.
    """
    sums, left = np.empty(len(b)), np.empty_like(image)
    exact.sparse_backward_errors(A, y, image, sums, left)
    units = _column_maxima(A, sums)
    if not np.abs(units * solve(left)).max() < RESOLVED * np.abs(units * y).max():
        return None
    before = np.inf
    for _ in range(CORRECTIONS + 1):
        correction = solve(residuals)
        change = float((np.abs(correction).max(axis=0) / np.abs(x).max(axis=0)).max())
        if not change < RESOLVED * before:
            return None
        if change < CERTAIN:
            return x, error
        x, before = x + correction, change
        error, _ = exact.sparse_backward_errors(A, x, b, sums, residuals)
    return None


def _column_maxima(A: Any, sizes: Array) -> Array:
    """The largest entry of each column, after rows have been divided by their sizes."""
    lines = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    rows, columns = (lines, A.indices) if A.format == "csr" else (A.indices, lines)
    maxima = np.zeros(A.shape[0])
    np.maximum.at(maxima, columns, np.abs(A.data) / sizes[rows])
    return maxima


def factorized(A: Any, panels: bool) -> Inverse | Orders | None:
    """None if A is singular in FP64, or better left to other engines; orders, `panels`: as above.

    A has at most LARGEST entries.
    """
    entries = A.nnz
    by_columns, large = A.format == "csc", entries >= LOOK_FROM
    arrays = A.indptr, A.indices, A.data
    symmetric = large and _kernels.sparse_is_symmetric(*arrays)
    definite = symmetric and bool((A.diagonal() > 0).all())  # as far as can be seen
    kinds = ("cholesky", "ldl") if definite else ("ldl",) if symmetric else ("lu",)
    if definite and entries >= LONG_ROWS * A.shape[0]:
        rows = _stored_rows(A)
        if banded_counts(rows) is None:
            return _in_panels(A, kinds, Orders(rows), panels)
    work = next(work for most, work in WORK.items() if entries <= most) * entries
    few_flops = FEW_FLOPS * entries if entries <= MEDIUM else work
    # The supernodal engine needs the whole order, so that it is not given up.
    panels_from = (CHOLESKY_FROM if definite else LU_FROM) * entries
    counted, if_strong = (np.inf, panels_from) if large else (few_flops, work)
    limits = if_strong if definite else work, counted, 0.0 if large else IF_WEAK * entries
    own = _kernels.LeftLookingLU(*arrays, by_columns, *limits, if_strong)
    if own.result == "factorized":

        def solve(b: Array) -> Array:
            x = np.empty_like(b)
            own.solve(b, x)
            return x

        return Inverse(solve, "lu/left-looking")
    if own.result in ("singular pattern", "zero pivot"):
        return None
    if large and own.work == 0 and (symmetric or own.has_strong_diagonal):
        orders = Orders(_stored_rows(A), matched=not symmetric, strong=own.has_strong_diagonal)
        if len(own.order):
            orders.know(own.pattern, "amd", own.order)
        return _in_panels(A, kinds, orders, panels)
    if own.result == "weak diagonal":
        return _by_partial_pivoting(A)
    if not (entries <= SMALL or (entries <= MEDIUM and own.counted <= few_flops)):
        return None
    columns = _stored_columns(A)
    if own.work == 0 and large and _suits_symmetric_mode(columns):
        factors = superlu(columns, pattern_is_regular=True, **OPTIONS["mmd"])
        trans = "N" if by_columns else "T"
        return (
            None if factors is None else Inverse(lambda b: factors.solve(b, trans), "superlu/mmd")
        )
    return _by_partial_pivoting(A)


def _in_panels(A: Any, kinds: Sequence[str], orders: Orders, wanted: bool) -> Inverse | Orders:
    """By the first of the supernodal factorizations that succeeds; else the orders alone.

    These alone, too, if there is too much work, or if nothing more is `wanted`.
    """
    symmetric = "lu" not in kinds
    flops = orders.symbolic("amd").flops * (1 if symmetric else 2)
    for kind in kinds if wanted and flops <= MOST_FLOPS else ():
        try:
            factors = SupernodalSymbolic(orders.A, kind, "amd", orders).factorize(A.data, FP64)
        except ArithmeticFailure:
            continue
        solve = partial(factors.solve, transpose=A.format == "csc" and not symmetric)
        return Inverse(solve, f"{kind}/amd", factors.replaced_pivots == 0, orders)
    return orders


def _stored_rows(A: Any) -> sparse.csr_array:
    """A, or the transpose of an A in compressed columns, in compressed rows: nothing is copied."""
    rows = sparse.csr_array((A.data, A.indices, A.indptr), shape=A.shape)
    rows.has_canonical_format = True
    return rows


def _stored_columns(A: Any) -> sparse.csc_array:
    """A, or the transpose of an A in compressed rows, in compressed columns: nothing is copied."""
    return sparse.csc_array((A.data, A.indices, A.indptr), shape=A.shape)


def _by_partial_pivoting(A: Any) -> Inverse | None:
    """By SuperLU with COLAMD, of A or of its transpose.

    The factors of A have at most the pattern of those of ``A'A`` (George & Ng 1985), which has at
    most as many entries as the squares of the counts of A's rows add up to; for the transpose those
    of its columns count. Dense rows, or dense columns, make one sum far larger than the other.
    """
    columns = _stored_columns(A)
    stored = np.diff(columns.indptr).astype(np.float64)
    across = np.bincount(columns.indices, minlength=len(stored)).astype(np.float64)
    turned = across @ across > DENSER * (stored @ stored)
    if turned:
        columns = columns.T.tocsc()
    trans = "N" if (A.format == "csc") != turned else "T"
    factors = superlu(columns, pattern_is_regular=True, **OPTIONS["colamd"])
    return None if factors is None else Inverse(lambda b: factors.solve(b, trans), "superlu/colamd")


@lru_cache(maxsize=8)
def _random_vector(n: int) -> Array:
    """Numbers between -1 and 1, all different: A may be singular, and ``A y = R e`` be solvable."""
    vector = np.random.default_rng(0).uniform(-1, 1, n)
    vector.flags.writeable = False
    return vector


def _suits_symmetric_mode(A: sparse.csc_array) -> bool:
    """Whether the pattern is symmetric and the diagonal has no zeros."""
    by_rows = A.tocsr()
    same = np.array_equal(A.indptr, by_rows.indptr) and np.array_equal(A.indices, by_rows.indices)
    return same and bool(A.diagonal().all())
