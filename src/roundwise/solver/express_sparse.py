"""Small sparse systems without decisions: solved and verified at once, through the gate of all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from roundwise._csr import dense_from_sparse, is_canonical
from roundwise.algorithms.accuracy import default_tolerance, passes, upper_bounds, within
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native import exact
from roundwise.backends.native.small_sparse import LARGEST, solve_sparse_at_once
from roundwise.solver.express import ALWAYS_SMALL, Array, ExpressAnswer, express, solution_of
from roundwise.solver.solution import Solution

MOSTLY_ZERO = 4
"""A sparse matrix with more than one entry in so many places is solved with as a dense one."""


def express_sparse(
    A: Any, b: Any, tol: float | None, bound: int, panels: bool = True
) -> ExpressAnswer | Orders | None:
    """A system by one call, dense or sparse; None if it is refused, or is no such system."""
    if not (bound and A.ndim == 2 and type(b) is np.ndarray) or A.shape[0] != A.shape[1]:
        return None
    if _is_for_dense(A):  # those with n >= bound are not copied in vain
        return express(dense_from_sparse(A, "A"), b, tol, bound) if A.shape[0] < bound else None
    return None if A.dtype.kind == "c" else at_once(A, b, tol, panels)


def sparse_solution_of(
    answer: ExpressAnswer, A: Any, b: Array, tol: float | None, bound: int, seconds: float
) -> Solution:
    """`solution_of` for an answer of `express_sparse`."""

    def again() -> ExpressAnswer | None:
        if _is_for_dense(A):
            return express(dense_from_sparse(A, "A"), b, tol, bound)
        if not is_canonical(A):
            return None
        right = np.asfortranarray(b)
        error, _ = exact.sparse_backward_errors(
            _with_short_indices(A), answer.x, right, np.empty(len(b)), np.empty_like(right)
        )
        error = float(upper_bounds(error, len(b), exact.error_of(len(b))))
        return answer._replace(backward_error=error)

    return solution_of(answer, A, b, tol, seconds, again)


def _is_for_dense(A: Any) -> bool:
    """Whether a square sparse A is solved with as a dense one: tiny ones, and those with few zeros.

    A compiled call with a tiny one takes less time than SciPy takes to convert its format.
    """
    n = int(A.shape[0])
    if n < ALWAYS_SMALL:
        return True
    entries = int(A.data.size if A.format in ("csr", "csc", "coo") else A.nnz)  # not from indices
    return MOSTLY_ZERO * entries > n * n


@np.errstate(all="ignore")
def at_once(
    A: Any, b: Any, tol: float | None, panels: bool = True
) -> ExpressAnswer | Orders | None:
    """A float64 system in FP64, through the same gate; None if that fails, or takes too long.

    Where no x is returned, there may be orders of A's pattern that a decision can go on with;
    `panels` is False for a caller who would rather have them than an x by the engine that needs
    them.
    """
    if not (A.format in ("csr", "csc") and A.data.size <= LARGEST and type(b) is np.ndarray):
        return None
    n = len(b) if b.ndim in (1, 2) else 0
    fits = A.shape == (n, n) and b.size > 0 and A.dtype == b.dtype == np.float64
    arrays = A.indptr, A.indices, A.data
    fits = fits and all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
    if not (fits and A.indices.dtype == A.indptr.dtype and is_canonical(A)):
        return None
    A = _with_short_indices(A)
    tolerance, unknown = default_tolerance(n) if tol is None else tol, exact.error_of(n)
    solved = solve_sparse_at_once(A, b, within(tolerance, n, unknown), panels)
    if not isinstance(solved, tuple):
        return solved  # perhaps few digits are right, or A is singular: that is looked into
    x, error, method = solved
    error = float(upper_bounds(error, n, unknown))
    if not passes(error, tolerance):
        return None
    return ExpressAnswer(x, error, tolerance, math.nan, method)


def _with_short_indices(A: Any) -> Any:
    """A sparse A with indices of 32 bits; SciPy makes those of 64 of coordinates in 64 bits."""
    if A.indices.dtype != np.int64:
        return A
    A = type(A)((A.data, A.indices.astype(np.int32), A.indptr.astype(np.int32)), shape=A.shape)
    A.has_canonical_format = True
    return A
