"""SuperLU's factors and fill-reducing orders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import maximum_flow
from scipy.sparse.linalg import SuperLU, splu

SYMMETRIC = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
"""SuperLU's minimum degree order on A + A', diagonal pivots preferred."""


def superlu(
    A: sparse.csc_array, *, pattern_is_regular: bool = False, **options: Any
) -> SuperLU | None:
    """SuperLU's factors of a finite matrix; None if no pivot is left.

    Where the pattern of A is singular, SuperLU may run out of rows: it then calls BLAS with
    negative sizes, which BLAS reports on the standard output, or reads beyond its arrays and
    crashes. Such a matrix never gets there. `pattern_is_regular` tells that this is known.
    """
    if not (pattern_is_regular or has_regular_pattern(A)):
        return None
    try:
        return splu(A, **options)
    except RuntimeError as error:
        if "singular" not in str(error):
            raise
        return None


def has_regular_pattern(A: sparse.csc_array) -> bool:
    """Whether some values at the stored places would make A invertible.

    That is so if n of these places lie in n different rows and columns. Where the diagonal has a
    zero, it is a flow of n units from rows to columns, one for each place. (SciPy's
    `structural_rank` takes minutes for some orders of the rows of a grid's matrix.)
    """
    n = A.shape[0]
    if np.all(A.diagonal() != 0):
        return True
    if A.nnz < n or (np.diff(A.indptr) == 0).any() or np.unique(A.indices).size < n:
        return False
    start, end, rows, columns = 2 * n, 2 * n + 1, np.arange(n), np.arange(n, 2 * n)
    tails = np.concatenate([np.full(n, start), A.indices, columns])
    heads = np.concatenate([rows, np.repeat(columns, np.diff(A.indptr)), np.full(n, end)])
    size = (2 * n + 2, 2 * n + 2)
    network = sparse.csr_array((np.ones(tails.size, dtype=np.int32), (tails, heads)), shape=size)
    return bool(maximum_flow(network, start, end, method="dinic").flow_value == n)


def colamd(A: sparse.csc_array, **options: Any) -> NDArray[np.int32] | None:
    """SuperLU's COLAMD column order of A, or that of its `options`: column ``order[j]`` comes j-th.

    None means that the pattern of A is singular: no values could make it invertible.
    """
    # The order depends on the pattern alone, but SciPy gives it only with a factorization,
    # which stops if A is singular; the same pattern is then tried with generic values.
    generic = A.copy()
    generic.data = np.random.default_rng(0).uniform(1, 2, A.nnz)
    for matrix in (A.astype(np.float64), generic):
        if factors := superlu(matrix, **options):
            return np.argsort(factors.perm_c).astype(np.int32)
    return None


def minimum_degree(A: sparse.csc_array) -> NDArray[np.int32] | None:
    """SuperLU's multiple minimum degree order of a symmetric A, for rows and columns alike."""
    return colamd(A, **SYMMETRIC, diag_pivot_thresh=0.0)
