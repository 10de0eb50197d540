"""Dense matrices and factors on the device.

Numbers of formats below FP64 are stored in FP32. Factors are made by `lu`, `cholesky` and QR, and
stay as they are stored, whatever format they are applied in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from roundwise._forking import cached_property
from roundwise.backends.arrays import norms_of_blocks
from roundwise.backends.checks import require_square
from roundwise.backends.contract import (
    Analysis,
    ArithmeticFailure,
    AtOnce,
    Factors,
    Matrix,
    Status,
    ToRefine,
    UnsupportedFormat,
    Vector,
)
from roundwise.backends.cuda import cholesky, lu, residual
from roundwise.backends.cuda.device import Device
from roundwise.backends.cuda.products import computed_in, is_rounded, rounded, rounded_matrix
from roundwise.formats import FP32, FP64, FP64X2, FloatFormat, get_format

PIVOTING = {
    "lu": "partial",
    "lu/tournament": "tournament",
    "lu/local": "local",
    "lu/butterfly": "butterfly",
    "lu/diagonal": "diagonal",
}
"""The ways to pivot, by the name of the method (see `lu`)."""

_GIVEN, _MODERATE = 40, 500  # powers of two: of right-hand sides as solves scale them, of residuals


class CudaMatrix(Matrix):
    """A matrix on the device, converted to its format when it is first multiplied with.

    Until then it keeps the array that it was given, which must not change.
    """

    is_sparse = False

    def __init__(self, device: Device, A: Any, fmt: FloatFormat) -> None:
        self.fmt, self.shape, self.entries = fmt, A.shape, A.size
        self._device, self._given = device, A

    @cached_property
    def array(self) -> Any:
        """The numbers in their format, in either memory order."""
        if self.fmt == FP64X2:
            return self._given.astype(np.float64, copy=False)
        return rounded_matrix(self._device.xp, self._given, self.fmt)

    def prepared(self) -> CudaMatrix:
        _ = self.array
        return self

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        """``A x`` or ``A' x``; inf and NaN are found when its norm is read."""
        return self.times(x, transpose)

    def times(self, X: Vector, transpose: bool = False) -> Vector:
        if self.fmt == FP64X2:
            raise UnsupportedFormat(
                f"{FP64X2} is a format of the residual stage alone; choose fp64 or lower for the "
                "others"
            )
        xp, A = self._device.xp, self.array.T if transpose else self.array
        product = A @ rounded(xp, xp.asarray(X), self.fmt)
        if is_rounded(self.fmt):
            product = rounded(xp, product, self.fmt)
        return product.astype(np.float64, copy=False)

    def factors(self, method: str) -> CudaFactors:
        """Factors by one of the methods of `PIVOTING`, by Cholesky or by QR."""
        require_square(self.shape)
        return CudaFactors(self._made(method), self.fmt, method)

    def _made(self, method: str) -> Any:
        if method == "cholesky":
            return cholesky.factorize(self._device, self._given, self.fmt)
        if method == "qr":
            return OrthogonalFactors(self._device, self._given)
        pivoting = PIVOTING[method]
        if pivoting == "partial" and self.fmt not in (FP32, FP64):
            pivoting = "tournament"  # cuSOLVER has no other formats; this comes closest to it
        return lu.factorize(self._device, self._given, self.fmt, pivoting)

    def lu(self) -> CudaFactors:
        return self.factors("lu")

    def cholesky(self) -> CudaFactors:
        return self.factors("cholesky")

    def qr(self) -> CudaFactors:
        return self.factors("qr")


class CudaAnalysis(Analysis):
    """Nothing is learned from a dense matrix: `factorize` does everything."""

    def __init__(self, matrix: Callable[[Any, FloatFormat], CudaMatrix], method: str) -> None:
        self._matrix, self.method = matrix, method

    def factorize(self, A: Any, fmt: str | FloatFormat) -> Factors:
        return self._matrix(A, get_format(fmt)).factors(self.method)


class CudaFactors(Factors):
    """Factors on the device.

    Those below FP64 are stored and applied in FP32, where solves are bound by memory; after `to`,
    operands and results are rounded to the format that was asked for.
    """

    is_sparse = False
    order = None

    def __init__(
        self, packed: Any, fmt: FloatFormat, method: str, applied: FloatFormat | None = None
    ) -> None:
        n = packed.n
        self.fmt, self.method, self.shape = fmt, method, (n, n)
        self.entries = n * (n + 1) // 2 if method == "cholesky" else n * n
        self.flops = (1 / 3 if method == "cholesky" else 4 / 3 if method == "qr" else 2 / 3) * n**3
        self._packed = packed
        self._applied = (FP64 if fmt == FP64 else FP32) if applied is None else applied

    @property
    def perm(self) -> Any:  # type: ignore[override]
        return self._packed.dense()[2]

    @property
    def L(self) -> Any:
        return self._packed.dense()[0]

    @property
    def U(self) -> Any:
        return self._packed.dense()[1]

    @cached_property
    def pivots(self) -> Vector | None:
        return None if self.method == "cholesky" else self._packed.pivots

    @cached_property
    def diagonal(self) -> Any:
        """That of Cholesky's L."""
        return getattr(self._packed, "diagonal", None) if self.method == "cholesky" else None

    def to(self, fmt: FloatFormat) -> CudaFactors:
        return CudaFactors(self._packed, fmt, self.method, applied=fmt)

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        """As the contract says for NumPy's arrays, which are read back anyway.

        What stays on the device may hold inf and NaN, which are found with its norm.
        """
        xp, fmt = self._packed.device.xp, self._applied
        operand = rounded(xp, xp.asarray(b), fmt)
        x = self._packed.solve(operand, computed_in(fmt), transpose=transpose)
        if is_rounded(fmt):
            x = rounded(xp, x, fmt)
        if isinstance(b, np.ndarray) and not bool(xp.isfinite(x).all()):
            raise ArithmeticFailure(Status.OVERFLOW, "triangular solve", fmt)
        return x.astype(np.float64, copy=False)

    def refined(self, given: ToRefine, transpose: bool = False) -> AtOnce | None:
        """As the contract says, with one read-back for each correction.

        All columns are corrected as long as one is not good enough. None also where the numbers
        of columns are so small or large that they must be scaled with care.
        """
        A, norm, B, target, most_steps, _ = given
        if not isinstance(A, CudaMatrix) or A.fmt != FP64 or 0 in B.shape or B.ndim != 2:
            return None
        xp, several = A._device.xp, B.shape[1] > 1
        X, before, largest = self.solve(B, transpose), np.ones(B.shape[1]), 0.0
        corrected, history = B, list[float]()
        for step in range(most_steps + 1):
            # A product is faster than a residual with known error, and good enough to correct by.
            R = B - A.array @ X if several else self._residual(A, X, B)
            z_norms, x_norms, r_norms = norms_of_blocks([corrected, X, R])
            if step == 0:
                b_norms = z_norms
                if not (are_moderate(b_norms, _GIVEN) and (b_norms > 0).all()):
                    return None
            if not (np.isfinite(x_norms).all() and (x_norms > 0).all()):
                return None
            divisor = norm * x_norms + b_norms
            if several and (r_norms <= target * divisor).all():
                R = self._residual(A, X, B)
                (r_norms,) = norms_of_blocks([R])
            errors = r_norms / divisor
            if step > 0:
                sizes = z_norms / x_norms
                history.append(float(sizes.max()))
                largest = max(largest, history[-1])
                if not (errors <= target).all() and not (2 * sizes <= before).all():
                    return None
                before = sizes
            if (errors <= target).all():
                stretch = float((norm * x_norms / b_norms).max())
                return AtOnce(X, R, errors, float(errors.max()), largest, stretch, history)
            if not are_moderate(r_norms, _MODERATE):
                return None
            history.append(float(errors.max()))
            scale = np.ldexp(1.0, -np.frexp(r_norms)[1])
            up, down = (
                xp.asarray(s)[None, :] if several else float(s[0]) for s in (scale, 1 / scale)
            )
            corrected = self.solve(R * up, transpose) * down
            X = X + corrected
        return None

    @staticmethod
    def _residual(A: CudaMatrix, X: Vector, B: Vector) -> Vector:
        """``B - A X`` with the error that `CudaBackend.residual_error` says."""
        return residual.residual(A._device, A.array, X, B, residual.block_for(len(B)))


def are_moderate(norms: Any, most: int) -> bool:
    """Whether they are finite, and powers of two up to that."""
    return bool(np.isfinite(norms).all() and (abs(np.frexp(norms)[1]) <= most).all())


class OrthogonalFactors:
    """``A = Q R``: the last resort, backward stable even where the entries of LU grow."""

    def __init__(self, device: Device, A: Any) -> None:
        self.device, self.n = device, len(A)
        self._Q, self._R = device.xp.linalg.qr(A)
        zeros = self.pivots == 0
        if bool(zeros.any()):
            raise ArithmeticFailure(
                Status.ZERO_PIVOT, "QR factorization", FP64, int(zeros.argmax())
            )

    @property
    def pivots(self) -> Any:
        return abs(self.device.xp.diagonal(self._R))

    def solve(self, B: Any, dtype: Any, transpose: bool = False) -> Any:
        """A triangle has no entries to eliminate: LU with pivoting leaves R as it is."""
        solve = self.device.xp.linalg.solve
        if transpose:
            return (self._Q @ solve(self._R.T, B)).astype(dtype, copy=False)
        return solve(self._R, self._Q.T @ B).astype(dtype, copy=False)

    def dense(self) -> tuple[Any, Any, Any]:
        return self._Q, self._R, None
