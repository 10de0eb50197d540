"""Small dense systems at once: the calls of an FP64 solve without any object around them.

At n = 50 LAPACK takes 30 microseconds; building matrices, stages and rules takes as long again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.native import buffer_pool, exact
from roundwise.backends.native.dense import getrf, getrs
from roundwise.backends.native.storage import work_array
from roundwise.formats import FP64
from roundwise.machine.threads import PASS

Array = NDArray[np.float64]


def solve_at_once(A: Array, b: Array) -> tuple[Array, float, float] | None:
    """x for float64 A and b (vector or columns) by LU, and its `exact.backward_error`.

    The third number is the smallest pivot over the largest: a sign of an ill-conditioned A.
    None if A is singular in FP64. Inf and NaN are left to the caller.
    """
    if not (A.flags.forc and A.flags.aligned):
        A = A.copy()
    # A C-ordered matrix is the transpose of one whose columns are contiguous.
    columns, flip = (A.T, True) if A.flags.c_contiguous else (A, False)
    work = columns.copy(order="F") if A.size < PASS else work_array(columns, FP64)
    lu, swaps, info = getrf(work)
    if info != 0:
        return None
    x = getrs(lu, swaps, b, flip)
    pivots = np.abs(lu.diagonal())
    ratio = pivots[pivots.argmin()] / pivots[pivots.argmax()]  # min() would take twice as long
    buffer_pool.keep(lu)
    return x, exact.backward_error(A, x, np.asfortranarray(b)), ratio
