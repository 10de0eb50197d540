"""The ``operation`` arithmetic model: every +, -, *, / and sqrt is rounded to the format.

Each entry of a result is defined by a scalar recurrence with one fixed order, stated per kernel
in ``cpp/emulated/kernels.hpp`` (dense) and ``cpp/emulated/sparse.hpp``: products with matrices and
factors run column by column, a dot product has 32 partial sums that are added in a tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise.backends.checks import (
    check_rotations,
    checked_basis,
    checked_matrix,
    checked_vector,
    require_nonzero_diagonal,
)
from roundwise.backends.contract import Matrix, Vector
from roundwise.backends.emulated.backend import EmulatedBackend
from roundwise.backends.emulated.carriers import carrier_type
from roundwise.backends.emulated.dense import DenseMatrix, carried, check_status
from roundwise.backends.emulated.sparse import SparseMatrix
from roundwise.formats import FloatFormat, get_format
from roundwise.rounding import kernel_format


class OperationBackend(EmulatedBackend):
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

    def dot(self, x: Vector, y: Vector, fmt: str | FloatFormat) -> float:
        fmt = get_format(fmt)
        x = checked_vector(x)
        code, value = _kernels.dot(*_vector_format(fmt), x, checked_vector(y, len(x)))
        check_status(code, "dot", fmt)
        return value

    def axpy(self, alpha: float, x: Vector, y: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        x = checked_vector(x)
        result = checked_vector(y, len(x)).copy()
        check_status(_kernels.axpy(*_vector_format(fmt), float(alpha), x, result), "axpy", fmt)
        return result

    def scale(self, alpha: float, x: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        result = checked_vector(x).copy()
        check_status(_kernels.scale(*_vector_format(fmt), float(alpha), result), "scale", fmt)
        return result

    def norm2(self, x: Vector, fmt: str | FloatFormat) -> float:
        fmt = get_format(fmt)
        code, value = _kernels.norm2(*_vector_format(fmt), checked_vector(x))
        check_status(code, "norm2", fmt)
        return value

    def orthogonalize(self, V: Vector, w: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        fmt = get_format(fmt)
        w = checked_vector(w).copy()
        V = checked_basis(V, len(w))
        h = np.empty(len(V))
        check_status(_kernels.orthogonalize(*_vector_format(fmt), V, w, h), "orthogonalize", fmt)
        return h, w

    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        fmt = get_format(fmt)
        check_rotations(j, cosines, sines, h, g)
        check_status(_kernels.givens(*_vector_format(fmt), j, cosines, sines, h, g), "givens", fmt)

    def solve_upper(self, R: Vector, g: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        R = carried(np.asfortranarray(checked_matrix(R, fmt)), fmt)
        require_nonzero_diagonal(np.diagonal(R), fmt)
        y = checked_vector(g, len(R)).copy()[:, None]
        code = _kernels.solve_triangular(kernel_format(fmt), R, False, False, False, y, 1)
        check_status(code, "triangular solve", fmt)
        return y[:, 0]


def _vector_format(fmt: FloatFormat) -> tuple[_kernels.Format, bool]:
    return kernel_format(fmt), carrier_type(fmt) is np.float32
