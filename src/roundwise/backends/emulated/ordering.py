"""SuperLU's factors and fill-reducing orders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

import roundwise._kernels as _kernels

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
        if "MALLOC" in str(error):  # in other places SuperLU tells it by a MemoryError
            raise MemoryError(str(error)) from error
        if "singular" not in str(error):
            raise
        return None


def has_regular_pattern(A: sparse.csc_array | sparse.csr_array) -> bool:
    """Whether some values at the stored places would make A invertible.

    That is so if n of these places lie in n different rows and columns: if a maximum matching has
    n entries. (SciPy's `structural_rank` takes minutes for some orders of the rows of a grid.)
    """
    return _kernels.sparse_is_regular(A.indptr, A.indices)


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
