"""Dense matrices and factors on the device.

Numbers of formats below FP64 are stored in FP32. Factors are made by `lu`, `cholesky` and QR, and
stay as they are stored, whatever format they are applied in.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np

from roundwise._forking import cached_property
from roundwise.backends.arrays import on_host
from roundwise.backends.checks import require_square
from roundwise.backends.contract import (
    Analysis,
    ArithmeticFailure,
    Factors,
    Matrix,
    Status,
    UnsupportedFormat,
    Vector,
)
from roundwise.backends.cuda import cholesky, lu
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
        self.flops = {"cholesky": 1 / 3, "qr": 4 / 3}.get(method, 2 / 3) * n**3
        self._packed = packed
        self._applied = (FP64 if fmt == FP64 else FP32) if applied is None else applied
        self._solving = Lock()  # a solve uses vectors that belong to the factors

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
        """That of Cholesky's L, whose squares are what is kept."""
        squares = getattr(self._packed, "pivots", None) if self.method == "cholesky" else None
        return None if squares is None else np.sqrt(on_host(squares))

    def to(self, fmt: FloatFormat) -> CudaFactors:
        return CudaFactors(self._packed, fmt, self.method, applied=fmt)

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        """As the contract says for NumPy's arrays, which are read back anyway.

        What stays on the device may hold inf and NaN, which are found with its norm.
        """
        xp, fmt = self._packed.device.xp, self._applied
        operand = rounded(xp, xp.asarray(b), fmt)
        with self._solving:
            x = self._packed.solve(operand, computed_in(fmt), transpose=transpose)
        if is_rounded(fmt):
            x = rounded(xp, x, fmt)
        if isinstance(b, np.ndarray) and not bool(xp.isfinite(x).all()):
            raise ArithmeticFailure(Status.OVERFLOW, "triangular solve", fmt)
        return x.astype(np.float64, copy=False)


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
