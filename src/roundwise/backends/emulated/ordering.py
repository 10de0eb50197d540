"""Fill-reducing orders for sparse factorizations, from SuperLU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu


def colamd(A: sparse.csc_array) -> NDArray[np.int32] | None:
    """SuperLU's COLAMD column order of A: column ``order[j]`` comes j-th.

    None means that the pattern of A is singular: no values could make it invertible.
    """
    return _superlu_order(A, permc_spec="COLAMD")


def minimum_degree(A: sparse.csc_array) -> NDArray[np.int32] | None:
    """SuperLU's multiple minimum degree order of a symmetric A, for rows and columns alike."""
    return _superlu_order(
        A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )


def _superlu_order(A: sparse.csc_array, **options: Any) -> NDArray[np.int32] | None:
    # The order depends on the pattern alone, but SciPy gives it only with a factorization,
    # which stops if A is singular; the same pattern is then tried with generic values.
    generic = A.copy()
    generic.data = np.random.default_rng(0).uniform(1, 2, A.nnz)
    for matrix in (A.astype(np.float64), generic):
        try:
            perm_c = splu(matrix, **options).perm_c
        except RuntimeError as error:
            if "singular" not in str(error):
                raise
        else:
            return np.argsort(perm_c).astype(np.int32)
    return None
