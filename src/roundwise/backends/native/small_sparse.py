"""Sparse systems whose factors have few entries, at once: the calls of an FP64 solve, no objects.

SuperLU takes 40 microseconds for a hundred unknowns; analysing, choosing and building matrices,
stages and rules takes ten times as long. The LU factorization of our own that is tried here
(`cpp/sparse/left_looking.hpp`) takes half of SuperLU's time or less, as long as it stays with few
multiplications for each entry of A. It counts them before, gives up where they are too many, and
does not begin where pivots are bound to leave the diagonal: SuperLU is best at that, and a closer
look would find nothing better.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise.backends.emulated.ordering import superlu
from roundwise.backends.engines.superlu import OPTIONS
from roundwise.backends.native import exact
from roundwise.formats import FP64

Array = NDArray[np.float64]
Solve = Callable[[Array], Array]

SMALL, MEDIUM, LARGEST = 12_500, 30_000, 120_000
"""Entries of A. Small systems take SuperLU some milliseconds, so that no look at them pays; medium
ones only if they take many flops. Beyond the largest, a look takes a small part of the time."""

WORK = {MEDIUM: 500.0, LARGEST: 150.0}
"""By the entries of A: the multiplications for each of them up to which the LU of our own is tried.
The larger A is, the more do engines gain that work on large blocks."""

IF_WEAK = 20.0
"""The same for a small system where pivots will leave the diagonal: it takes more than was counted.
For larger ones it is not even counted, as ordering takes a good part of SuperLU's time."""

FEW_FLOPS = 600.0
"""Multiplications for each entry of A up to which SuperLU takes no longer for a medium system than
the look at it and another engine."""

DENSER = 1.25
"""SuperLU factorizes A or its transpose, as it is stored, unless the sum of squares that bounds the
fill is so many times that of the other."""

REGULAR = 1.25
"""Rows whose mean square of entries is at most so many times the square of their mean."""

LOOK_FROM = 4000
"""Smaller systems take less time than a look whether their pattern is symmetric gains."""

CERTAIN = 1e-5
"""What an estimated error, a lower bound perhaps, may be of an x with three right digits."""

RESOLVED = 0.25
"""Factors that lose less than that of a vector they stretch tell A from a singular matrix."""

CORRECTIONS = 2
"""Corrections of an x with a backward error that is too large, or with few digits."""


def solve_sparse_at_once(A: Any, b: Array, tolerance: float) -> tuple[Array, float] | None:
    """x for b, a vector or columns, by LU in FP64, and its backward error; None to try otherwise.

    That is so if A is singular in FP64, x may have less than three right digits, or large blocks
    promise to be faster. A is in compressed rows or columns, in canonical form and with indices of
    32 bits; its numbers are float64, as b's are. x is corrected where its backward error is above
    the tolerance or its digits are few. Inf and NaN are left to the caller.
    """
    solve = _factorized(A)
    if solve is None:
        return None
    b = np.asfortranarray(b)
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
    if stretch * max(by_row, FP64.unit_roundoff) < CERTAIN:
        return x, error
    return _corrected(A, b, x, error, solve, residuals, stretched, image)


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


def _factorized(A: Any) -> Solve | None:
    """What applies ``A^-1``; None if A is singular in FP64, or better left to other engines."""
    entries = A.nnz
    if entries > LARGEST or (entries > MEDIUM and _is_mesh(A)):
        return None
    by_columns = A.format == "csc"
    work = next(work for most, work in WORK.items() if entries <= most)
    counted = FEW_FLOPS if entries <= MEDIUM else work
    limits = work * entries, counted * entries, IF_WEAK * entries if entries < LOOK_FROM else 0.0
    own = _kernels.LeftLookingLU(A.indptr, A.indices, A.data, by_columns, *limits)
    if own.result == "factorized":

        def solve(b: Array) -> Array:
            x = np.empty_like(b)
            own.solve(b, x)
            return x

        return solve
    if own.result == "weak diagonal":
        return _by_partial_pivoting(A)
    few = entries <= SMALL or (entries <= MEDIUM and own.counted <= counted * entries)
    if not (few and own.result == "too much work"):
        return None
    columns = _stored_columns(A)
    if own.work == 0 and A.nnz >= LOOK_FROM and _suits_symmetric_mode(columns):
        factors = superlu(columns, pattern_is_regular=True, **OPTIONS["mmd"])
        trans = "N" if by_columns else "T"
        return None if factors is None else lambda b: factors.solve(b, trans)
    return _by_partial_pivoting(A)


def _stored_columns(A: Any) -> sparse.csc_array:
    """A, or the transpose of an A in compressed rows, in compressed columns: nothing is copied."""
    return sparse.csc_array((A.data, A.indices, A.indptr), shape=A.shape)


def _by_partial_pivoting(A: Any) -> Solve | None:
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
    return None if factors is None else lambda b: factors.solve(b, trans)


@lru_cache(maxsize=8)
def _random_vector(n: int) -> Array:
    """Numbers between -1 and 1, all different: A may be singular, and ``A y = R e`` be solvable."""
    vector = np.random.default_rng(0).uniform(-1, 1, n)
    vector.flags.writeable = False
    return vector


def _is_mesh(A: Any) -> bool:
    """Whether all rows have about as many entries, and one on the diagonal: their factors fill in.

    In circuits, networks and plants, whose factors may have few entries, some rows are long, or
    some diagonal entries are zero.
    """
    lengths = np.diff(A.indptr).astype(np.float64)
    squares = float(lengths @ lengths) * len(lengths)
    return squares <= REGULAR * float(A.nnz) ** 2 and bool(A.diagonal().all())


def _suits_symmetric_mode(A: sparse.csc_array) -> bool:
    """Whether the pattern is symmetric and the diagonal has no zeros."""
    by_rows = A.tocsr()
    same = np.array_equal(A.indptr, by_rows.indptr) and np.array_equal(A.indices, by_rows.indices)
    return same and bool(A.diagonal().all())
