"""Fill-reducing column order for sparse LU, from SuperLU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu


def colamd(A: sparse.csc_array) -> NDArray[np.int32] | None:
    """SuperLU's COLAMD column order of A: column ``order[j]`` comes j-th.

    It depends on the pattern alone. SciPy gives it only with a factorization, which stops if A
    is singular; the same pattern is then tried with generic values. None means that the
    pattern itself is singular: no values could make it invertible.
    """
    generic = A.copy()
    generic.data = np.random.default_rng(0).uniform(1, 2, A.nnz)
    for matrix in (A.astype(np.float64), generic):
        try:
            perm_c = splu(matrix, permc_spec="COLAMD").perm_c
        except RuntimeError as error:
            if "singular" not in str(error):
                raise
        else:
            return np.argsort(perm_c).astype(np.int32)
    return None
