"""What the front door accepts: A and b as NumPy's and SciPy's solvers do, checked before any work.

Numbers are brought to moderate size by powers of two, which changes no digit. If A's largest
entry is far from 1, each row is scaled to a largest entry near 1 (in a copy), since products of
huge numbers overflow; each column of b is scaled always. Row i of the system that is solved is
``2**-e_i`` times the given one, and ``x[:, j] = 2**f_j y[:, j]``. Backward errors are still those
of the system as it was given.
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
from roundwise.formats import FP32, FP64

Array = NDArray[np.float64]

MODERATE = 40
"""A is left alone if its largest entry is between 2**-40 and 2**40."""


@dataclass(frozen=True, eq=False)
class CheckedMatrix:
    """A square, finite, real matrix of moderate size, its rows scaled if they had to be."""

    A: Any  # float64 array (C or Fortran contiguous), or canonical csr_array
    norm: float  # of the matrix as it was given, in the infinity norm, over 2**top
    dtype: Any  # float32 or float64: of the answer
    exponents: NDArray[np.int32] | None = None  # e_i, if rows are scaled

    @property
    def n(self) -> int:
        return int(self.A.shape[0])

    @property
    def is_sparse(self) -> bool:
        return not isinstance(self.A, np.ndarray)

    @property
    def default_tolerance(self) -> float:
        """``sqrt(n) u``: what LAPACK's refinement asks for, u that of the data's own format."""
        unit = FP32.unit_roundoff if self.dtype == np.float32 else FP64.unit_roundoff
        return math.sqrt(self.n) * unit

    @cached_property
    def weights(self) -> Array | None:
        """What undoes the scaling of rows, over 2**top: at most 1; tiny ones may vanish."""
        if self.exponents is None:
            return None
        with np.errstate(under="ignore"):
            return np.asarray(np.ldexp(1.0, self.exponents - self.exponents.max()))

    def norms(self, R: Array) -> Array:
        """The max norm of each column of residuals or right-hand sides, in the given scale."""
        magnitudes = np.abs(R)
        if self.weights is not None:
            magnitudes *= self.weights[:, None]
        return np.asarray(magnitudes.max(axis=0, initial=0.0))

    def times(self, X: Array) -> Array:
        """``A X`` in float64, for Fortran-ordered columns."""
        if self.is_sparse:
            return np.asarray(self.A @ X)
        # SciPy's BLAS, as everywhere here: NumPy has another one, whose threads would compete.
        columns, flip = (self.A.T, 1) if self.A.flags.c_contiguous else (self.A, 0)
        if X.shape[1] == 1:
            return np.asarray(blas.dgemv(1.0, columns, X[:, 0], trans=flip))[:, None]
        return np.asarray(blas.dgemm(1.0, columns, X, trans_a=flip))


@dataclass(frozen=True, eq=False)
class Columns:
    """Right-hand sides of moderate size, ``b[i, j] = 2**(e_i + exponents[j]) B[i, j]``."""

    B: Array  # (n, k), Fortran-ordered
    exponents: NDArray[np.int32]
    was_vector: bool
    dtype: Any


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
    return _with_scaled_rows(A, dtype)


def _with_scaled_rows(A: Any, dtype: Any) -> CheckedMatrix:
    magnitudes = abs(A)
    largest = magnitudes.max(axis=1)
    largest = np.asarray(largest.toarray() if sparse.issparse(largest) else largest).ravel()
    exponents = np.frexp(largest)[1].astype(np.int32)
    with np.errstate(under="ignore"):  # what vanishes is nothing beside the rest of its row
        if sparse.issparse(A):
            values = np.ldexp(A.data, -np.repeat(exponents, np.diff(A.indptr)))
            A = sparse.csr_array((values, A.indices, A.indptr), shape=A.shape)
        else:
            A = np.ldexp(A, -exponents[:, None])
    matrix = CheckedMatrix(A, 0.0, dtype, exponents)
    sums = np.asarray(abs(A).sum(axis=1)).reshape(-1, 1)
    return replace(matrix, norm=float(matrix.norms(sums)[0]))


def checked_columns(b: Any, matrix: CheckedMatrix) -> Columns:
    """b as scaled columns, or an error that names the fix."""
    if sparse.issparse(b):
        b = b.toarray()  # SciPy's spsolve takes a sparse b, too; the answer is dense
    b = np.asarray(b)
    _check_dtype("b", b.dtype)
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
    rows = 0 if matrix.exponents is None else matrix.exponents[:, None]
    fractions, powers = np.frexp(B)
    powers = np.where(fractions == 0, np.iinfo(np.int32).min // 2, powers - rows)
    exponents = powers.max(axis=0, initial=-5000)
    with np.errstate(under="ignore"):
        B = np.ldexp(fractions, powers - exponents)
    return Columns(np.asfortranarray(B), exponents, b.ndim == 1, dtype)


def _dense_form(A: Any) -> NDArray[Any]:
    A = np.asarray(A)
    _check_dtype("A", A.dtype)
    _check_shape(A.shape)
    if A.dtype not in (np.float32, np.float64) or not A.dtype.isnative:
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
