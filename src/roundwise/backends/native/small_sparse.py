"""Small sparse systems at once: the calls of an FP64 solve without any object around them.

SuperLU takes 40 microseconds for a hundred unknowns; analysing, choosing and building matrices,
stages and rules takes ten times as long.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.emulated.ordering import superlu
from roundwise.backends.engines.superlu import OPTIONS
from roundwise.backends.native import exact
from roundwise.formats import FP64

Array = NDArray[np.float64]

MOST_ENTRIES = 12500
"""Larger systems take SuperLU some milliseconds, so that it pays to look for a better method."""

LOOK_FROM = 4000
"""Smaller systems take less time than a look whether their pattern is symmetric gains."""


def solve_sparse_at_once(A: Any, b: Array) -> tuple[Array, float, float] | None:
    """x for b, a vector or columns, by SuperLU in FP64; its backward error, and signs of trouble.

    A is in compressed rows or columns, in canonical form and with indices of 32 bits; its numbers
    are float64, as b's are. The third result is about the relative error of x, or some orders of
    magnitude less: with R the diagonal matrix of the 1-norms of A's rows,

        ||x - A^-1 b|| <= 2 || |A^-1| R || ||x|| max_i |r_i| / (R_ii ||x|| + |b_i|),

    and the first norm is estimated from ``A^-1 R v`` for a random v. Rows of different sizes do
    not matter to it. None if A is singular in FP64. Inf and NaN are left to the caller.
    """
    columns, trans = A, "N"
    if A.format == "csr":  # the compressed columns of the transpose, as spsolve has it
        columns, trans = sparse.csc_array((A.data, A.indices, A.indptr), shape=A.shape), "T"
    symmetric = A.nnz >= LOOK_FROM and _suits_symmetric_mode(columns)
    factors = superlu(columns, **OPTIONS["mmd" if symmetric else "colamd"])
    if factors is None:
        return None
    x, sums = factors.solve(b, trans), np.empty(len(b))
    error, by_row = exact.sparse_backward_errors(A, x, np.asfortranarray(b), sums)
    sums *= _random_vector(len(b))
    stretch = float(np.abs(factors.solve(sums, trans)).max())
    return x, error, stretch * max(by_row, FP64.unit_roundoff)


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
