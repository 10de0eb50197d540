"""The real form of a complex matrix: what it does to vectors of real and imaginary parts.

A complex vector z is kept as the real vector ``(Re z_1, Im z_1, Re z_2, Im z_2, ...)``, which is
how it lies in memory anyway. A complex entry ``a = p + i q`` then acts as the 2 x 2 block

    p  -q
    q   p

so that ``A x = b`` of n complex unknowns is a real system of 2 n. Refinement and GMRES are those of
this real system; only factorizations, and the norms of the gate, know that it is complex. The
transpose of the real form is the real form of the conjugate transpose.

A dense matrix is not expanded: `RealForm` refers to the complex numbers. A sparse one is a real
`SparseRealForm` with four times the entries (`expanded`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.machine.threads import pass_threads

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

ROOT_2, OVER_ROOT_2 = 1.4142135623730952, 0.7071067811865475
"""Not below the square root of 2, and not above its inverse."""

PART = 64
"""Rows whose magnitudes are taken at a time: they stay in the cache."""


class RealForm:
    """The real form of a dense complex matrix, or of its conjugate transpose.

    It refers to the numbers it is given, a C-ordered complex128 array, or complex64 for residuals
    alone, until those of the conjugate transpose are asked for, which are copied.
    """

    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(self, values: Complex, adjoint: bool = False) -> None:
        self._values, self._adjoint = values, adjoint
        self.shape = 2 * values.shape[0], 2 * values.shape[1]
        self.size = 4 * values.size

    @cached_property
    def values(self) -> Complex:
        """The complex matrix, C-ordered."""
        if not self._adjoint:
            return self._values
        return np.conj(self._values.T, out=np.empty(self._values.T.shape, self._values.dtype))

    @property
    def rows(self) -> Real:
        """The complex matrix as an (n, 2 n) array of real and imaginary parts."""
        return self.values.view(self.values.real.dtype)

    @property
    def T(self) -> RealForm:
        return RealForm(self._values, not self._adjoint)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Real:
        """The whole real form, for proofs about small matrices."""
        return self[:]

    def __getitem__(self, rows: slice) -> Real:
        """Some rows of the real form, from an even one to an even one."""
        first, last, _ = rows.indices(self.shape[0])
        block: Real = expanded_block(self.values[first // 2 : (last + 1) // 2])
        return block

    def __abs__(self) -> Real:
        return np.abs(self[:])

    def __matmul__(self, X: Real) -> Real:
        Y: Real = real_columns(self.values @ complex_columns(X))
        return Y

    def sizes(self) -> tuple[float, float]:
        """The infinity norm of the real form, and its largest magnitude: NaN or inf if it has."""
        given = self._values.view(np.float64)
        if not self._adjoint:
            norm, _, largest = _kernels.native_norms(given.T, pass_threads(given.size))
            return norm, largest
        sums, largest = np.zeros(given.shape[1]), 0.0
        for first in range(0, len(given), PART):
            magnitudes = np.abs(given[first : first + PART])
            sums += magnitudes.sum(axis=0)
            largest = max(largest, float(magnitudes.max()))
        return float(sums.reshape(-1, 2).sum(axis=1).max()), largest


class SparseRealForm(sparse.csr_array):  # type: ignore[misc]
    """The real form of a sparse complex matrix, in compressed rows."""


def expanded_block(Z: Any, xp: Any = np) -> Any:
    """The real form of some rows of a complex matrix, as an array of the same module."""
    result = xp.empty((2 * Z.shape[0], 2 * Z.shape[1]))
    result[0::2, 0::2] = result[1::2, 1::2] = Z.real
    result[0::2, 1::2], result[1::2, 0::2] = -Z.imag, Z.imag
    return result


def compressed_block(E: Any, xp: Any = np) -> Any:
    """The complex matrix whose real form is this array."""
    Z = xp.empty((E.shape[0] // 2, E.shape[1] // 2), dtype=np.complex128)
    Z.real, Z.imag = E[0::2, 0::2], E[1::2, 0::2]
    return Z


def real_columns(Z: Any) -> Any:
    """Complex columns, or a vector, as real ones of twice the length; a view if they can be."""
    real = Z.real.dtype
    return _contiguous(Z).view(real) if Z.ndim == 1 else _contiguous(Z.T).view(real).T


def complex_columns(X: Any) -> Any:
    """The complex columns, Fortran-ordered, or vector, that `real_columns` makes X of."""
    dtype = np.result_type(X.dtype, np.complex64)
    return _contiguous(X).view(dtype) if X.ndim == 1 else _contiguous(X.T).view(dtype).T


def _contiguous(X: Any) -> Any:
    """An array by rows, of NumPy or of a GPU: itself if it is that."""
    return X if X.flags.c_contiguous else X.copy(order="C")


def expanded(A: sparse.csr_array) -> SparseRealForm:
    """The real form of a complex matrix in canonical compressed rows; zeros in its blocks stay."""
    n, counts = A.shape[0], np.diff(A.indptr).astype(np.int64)
    dtype = np.int32 if 4 * A.nnz <= np.iinfo(np.int32).max else np.int64
    even, odd = _places(A.indptr.astype(np.int64), counts)
    data, indices = np.empty(4 * A.nnz), np.empty(4 * A.nnz, dtype=dtype)
    data[even], data[even + 1] = A.data.real, -A.data.imag
    data[odd], data[odd + 1] = A.data.imag, A.data.real
    for places in (even, odd):
        indices[places], indices[places + 1] = 2 * A.indices, 2 * A.indices + 1
    indptr = np.concatenate([[0], np.cumsum(np.repeat(2 * counts, 2))]).astype(dtype)
    made = SparseRealForm((data, indices, indptr), shape=(2 * n, 2 * n))
    made.has_canonical_format = True  # as A
    return made


def compressed(E: sparse.csr_array) -> sparse.csr_array:
    """The complex matrix whose real form is this one."""
    n, counts = E.shape[0] // 2, np.diff(E.indptr)[0::2] // 2
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(E.indptr.dtype)
    even, _ = _places(indptr.astype(np.int64), counts.astype(np.int64))
    data = np.empty(len(even), dtype=np.complex128)
    data.real, data.imag = E.data[even], -E.data[even + 1]
    made = sparse.csr_array((data, E.indices[even] // 2, indptr), shape=(n, n))
    made.has_canonical_format = True
    return made


def _places(
    indptr: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the upper and the lower row of each entry's block begin among those of the real form.

    Rows 2 i and 2 i + 1 of the real form have two entries for each one of row i.
    """
    entries = np.arange(indptr[-1])
    before = np.repeat(indptr[:-1], counts)
    even = 2 * before + 2 * entries
    return even, even + np.repeat(2 * counts, counts)
