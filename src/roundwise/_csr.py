"""Sparse matrices as callers give them: indices are checked before anything else reads them.

SciPy's constructors accept indices that lead outside of the matrix, and its conversions trust them:
they would read and write elsewhere in memory. ``has_canonical_format`` may be set by hand. Neither
is relied on here: one compiled pass looks at all indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

import roundwise._kernels as _kernels

SparseLU = _kernels.LeftLookingLU | _kernels.ComplexLeftLookingLU
"""A square matrix in canonical rows, and its factors once they are made."""

FORMS = {"csr": 0, "csc": 1, "coo": 2}
"""Numbers of the sparse formats that `_kernels.LeftLookingLU` reads."""

OUT_OF_RANGE, CANONICAL = 0, 2
"""What `_kernels.sparse_form` returns; 1 if indices are in range, but not in order, or repeated."""


def canonical_csr(A: Any, dtype: DTypeLike = np.float64, *, copy: bool = False) -> sparse.csr_array:
    """A in compressed rows, each column at most once in a row, in order.

    Unless `copy` is set, it has A's own arrays where these are so; they are not changed.
    """
    # Converted first: entries of one place are summed in this type.
    rows = sparse.csr_array(checked_sparse(A, "A").astype(dtype, copy=False))
    rows.indptr, rows.indices = _index_arrays((rows.indptr, rows.indices), "A")
    if len(rows.data) != rows.indptr[-1]:
        rows.prune()
    form = _kernels.sparse_form(rows.indptr, rows.indices, rows.shape[1])
    if copy or form != CANONICAL:
        rows = rows.copy()  # the caller's matrix stays as it is
    if form != CANONICAL:
        rows.has_canonical_format = rows.has_sorted_indices = False
        rows.sum_duplicates()
    rows.has_canonical_format = True
    return rows


def read_sparse(A: Any, name: str, transposed: bool = False) -> SparseLU:
    """A square A of any format, whose numbers double precision can hold, read by one compiled pass.

    Entries of one place are added, in double precision. `transposed` reads the transpose.
    """
    form, *arrays = _arrays_of(A, name, transposed)
    kind = _kernels.ComplexLeftLookingLU if A.dtype.kind == "c" else _kernels.LeftLookingLU
    try:
        return kind(form, A.shape[0], *arrays)
    except ValueError:  # an index is out of range, or arrays do not fit each other
        raise _refusal(A, name) from None


def read_again(
    lu: SparseLU, A: Any, name: str, transposed: bool = False, low: bool = False
) -> SparseLU | None:
    """Another A of the same shape, factorized with the pivots of `lu`; None if its places differ.

    `lu` has factors, and A is complex if those are. The new ones are in FP32 if `low`.
    """
    form, first, second, values = _arrays_of(A, name, transposed)
    try:
        return lu.refactored(form, first, second, values, low)
    except ValueError:
        raise _refusal(A, name) from None


def _arrays_of(
    A: Any, name: str, transposed: bool
) -> tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The form of A, its two arrays of indices and its values in double precision, contiguous."""
    if A.format not in FORMS:
        A = checked_sparse(A, name).tocsr()
    form, first, second = places_of(A, transposed)
    values = np.ascontiguousarray(A.data, np.complex128 if A.dtype.kind == "c" else np.float64)
    return form, *_index_arrays((first, second), name), values


def places_of(A: Any, transposed: bool) -> tuple[int, NDArray[Any], NDArray[Any]]:
    """The form of A, one of `FORMS`, and its arrays of indices; those of its transpose if asked."""
    if A.format == "coo":
        return (2, A.col, A.row) if transposed else (2, A.row, A.col)
    return int((A.format == "csr") == transposed), A.indptr, A.indices  # 0 are rows, 1 columns


def dense_from_sparse(A: Any, name: str) -> NDArray[Any]:
    """The array of a sparse matrix."""
    return np.asarray(checked_sparse(A, name).toarray())


def checked_sparse(A: Any, name: str) -> Any:
    """A, if its indices are in range; formats without arrays of indices come back as rows."""
    if A.ndim != 2:
        raise ValueError(f"{name} has {A.ndim} dimensions; pass a sparse matrix with two")
    if not _fits_its_shape(A):
        raise _refusal(A, name)
    if A.format not in ("coo", "csr", "csc", "bsr"):
        A = A.tocsr()
    if A.format != "coo":
        _form(A, name)
    return A


def _fits_its_shape(A: Any) -> bool:
    """Check what SciPy's conversions of formats that are not compressed rely on."""
    rows, columns = A.shape
    if A.format == "coo":
        pairs = ((A.row, rows), (A.col, columns))
        return all(len(at) == len(A.data) and _within(at, 0, size) for at, size in pairs)
    if A.format == "dia":
        return len(A.offsets) == len(A.data) and _within(A.offsets, -rows, columns + 1)
    if A.format == "lil":
        is_whole = len(A.rows) == len(A.data) == rows
        return is_whole and [*map(len, A.rows)] == [*map(len, A.data)]
    return True


def _form(A: Any, name: str) -> int:
    height, width = A.shape if A.format != "csc" else A.shape[::-1]
    if A.format == "bsr":
        height, width = height // A.data.shape[1], width // A.data.shape[2]
    indptr, indices = _index_arrays((A.indptr, A.indices), name)
    fits = len(indptr) == height + 1 and len(A.data) >= indptr[-1]
    form = _kernels.sparse_form(indptr, indices, width) if fits else OUT_OF_RANGE
    if form == OUT_OF_RANGE:
        raise _refusal(A, name)
    return form


def _index_arrays(arrays: Any, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """``indptr`` and ``indices``, or rows and columns, contiguous, of one type, int32 or int64."""
    indptr, indices = arrays
    kind = indptr.dtype
    if kind == indices.dtype and kind in (np.int32, np.int64):
        if indptr.flags.c_contiguous and indices.flags.c_contiguous:
            return indptr, indices
    elif indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise ValueError(f"{name} has indices that are no integers; build it anew")
    else:
        kind = np.dtype(np.int64)
    return np.ascontiguousarray(indptr, kind), np.ascontiguousarray(indices, kind)


def _within(places: NDArray[Any], first: int, end: int) -> bool:
    return places.size == 0 or bool(first <= places.min() and places.max() < end)


def _refusal(A: Any, name: str) -> ValueError:
    return ValueError(
        f"{name} has an index outside of its shape {A.shape}, or its indptr decreases or does not "
        f"fit its other arrays; build it anew ({name}.check_format() says more)"
    )
