"""Small dense complex systems at once, as `native.small` solves real ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from roundwise.backends.complex.backend import OVER_ROOT_2, block_for
from roundwise.backends.native import exact
from roundwise.backends.real_form import RealForm

MOST_STEPS = 2
"""Corrections of x: LU of a complex matrix leaves errors of about what the gate accepts."""


def solve_complex_at_once(
    A: NDArray[Any], b: NDArray[Any], enough: float
) -> tuple[NDArray[Any], float, float] | None:
    """x for a C-ordered complex128 A by LAPACK's LU, and its backward error in moduli.

    The error is that of the column for which it is largest, infinite where the divisor is so large
    or small that A and b should be scaled first. If it is not below `enough`, x is corrected. The
    third number is the smallest pivot over the largest. None if A is singular in FP64. Inf and NaN
    are left to the caller.
    """
    lu, swaps, info = lapack.zgetrf(A.T)  # the transpose has contiguous columns
    if info != 0:
        return None
    pivots = np.abs(lu.diagonal())
    ratio = float(pivots.min() / pivots.max())
    form, block = RealForm(A), block_for(2 * len(A))
    norm, B = form.sizes()[0] * OVER_ROOT_2, _columns(b)
    b_norms = np.abs(B).max(axis=1)
    x, _ = lapack.zgetrs(lu, swaps, b, trans=1)
    for step in range(1 + MOST_STEPS):
        X = _columns(x)
        R = exact.residual(form, X.view(np.float64).T, B.view(np.float64).T, block)
        r = R.T.view(np.complex128)
        sizes = norm * np.abs(X).max(axis=1) + b_norms
        if not (sizes.min() > exact.LEAST and sizes.max() < exact.MOST):
            return x, math.inf, ratio
        error = float((np.abs(r).max(axis=1) / sizes).max())
        if error <= enough or step == MOST_STEPS:
            break
        x = x + lapack.zgetrs(lu, swaps, r.T.reshape(x.shape), trans=1)[0]
    return x, error, ratio


def _columns(z: NDArray[Any]) -> NDArray[np.complex128]:
    """The columns of z, or z itself, as rows of an array."""
    return np.ascontiguousarray(z.T if z.ndim == 2 else z[None, :], dtype=np.complex128)
