"""Whether a Cholesky factorization failed because A is indefinite, or because of rounding errors.

Where it stops, at column k, the leading block of A is ``L L'``, and the pivot that was not positive
is, but for rounding errors, ``x'Ax`` with ``x = (-(L L')^-1 a, 1, 0)``, where a is the first k
entries of A's column k. Whatever errors L and x have: ``x'Ax < 0`` proves that A is not positive
definite. So the proof needs no theory of how the factorization rounds, only the value of ``x'Ax``
and a bound of the rounding errors of computing it. It takes O(n^2) operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

import roundwise._kernels as _kernels
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.native.storage import ONE_THREAD, gemv, routines
from roundwise.backends.real_form import RealForm
from roundwise.formats import FP32, FP64

_TRSV, _TRTRS = routines(blas, "trsv"), routines(lapack, "trtrs")


def proved_indefinite(
    failure: ArithmeticFailure, proves: Callable[[int], bool]
) -> ArithmeticFailure:
    """What to raise for a failed Cholesky factorization; `proves` tells of the column it failed at.

    FP64 has no format above it to be spared, so that nothing is proved there.
    """
    fmt, column = failure.fmt, failure.column
    if fmt == FP64 or failure.status is not Status.NOT_POSITIVE_DEFINITE or column is None:
        return failure
    if not proves(column):
        return failure
    return ArithmeticFailure(Status.INDEFINITE, failure.kernel, fmt, column)


def proves_indefinite(A: NDArray[Any], work: NDArray[Any], lower: bool, column: int) -> bool:
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


def proves_form_indefinite(form: RealForm, packed: NDArray[Any], column: int) -> bool:
    """The same for a complex A: ``x* A x < 0`` proves it.

    The error of the computed value is at most that of sums of 4 n real products, each way.
    """
    n, M = column + 1, form.values[: column + 1, : column + 1].T
    y = np.array(M[:column, column], dtype=packed.dtype)
    if column:
        triangle, solve = packed[:column, :column], _TRTRS[packed.dtype]
        y, _ = solve(triangle, y, trans=2)
        y, _ = solve(triangle, y)
    x = np.append(-y, 1.0).astype(np.complex128)
    with np.errstate(all="ignore"):  # what overflows proves nothing
        value = float(np.vdot(x, M @ x).real)
        sizes = float(np.abs(x).sum()) * form.sizes()[0] * float(np.abs(x).max())
    return value < -16 * (n + 2) * FP64.unit_roundoff * sizes
