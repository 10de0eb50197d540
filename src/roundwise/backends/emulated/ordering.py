"""SuperLU's factors and fill-reducing orders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import structural_rank
from scipy.sparse.linalg import SuperLU, splu

SYMMETRIC = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
"""SuperLU's minimum degree order on A + A', diagonal pivots preferred."""


def superlu(A: sparse.csc_array, **options: Any) -> SuperLU | None:
    """SuperLU's factors of a finite matrix; None if no pivot is left."""
    try:
        return splu(A, **options)
    except RuntimeError as error:
        # Columns with fewer rows than there are columns make SuperLU abort with another text.
        if "singular" not in str(error) and structural_rank(sparse.csr_array(A)) == A.shape[0]:
            raise
        return None


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
