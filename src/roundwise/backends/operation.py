"""The ``operation`` arithmetic model: every +, -, *, / and sqrt is rounded to the format.

Each entry of a result is defined by a scalar recurrence with one fixed order, stated per kernel
in ``cpp/kernels.hpp`` (dense) and ``cpp/sparse.hpp``: products with matrices and factors run
column by column, a dot product has 32 partial sums that are added in a tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise.backends.base import (
    ArithmeticFailure,
    Backend,
    Factors,
    Matrix,
    Status,
    Vector,
    check_rotations,
    checked_basis,
    checked_matrix,
    checked_vector,
    require_nonzero_diagonal,
    require_square,
    sparse_lu_flops,
)
from roundwise.backends.carriers import carrier_type
from roundwise.backends.ordering import colamd, minimum_degree
from roundwise.formats import FloatFormat, get_format
from roundwise.rounding import kernel_format, round_to
from roundwise.runtime import get_num_threads

# The codes of cpp/format.hpp's Status; 0 is success.
_STATUS = {
    1: Status.OVERFLOW,
    2: Status.ZERO_PIVOT,
    3: Status.NONFINITE_INPUT,
    4: Status.NOT_POSITIVE_DEFINITE,
}


def _check(code: int, kernel: str, fmt: FloatFormat, column: int | None = None) -> None:
    if code != 0:
        raise ArithmeticFailure(_STATUS[code], kernel, fmt, column)


def _carried(x: NDArray[np.float64], fmt: FloatFormat) -> NDArray[Any]:
    """Finite float64 values rounded to the format, in its carrier and x's memory order."""
    rounded = round_to(x, fmt)
    if not np.isfinite(rounded).all():
        raise ArithmeticFailure(Status.OVERFLOW, "rounding the matrix", fmt)
    return rounded.astype(carrier_type(fmt), copy=False)


class DenseFactors(Factors):
    """L and U packed in one column-major array."""

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
        return DenseFactors(fmt, _carried(self._packed.astype(np.float64), fmt), self.perm)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        spec, threads = kernel_format(self.fmt), get_num_threads()
        for lower in (not transpose, transpose):
            code = _kernels.solve_triangular(
                spec, self._packed, lower, lower, transpose, b, threads
            )
            _check(code, "triangular solve", self.fmt)
        return b


class DenseCholesky(Factors):
    """L in a column-major array."""

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
        return self if fmt == self.fmt else DenseCholesky(fmt, _carried(self.L, fmt))

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        spec, threads = kernel_format(self.fmt), get_num_threads()
        for transposed in (False, True):  # (LL')' = LL'
            code = _kernels.solve_triangular(spec, self._lower, True, False, transposed, b, threads)
            _check(code, "triangular solve", self.fmt)
        return b


class DenseMatrix(Matrix):
    """Column-major, in the carrier."""

    is_sparse = False

    def __init__(self, A: NDArray[np.float64], fmt: FloatFormat) -> None:
        self.fmt, self.shape, self.entries = fmt, A.shape, A.size
        self._values = _carried(np.asfortranarray(A), fmt)

    def matvec(self, x: NDArray[Any], transpose: bool = False) -> Vector:
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
        _check(code, "matvec", self.fmt)
        return y

    def lu(self) -> DenseFactors:
        require_square(self.shape)
        packed = self._values.copy(order="F")
        perm = np.empty(self.shape[0], dtype=np.int32)
        code, column = _kernels.lu(kernel_format(self.fmt), packed, perm, get_num_threads())
        _check(code, "LU factorization", self.fmt, column)
        return DenseFactors(self.fmt, packed, perm)

    def cholesky(self) -> DenseCholesky:
        require_square(self.shape)
        lower = self._values.copy(order="F")
        code, column = _kernels.cholesky(kernel_format(self.fmt), lower, get_num_threads())
        _check(code, "Cholesky factorization", self.fmt, column)
        return DenseCholesky(self.fmt, lower)


_Columns = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]


class SparseFactors(Factors):
    """L (without its diagonal) and U in compressed columns."""

    is_sparse = True

    def __init__(
        self,
        fmt: FloatFormat,
        lower: _Columns,
        upper: _Columns,
        perm: NDArray[np.int32] | None,
        order: NDArray[np.int32] | None,
    ) -> None:
        self.fmt, self.perm, self.order = fmt, perm, order
        self.shape = (len(upper[0]) - 1,) * 2
        self._lower, self._upper = lower, upper
        self.entries = len(lower[1]) + len(upper[1])
        self.flops = sparse_lu_flops(lower[0], upper[1])
        starts, _, values = upper
        require_nonzero_diagonal(values[starts[1:] - 1], fmt)

    @property
    def L(self) -> sparse.csc_array:
        return _csc(self._lower) + sparse.eye_array(self.shape[0], format="csc")

    @property
    def U(self) -> sparse.csc_array:
        return _csc(self._upper)

    def to(self, fmt: FloatFormat) -> SparseFactors:
        if fmt == self.fmt:
            return self
        lower, upper = (_columns_in(columns, fmt) for columns in (self._lower, self._upper))
        return SparseFactors(fmt, lower, upper, self.perm, self.order)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        code = _kernels.sparse_solve(
            kernel_format(self.fmt), *self._lower, *self._upper, transpose, b
        )
        _check(code, "sparse triangular solve", self.fmt)
        return b


def _csc(columns: _Columns) -> sparse.csc_array:
    starts, indices, values = columns
    n = len(starts) - 1
    return sparse.csc_array((values.astype(np.float64), indices, starts), shape=(n, n))


def _columns_in(columns: _Columns, fmt: FloatFormat) -> _Columns:
    starts, indices, values = columns
    return starts, indices, _carried(values.astype(np.float64), fmt)


class SparseCholesky(Factors):
    """L in compressed columns, the diagonal first."""

    is_sparse = True

    def __init__(self, fmt: FloatFormat, lower: _Columns, order: NDArray[np.int32] | None) -> None:
        self.fmt, self.perm, self.order = fmt, order, order
        starts, _, values = lower
        self.shape = (len(starts) - 1,) * 2
        self._lower = lower
        self.entries = len(values)
        self.flops = float(np.sum(np.diff(starts).astype(np.float64) ** 2))
        require_nonzero_diagonal(values[starts[:-1]], fmt)

    @property
    def L(self) -> sparse.csc_array:
        return _csc(self._lower)

    @property
    def U(self) -> sparse.csc_array:
        return self.L.T.tocsc()

    def to(self, fmt: FloatFormat) -> SparseCholesky:
        if fmt == self.fmt:
            return self
        return SparseCholesky(fmt, _columns_in(self._lower, fmt), self.order)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        code = _kernels.sparse_cholesky_solve(kernel_format(self.fmt), *self._lower, b)
        _check(code, "sparse triangular solve", self.fmt)
        return b


class SparseMatrix(Matrix):
    """Compressed rows, the values in the carrier."""

    is_sparse = True

    def __init__(self, A: sparse.csr_array, fmt: FloatFormat, pivot_threshold: float) -> None:
        self.fmt, self.shape, self.entries = fmt, A.shape, A.nnz
        self._csr = (A.indptr, A.indices, _carried(A.data, fmt))
        self._pivot_threshold = pivot_threshold

    def matvec(self, x: NDArray[Any], transpose: bool = False) -> Vector:
        outputs, inputs = self.shape[::-1] if transpose else self.shape
        y = np.empty(outputs)
        code = _kernels.sparse_matvec(
            kernel_format(self.fmt), *self._csr, transpose, checked_vector(x, inputs), y
        )
        _check(code, "sparse matvec", self.fmt)
        return y

    def _csc(self) -> sparse.csc_array:
        starts, indices, values = self._csr
        return sparse.csr_array((values, indices, starts), shape=self.shape).tocsc()

    def cholesky(self) -> SparseCholesky:
        require_square(self.shape)
        A = self._csc()
        A = sparse.csc_array(
            sparse.tril(A) + sparse.tril(A, -1).T
        )  # only the lower triangle counts
        order = minimum_degree(A)
        if order is None:
            raise ArithmeticFailure(Status.NOT_POSITIVE_DEFINITE, "sparse Cholesky", self.fmt)
        permuted = A[order][:, order]
        permuted.sort_indices()
        code, column, lower = _kernels.sparse_cholesky(
            kernel_format(self.fmt), permuted.indptr, permuted.indices, permuted.data
        )
        _check(code, "sparse Cholesky factorization", self.fmt, column)
        return SparseCholesky(self.fmt, lower, order)

    def lu(self) -> SparseFactors:
        require_square(self.shape)
        A = self._csc()
        order = colamd(A)
        if order is None:
            raise ArithmeticFailure(Status.ZERO_PIVOT, "sparse LU factorization", self.fmt)
        permuted = A[:, order]
        permuted.sort_indices()
        code, column, lower, upper, perm = _kernels.sparse_lu(
            kernel_format(self.fmt),
            permuted.indptr,
            permuted.indices,
            permuted.data,
            order,
            self._pivot_threshold,
        )
        _check(code, "sparse LU factorization", self.fmt, column)
        return SparseFactors(self.fmt, lower, upper, perm, order)


class OperationBackend(Backend):
    """Emulated arithmetic, every operation rounded.

    Parameters
    ----------
    pivot_threshold : float
        Sparse LU keeps the diagonal entry as pivot if it is at least this part of the column's
        largest; 1 is partial pivoting.
    """

    arithmetic = "operation"

    def __init__(self, pivot_threshold: float = 1.0) -> None:
        if not 0 < pivot_threshold <= 1:
            raise ValueError(
                f"pivot_threshold = {pivot_threshold}; choose 0 < pivot_threshold <= 1"
            )
        self.pivot_threshold = pivot_threshold

    @property
    def description(self) -> str:
        if self.pivot_threshold == 1.0:
            return self.arithmetic
        return f"{self.arithmetic}, pivot_threshold={self.pivot_threshold!r}"

    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        fmt = get_format(fmt)
        A = checked_matrix(A, fmt)
        if sparse.issparse(A):
            return SparseMatrix(A, fmt, self.pivot_threshold)
        return DenseMatrix(A, fmt)

    def dot(self, x: NDArray[Any], y: NDArray[Any], fmt: str | FloatFormat) -> float:
        fmt = get_format(fmt)
        x = checked_vector(x)
        code, value = _kernels.dot(*_vector_format(fmt), x, checked_vector(y, len(x)))
        _check(code, "dot", fmt)
        return value

    def axpy(
        self, alpha: float, x: NDArray[Any], y: NDArray[Any], fmt: str | FloatFormat
    ) -> Vector:
        fmt = get_format(fmt)
        x = checked_vector(x)
        result = checked_vector(y, len(x)).copy()
        _check(_kernels.axpy(*_vector_format(fmt), float(alpha), x, result), "axpy", fmt)
        return result

    def scale(self, alpha: float, x: NDArray[Any], fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        result = checked_vector(x).copy()
        _check(_kernels.scale(*_vector_format(fmt), float(alpha), result), "scale", fmt)
        return result

    def norm2(self, x: NDArray[Any], fmt: str | FloatFormat) -> float:
        fmt = get_format(fmt)
        code, value = _kernels.norm2(*_vector_format(fmt), checked_vector(x))
        _check(code, "norm2", fmt)
        return value

    def orthogonalize(
        self, V: NDArray[Any], w: NDArray[Any], fmt: str | FloatFormat
    ) -> tuple[Vector, Vector]:
        fmt = get_format(fmt)
        w = checked_vector(w).copy()
        V = checked_basis(V, len(w))
        h = np.empty(len(V))
        _check(_kernels.orthogonalize(*_vector_format(fmt), V, w, h), "orthogonalize", fmt)
        return h, w

    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        fmt = get_format(fmt)
        check_rotations(j, cosines, sines, h, g)
        _check(_kernels.givens(*_vector_format(fmt), j, cosines, sines, h, g), "givens", fmt)

    def solve_upper(self, R: NDArray[Any], g: NDArray[Any], fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        R = _carried(np.asfortranarray(checked_matrix(R, fmt)), fmt)
        require_nonzero_diagonal(np.diagonal(R), fmt)
        y = checked_vector(g, len(R)).copy()[:, None]
        code = _kernels.solve_triangular(kernel_format(fmt), R, False, False, False, y, 1)
        _check(code, "triangular solve", fmt)
        return y[:, 0]


def _vector_format(fmt: FloatFormat) -> tuple[_kernels.Format, bool]:
    return kernel_format(fmt), carrier_type(fmt) is np.float32
