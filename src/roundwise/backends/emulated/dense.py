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

# The codes of cpp/emulated/format.hpp's Status; 0 is success.
_STATUS = {
    1: Status.OVERFLOW,
    2: Status.ZERO_PIVOT,
    3: Status.NONFINITE_INPUT,
    4: Status.NOT_POSITIVE_DEFINITE,
}


def check_status(code: int, kernel: str, fmt: FloatFormat, column: int | None = None) -> None:
    if code != 0:
        raise ArithmeticFailure(_STATUS[code], kernel, fmt, column)


def carried(x: NDArray[np.float64], fmt: FloatFormat) -> NDArray[Any]:
    """Finite float64 values rounded to the format, in its carrier and x's memory order."""
    rounded = round_to(x, fmt)
    if not np.isfinite(rounded).all():
        raise ArithmeticFailure(Status.OVERFLOW, "rounding the matrix", fmt)
    return rounded.astype(carrier_type(fmt), copy=False)


class DenseFactors(PermutedFactors):
    """L and U packed in one column-major array."""

    method = "lu"
    is_sparse = False

    def __init__(
        self, fmt: FloatFormat, packed: NDArray[Any], perm: NDArray[np.int32] | None
    ) -> None:
        self.fmt, self.perm, self.order = fmt, perm, None
        self.shape = packed.shape
        self._packed = packed
        self.entries, self.flops = packed.size, 2 / 3 * packed.shape[0] ** 3
        require_nonzero_diagonal(np.diagonal(packed), fmt)

    @property
    def L(self) -> Vector:
        return np.tril(self._packed.astype(np.float64), -1) + np.eye(self.shape[0])

    @property
    def U(self) -> Vector:
        return np.triu(self._packed.astype(np.float64))

    def to(self, fmt: FloatFormat) -> DenseFactors:
        if fmt == self.fmt:
            return self
        return DenseFactors(fmt, carried(self._packed.astype(np.float64), fmt), self.perm)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        spec, threads = kernel_format(self.fmt), get_num_threads()
        for lower in (not transpose, transpose):
            code = _kernels.solve_triangular(
                spec, self._packed, lower, lower, transpose, b, threads
            )
            check_status(code, "triangular solve", self.fmt)
        return b


class DenseCholesky(PermutedFactors):
    """L in a column-major array."""

    method = "cholesky"
    is_sparse = False

    def __init__(self, fmt: FloatFormat, lower: NDArray[Any]) -> None:
        self.fmt, self.perm, self.order = fmt, None, None
        self.shape = lower.shape
        self._lower = lower
        n = lower.shape[0]
        self.entries, self.flops = n * (n + 1) // 2, n**3 / 3
        require_nonzero_diagonal(np.diagonal(lower), fmt)

    @property
    def L(self) -> Vector:
        return self._lower.astype(np.float64)

    @property
    def U(self) -> Vector:
        return self.L.T

    def to(self, fmt: FloatFormat) -> DenseCholesky:
        return self if fmt == self.fmt else DenseCholesky(fmt, carried(self.L, fmt))

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        spec, threads = kernel_format(self.fmt), get_num_threads()
        for transposed in (False, True):  # (LL')' = LL'
            code = _kernels.solve_triangular(spec, self._lower, True, False, transposed, b, threads)
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
        code = _kernels.matvec(
            kernel_format(self.fmt),
            self._values,
            transpose,
            checked_vector(x, inputs),
            y,
            get_num_threads(),
        )
        check_status(code, "matvec", self.fmt)
        return y

    def lu(self) -> DenseFactors:
        require_square(self.shape)
        packed = self._values.copy(order="F")
        perm = np.empty(self.shape[0], dtype=np.int32)
        code, column = _kernels.lu(kernel_format(self.fmt), packed, perm, get_num_threads())
        check_status(code, "LU factorization", self.fmt, column)
        return DenseFactors(self.fmt, packed, perm)

    def cholesky(self) -> DenseCholesky:
        require_square(self.shape)
        lower = self._values.copy(order="F")
        code, column = _kernels.cholesky(kernel_format(self.fmt), lower, get_num_threads())
        check_status(code, "Cholesky factorization", self.fmt, column)
        return DenseCholesky(self.fmt, lower)
