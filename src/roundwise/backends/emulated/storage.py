"""The ``storage`` arithmetic model: float64 arithmetic, results rounded when they are stored.

A product, a dense solve or a dot is one float64 call of BLAS, LAPACK or SuperLU on rounded
operands; only what it returns is rounded. Sparse substitution, Cholesky and Gram-Schmidt run our
own kernels in float64. Factors are those of the rounded matrix, rounded afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack

import roundwise._kernels as _kernels
from roundwise.backends.checks import (
    checked_basis,
    checked_matrix,
    checked_vector,
    require_nonzero_diagonal,
    require_square,
)
from roundwise.backends.contract import ArithmeticFailure, Factors, Matrix, Status, Vector
from roundwise.backends.emulated.dense import DenseFactors
from roundwise.backends.emulated.operation import EmulatedBackend, OperationBackend
from roundwise.backends.emulated.ordering import superlu
from roundwise.backends.emulated.sparse import SparseFactors, columns_of
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FP64, FloatFormat, get_format
from roundwise.rounding import kernel_format, round_to

_float64 = OperationBackend()
"""The operation model, which in FP64 is plain float64 arithmetic."""


def _stored(x: Any, kernel: str, fmt: str | FloatFormat) -> Any:
    """A float64 result, an array or a number, rounded as it is stored."""
    rounded = round_to(x, fmt)
    if not np.isfinite(rounded).all():
        raise ArithmeticFailure(Status.OVERFLOW, kernel, get_format(fmt))
    return rounded


def _operand(x: Any, kernel: str, fmt: str | FloatFormat) -> Any:
    """An array or a number as a kernel reads it."""
    if not np.isfinite(x).all():
        raise ArithmeticFailure(Status.NONFINITE_INPUT, kernel, get_format(fmt))
    return _stored(x, kernel, fmt)


class LapackFactors(DenseFactors):
    """LU factors in float64 that LAPACK solves with."""

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        no_swaps = np.arange(self.shape[0], dtype=np.int32)
        x, _ = lapack.dgetrs(self._packed, no_swaps, b, trans=int(transpose), overwrite_b=True)
        return x


class StoredFactors(PermutedFactors):
    """The float64 factors of the rounded matrix, rounded."""

    def __init__(self, fmt: FloatFormat, float64_factors: Factors) -> None:
        solver = float64_factors.to(fmt).to(FP64)
        assert isinstance(solver, PermutedFactors)
        self._solver = solver
        self.fmt, self.method, self.is_sparse = fmt, solver.method, solver.is_sparse
        self.shape, self.entries, self.flops = solver.shape, solver.entries, solver.flops
        self.perm, self.order = solver.perm, solver.order

    @property
    def L(self) -> Any:
        return self._solver.L

    @property
    def U(self) -> Any:
        return self._solver.U

    def to(self, fmt: FloatFormat) -> StoredFactors:
        return StoredFactors(fmt, self._solver)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        kernel = "triangular solve"
        b = _operand(b, kernel, self.fmt)
        return _stored(self._solver._solve_factored(b, transpose), kernel, self.fmt)


class StoredMatrix(Matrix):
    """Column-major float64, or compressed rows."""

    def __init__(self, A: Any, fmt: FloatFormat) -> None:
        self.fmt, self.shape, self.is_sparse = fmt, A.shape, sparse.issparse(A)
        self._A, kernel = A, "rounding the matrix"
        if self.is_sparse:
            self.entries, A.data = A.nnz, _stored(A.data, kernel, fmt)
        else:
            self.entries, self._A = A.size, _stored(np.asfortranarray(A), kernel, fmt)

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        kernel = "matvec"
        x = _operand(checked_vector(x, self.shape[0 if transpose else 1]), kernel, self.fmt)
        if self.is_sparse:
            return _stored((self._A.T if transpose else self._A) @ x, kernel, self.fmt)
        return _stored(blas.dgemv(1.0, self._A, x, trans=int(transpose)), kernel, self.fmt)

    def lu(self) -> StoredFactors:
        require_square(self.shape)
        kernel = "LU factorization"
        if self.is_sparse:
            found = superlu(self._A.tocsc())
            if found is None:
                raise ArithmeticFailure(Status.ZERO_PIVOT, kernel, self.fmt)
            perm, order = (np.argsort(p).astype(np.int32) for p in (found.perm_r, found.perm_c))
            columns = columns_of(sparse.tril(found.L, -1, format="csc")), columns_of(found.U)
            return StoredFactors(self.fmt, SparseFactors(FP64, columns, perm, order))
        packed, swaps, info = lapack.dgetrf(self._A)
        if info > 0:
            raise ArithmeticFailure(Status.ZERO_PIVOT, kernel, self.fmt, info - 1)
        perm = np.arange(self.shape[0], dtype=np.int32)
        for i, j in enumerate(swaps):
            perm[[i, j]] = perm[[j, i]]
        return StoredFactors(self.fmt, LapackFactors(FP64, packed, perm))

    def cholesky(self) -> StoredFactors:
        return StoredFactors(self.fmt, _float64.matrix(self._A, FP64).cholesky())


class StorageBackend(EmulatedBackend):
    """Emulated arithmetic, results rounded when stored.

    Examples
    --------
    >>> from roundwise.backends import StorageBackend
    >>> StorageBackend().dot(np.array([1.0, 1.0, -1.0]), np.array([1.0, 2.0**-9, 1.0]), "bf16")
    0.001953125
    """

    arithmetic = "storage"

    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        fmt = get_format(fmt)
        return StoredMatrix(checked_matrix(A, fmt), fmt)

    def dot(self, x: Vector, y: Vector, fmt: str | FloatFormat) -> float:
        x, y = _operands("dot", fmt, x, y)
        return float(_stored(blas.ddot(x, y) if len(x) else 0.0, "dot", fmt))

    def axpy(self, alpha: float, x: Vector, y: Vector, fmt: str | FloatFormat) -> Vector:
        x, y = _operands("axpy", fmt, x, y)
        with np.errstate(over="ignore", invalid="ignore"):
            result = y + _operand(float(alpha), "axpy", fmt) * x
        return _stored(result, "axpy", fmt)

    def scale(self, alpha: float, x: Vector, fmt: str | FloatFormat) -> Vector:
        (x,) = _operands("scale", fmt, x)
        with np.errstate(over="ignore"):
            result = _operand(float(alpha), "scale", fmt) * x
        return _stored(result, "scale", fmt)

    def norm2(self, x: Vector, fmt: str | FloatFormat) -> float:
        (x,) = _operands("norm2", fmt, x)
        return float(_stored(blas.dnrm2(x) if len(x) else 0.0, "norm2", fmt))

    def orthogonalize(self, V: Vector, w: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        (w,) = _operands("orthogonalize", fmt, w)
        V = checked_basis(V, len(w))
        h = np.empty(len(V))
        # One compiled call: a loop over BLAS calls would spend its time in Python.
        _kernels.orthogonalize_stored(kernel_format(get_format(fmt)), kernel_format(FP64), V, w, h)
        if not (np.isfinite(w).all() and np.isfinite(h).all()):
            raise ArithmeticFailure(Status.OVERFLOW, "orthogonalize", get_format(fmt))
        return h, w

    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        _float64.givens(j, cosines, sines, h, g, FP64)
        for values in (cosines[j : j + 1], sines[j : j + 1], h[: j + 2], g[: j + 2]):
            values[:] = _stored(values, "givens", fmt)

    def solve_upper(self, R: Vector, g: Vector, fmt: str | FloatFormat) -> Vector:
        kernel = "triangular solve"
        fmt = get_format(fmt)
        g = _operand(checked_vector(g, len(R)), kernel, fmt)
        R = _stored(checked_matrix(R, fmt), kernel, fmt)
        require_nonzero_diagonal(np.diagonal(R), fmt)
        y, _ = lapack.dtrtrs(R, g)
        return _stored(y, kernel, fmt)


def _operands(kernel: str, fmt: str | FloatFormat, x: Vector, *others: Vector) -> list[Vector]:
    """New vectors of one length, as a kernel reads them."""
    x = checked_vector(x)
    others = tuple(checked_vector(y, len(x)) for y in others)
    return [_operand(y, kernel, fmt) for y in (x, *others)]
