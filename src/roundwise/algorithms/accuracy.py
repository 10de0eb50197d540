"""How good a computed solution is, and the one gate that every returned answer has passed.

All errors are measured against the original data, in the max norm:

- backward error ``||b - A x|| / (||A|| ||x|| + ||b||)`` (Rigal & Gaches 1967): the smallest
  relative change of A and b for which x is the exact solution;
- the gate accepts x if its backward error is at most ``sqrt(n) u`` with u the unit roundoff of
  the answer's format, about what LAPACK's own refinement asks for, unless told otherwise. That is
  true in exact arithmetic: what the gate compares is an upper bound of the backward error, which
  counts every rounding of its own computation (`upper_bounds`; docs/accuracy.md has the proof).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise.algorithms.scaling import shifted
from roundwise.backends import Factors
from roundwise.backends.arrays import column_norms
from roundwise.backends.contract import AtOnce
from roundwise.backends.native.storage import gemv
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.problems import LinearSystem

Vector = NDArray[np.float64]
_SAFE_EXPONENT = 300  # products of three such numbers, and long sums of them, are in range


def default_tolerance(n: int, fmt: FloatFormat = FP64) -> float:
    """``sqrt(n) u``: the largest backward error that the gate accepts for n equations."""
    return math.sqrt(n) * fmt.unit_roundoff


def backward_errors(residual_norms: Any, norm_A: float, x_norms: Any, b_norms: Any) -> Any:
    """``||r|| / (||A|| ||x|| + ||b||)`` for each column; a float if the norms are floats.

    Zero if r is zero; infinite if the divisor is, so that what is unknown never looks small;
    NaN if r holds NaN.
    """
    if isinstance(x_norms, float):  # at once: small systems take microseconds
        size = float(norm_A) * float(x_norms) + float(b_norms)  # no warning if it overflows
        if not (math.isfinite(size) and (size or not residual_norms)):
            return math.inf
        return residual_norms / size if residual_norms else 0.0
    errors = np.empty(len(x_norms))
    _kernels.native_backward_errors(residual_norms, norm_A, x_norms, b_norms, errors)
    return errors


def upper_bounds(errors: Any, n: int, residual_error: float) -> Any:
    """The largest that the exact backward errors can be, given the computed ones.

    `residual_error` is what `Backend.residual_error` says of the residuals; it has room for numbers
    that underflow. The norms are sums of at most n terms: they and the quotient add ``(n + 16) u``.
    """
    return errors * (1 + (n + 16) * FP64.unit_roundoff) + residual_error


def within(tolerance: float, n: int, residual_error: float) -> float:
    """The largest computed backward error whose upper bound is at most the tolerance."""
    return (tolerance - residual_error) * (1 - (n + 17) * FP64.unit_roundoff)


def target_of(tolerance: float, dtype: Any, is_complex: bool = False) -> float:
    """The backward error to refine to, so that x may still be rounded to its type."""
    if dtype != np.float32:
        return tolerance
    left = (tolerance - rounded_errors(0.0, is_complex)) * (1 - 2.0**-19)
    return float(max(left, tolerance / 4))


def rounded_errors(errors: Any, is_complex: bool = False) -> Any:
    """Bounds of the backward errors of x from those before it was rounded to single precision.

    Where ``||x||`` is zero or at least 2**-126, each number changes by at most ``u ||x||``, u =
    2**-24, and the residual by ``u ||A|| ||x||``; a complex one by twice the norm that the gate
    takes for ``||A||`` (docs/accuracy.md).
    """
    return (errors + (2.0 if is_complex else 1.0) * FP32.unit_roundoff) * (1 + 2.0**-20)


def holds_in_single(x_norms: Any) -> bool:
    """Whether columns of these norms are rounded to single precision as `rounded_errors` says."""
    in_range = (x_norms >= 2.0**-126) & (x_norms <= float(np.finfo(np.float32).max))
    return bool((in_range | (x_norms == 0)).all())


def passes(errors: Any, tolerance: float) -> bool:
    """The gate: whether the backward error of every column is at most the tolerance.

    It is written so that NaN fails.
    """
    if isinstance(errors, float):
        return bool(errors <= tolerance)
    return bool(np.less_equal(errors, tolerance).all())


def judged(
    found: AtOnce, dtype: Any, tolerance: float, unknown: float, is_complex: bool
) -> tuple[NDArray[Any], float, bool]:
    """X of a type, an upper bound of its backward errors, and whether it passes the gate.

    `unknown` is what the residuals do not tell (`Backend.residual_error`).
    """
    X, error, holds = found.X.astype(dtype, copy=False), found.error, True
    if dtype == np.float32:
        error = rounded_errors(error, is_complex)
        holds = holds_in_single(column_norms(X.reshape(len(X), -1, order="F")))
    error = float(upper_bounds(error, len(X), unknown))
    return X, error, holds and passes(error, tolerance)


class ErrorMeasure:
    """Errors of approximate solutions of one linear system; norms of A are computed once.

    Computed in float64 from the original A and b; where float64 could leave its range, from the
    system scaled by a power of two.

    Parameters
    ----------
    problem : LinearSystem

    Examples
    --------
    >>> from roundwise.algorithms import ErrorMeasure
    >>> system = rw.problems.randsvd(20, kappa=10.0, rng=0)
    >>> measure = ErrorMeasure(system)
    >>> x = np.linalg.solve(system.A, system.b)
    >>> measure.backward(x) < 1e-15, measure.forward(x) < 1e-14, measure.componentwise(x) < 1e-14
    (True, True, True)
    """

    def __init__(self, problem: LinearSystem) -> None:
        self.problem = problem
        # Both backward errors are those of the system scaled by a power of two, where sums of
        # products of huge or tiny entries neither overflow nor vanish.
        self._shift = moderating_shift(problem.A)
        self._A = problem.A * math.ldexp(1.0, self._shift) if self._shift else problem.A
        self._abs_A = abs(self._A)
        self._norm_A = float(self._abs_A.sum(axis=1).max())

    def _scaled(self, x: Vector) -> tuple[Vector, Vector]:
        """x and b such that ``A x = b`` still holds, both of moderate size."""
        shift = moderating_shift(x)
        if shift == self._shift == 0:
            return x, self.problem.b
        with np.errstate(over="ignore", under="ignore"):
            return shifted(x, shift), shifted(self.problem.b, shift + self._shift)

    def forward(self, x: Vector) -> float:
        """``||x - x_true|| / ||x_true||`` (max norm); absolute if x_true is 0, NaN if unknown."""
        x_true = self.problem.x_true
        if x_true is None:
            return float("nan")
        size = max_norm(x_true)
        return max_norm(x - x_true) / (size if size > 0 else 1.0)

    def backward(self, x: Vector) -> float:
        """The normwise backward error of x."""
        x, b = self._scaled(x)
        with np.errstate(over="ignore", invalid="ignore"):
            residual = b - product(self._A, x)
            return float(
                backward_errors(max_norm(residual), self._norm_A, max_norm(x), max_norm(b))
            )

    def componentwise(self, x: Vector) -> float:
        """``max_i |b - A x|_i / (|A| |x| + |b|)_i``, 0/0 being 0 (Oettli & Prager)."""
        x, b = self._scaled(x)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            residual = np.abs(b - product(self._A, x))
            size = product(self._abs_A, np.abs(x)) + np.abs(b)
            ratios = np.where(residual == 0, 0.0, residual / size)
        return float(ratios.max()) if np.isfinite(size).all() else math.inf


def product(A: Any, x: Vector) -> Vector:
    """``A x`` of a C-ordered or sparse A.

    NumPy's ``@`` would wake the threads of its BLAS, which go on spinning for a while and slow down
    the next factorization.
    """
    return np.asarray(A @ x if sparse.issparse(A) else gemv(A.T, x, transpose=True))


def lost_pivots(factors: Factors, margin: float = 1.0, most: float = math.inf) -> int:
    """Pivots below ``margin sqrt(n) u_f`` of the largest, and below `most`; 0 if none are at hand.

    u_f is the unit roundoff of the factors' format.
    """
    pivots = factors.pivots
    if pivots is None:
        return 0
    noise = min(margin * default_tolerance(len(pivots), factors.fmt), most) * pivots.max()
    return int(np.count_nonzero(pivots < noise))


def max_norm(x: NDArray[Any]) -> float:
    """``max_i |x_i|``."""
    return float(np.abs(x).max())


def moderating_shift(x: Any) -> int:
    """The e for which ``2**e x`` is of moderate size; 0 if x is, or is zero."""
    exponent = math.frexp(float(abs(x).max()))[1] - 1
    return 0 if abs(exponent) < _SAFE_EXPONENT else min(-exponent, 1000)  # 2**1000 is in range
