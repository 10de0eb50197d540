"""Sparse matrices and factors of the ``operation`` arithmetic model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import SuperLU

import roundwise._kernels as _kernels
from roundwise.backends.checks import (
    checked_vector,
    require_nonzero_diagonal,
    require_square,
    sparse_lu_flops,
)
from roundwise.backends.contract import ArithmeticFailure, Matrix, Status, Vector
from roundwise.backends.emulated.dense import carried, check_status
from roundwise.backends.emulated.ordering import colamd, minimum_degree
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FloatFormat
from roundwise.rounding import kernel_format

Columns = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]
"""A matrix in compressed columns: where each starts, the rows of its entries, and their values."""


def superlu_columns(superlu: SuperLU) -> tuple[Columns, Columns]:
    """SuperLU's L (without its diagonal) and U in float64, rows ascending as the kernels need."""
    lower, upper = sparse.tril(superlu.L, -1, format="csc"), superlu.U
    for factor in (lower, upper):
        factor.sort_indices()
    first, second = (
        (factor.indptr, factor.indices, factor.data.astype(np.float64)) for factor in (lower, upper)
    )
    return first, second


class SparseFactors(PermutedFactors):
    """L (without its diagonal) and U in compressed columns."""

    method = "lu"
    is_sparse = True

    def __init__(
        self,
        fmt: FloatFormat,
        lower: Columns,
        upper: Columns,
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
        lower, upper = (columns_in(columns, fmt) for columns in (self._lower, self._upper))
        return SparseFactors(fmt, lower, upper, self.perm, self.order)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        code = _kernels.sparse_solve(
            kernel_format(self.fmt), *self._lower, *self._upper, transpose, b
        )
        check_status(code, "sparse triangular solve", self.fmt)
        return b


def _csc(columns: Columns) -> sparse.csc_array:
    starts, indices, values = columns
    n = len(starts) - 1
    return sparse.csc_array((values.astype(np.float64), indices, starts), shape=(n, n))


def columns_in(columns: Columns, fmt: FloatFormat) -> Columns:
    """The same columns, their values rounded to a format."""
    starts, indices, values = columns
    return starts, indices, carried(values.astype(np.float64), fmt)


class SparseCholesky(PermutedFactors):
    """L in compressed columns, the diagonal first."""

    method = "cholesky"
    is_sparse = True

    def __init__(self, fmt: FloatFormat, lower: Columns, order: NDArray[np.int32] | None) -> None:
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
        return SparseCholesky(fmt, columns_in(self._lower, fmt), self.order)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        code = _kernels.sparse_cholesky_solve(kernel_format(self.fmt), *self._lower, b)
        check_status(code, "sparse triangular solve", self.fmt)
        return b


class SparseMatrix(Matrix):
    """Compressed rows, the values in the carrier."""

    is_sparse = True

    def __init__(self, A: sparse.csr_array, fmt: FloatFormat, pivot_threshold: float) -> None:
        self.fmt, self.shape, self.entries = fmt, A.shape, A.nnz
        self._csr = (A.indptr, A.indices, carried(A.data, fmt))
        self._pivot_threshold = pivot_threshold

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        outputs, inputs = self.shape[::-1] if transpose else self.shape
        y = np.empty(outputs)
        code = _kernels.sparse_matvec(
            kernel_format(self.fmt), *self._csr, transpose, checked_vector(x, inputs), y
        )
        check_status(code, "sparse matvec", self.fmt)
        return y

    def _csc(self) -> sparse.csc_array:
        starts, indices, values = self._csr
        return sparse.csr_array((values, indices, starts), shape=self.shape).tocsc()

    def cholesky(self) -> SparseCholesky:
        require_square(self.shape)
        A = self._csc()
        A = sparse.csc_array(sparse.tril(A) + sparse.tril(A, -1).T)  # the upper one is not read
        order = minimum_degree(A)
        if order is None:
            raise ArithmeticFailure(Status.NOT_POSITIVE_DEFINITE, "sparse Cholesky", self.fmt)
        permuted = A[order][:, order]
        permuted.sort_indices()
        code, column, lower = _kernels.sparse_cholesky(
            kernel_format(self.fmt), permuted.indptr, permuted.indices, permuted.data
        )
        check_status(code, "sparse Cholesky factorization", self.fmt, column)
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
        check_status(code, "sparse LU factorization", self.fmt, column)
        return SparseFactors(self.fmt, lower, upper, perm, order)
