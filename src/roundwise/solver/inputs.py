"""What the front door accepts: A and b as NumPy's and SciPy's solvers do, checked before any work.

Numbers are brought to moderate size by powers of two, which changes no digit. If A's largest
entry is far from 1, A is scaled (in a copy), since products of huge numbers overflow: as a whole,
or by rows and columns if they differ much. Each column of b is scaled always. The system that is
solved is ``(R A C) Y = R B F``, and ``X = C Y F^-1``. Backward errors are still those of the system
as it was given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas

from roundwise.backends import NativeBackend
from roundwise.backends.native.dense import gemv
from roundwise.formats import FP32, FP64

Array = NDArray[np.float64]

MODERATE = 40
"""A is left alone if its largest entry is between 2**-40 and 2**40."""

NOTHING = -(2**28)
"""Stands for the power of two of a zero; sums of a few do not leave int32."""


@dataclass(frozen=True, eq=False)
class CheckedMatrix:
    """A square, finite, real matrix of moderate size, ``2**-(e_i + f_j)`` times the given one."""

    A: Any  # float64 array (C or Fortran contiguous), or canonical csr_array
    norm: float  # of the matrix as it was given, in the infinity norm, over 2**max(e)
    dtype: Any  # float32 or float64: of the matrix as it was given
    rows: NDArray[np.int32] | None = None  # e, if A had to be scaled
    columns: NDArray[np.int32] | None = None  # f, not positive, if columns had to be scaled, too

    @property
    def n(self) -> int:
        return int(self.A.shape[0])

    @property
    def is_sparse(self) -> bool:
        return not isinstance(self.A, np.ndarray)

    @cached_property
    def _row_weights(self) -> Array | None:
        """What undoes the scaling of rows, over the largest.

        Weights below 2**-1000 are raised to that. If X solves the scaled system, it is not tiny,
        and that changes nothing; a tiny X must not pass because a residual vanishes.
        """
        if self.rows is None or np.ptp(self.rows) == 0:
            return None
        return np.asarray(np.maximum(np.ldexp(1.0, self.rows - self.rows.max()), 2.0**-1000))

    @cached_property
    def _column_weights(self) -> Array | None:
        """What undoes the scaling of columns; too small rather than infinite."""
        if self.columns is None:
            return None
        return np.asarray(np.ldexp(1.0, np.minimum(-self.columns, 900)))

    def residual_norms(self, R: Array) -> Array:
        """The max norm of each column of residuals or right-hand sides, in the given scale."""
        return norms(R, self._row_weights)

    def solution_norms(self, X: Array) -> Array:
        """The max norm of each column of solutions, in the given scale."""
        return norms(X, self._column_weights)

    def times(self, X: Array) -> Array:
        """``A X`` in float64, for Fortran-ordered columns."""
        return np.asarray(self.A @ X) if self.is_sparse else dense_product(self.A, X)


@dataclass(frozen=True, eq=False)
class Columns:
    """Right-hand sides of moderate size, ``2**-(e_i + g_j)`` times the given ones."""

    B: Array  # (n, k), Fortran-ordered
    exponents: NDArray[np.int32]  # ``x[i, j] = 2**exponents[i, j] X[i, j]``; one row, if all agree
    was_vector: bool
    dtype: Any  # float32 if A and b are, else float64: of the answer

    @property
    def default_tolerance(self) -> float:
        """``sqrt(n) u``: what LAPACK's refinement asks for, u that of the answer's own format."""
        unit = FP32.unit_roundoff if self.dtype == np.float32 else FP64.unit_roundoff
        return math.sqrt(len(self.B)) * unit


def dense_product(A: Array, X: Array) -> Array:
    """``A X`` for a vector or columns; never by NumPy's BLAS, whose threads would compete."""
    flip = A.flags.c_contiguous
    columns = A.T if flip else A
    if X.ndim == 2 and X.shape[1] != 1:
        return np.asarray(blas.dgemm(1.0, columns, X, trans_a=int(flip)))
    return np.reshape(gemv(columns, X.ravel(), flip), X.shape)


def norms(X: Array, weights: Array | None = None) -> Array:
    """The max norm of each column, its entries weighted."""
    magnitudes = np.abs(X)
    if weights is not None:
        magnitudes *= weights[:, None]
    return np.asarray(magnitudes.max(axis=0, initial=0.0))


def checked_matrix(A: Any, backend: NativeBackend) -> CheckedMatrix:
    """A, ready to be solved with, or an error that names the fix."""
    A = _sparse_form(A) if sparse.issparse(A) else _dense_form(A)
    dtype = np.float32 if A.dtype == np.float32 else np.float64
    norm, largest = backend.sizes(A)
    if not math.isfinite(largest):
        raise ValueError(
            "A has NaN or infinite entries; replace or remove them (numpy.isfinite finds them)"
        )
    A = A.astype(np.float64, copy=False)
    if largest == 0 or abs(math.frexp(largest)[1]) <= MODERATE:
        return CheckedMatrix(A, float(norm), dtype)
    return _scaled(A, dtype)


@np.errstate(under="ignore")  # what vanishes is nothing beside the rest of its row and column
def _scaled(A: Any, dtype: Any) -> CheckedMatrix:
    """A as a whole brought to moderate size if that is enough: it may be symmetric."""
    fractions, powers = np.frexp(A.data if sparse.issparse(A) else A)
    powers[fractions == 0] = NOTHING
    rows, columns = _largest_powers(A, powers, 1), None
    if max(np.ptp(rows), np.ptp(_largest_powers(A, powers, 0))) <= MODERATE:
        rows[:] = rows.max()
        powers -= rows[0]
    else:
        powers -= _spread(A, rows, 1)
        columns = _largest_powers(A, powers, 0)
        powers -= _spread(A, columns, 0)
    entries = np.ldexp(fractions, powers)
    if sparse.issparse(A):
        A = sparse.csr_array((entries, A.indices, A.indptr), shape=A.shape)
    else:
        A = entries
    matrix = CheckedMatrix(A, 0.0, dtype, rows, columns)
    given = abs(A) if columns is None else abs(A) * np.ldexp(1.0, columns)
    sums = np.asarray(given.sum(axis=1)).reshape(-1, 1)
    return replace(matrix, norm=float(matrix.residual_norms(sums)[0]))


def _largest_powers(A: Any, powers: NDArray[np.int32], axis: int) -> NDArray[np.int32]:
    """The largest of the powers in each row (axis 1) or column (0), 0 if it has only zeros."""
    if sparse.issparse(A):
        largest = np.full(A.shape[0], NOTHING, dtype=np.int32)
        places = A.indices if axis == 0 else np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        np.maximum.at(largest, places, powers)
    else:
        largest = powers.max(axis=axis)
    return np.where(largest < NOTHING // 2, 0, largest).astype(np.int32)


def _spread(A: Any, exponents: NDArray[np.int32], axis: int) -> NDArray[np.int32]:
    """A number of each row (axis 1) or column (0) for each entry."""
    if sparse.issparse(A):
        return exponents[A.indices] if axis == 0 else np.repeat(exponents, np.diff(A.indptr))
    return exponents if axis == 0 else exponents[:, None]


def checked_columns(b: Any, matrix: CheckedMatrix) -> Columns:
    """b as scaled columns, or an error that names the fix."""
    if sparse.issparse(b):
        b = b.toarray()  # SciPy's spsolve takes a sparse b, too; the answer is dense
    b = dense_array("b", b)
    if b.ndim not in (1, 2):
        raise ValueError(f"b has {b.ndim} dimensions; pass a vector or a matrix of columns")
    if b.shape[0] != matrix.n:
        raise ValueError(f"b has {b.shape[0]} rows, A has {matrix.n}; pass b with {matrix.n} rows")
    dtype = np.float32 if b.dtype == matrix.dtype == np.float32 else np.float64
    B = np.array(b[:, None] if b.ndim == 1 else b, dtype=np.float64, order="F")
    if not np.isfinite(B).all():
        raise ValueError(
            "b has NaN or infinite entries; replace or remove them (numpy.isfinite finds them)"
        )
    fractions, powers = np.frexp(B)
    powers[fractions == 0] = NOTHING
    if matrix.rows is not None:
        powers -= matrix.rows[:, None]
    exponents = powers.max(axis=0, initial=-5000)[None, :]
    with np.errstate(under="ignore"):
        B = np.ldexp(fractions, powers - exponents)
    if matrix.columns is not None:
        exponents = exponents - matrix.columns[:, None]
    return Columns(np.asfortranarray(B), exponents, b.ndim == 1, dtype)


def dense_array(name: str, values: Any) -> NDArray[Any]:
    """An array-like as an array; what NumPy would silently take for something else is refused."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; pass {name}.filled(value) or an array")
    array = np.asarray(values)
    _check_dtype(name, array.dtype)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _dense_form(A: Any) -> NDArray[Any]:
    A = dense_array("A", A)
    _check_shape(A.shape)
    if A.dtype not in (np.float32, np.float64):
        A = A.astype(np.float64)
    contiguous = A.flags.c_contiguous or A.flags.f_contiguous
    return A if contiguous and A.flags.aligned else np.array(A, order="C")


def _sparse_form(A: Any) -> sparse.csr_array:
    _check_dtype("A", A.dtype)
    _check_shape(A.shape)
    kind = np.float32 if A.dtype == np.float32 else np.float64
    csr = sparse.csr_array(A, dtype=kind)
    if not csr.has_canonical_format:
        csr = csr.copy()  # the caller's matrix stays as it is
        csr.sum_duplicates()
    return csr


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"A has shape {shape}; pass a square matrix")
    if shape[0] == 0:
        raise ValueError("A is empty; pass a system with at least one unknown")


def _check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    if dtype == np.float64:  # at once: small systems take microseconds
        return
    if np.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"{name} is complex ({dtype}); real systems only: pass {name}.real if that is meant, "
            "or use numpy.linalg.solve"
        )
    if not np.can_cast(dtype, np.float64):
        raise TypeError(
            f"{name} has dtype {dtype}, which float64 cannot hold; pass "
            f"{name}.astype(numpy.float64) if that is meant"
        )
