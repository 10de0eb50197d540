"""Sparse systems of moderate size, at once: the way with the least price, and no other choice.

SuperLU takes 40 microseconds for a hundred unknowns; the general decision takes a millisecond. So
the ways are few, and their prices are formulas in what one analysis counts: matching, blocks, order
of minimum degree and its multiplications (`cpp/sparse/left_looking.hpp`).

- LU by left-looking columns takes half of SuperLU's time or less where factors have few entries.
- Dense panels, our supernodal engine, go on with the same order where A is symmetric or has a
  strong diagonal, and are faster from some hundred thousand multiplications on.
- A dense LU is faster for small matrices whose factors fill in.
- SuperLU where pivots are bound to leave the diagonal: what was counted does not hold there.
- The general decision, where it may gain more than it takes. It is given the orders found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._csr import SparseLU
from roundwise.backends.contract import ArithmeticFailure
from roundwise.backends.emulated.ordering import superlu
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.engines.superlu import OPTIONS
from roundwise.backends.engines.supernodal import SupernodalSymbolic
from roundwise.backends.native import exact
from roundwise.formats import FP64
from roundwise.methods.contract import Shape

Array = NDArray[np.float64]
Solve = Callable[[Array], Array]


@dataclass(frozen=True)
class Price:
    """Seconds of a way: a sum over what one analysis counts."""

    call: float = 0.0
    row: float = 0.0
    entry: float = 0.0  # of A
    filled: float = 0.0  # entry of L, in the order of minimum degree
    multiplication: float = 0.0  # of LU without exchanges of rows

    def of(self, lu: SparseLU, filled: float | None = None, counted: float | None = None) -> float:
        """That of a matrix; of another order with these counts, if they are given."""
        known = self.call + self.row * lu.n + self.entry * lu.stored
        known += self.filled * (lu.filled if filled is None else filled)
        return known + self.multiplication * (lu.counted if counted is None else counted)


# Prices of ANALYSIS, LEFT, LEFT_AGAIN and PANELS: `python benchmarks/sparse_prices.py FOLDER` with
# 130 application matrices beside grids and random ones, one thread, AMD EPYC Zen 5, beside other
# work, rounded. The others are estimates.
ANALYSIS = Price(call=3e-6, row=35e-9, entry=27e-9)
LEFT = Price(filled=20e-9, multiplication=0.5e-9)
LEFT_AGAIN = Price(filled=8.5e-9, multiplication=0.32e-9)
PANELS = {
    "cholesky": Price(60e-6, 170e-9, 23e-9, 7.5e-9, 0.01e-9),
    "ldl": Price(40e-6, 570e-9, 47e-9, 2e-9, 0.02e-9),
    "lu": Price(80e-6, 150e-9, 35e-9, 22e-9, 0.04e-9),
}
"""Counting supernodes, planning, factorizing, and the calls of Python around them."""
SUPERLU = Price(row=270e-9, entry=110e-9)
"""At the least, as if nothing filled in: how much does, nobody knows before."""
MATCHING = Price(entry=100e-9)
"""Static pivots for a matrix without a strong diagonal: what the general decision buys."""
DECISION = 1.5e-3
"""The general decision with its look at A, and the calls of Python in a climb."""
LOWER = 0.7
"""What lower formats leave of the time of an engine, at best."""

DENSE_CALL, DENSE_SQUARE, DENSE_CUBE = 4e-6, 0.5e-9, 0.045e-9
"""LU of a dense matrix, verified: its call, and for each entry and multiplication."""
DENSE_COLUMN, SPARSE_COLUMN, PANELS_COLUMN = 0.15e-9, 0.4e-9, 6e-9
"""Substitution and residual for one more column: for each of n^2 entries, or those of the factors
and of A; in panels also the calls of Python that verify."""

LARGEST = 200_000
"""Entries of A. A taste: more of them take tens of milliseconds, beside which a decision is short,
and A is not copied."""

ALWAYS_SMALL = 64
"""Below this n a dense solve takes less time than reading and analysing a sparse matrix may."""

PATIENCE = 2.5
"""The multiplications of a weak diagonal over those counted, as `left_looking.cpp` allows for."""

DENSER = 1.25
"""SuperLU factorizes A or its transpose, as it is stored, unless the sum of squares that bounds the
fill is so many times that of the other. (A taste: the transpose must be made.)"""

CERTAIN = 1e-5
"""What an estimated error, a lower bound perhaps, may be of an x with three right digits."""

RESOLVED = 0.25
"""Factors that lose less than that of a vector they stretch tell A from a singular matrix."""

CORRECTIONS = 2
"""Corrections of an x with a backward error that is too large, or with few digits."""

DENSE: Final = "dense"
"""What `factorized` returns where a dense LU is best."""


@dataclass(frozen=True)
class Inverse:
    """What applies ``A^-1``; `is_exact` unless small pivots were replaced by larger ones."""

    solve: Solve
    method: str
    is_exact: bool = True
    orders: Orders | None = None  # that it was found with


def dense_price(n: int, columns: int) -> float:
    squares = DENSE_SQUARE + DENSE_COLUMN * columns
    return DENSE_CALL + squares * n**2 + DENSE_CUBE * n**3


def is_for_dense(lu: SparseLU, columns: int) -> bool:
    """Whether a dense LU takes less than the analysis of A, and what A's own entries take, do."""
    if lu.n < ALWAYS_SMALL:
        return True
    least = ANALYSIS.of(lu) + LEFT.filled * lu.stored + SPARSE_COLUMN * columns * 2 * lu.stored
    return dense_price(lu.n, columns) < least


def factorized(
    lu: SparseLU,
    columns: int,
    panels: bool,
    again: bool = False,
    rival: Callable[[Shape], float] | None = None,
    low: bool = False,
) -> SparseLU | Inverse | Orders | Literal["dense"] | None:
    """The matrix itself once it is factorized, DENSE, another engine's factors, orders, or None.

    None if A is singular in FP64, or better left to the general decision; so are orders. `panels`
    is False for a caller who would rather have orders than the engine that needs them; `again`
    tells of a sequence, whose next matrix will be factorized with the same pivots. `rival` prices
    what the general decision could choose besides. `low` asks for factors in FP32, which other
    engines have in the general path.
    """
    if lu.stored > LARGEST:
        return None
    dense = dense_price(lu.n, columns)
    least = ANALYSIS.of(lu) + SUPERLU.of(lu)
    weak = min(dense, least) / PATIENCE / LEFT.multiplication
    is_complex = isinstance(lu, _kernels.ComplexLeftLookingLU)
    # Panels need the whole order, so that it is not given up; beside a dense LU none is needed.
    lu.analyse(max(np.inf if lu.n > 1000 else 0.0, dense / LEFT.multiplication), weak)
    if lu.result == "singular pattern":
        return None
    if lu.result == "too much work":
        return DENSE
    if lu.result == "weak diagonal":
        return DENSE if dense < least else None if is_complex or low else _by_partial_pivoting(lu)
    left = (LEFT_AGAIN if again else LEFT).of(lu)
    left += SPARSE_COLUMN * columns * (2 * lu.filled + lu.stored)
    if rival is not None and rival(_shape_of(lu, columns)) < min(dense, left):
        return None
    if dense < left:
        return DENSE
    if not is_complex:
        orders = _other_way(lu, left, columns, panels and not (again or low))
        if orders is not None:
            return orders
    lu.factorize(low)
    if lu.result == "factorized":
        return lu
    if lu.result == "zero pivot" or is_complex or low:
        return None
    return DENSE if dense < least else _by_partial_pivoting(lu) if least < DECISION else None


def _shape_of(lu: SparseLU, columns: int) -> Shape:
    """What an analysis has counted, as prices of methods know it."""
    squares = float((np.diff(lu.rows[0]).astype(np.float64) ** 2).sum())
    counts = float(lu.filled), 2.0 * lu.counted, 0.0, squares
    return Shape(lu.n, lu.stored, columns, *counts)


def _other_way(lu: SparseLU, left: float, columns: int, panels: bool) -> Inverse | Orders | None:
    """Factors in dense panels, or the orders for them, if that is faster than left-looking."""
    cheapest = min(PANELS["cholesky"].of(lu), DECISION + LOWER * PANELS["cholesky"].of(lu))
    if left < cheapest:
        return None
    rows = stored_rows(lu)
    symmetric = _kernels.sparse_is_symmetric(rows.indptr, rows.indices, rows.data)
    kinds: tuple[str, ...] = ("lu",)
    if symmetric:  # definite, as far as can be seen
        kinds = ("cholesky", "ldl") if bool((rows.diagonal() > 0).all()) else ("ldl",)
    fits = symmetric or lu.has_strong_diagonal
    orders = Orders(rows, matched=not symmetric, strong=lu.has_strong_diagonal)
    if not fits:
        price = PANELS["lu"].of(lu) + MATCHING.of(lu)
        return orders if DECISION + LOWER * price < left else None
    # With the counts at hand, before the symbolic analysis that panels need is paid for.
    price, decided = _in_panels_or_decided(PANELS[kinds[0]].of(lu), kinds)
    if left < min(price if panels else decided, decided):
        return None
    if len(lu.order):
        orders.know(lu.pattern, "amd", lu.order)
    symbolic = orders.symbolic("amd")  # whoever goes on needs it
    price = PANELS[kinds[0]].of(lu, float(symbolic.entries), float(symbolic.flops))
    price += PANELS_COLUMN * (columns - 1) * float(symbolic.entries)
    price, decided = _in_panels_or_decided(price, kinds)
    if left < min(price if panels else decided, decided):
        return None
    return _in_panels(rows, kinds, orders) if panels and price < decided else orders


def _in_panels_or_decided(price: float, kinds: tuple[str, ...]) -> tuple[float, float]:
    """The price of panels in FP64, and that of a decision, for lower formats perhaps."""
    return price, DECISION + (price if kinds == ("ldl",) else LOWER * price)  # ldl has none


def _in_panels(rows: sparse.csr_array, kinds: Sequence[str], orders: Orders) -> Inverse | Orders:
    """By the first of the supernodal factorizations that succeeds; else the orders alone."""
    for kind in kinds:
        try:
            factors = SupernodalSymbolic(rows, kind, "amd", orders).factorize(rows.data, FP64)
        except ArithmeticFailure:
            continue
        return Inverse(factors.solve, f"{kind}/amd", factors.replaced_pivots == 0, orders)
    return orders


def stored_rows(lu: SparseLU) -> sparse.csr_array:
    """The matrix as it was read: nothing is copied."""
    indptr, indices, values = lu.rows
    rows = sparse.csr_array((values, indices, indptr), shape=(lu.n, lu.n))
    rows.has_canonical_format = True
    return rows


def _by_partial_pivoting(lu: SparseLU) -> Inverse | None:
    """By SuperLU with COLAMD, of A or of its transpose.

    The factors of A have at most the pattern of those of ``A'A`` (George & Ng 1985), which has at
    most as many entries as the squares of the counts of A's rows add up to; for the transpose those
    of its columns count. Dense rows, or dense columns, make one sum far larger than the other.
    """
    indptr, indices, values = lu.rows
    columns = sparse.csc_array((values, indices, indptr), shape=(lu.n, lu.n))  # of A'
    stored = np.diff(indptr).astype(np.float64)
    across = np.bincount(indices, minlength=len(stored)).astype(np.float64)
    trans = "T"
    if across @ across > DENSER * (stored @ stored):
        columns, trans = columns.T.tocsc(), "N"
    factors = superlu(columns, pattern_is_regular=True, **OPTIONS["colamd"])
    return None if factors is None else Inverse(lambda b: factors.solve(b, trans), "superlu/colamd")


def solved(
    A: Any, b: Array, tolerance: float, inverse: Inverse, single: bool = False
) -> tuple[Array, float, str] | Orders | None:
    """x for b, a vector or columns, its backward error, and the method's name.

    Otherwise a look is needed: A is singular in FP64, or x may have less than three right digits.
    If the orders of A's pattern are known then, they are returned.

    A is in canonical compressed rows; its numbers are float64, as b's are. x is corrected where its
    backward error is above the tolerance or its digits are few. If it is to be rounded to `single`
    precision, the error is an upper bound of what that leaves. Inf and NaN are left to the caller.
    """
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
    image = sums * random_vector(len(b))
    stretched = solve(image)
    stretch = float(np.abs(stretched).max())
    if inverse.is_exact and stretch * max(by_row, FP64.unit_roundoff) < CERTAIN:
        return x, _rounded(A, x, b, error) if single else error, inverse.method
    corrected = _corrected(A, b, x, error, solve, residuals, stretched, image)
    if corrected is None:
        return inverse.orders
    x, error = corrected
    return x, _rounded(A, x, b, error) if single else error, inverse.method


def _rounded(A: Any, x: Array, b: Array, error: float) -> float:
    """The backward error, at most, of x rounded to single precision, given that of x.

    With d the change of x, ``||r|| + ||A|| ||d||`` bounds the residual, where ``||r||`` is `error`
    times the divisor of x; what is added counts every rounding.
    """
    rounded = x.astype(np.float32).astype(np.float64)
    norm = float(abs(A).sum(axis=1).max())
    old, new = (norm * np.abs(v).max(axis=0) + np.abs(b).max(axis=0) for v in (x, rounded))
    whole = error * old + norm * np.abs(rounded - x).max(axis=0)
    return float(np.max(whole / new)) * (1 + 1e-12)


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


@lru_cache(maxsize=8)
def random_vector(n: int) -> Array:
    """Numbers between -1 and 1, all different: A may be singular, and ``A y = R e`` be solvable."""
    vector = np.random.default_rng(0).uniform(-1, 1, n)
    vector.flags.writeable = False
    return vector
