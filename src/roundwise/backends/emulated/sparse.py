"""Sparse matrices and factors of the ``operation`` arithmetic model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise.backends.checks import checked_vector, require_nonzero_diagonal, require_square
from roundwise.backends.contract import ArithmeticFailure, Matrix, Status, Vector
from roundwise.backends.emulated.dense import carried, check_status
from roundwise.backends.emulated.ordering import colamd, minimum_degree
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FloatFormat
from roundwise.rounding import kernel_format

Columns = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]
"""A matrix in compressed columns: where each starts, the rows of its entries, and their values."""


def columns_of(factor: sparse.csc_array) -> Columns:
    """The columns of a factor in float64, rows ascending as the kernels need."""
    factor.sort_indices()
    return factor.indptr, factor.indices, factor.data.astype(np.float64)


class SparseFactors(PermutedFactors):
    """L (without its diagonal) and U, or the L of a Cholesky factorization alone, in columns."""

    is_sparse = True

    def __init__(
        self,
        fmt: FloatFormat,
        factors: Sequence[Columns],
        perm: NDArray[np.int32] | None,
        order: NDArray[np.int32] | None,
        method: str = "lu",
    ) -> None:
        self.fmt, self.perm, self.order, self.method = fmt, perm, order, method
        self._factors, self._is_lu = factors, len(factors) == 2
        starts, indices, values = factors[-1]
        self.shape = (len(starts) - 1,) * 2
        self.entries = sum(len(values) for _, _, values in factors)
        if self._is_lu:  # divisions and multiply-subtracts
            below = np.diff(factors[0][0]).astype(np.float64)
            right = np.bincount(indices, minlength=len(below)) - 1.0
            self.flops = float(np.sum(below * (1 + 2 * right)))
        else:
            self.flops = float(np.sum(np.diff(starts).astype(np.float64) ** 2))
        # The diagonal comes last in the columns of U, and first in those of a Cholesky factor.
        require_nonzero_diagonal(values[starts[1:] - 1 if self._is_lu else starts[:-1]], fmt)

    @property
    def L(self) -> sparse.csc_array:
        L = _csc(self._factors[0])
        return L + sparse.eye_array(self.shape[0], format="csc") if self._is_lu else L

    @property
    def U(self) -> sparse.csc_array:
        return _csc(self._factors[1]) if self._is_lu else self.L.T.tocsc()

    def to(self, fmt: FloatFormat) -> SparseFactors:
        if fmt == self.fmt:
            return self
        kernel = f"rounding the {'LU' if self._is_lu else 'Cholesky'} factorization"
        factors = [
            (starts, indices, carried(values.astype(np.float64), fmt, kernel))
            for starts, indices, values in self._factors
        ]
        return SparseFactors(fmt, factors, self.perm, self.order, self.method)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        spec, lower, upper = kernel_format(self.fmt), self._factors[0], self._factors[-1]
        if self._is_lu:
            code = _kernels.sparse_solve(spec, *lower, *upper, transpose, b)
        else:
            code = _kernels.sparse_cholesky_solve(spec, *lower, b)
        check_status(code, "sparse triangular solve", self.fmt)
        return b


def _csc(columns: Columns) -> sparse.csc_array:
    starts, indices, values = columns
    n = len(starts) - 1
    return sparse.csc_array((values.astype(np.float64), indices, starts), shape=(n, n))


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

    def cholesky(self) -> SparseFactors:
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
        return SparseFactors(self.fmt, [lower], order, order, "cholesky")

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
        return SparseFactors(self.fmt, (lower, upper), perm, order)
