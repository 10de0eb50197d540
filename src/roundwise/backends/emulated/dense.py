"""Dense matrices and factors of the ``operation`` arithmetic model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.backends.checks import checked_vector, require_nonzero_diagonal, require_square
from roundwise.backends.contract import ArithmeticFailure, Matrix, Status, Vector
from roundwise.backends.emulated.carriers import carrier_type
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FloatFormat
from roundwise.machine.threads import get_num_threads
from roundwise.rounding import kernel_format, round_to


def check_status(code: int, kernel: str, fmt: FloatFormat, column: int | None = None) -> None:
    """Raise the failure of a compiled kernel's code; 0 is success, the others count `Status`."""
    if code != 0:
        raise ArithmeticFailure(list(Status)[code - 1], kernel, fmt, column)


def carried(
    x: NDArray[np.float64], fmt: FloatFormat, kernel: str = "rounding the matrix"
) -> NDArray[Any]:
    """Finite float64 values rounded to the format, in its carrier and x's memory order."""
    rounded = round_to(x, fmt)
    if not np.isfinite(rounded).all():
        raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
    return rounded.astype(carrier_type(fmt), copy=False)


class DenseFactors(PermutedFactors):
    """L and U, or the L of a Cholesky factorization, in one column-major array."""

    is_sparse = False

    def __init__(
        self,
        fmt: FloatFormat,
        packed: NDArray[Any],
        perm: NDArray[np.int32] | None,
        method: str = "lu",
    ) -> None:
        n = len(packed)
        self.fmt, self.shape, self.perm, self.order = fmt, packed.shape, perm, None
        self.method, self._packed, self._is_lu = method, packed, method == "lu"
        self.entries = n * n if self._is_lu else n * (n + 1) // 2
        self.flops = (2 if self._is_lu else 1) / 3 * n**3
        require_nonzero_diagonal(np.diagonal(packed), fmt)

    @property
    def L(self) -> Vector:
        packed = self._packed.astype(np.float64)
        return np.tril(packed, -1) + np.eye(len(packed)) if self._is_lu else packed

    @property
    def U(self) -> Vector:
        return np.triu(self._packed.astype(np.float64)) if self._is_lu else self.L.T

    def to(self, fmt: FloatFormat) -> DenseFactors:
        if fmt == self.fmt:
            return self
        kernel = f"rounding the {'LU' if self._is_lu else 'Cholesky'} factorization"
        packed = carried(self._packed.astype(np.float64), fmt, kernel)
        return type(self)(fmt, packed, self.perm, self.method)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        # Lower, unit diagonal, transposed: the triangles in their order. (LL')' = LL'.
        triangles = [(True, False, False), (True, False, True)]
        if self._is_lu:
            triangles = [(lower, lower, transpose) for lower in (not transpose, transpose)]
        for triangle in triangles:
            code = _kernels.solve_triangular(
                kernel_format(self.fmt), self._packed, *triangle, b, get_num_threads()
            )
            check_status(code, "triangular solve", self.fmt)
        return b


class DenseMatrix(Matrix):
    """Column-major, in the carrier."""

    is_sparse = False

    def __init__(self, A: NDArray[np.float64], fmt: FloatFormat) -> None:
        self.fmt, self.shape, self.entries = fmt, A.shape, A.size
        self._values = carried(np.asfortranarray(A), fmt)

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        outputs, inputs = self.shape[::-1] if transpose else self.shape
        y = np.empty(outputs)
        x = checked_vector(x, inputs)
        spec, threads = kernel_format(self.fmt), get_num_threads()
        code = _kernels.matvec(spec, self._values, transpose, x, y, threads)
        check_status(code, "matvec", self.fmt)
        return y

    def lu(self) -> DenseFactors:
        require_square(self.shape)
        packed = self._values.copy(order="F")
        perm = np.empty(self.shape[0], dtype=np.int32)
        code, column = _kernels.lu(kernel_format(self.fmt), packed, perm, get_num_threads())
        check_status(code, "LU factorization", self.fmt, column)
        return DenseFactors(self.fmt, packed, perm)

    def cholesky(self) -> DenseFactors:
        require_square(self.shape)
        lower = self._values.copy(order="F")
        code, column = _kernels.cholesky(kernel_format(self.fmt), lower, get_num_threads())
        check_status(code, "Cholesky factorization", self.fmt, column)
        return DenseFactors(self.fmt, lower, None, "cholesky")
