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
from roundwise.backends.contract import Backend, Matrix, Vector
from roundwise.backends.emulated.carriers import carrier_type, is_emulated
from roundwise.backends.emulated.dense import DenseMatrix, carried, check_status
from roundwise.backends.emulated.sparse import SparseMatrix
from roundwise.formats import NAMED_FORMATS, FloatFormat, get_format
from roundwise.rounding import kernel_format


class EmulatedBackend(Backend):
    """Arithmetic in any format that a hardware type carries exactly, alike on every machine."""

    def formats(self, sparse: bool = False, is_complex: bool = False) -> tuple[FloatFormat, ...]:
        if is_complex:
            return ()
        named = [fmt for fmt in NAMED_FORMATS.values() if is_emulated(fmt)]
        return tuple(sorted(named, key=lambda fmt: fmt.p))

    def supports(
        self, fmt: str | FloatFormat, sparse: bool = False, is_complex: bool = False
    ) -> bool:
        return is_emulated(get_format(fmt)) and not is_complex


class OperationBackend(EmulatedBackend):
    """Emulated arithmetic, every operation rounded.

    Parameters
    ----------
    pivot_threshold : float
        Sparse LU keeps the diagonal entry as pivot if it is at least this part of the column's
        largest; 1 is partial pivoting.

    Examples
    --------
    >>> from roundwise.backends import OperationBackend
    >>> one, small = np.array([1.0]), np.array([2.0**-8])
    >>> OperationBackend().axpy(1.0, one, small, "bf16")  # a tie, which goes to even
    array([1.])
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
        x = checked_vector(x)
        return _run("dot", fmt, x, checked_vector(y, len(x)))

    def axpy(self, alpha: float, x: Vector, y: Vector, fmt: str | FloatFormat) -> Vector:
        x = checked_vector(x)
        result = checked_vector(y, len(x)).copy()
        _run("axpy", fmt, float(alpha), x, result)
        return result

    def scale(self, alpha: float, x: Vector, fmt: str | FloatFormat) -> Vector:
        result = checked_vector(x).copy()
        _run("scale", fmt, float(alpha), result)
        return result

    def norm2(self, x: Vector, fmt: str | FloatFormat) -> float:
        return _run("norm2", fmt, checked_vector(x))

    def orthogonalize(self, V: Vector, w: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        w = checked_vector(w).copy()
        V = checked_basis(V, len(w))
        h = np.empty(len(V))
        _run("orthogonalize", fmt, V, w, h)
        return h, w

    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        check_rotations(j, cosines, sines, h, g)
        _run("givens", fmt, j, cosines, sines, h, g)

    def solve_upper(self, R: Vector, g: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = get_format(fmt)
        R = carried(np.asfortranarray(checked_matrix(R, fmt)), fmt)
        require_nonzero_diagonal(np.diagonal(R), fmt)
        y = checked_vector(g, len(R)).copy()[:, None]
        code = _kernels.solve_triangular(kernel_format(fmt), R, False, False, False, y, 1)
        check_status(code, "triangular solve", fmt)
        return y[:, 0]


def _run(kernel: str, fmt: str | FloatFormat, *operands: Any) -> float:
    """Run a compiled kernel for vectors; the number that it returns, if it does."""
    fmt = get_format(fmt)
    narrow = carrier_type(fmt) is np.float32
    returned = getattr(_kernels, kernel)(kernel_format(fmt), narrow, *operands)
    code, value = returned if isinstance(returned, tuple) else (returned, 0.0)
    check_status(code, kernel, fmt)
    return float(value)
