"""The ``storage`` arithmetic model: float64 arithmetic, results rounded when they are stored.

A product, a dense solve or a dot is one float64 call of BLAS, LAPACK or SuperLU on rounded
operands; only what it returns is rounded. Sparse substitution, Cholesky and Gram-Schmidt run our
own kernels in float64. Factors are those of the rounded matrix, rounded afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import splu

import roundwise._kernels as _kernels
from roundwise.backends.checks import (
    checked_basis,
    checked_matrix,
    checked_vector,
    require_nonzero_diagonal,
    require_square,
)
from roundwise.backends.contract import ArithmeticFailure, Matrix, Status, Vector
from roundwise.backends.emulated import dense as operation_dense
from roundwise.backends.emulated import operation
from roundwise.backends.emulated import sparse as operation_sparse
from roundwise.backends.emulated.backend import EmulatedBackend
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FP64, FloatFormat, get_format
from roundwise.rounding import kernel_format, round_to


def _stored(x: Vector, kernel: str, fmt: FloatFormat) -> Vector:
    """What is left of a float64 result when it is stored."""
    rounded = round_to(x, fmt)
    if not np.isfinite(rounded).all():
        raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
    return rounded


def _stored_number(x: float, kernel: str, fmt: FloatFormat) -> float:
    return float(_stored(np.array([x]), kernel, fmt)[0])


def _operand(x: NDArray[Any], length: int | None, kernel: str, fmt: FloatFormat) -> Vector:
    x = checked_vector(x, length)
    if not np.isfinite(x).all():
        raise ArithmeticFailure(Status.NONFINITE_INPUT, kernel, fmt)
    return _stored(x, kernel, fmt)


def _number(alpha: float, kernel: str, fmt: FloatFormat) -> float:
    return float(_operand(np.array([float(alpha)]), 1, kernel, fmt)[0])


def _stored_block(b: Vector, kernel: str, fmt: FloatFormat) -> Vector:
    if not np.isfinite(b).all():
        raise ArithmeticFailure(Status.NONFINITE_INPUT, kernel, fmt)
    return _stored(b, kernel, fmt)


class DenseFactors(operation_dense.DenseFactors):
    """L and U packed in one float64 array, rounded to the format."""

    def __init__(self, fmt: FloatFormat, packed: Vector, perm: NDArray[np.int32] | None) -> None:
        super().__init__(fmt, _stored(packed, "LU factorization", fmt), perm)

    def to(self, fmt: FloatFormat) -> DenseFactors:
        return DenseFactors(fmt, self._packed, self.perm)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        kernel = "triangular solve"
        b = _stored_block(b, kernel, self.fmt)
        no_swaps = np.arange(self.shape[0], dtype=np.int32)
        x, _ = lapack.dgetrs(self._packed, no_swaps, b, trans=int(transpose), overwrite_b=True)
        return _stored(x, kernel, self.fmt)


class CholeskyFactors(PermutedFactors):
    """L L', dense or sparse: the float64 factor of the rounded matrix, rounded."""

    method = "cholesky"

    def __init__(self, fmt: FloatFormat, float64_factors: PermutedFactors) -> None:
        self._solver = float64_factors.to(fmt).to(FP64)
        self.fmt, self.shape = fmt, float64_factors.shape
        self.is_sparse = float64_factors.is_sparse
        self.entries, self.flops = float64_factors.entries, float64_factors.flops
        self.perm, self.order = float64_factors.perm, float64_factors.order

    @property
    def L(self) -> Any:
        return self._solver.L

    @property
    def U(self) -> Any:
        return self._solver.U

    def to(self, fmt: FloatFormat) -> CholeskyFactors:
        return CholeskyFactors(fmt, self._solver)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        kernel = "triangular solve"
        b = _stored_block(b, kernel, self.fmt)
        return _stored(self._solver._solve_factored(b, transpose), kernel, self.fmt)


class DenseMatrix(Matrix):
    """Column-major float64."""

    is_sparse = False

    def __init__(self, A: Vector, fmt: FloatFormat) -> None:
        self.fmt, self.shape, self.entries = fmt, A.shape, A.size
        self._values = _stored(np.asfortranarray(A), "rounding the matrix", fmt)

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        x = _operand(x, self.shape[0 if transpose else 1], "matvec", self.fmt)
        return _stored(blas.dgemv(1.0, self._values, x, trans=int(transpose)), "matvec", self.fmt)

    def lu(self) -> DenseFactors:
        require_square(self.shape)
        packed, swaps, info = lapack.dgetrf(self._values)
        if info > 0:
            raise ArithmeticFailure(Status.ZERO_PIVOT, "LU factorization", self.fmt, info - 1)
        perm = np.arange(self.shape[0], dtype=np.int32)
        for i, j in enumerate(swaps):
            perm[[i, j]] = perm[[j, i]]
        return DenseFactors(self.fmt, packed, perm)

    def cholesky(self) -> CholeskyFactors:
        # The operation model in FP64 is plain float64 arithmetic.
        return CholeskyFactors(self.fmt, operation_dense.DenseMatrix(self._values, FP64).cholesky())


class SparseFactors(operation_sparse.SparseFactors):
    """L (without its diagonal) and U in compressed columns of float64, rounded to the format."""

    def __init__(
        self,
        fmt: FloatFormat,
        lower: operation_sparse.Columns,
        upper: operation_sparse.Columns,
        perm: NDArray[np.int32] | None,
        order: NDArray[np.int32] | None,
    ) -> None:
        lower, upper = (
            (starts, indices, _stored(values, "sparse LU factorization", fmt))
            for starts, indices, values in (lower, upper)
        )
        super().__init__(fmt, lower, upper, perm, order)

    def to(self, fmt: FloatFormat) -> SparseFactors:
        return SparseFactors(fmt, self._lower, self._upper, self.perm, self.order)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        kernel = "sparse triangular solve"
        b = _stored_block(b, kernel, self.fmt)
        _kernels.sparse_solve(kernel_format(FP64), *self._lower, *self._upper, transpose, b)
        return _stored(b, kernel, self.fmt)


class SparseMatrix(Matrix):
    """Compressed rows."""

    is_sparse = True

    def __init__(self, A: sparse.csr_array, fmt: FloatFormat) -> None:
        self.fmt, self.shape, self.entries = fmt, A.shape, A.nnz
        self._csr = A
        self._csr.data = _stored(A.data, "rounding the matrix", fmt)

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        x = _operand(x, self.shape[0 if transpose else 1], "sparse matvec", self.fmt)
        A = self._csr.T if transpose else self._csr
        return _stored(A @ x, "sparse matvec", self.fmt)

    def lu(self) -> SparseFactors:
        require_square(self.shape)
        try:
            factors = splu(self._csr.tocsc(), permc_spec="COLAMD")
        except RuntimeError as error:
            if "singular" not in str(error):
                raise
            raise ArithmeticFailure(
                Status.ZERO_PIVOT, "sparse LU factorization", self.fmt
            ) from error
        perm, order = (np.argsort(p).astype(np.int32) for p in (factors.perm_r, factors.perm_c))
        return SparseFactors(self.fmt, *operation_sparse.superlu_columns(factors), perm, order)

    def cholesky(self) -> CholeskyFactors:
        return CholeskyFactors(
            self.fmt, operation_sparse.SparseMatrix(self._csr, FP64, 1.0).cholesky()
        )


class StorageBackend(EmulatedBackend):
    """Emulated arithmetic, results rounded when stored."""

    arithmetic = "storage"

    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        fmt = get_format(fmt)
        A = checked_matrix(A, fmt)
        return SparseMatrix(A, fmt) if sparse.issparse(A) else DenseMatrix(A, fmt)

    def dot(self, x: Vector, y: Vector, fmt: str | FloatFormat) -> float:
        fmt = get_format(fmt)
        x = _operand(x, None, "dot", fmt)
        y = _operand(y, len(x), "dot", fmt)
        return _stored_number(blas.ddot(x, y) if len(x) else 0.0, "dot", fmt)

    def axpy(self, alpha: float, x: Vector, y: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        x = _operand(x, None, "axpy", fmt)
        y = _operand(y, len(x), "axpy", fmt)
        with np.errstate(over="ignore", invalid="ignore"):
            result = y + _number(alpha, "axpy", fmt) * x
        return _stored(result, "axpy", fmt)

    def scale(self, alpha: float, x: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        x = _operand(x, None, "scale", fmt)
        with np.errstate(over="ignore"):
            result = _number(alpha, "scale", fmt) * x
        return _stored(result, "scale", fmt)

    def norm2(self, x: Vector, fmt: str | FloatFormat) -> float:
        fmt = get_format(fmt)
        x = _operand(x, None, "norm2", fmt)
        return _stored_number(blas.dnrm2(x) if len(x) else 0.0, "norm2", fmt)

    def orthogonalize(self, V: Vector, w: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        fmt = get_format(fmt)
        w = _operand(w, None, "orthogonalize", fmt).copy()
        V = checked_basis(V, len(w))
        h = np.empty(len(V))
        # One compiled call: a loop over BLAS calls would spend its time in Python.
        _kernels.orthogonalize_stored(kernel_format(fmt), kernel_format(FP64), V, w, h)
        if not (np.isfinite(w).all() and np.isfinite(h).all()):
            raise ArithmeticFailure(Status.OVERFLOW, "orthogonalize", fmt)
        return h, w

    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        fmt = get_format(fmt)
        operation.OperationBackend().givens(j, cosines, sines, h, g, FP64)
        for values in (cosines[j : j + 1], sines[j : j + 1], h[: j + 2], g[: j + 2]):
            values[:] = _stored(values, "givens", fmt)

    def solve_upper(self, R: Vector, g: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        g = _operand(g, len(R), "triangular solve", fmt)
        R = _stored_block(checked_matrix(R, fmt), "triangular solve", fmt)
        require_nonzero_diagonal(np.diagonal(R), fmt)
        y, _ = lapack.dtrtrs(R, g)
        return _stored(y, "triangular solve", fmt)
