"""Small dense systems at once: the calls of an FP64 solve without any object around them.

At n = 50 LAPACK takes 30 microseconds; building matrices, stages and rules takes as long again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

import roundwise._kernels as _kernels
from roundwise.backends.native import exact
from roundwise.backends.native.dense import getrf

Array = NDArray[np.float64]


def solve_at_once(A: Array, b: Array) -> tuple[Array, Array, float, float] | None:
    """x, ``b - A x``, ``||A||_inf`` and the smallest pivot for float64 A and b, by LU.

    The residual is that of `exact.residual`, in blocks of `exact.block_for`. None if A is singular
    in FP64. Inf and NaN are left to the caller.
    """
    if not (A.flags.forc and A.flags.aligned):
        A = A.copy()
    # A C-ordered matrix is the transpose of one whose columns are contiguous.
    columns, flip = (A.T, 1) if A.flags.c_contiguous else (A, 0)
    lu, swaps, info = getrf(columns.copy(order="F"))
    if info != 0:
        return None
    x, _ = lapack.dgetrs(lu, swaps, b, trans=flip)
    residual = exact.residual(A, x, b, exact.block_for(len(A)))
    pivots = np.abs(lu.diagonal())
    least = pivots[pivots.argmin()]  # min() would take twice as long
    return x, residual, _kernels.native_largest_row_sum(columns, bool(flip)), least
