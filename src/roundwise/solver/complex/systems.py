"""Complex A and b, checked, scaled, and brought into their real form.

Complex vectors are vectors of real and imaginary parts here (`roundwise.backends.real_form`), and
n counts these. The norms that the gate compares are those of moduli: ``||x|| = max |x_j|`` and
``||A|| = max_i sum_j |a_ij|``. The latter is taken as ``max_i sum_j (|Re a_ij| + |Im a_ij|)`` over
the square root of 2, which is never larger: so the gate is never more lenient than with ``||A||``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._csr import canonical_csr, dense_from_sparse
from roundwise._forking import cached_property
from roundwise.algorithms.scaling import TINY, ScaledMatrix, given_norm, is_moderate, moderate
from roundwise.backends import Backend
from roundwise.backends.complex.backend import OVER_ROOT_2
from roundwise.backends.real_form import (
    RealForm,
    compressed,
    compressed_block,
    expanded,
    real_columns,
)
from roundwise.solver.inputs import (
    NOT_FINITE,
    GivenMatrix,
    check_complex,
    check_shape,
    dense_array,
)

Array = NDArray[np.float64]
AS_LARGE = 4.0 ** (1 / 3)
"""A complex system of n unknowns takes as many flops as a real one of so many times n: four times
those of n. (It moves 2 n^2 numbers instead of 2.5 n^2.)"""


def is_complex(x: Any) -> bool:
    """Whether an array, matrix or array-like holds complex numbers."""
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype):
        return dtype.kind == "c"
    if dtype is not None:  # of another library
        return False
    return np.asarray(x).dtype.kind == "c"


def moduli(X: Array, weights: Array | None = None) -> Array:
    """The largest modulus in each column of complex numbers, each entry weighted."""
    sizes = np.empty(X.shape[1])
    _kernels.native_max_moduli(np.asfortranarray(X, dtype=np.float64), weights, sizes)
    return sizes


@dataclass(frozen=True, eq=False, kw_only=True)
class GivenComplex(GivenMatrix):
    """The real form of a complex A, scaled; `norm` is not above that of moduli."""

    @property
    def is_complex(self) -> bool:
        return True

    @cached_property
    def is_sparse(self) -> bool:
        return not isinstance(self.A, RealForm)

    @property
    def has_plain_norms(self) -> bool:
        return False  # they are of moduli

    def transposed(self, backend: Backend) -> Self:
        """The conjugate transpose, scaled as this one is."""
        A = self.A.T.tocsr() if self.is_sparse else self.A.T
        if self.columns is None:  # rows are all scaled alike, or not at all
            return replace(self, A=A, norm=backend.sizes(A)[0] * OVER_ROOT_2)
        real = ScaledMatrix(A if self.is_sparse else np.asarray(A), 0.0, self.columns, self.rows)
        norm = given_norm(real) * OVER_ROOT_2
        return replace(self, A=A, norm=norm, rows=self.columns, columns=self.rows)

    def residual_norms(self, R: Array) -> Array:
        return moduli(R, self._row_weights)

    def solution_norms(self, X: Array) -> Array:
        norms = moduli(X, self._column_weights)
        return norms if self._row_weights is None else np.where(moduli(X) < TINY, 0.0, norms)

    def norms_of_solutions(self, *blocks: Array) -> list[Array]:
        return [self.solution_norms(X) for X in blocks]

    def seen(self) -> SeenComplex:
        """It as policies see it."""
        facts = {"dtype": self.dtype, "b": self.b, "columns": self.columns, "rows": self.rows}
        if not self.is_sparse:
            return SeenComplex(self.A.values, self.norm, **facts)
        A = compressed(self.A)
        sizes = np.abs(A.data)
        sizes[np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)) == A.indices] *= -1.0
        real = sparse.csr_array((sizes, A.indices, A.indptr), shape=A.shape)
        real.has_canonical_format = True
        return SeenComplex(real, self.norm, **facts)


@dataclass(frozen=True, eq=False, kw_only=True)
class SeenComplex(GivenMatrix):
    """A complex matrix as features and policies see it.

    A dense one is itself. A sparse one is the real matrix of its moduli, on which orders, counts
    and pivots depend alike; that of its diagonal is negative, as no Cholesky factorization is to
    be tried.
    """

    @property
    def is_complex(self) -> bool:
        return True

    @cached_property
    def n(self) -> int:
        n = int(self.A.shape[0])
        return n if self.is_sparse else round(AS_LARGE * n)


def checked_complex(A: Any, backend: Backend, columns: int = 1, copy: bool = False) -> GivenComplex:
    """A, ready to be solved with for so many columns, or an error that names the fix.

    It refers to A's numbers where these are a C-ordered complex128 array, unless `copy` is set.
    """
    if sparse.issparse(A):
        form, single = _sparse_form(A)
        norm, largest = _sizes(form, backend)
        made = moderate(form, norm, largest)
    else:
        array = dense_array("A", A, real=False)
        check_shape(array.shape)
        single = array.dtype in (np.complex64, np.float32)
        values = np.require(array, np.complex128, ["C", "A"])
        if copy and np.may_share_memory(values, array):
            values = values.copy()
        dense = RealForm(values)
        norm, largest = _sizes(dense, backend)
        if is_moderate(largest):
            made = ScaledMatrix(dense, norm)
        else:
            made = moderate(np.asarray(dense), norm, largest, own=True)
            made = replace(made, A=RealForm(compressed_block(made.A)))
    facts = (made.A, made.norm * OVER_ROOT_2, made.rows, made.columns, made.is_exact)
    b = np.broadcast_to(0.0, (made.A.shape[0], columns))
    return GivenComplex(*facts, dtype=np.float32 if single else np.float64, b=b)


def _sizes(form: Any, backend: Backend) -> tuple[float, float]:
    norm, largest = backend.sizes(form)
    if not math.isfinite(largest):
        raise ValueError(f"A {NOT_FINITE}")
    return norm, largest


def _sparse_form(A: Any) -> tuple[sparse.csr_array, bool]:
    """The real form of a sparse A, and whether it is in single precision."""
    check_complex("A", A.dtype)
    check_shape(A.shape)
    single = A.dtype in (np.complex64, np.float32)
    csr = canonical_csr(A, np.complex64 if single else np.complex128)
    return expanded(csr.astype(np.complex128, copy=False)), single


def real_right_hand_sides(b: Any, n: int) -> NDArray[Any]:
    """Right-hand sides of n complex equations, in real form; float32 if they were single."""
    if sparse.issparse(b):
        b = dense_from_sparse(b, "b")
    array = dense_array("b", b, real=False)
    if array.ndim not in (1, 2):
        raise ValueError(f"b has {array.ndim} dimensions; pass a vector or a matrix of columns")
    if len(array) != n:
        raise ValueError(f"b has {len(array)} rows, A has {n}; pass b with {n} rows")
    single = array.dtype in (np.complex64, np.float32)
    return real_columns(array.astype(np.complex64 if single else np.complex128, copy=False))


def split_parts(b: Any) -> NDArray[Any]:
    """Complex right-hand sides as real columns: all real parts, then all imaginary ones."""
    array = dense_array("b", dense_from_sparse(b, "b") if sparse.issparse(b) else b, real=False)
    if array.ndim not in (1, 2):
        raise ValueError(f"b has {array.ndim} dimensions; pass a vector or a matrix of columns")
    columns = array[:, None] if array.ndim == 1 else array
    return np.concatenate([columns.real, columns.imag], axis=1)


def joined_parts(X: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The complex answers of this shape, of which `split_parts` made the right-hand sides."""
    half = X.shape[1] // 2
    Z = np.empty((len(X), half), dtype=np.result_type(X.dtype, np.complex64), order="F")
    Z.real, Z.imag = X[:, :half], X[:, half:]
    return Z[:, 0] if len(shape) == 1 else Z
