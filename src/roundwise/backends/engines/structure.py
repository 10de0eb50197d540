"""What is to be known of a sparse A before it is factorized: symmetry, and how pivots become large.

A factorization whose structure is fixed beforehand takes its pivots near the diagonal. So rows are
permuted such that the product of the diagonal's entries is largest (Duff & Koster 2001), and rows
and columns are scaled by powers of two, which change no digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.emulated.ordering import has_regular_pattern
from roundwise.formats import FloatFormat

Index = NDArray[np.int32]
Array = NDArray[np.float64]

NONZERO_DIAGONAL, SYMMETRIC_PATTERN = 0.95, 0.9
"""The least shares of nonzeros on the diagonal, and of entries off it with a partner across it,
for which a pattern suits symmetric mode."""

SAMPLE = 500
"""About how many entries `suits_symmetric_mode` looks at to tell whether a pattern is symmetric."""

STRONG = 2.0**-10
"""A diagonal is strong if each entry is at least this part of the geometric mean of the largest
entries of its row and its column: rows then stay where they are, because matching takes time."""

MOST_VISITS = 3
"""Matching is given up after visiting each entry so often: it could take longer than solving."""


@dataclass(frozen=True, eq=False)
class Lines:
    """The rows and columns of a pattern in compressed rows, to take maxima over."""

    pattern: sparse.csr_array

    @cached_property
    def rows(self) -> Index:
        """The row of each entry."""
        n = self.pattern.shape[0]
        return np.repeat(np.arange(n, dtype=np.int32), np.diff(self.pattern.indptr))

    def row_maxima(self, sizes: Array) -> Array:
        return _maxima(sizes, self.pattern.indptr)

    def column_maxima(self, sizes: Array) -> Array:
        result = np.zeros(self.pattern.shape[1])
        with np.errstate(invalid="ignore"):  # NaN: the factorization tells of it
            np.maximum.at(result, self.pattern.indices, sizes)
        return result


def without_values(A: sparse.csr_array) -> sparse.csr_array:
    """The pattern of A: its index arrays, and one zero that stands for all entries."""
    zeros = np.broadcast_to(A.data.dtype.type(0), A.data.shape)
    return sparse.csr_array((zeros, A.indices, A.indptr), shape=A.shape)


def _maxima(sizes: Array, starts: NDArray[Any]) -> Array:
    """The largest of ``sizes[starts[i]:starts[i + 1]]`` for each i; 0 where there is none."""
    result = np.zeros(len(starts) - 1)
    filled = np.flatnonzero(np.diff(starts))
    if len(filled):
        result[filled] = np.maximum.reduceat(sizes, starts[filled])
    return result


def matched_rows(lines: Lines) -> Index | None:
    """The rows in an order that makes the diagonal large; None to leave them where they are.

    That is so where the diagonal is strong already, and where no order that fills it was found.
    """
    A, n = lines.pattern, lines.pattern.shape[0]
    sizes = np.abs(A.data).astype(np.float64)
    if not (np.isfinite(sizes).all() and sizes.any()):  # the values tell nothing
        sizes = np.ones(A.nnz)
    diagonal = np.zeros(n)
    on_diagonal = lines.rows == A.indices
    diagonal[A.indices[on_diagonal]] = sizes[on_diagonal]
    means = np.sqrt(lines.row_maxima(sizes)) * np.sqrt(lines.column_maxima(sizes))
    if (diagonal > 0).all() and (diagonal >= STRONG * means).all():
        return None
    # An entry that is zero now comes last.
    costs = -np.log(np.where(sizes > 0, sizes, np.finfo(np.float64).tiny))
    matched = np.empty(n, dtype=np.int32)
    found = _kernels.sparse_assignment(
        A.indptr.astype(np.int64),
        A.indices.astype(np.int32, copy=False),
        costs,
        matched,
        MOST_VISITS * A.nnz,
    )
    return matched if found else None


def has_strong_diagonal(A: sparse.csr_array, symmetric: bool) -> bool:
    """Whether rows stay where they are.

    Most matrices tell by their smallest diagonal entry: it is zero, or strong beside the largest
    entry of all.
    """
    diagonal = np.abs(A.diagonal())
    smallest = diagonal.min(initial=np.inf)
    if not smallest > 0:
        return False
    if A.nnz and smallest >= STRONG * max(A.data.max(), -A.data.min()):
        return True
    lines, sizes = Lines(A), np.abs(A.data)
    rows = lines.row_maxima(sizes)
    columns = rows if symmetric else lines.column_maxima(sizes)
    means = np.sqrt(rows) * np.sqrt(columns)
    return bool((diagonal >= STRONG * means).all())


def is_structurally_singular(
    pattern: sparse.csr_array, values: NDArray[Any], is_triangle: bool = False
) -> bool:
    """Whether the matrix with these entries is singular because of where its zeros are.

    They may be one triangle of a symmetric matrix.
    """
    # eliminate_zeros works in place, so on a copy.
    A = sparse.csr_array((values, pattern.indices, pattern.indptr), pattern.shape, copy=True)
    A.eliminate_zeros()
    return not has_regular_pattern(sparse.csr_array(A + A.T) if is_triangle else A)


def balancing(
    pattern: sparse.csr_array, values: NDArray[Any], symmetric: bool
) -> tuple[Index, Index] | None:
    """Exponents e and f such that the largest entries of rows and columns of 2^(e_i + f_j) a_ij are
    about 1 (Ruiz 2001); None if they are balanced already. For a symmetric matrix e = f."""
    rows, columns = (np.empty(n, dtype=np.int32) for n in pattern.shape)
    arrays = pattern.indptr, pattern.indices, values
    return (rows, columns) if _kernels.sparse_balance(*arrays, symmetric, rows, columns) else None


def scaled_by(
    pattern: sparse.csr_array, values: NDArray[Any], exponents: tuple[Index, Index]
) -> NDArray[Any]:
    """The values times the powers of two of their rows and columns."""
    result = np.empty_like(values)
    _kernels.sparse_scale(pattern.indptr, pattern.indices, values, *exponents, result)
    return result


def suits_symmetric_mode(A: sparse.csr_array) -> bool:
    """Whether most entries have a partner across the diagonal, which has few zeros itself.

    Zeros there, as in a saddle-point matrix, make pivots leave the diagonal: the order that was
    chosen for it then fills in far more than COLAMD's. A must be in canonical form; some hundred
    of its entries stand for all.
    """
    n = A.shape[0]
    if np.count_nonzero(A.diagonal()) < NONZERO_DIAGONAL * n:
        return False
    step = max(1, A.nnz // SAMPLE)
    off_diagonal, found = _kernels.sparse_partners(A.indptr, A.indices, step)
    return found >= SYMMETRIC_PATTERN * off_diagonal


class SymmetricPattern:
    """What an engine for symmetric matrices needs of a pattern in canonical form."""

    def __init__(self, pattern: sparse.csr_array) -> None:
        require_square(pattern.shape)
        self.shape = pattern.shape
        self._indptr, self._indices = pattern.indptr, pattern.indices

    def require_symmetric(self, values: NDArray[Any], kernel: str, fmt: FloatFormat) -> None:
        """Raise a failure if the pattern or the values are not symmetric."""
        if not _kernels.sparse_is_symmetric(self._indptr, self._indices, values):
            raise ArithmeticFailure(Status.UNSUITED, kernel, fmt)

    @cached_property
    def upper(self) -> sparse.csr_array:
        """The upper triangle with its whole diagonal; values are positions, see `upper_values`."""
        n, columns = self.shape[0], self._indices
        rows = np.repeat(np.arange(n), np.diff(self._indptr))
        absent = np.setdiff1d(np.arange(n), columns[rows == columns], assume_unique=True)
        above = np.flatnonzero(columns >= rows)
        rows = np.concatenate([rows[above], absent])
        columns = np.concatenate([columns[above], absent])
        positions = np.concatenate([above, np.full(len(absent), len(self._indices))])
        order = np.lexsort((columns, rows))
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        triangle = (positions[order], columns[order], starts)
        return sparse.csr_array(triangle, shape=self.shape)

    def upper_values(self, values: NDArray[Any]) -> NDArray[Any]:
        """The entries of the upper triangle; 0 where the pattern has no diagonal entry."""
        return np.asarray(np.append(values, values.dtype.type(0))[self.upper.data])
