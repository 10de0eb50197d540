"""Whether a Cholesky factorization failed because A is indefinite, or because of rounding errors.

Where it stops, at column k, the leading block of A is ``L L'``, and the pivot that was not positive
is, but for rounding errors, ``x'Ax`` with ``x = (-(L L')^-1 a, 1, 0)``, where a is the first k
entries of A's column k. Whatever errors L and x have: ``x'Ax < 0`` proves that A is not positive
definite. So the proof needs no theory of how the factorization rounds, only the value of ``x'Ax``
and a bound of the rounding errors of computing it. It takes O(n^2) operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

import roundwise._kernels as _kernels
from roundwise.backends.native.storage import ONE_THREAD, gemv
from roundwise.formats import FP32, FP64

_TRSV = {np.dtype(np.float64): blas.dtrsv, np.dtype(np.float32): blas.strsv}


def is_indefinite(A: NDArray[Any], work: NDArray[Any], lower: bool, column: int) -> bool:
    """Whether the direction in which Cholesky failed proves that A is not positive definite.

    A is finite and Fortran-ordered, float64 or float32. `work` is what LAPACK's potrf left when it
    stopped at `column`, L in its lower triangle or L' in the upper one; it is overwritten.

    The computed ``x'Ax`` errs by at most ``gamma_2n |x|'|A||x|`` (Higham, Accuracy and Stability of
    Numerical Algorithms, 2002, section 3.5), which ``4 n u ||x||_1 ||A||_inf ||x||_inf`` exceeds.
    """
    n, solve = len(A), _TRSV[work.dtype]
    # Below the leading block, right-hand sides are zero, and so are solutions with ones there.
    np.fill_diagonal(work[column:, column:], 1.0)
    y = np.zeros(n, dtype=work.dtype)
    y[:column] = A[:column, column]
    y = solve(work, y, lower=lower, trans=int(not lower))
    y[column:] = 0.0
    x = -solve(work, y, lower=lower, trans=int(lower)).astype(A.dtype)
    x[column], x[column + 1 :] = 1.0, 0.0
    fmt = FP64 if A.dtype == np.float64 else FP32
    with np.errstate(all="ignore"):  # what overflows proves nothing
        value = float(x @ gemv(A, x, False, fmt))
        _, norm, _ = _kernels.native_norms(A, ONE_THREAD)
        sizes = float(np.abs(x).sum(dtype=np.float64)) * norm * float(np.abs(x).max())
    return value < -4 * n * fmt.unit_roundoff * sizes
