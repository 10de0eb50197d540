"""Symmetric patterns: whether A has one, its upper triangle, whether values are symmetric."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.formats import FloatFormat

NONZERO_DIAGONAL, SYMMETRIC_PATTERN = 0.95, 0.9
"""The least shares of nonzeros on the diagonal, and of entries off it with a partner across it,
for which a pattern suits symmetric mode."""

SAMPLE = 500
"""About how many entries `suits_symmetric_mode` looks at to tell whether a pattern is symmetric."""


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
