"""Small dense systems at once: the calls of an FP64 solve without any object around them.

At n = 50 LAPACK takes 30 microseconds; building matrices, stages and rules takes as long again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from roundwise.backends.native.dense import getrf
from roundwise.backends.native.storage import gemv

Array = NDArray[np.float64]


def solve_at_once(A: Array, b: Array) -> tuple[Array, Array, float, float] | None:
    """x, ``b - A x``, ``||A||_inf`` and the smallest pivot for float64 A and b, by LU.

    None if A is singular in FP64. Inf and NaN are left to the caller.
    """
    if not (A.flags.forc and A.flags.aligned):
        A = A.copy()
    # A C-ordered matrix is the transpose of one whose columns are contiguous.
    columns, flip = (A.T, 1) if A.flags.c_contiguous else (A, 0)
    lu, swaps, info = getrf(columns.copy(order="F"))
    if info != 0:
        return None
    x, _ = lapack.dgetrs(lu, swaps, b, trans=flip)
    product: Any
    if b.ndim == 1:
        product = gemv(columns, x, bool(flip))
    elif b.shape[1] == 1:
        product = gemv(columns, x[:, 0], bool(flip))[:, None]
    else:
        product = blas.dgemm(1.0, columns, x, trans_a=flip)
    pivots = np.abs(lu.diagonal())
    least = pivots[pivots.argmin()]  # min() would take twice as long
    return x, b - product, lapack.dlange("1" if flip else "I", columns), least
