"""Small systems without decisions: solved in FP64 at once, through the same gate as all others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._csr import is_canonical
from roundwise.algorithms.accuracy import default_tolerance, passes, upper_bounds, within
from roundwise.backends.arrays import is_sparse
from roundwise.backends.complex.backend import OVER_ROOT_2, error_of
from roundwise.backends.complex.small import solve_complex_at_once
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native import exact
from roundwise.backends.native.small import solve_at_once
from roundwise.backends.native.small_sparse import LARGEST, solve_sparse_at_once
from roundwise.backends.native.structured import structured_method
from roundwise.features.probe import looks_positive_definite
from roundwise.solver.decide import STRUCTURED_FROM
from roundwise.solver.system import AS_LARGE, joined_parts, split_parts
from roundwise.solver.trust.examining import SUSPICIOUS

Array = NDArray[Any]

MOSTLY_ZERO = 4
"""A sparse matrix with more than one entry in so many places is solved with as a dense one."""


def express(
    A: Any, b: Any, tol: float | None, bound: int, panels: bool = True
) -> Array | Orders | None:
    """x, if a compiled call solves the system at once; None, or orders of A, if not."""
    if is_sparse(A):
        if not bound or A.dtype.kind == "c":
            return None
        return sparse_at_once(A, b, tol, bound, panels)
    if is_sparse(b):
        return None
    if A.dtype.kind == "c":
        return small_complex(A, b, tol, bound)
    if b.dtype.kind == "c":
        return parts_at_once(A, b, tol, bound)
    return dense_at_once(A, b, tol, bound)


@np.errstate(all="ignore")
def dense_at_once(A: Array, b: Array, tol: float | None, bound: int) -> Array | None:
    """A dense system with n < bound in FP64, through the same gate; None if it fails.

    Of float32 A and b the answer is float32, and another way.
    """
    n = len(A) if A.ndim == 2 else 0
    fits = A.shape == (n, n) and b.ndim in (1, 2) and len(b) == n and b.size > 0
    if not (fits and 0 < n < bound):
        return None
    if not A.dtype == b.dtype == np.float64:
        if A.dtype == b.dtype == np.float32:
            return None
        A, b = A.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
    if n >= STRUCTURED_FROM and (structured_method(A) is not None or looks_positive_definite(A)):
        return None
    solved = solve_at_once(A, b)
    if solved is None:
        return None
    x, error, pivot_ratio = solved
    if not pivot_ratio > SUSPICIOUS:
        return None  # perhaps few digits are right, or A is singular: that is looked into
    bound = upper_bounds(error, n, exact.error_of(n, exact.block_for(n)))
    return x if passes(bound, default_tolerance(n) if tol is None else tol) else None


def parts_at_once(A: Array, b: Array, tol: float | None, bound: int) -> Array | None:
    """The same for a complex b: its parts are columns (`Factorization.solve` has the tolerance)."""
    if not (b.ndim in (1, 2) and b.dtype == np.complex128):
        return None
    tolerance = (default_tolerance(len(b)) if tol is None else tol) * OVER_ROOT_2
    X = dense_at_once(A, split_parts(b), tolerance, bound)
    return None if X is None else joined_parts(X, b.shape)


@np.errstate(all="ignore")
def sparse_at_once(
    A: Any, b: Any, tol: float | None, bound: int, panels: bool = True
) -> Array | Orders | None:
    """A float64 system in FP64, through the same gate; None if that fails, or takes too long.

    One with so many entries that it is as good as dense is solved as such, if n < bound. Where no
    x is returned, there may be orders of A's pattern that a look can go on with; `panels` is False
    for a caller who would rather have them than an x by the engine that needs them.
    """
    if not (A.format in ("csr", "csc") and A.data.size <= LARGEST and type(b) is np.ndarray):
        return None
    n = len(b) if b.ndim in (1, 2) else 0
    fits = A.shape == (n, n) and b.size > 0 and A.dtype == b.dtype == np.float64
    arrays = A.indptr, A.indices, A.data
    fits = fits and all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
    if not (fits and A.indices.dtype == A.indptr.dtype and is_canonical(A)):
        return None
    if A.indices.dtype == np.int64:  # as SciPy makes them of coordinates in 64 bits
        A = type(A)((A.data, A.indices.astype(np.int32), A.indptr.astype(np.int32)), shape=A.shape)
        A.has_canonical_format = True
    if MOSTLY_ZERO * A.nnz > n * n:
        return dense_at_once(A.toarray(), b, tol, bound)
    tolerance, unknown = default_tolerance(n) if tol is None else tol, exact.error_of(n)
    solved = solve_sparse_at_once(A, b, within(tolerance, n, unknown), panels)
    if not isinstance(solved, tuple):
        return solved  # perhaps few digits are right, or A is singular: that is looked into
    x, error = solved
    return x if passes(upper_bounds(error, n, unknown), tolerance) else None


@np.errstate(all="ignore")
def small_complex(A: Any, b: Any, tol: float | None, bound: int) -> NDArray[Any] | None:
    """A dense complex128 system with n < bound in FP64, through the same gate; None if it fails."""
    n = len(A) if A.ndim == 2 else 0
    fits = A.shape == (n, n) and b.ndim in (1, 2) and len(b) == n and b.size > 0
    if not (fits and 0 < AS_LARGE * n < bound and A.dtype == np.complex128):
        return None
    if not (A.flags.c_contiguous and A.flags.aligned):
        A = np.array(A, order="C")
    tolerance, unknown = default_tolerance(n) if tol is None else tol, error_of(2 * n)
    solved = solve_complex_at_once(A, b, within(tolerance, 2 * n, unknown))
    if solved is None:
        return None
    x, error, pivot_ratio = solved
    if not pivot_ratio > SUSPICIOUS:
        return None  # perhaps few digits are right, or A is singular: that is looked into
    return x if passes(upper_bounds(error, 2 * n, unknown), tolerance) else None
