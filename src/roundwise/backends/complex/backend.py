"""The native backend for complex matrices, which it is given in their real form."""

from __future__ import annotations

from typing import Any

from scipy.sparse import issparse

from roundwise.backends.complex.dense import ComplexMatrix
from roundwise.backends.complex.sparse import (
    ComplexAnalysis,
    ComplexSparseMatrix,
    complex_methods,
)
from roundwise.backends.contract import Analysis, Matrix, UnsupportedFormat, Vector
from roundwise.backends.native import exact
from roundwise.backends.native.backend import NativeBackend
from roundwise.backends.native.exact import ExactMatrix
from roundwise.backends.real_form import RealForm
from roundwise.exceptions import UnknownNameError
from roundwise.formats import FP32, FP64, FP64X2, FloatFormat, get_format

ROOT_2, OVER_ROOT_2 = 1.4142135623730952, 0.7071067811865475
"""Not below the square root of 2, and not above its inverse."""


class ComplexBackend(NativeBackend):
    """Complex arithmetic on the processor, behind the contract of a real backend.

    Dense matrices come as `RealForm`, sparse ones as `real_form.expanded` makes them. Vectors are
    real, of twice the length, and so are all numbers that a kernel returns. Dense real matrices are
    taken too, as what they are: a basis of GMRES, a proof.
    """

    def formats(self, sparse: bool = False) -> tuple[FloatFormat, ...]:
        return FP32, FP64

    def methods(self, sparse: bool = False) -> tuple[str, ...]:
        return ("cholesky", "lu", *(complex_methods() if sparse else ("qr",)))

    def runs(self, method: str, fmt: str | FloatFormat, sparse: bool = False) -> bool:
        return method in self.methods(sparse) and get_format(fmt) in self.formats(sparse)

    def analyse(self, A: Any, method: str) -> Analysis:
        if isinstance(A, RealForm) and method not in self.methods():
            raise UnknownNameError("factorization method", method, list(self.methods()))
        return self._analysis(A, method) if isinstance(A, RealForm) else super().analyse(A, method)

    def _analysis(self, A: Any, method: str) -> Analysis:
        if issparse(A) and method in complex_methods():
            return ComplexAnalysis(A, method)
        return super()._analysis(A, method)

    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        fmt = get_format(fmt)
        if fmt == FP64X2:
            return ExactMatrix(A)
        if isinstance(A, RealForm) or issparse(A):
            if fmt not in self.formats():
                raise UnsupportedFormat(
                    f"complex matrices run in fp32 and fp64 alone, not in {fmt}; use one of these"
                )
            if isinstance(A, RealForm):
                return ComplexMatrix(A, fmt)
            return ComplexSparseMatrix(A, fmt, self.symmetric_mode)
        return super().matrix(A, fmt)

    def sizes(self, A: Any) -> tuple[float, float]:
        return A.sizes() if isinstance(A, RealForm) else super().sizes(A)

    def residual(self, A: Matrix, X: Vector, B: Vector) -> Vector:
        if isinstance(A, ComplexMatrix) and A.fmt == FP64:
            return exact.residual(A.form, X, B, block_for(A.shape[1]))
        return super().residual(A, X, B)

    def residual_error(self, fmt: FloatFormat, n: int, sparse: bool = False) -> float:
        """The c for which ``|r_ij| u + c (|A| |X| + |B|)_ij`` bounds the modulus of the error.

        r_ij is complex here, magnitudes are moduli, and n is that of the real form. Both parts are
        off by what a real one is; c of `exact.error_of` has room for the square root of 2 where
        nothing is summed in blocks (docs/accuracy.md).
        """
        if fmt == FP64 and not sparse:
            return error_of(n)
        return super().residual_error(FP64X2 if fmt == FP64 else fmt, n, sparse)


def block_for(n: int) -> int:
    """The block size of dense FP64 residuals; n is that of the real form.

    The error of a block, ``sqrt(2) (block + 1) u``, is at most half of ``sqrt(n / 2) u``.
    """
    return exact.block_for(n // 4)


def error_of(n: int) -> float:
    """The bound of `ComplexBackend.residual_error` for dense FP64 residuals in such blocks."""
    block = block_for(n)
    blocks = 0.0 if block == exact.EXACT else ROOT_2 * (block + 1) * FP64.unit_roundoff
    return exact.error_of(n) + blocks
