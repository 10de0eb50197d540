"""Checks of what concrete backends are given: NumPy arrays and SciPy sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._csr import canonical_csr
from roundwise.backends.arrays import is_sparse
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.formats import FloatFormat

Float64Array = NDArray[np.float64]


def _real(x: Any, name: str) -> Any:
    if x.dtype != np.float64 and (x.dtype.kind != "f" or x.dtype.itemsize > 8):
        raise TypeError(f"{name} is float64 or float32, got {x.dtype}; convert with astype")
    return x


def checked_vector(x: Any, length: int | None = None) -> Float64Array:
    """x as a contiguous float64 vector of that length, or a one-line error."""
    x = _real(np.asarray(x), "a vector")
    if x.ndim != 1 or (length is not None and x.shape[0] != length):
        wanted = "a vector" if length is None else f"a vector of length {length}"
        raise ValueError(f"got shape {x.shape}; pass {wanted}")
    return np.ascontiguousarray(x, dtype=np.float64)


def checked_block(b: Any, rows: int) -> Float64Array:
    """b as a float64 block of columns, not copied if it is one already."""
    b = np.asarray(b)
    if b.ndim not in (1, 2) or b.shape[0] != rows:
        raise ValueError(f"b has shape {b.shape}; pass ({rows},) or ({rows}, k)")
    block: Float64Array = b if b.ndim == 2 else b[:, None]
    return block if b.dtype == np.float64 else _real(block, "b").astype(np.float64)


def checked_basis(V: Any, length: int) -> Float64Array:
    """V as contiguous float64 rows of that length."""
    V = _real(np.asarray(V), "V")
    if V.ndim != 2 or V.shape[1] != length:
        raise ValueError(f"V has shape {V.shape}; pass rows of length {length}")
    return np.ascontiguousarray(V, dtype=np.float64)


def check_rotations(
    j: int, cosines: Float64Array, sines: Float64Array, h: Float64Array, g: Float64Array
) -> None:
    """Check that arrays which `Backend.givens` changes are long enough, float64, contiguous."""
    if j < 0:
        raise ValueError(f"j = {j}; pass a column number of at least 0")
    lengths = {"cosines": j + 1, "sines": j + 1, "h": j + 2, "g": j + 2}
    for (name, length), x in zip(lengths.items(), (cosines, sines, h, g), strict=True):
        fits = isinstance(x, np.ndarray) and x.dtype == np.float64 and x.ndim == 1
        if not fits or len(x) < length or not x.flags.carray:
            raise ValueError(
                f"{name} is changed in place; pass a contiguous, writeable float64 vector of at "
                f"least {length} entries"
            )


def real_matrix(A: Any) -> Any:
    """A as it is, or as an array: of real numbers up to float64, and not empty."""
    A = _real(A if is_sparse(A) else np.asarray(A), "A")
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"A has shape {A.shape}; pass a matrix with at least one row and column")
    return A


def checked_matrix(A: Any, fmt: FloatFormat) -> Any:
    """A as a finite float64 array, or canonical CSR array if it is sparse."""
    A = real_matrix(A)
    if is_sparse(A):
        A = canonical_csr(A, copy=True)
        if A.nnz > np.iinfo(np.int32).max:
            raise ValueError(f"A has {A.nnz} entries; the kernels' 32-bit indices reach 2**31 - 1")
        A.indices, A.indptr = A.indices.astype(np.int32), A.indptr.astype(np.int32)
        entries = A.data
    else:
        A = entries = np.asarray(A, dtype=np.float64)
    if not np.isfinite(entries).all():
        raise ArithmeticFailure(Status.NONFINITE_INPUT, "matrix", fmt)
    return A


def require_square(shape: tuple[int, int]) -> None:
    """Factorizations need as many rows as columns."""
    if shape[0] != shape[1]:
        raise ValueError(f"A is {shape[0]} x {shape[1]}; pass a square matrix to factorize it")


def require_nonzero_diagonal(diagonal: NDArray[Any], fmt: FloatFormat) -> None:
    """A factor's diagonal may have underflowed when it was rounded."""
    zeros = np.flatnonzero(diagonal == 0)
    if zeros.size:
        raise ArithmeticFailure(Status.ZERO_PIVOT, "triangular matrix", fmt, int(zeros[0]))
