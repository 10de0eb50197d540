"""Singular systems whose null space the caller names: ``solve(A, b, nullspace=...)``.

A pure Neumann problem, or the Laplacian of a graph, is singular: A v = 0 for constants v. Where b
is in A's range, there are solutions; the shortest one is returned, orthogonal to the null space.
Where it is not, `SolveFailed` names how far b is away from it.

Two ways, both to a nonsingular system that is solved like any other:

- A symmetric, or Hermitian: b's part in the null space (rounding errors, if b is in the range) is
  taken away, d unknowns are pinned to zero and their equations left out, which follow from the
  others: what is left is as sparse, and positive definite if A was semidefinite.
- otherwise ``[A N; N* 0] [x; y] = [b; 0]`` with an orthonormal basis N of the null space: y is zero
  for a b in the range, whatever the left null vectors are. It is nonsingular if zero is no
  defective eigenvalue of A.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components

from roundwise.algorithms.accuracy import (
    backward_errors,
    default_tolerance,
    passes,
    target_of,
    upper_bounds,
)
from roundwise.backends.arrays import is_sparse
from roundwise.formats import FP32, FP64
from roundwise.machine.threads import ieee_arithmetic
from roundwise.solver.inputs import answer_dtype, dense_array
from roundwise.solver.operators import Products, products_with
from roundwise.solver.solution import Solution, SolveFailed

Array = NDArray[Any]
Factor = Callable[[Any, float], Any]
"""``factor(A, tol)``: a `Factorization` of a nonsingular matrix."""

MOST_CORRECTIONS = 3
"""A taste: residuals of the equations that were left out are the sum of all others', so that the
first x may miss the gate by some factor; each correction gains many digits."""

SINGLE = (np.float32, np.complex64)


@dataclass(frozen=True, eq=False)
class NullSpace:
    """An orthonormal basis of the null space: by columns, or as the parts of a graph.

    `parts` has the number of each unknown's part, on which the null vectors are constant.

    Examples
    --------
    >>> from roundwise.solver.nullspaces import null_space
    >>> A = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> N = null_space("constants", A)
    >>> N.project(np.array([[3.0], [1.0]]))[:, 0]
    array([ 1., -1.])
    """

    basis: Array | None = None
    parts: NDArray[np.int32] | None = None

    def component(self, X: Array) -> Array:
        """The part of each column that is in the null space."""
        if self.basis is not None:
            return np.asarray(self.basis @ (self.basis.conj().T @ X))
        assert self.parts is not None
        counts = np.bincount(self.parts)
        sums = np.column_stack([_sums(self.parts, x) for x in X.T])
        return np.asarray((sums / counts[:, None])[self.parts])

    def project(self, X: Array) -> Array:
        """The part of each column that is orthogonal to the null space."""
        rest = X - self.component(X)
        return np.asarray(rest - self.component(rest))

    @property
    def pinned(self) -> NDArray[np.int64]:
        """Unknowns whose values determine the null vector: one for each dimension."""
        if self.parts is not None:
            return np.asarray(np.unique(self.parts, return_index=True)[1], dtype=np.int64)
        assert self.basis is not None
        order = linalg.qr(self.basis.conj().T, mode="r", pivoting=True)[1]
        return np.sort(np.asarray(order[: self.basis.shape[1]], dtype=np.int64))

    @property
    def columns(self) -> Any:
        """The basis as a matrix, sparse if it is one of constants."""
        if self.basis is not None:
            return self.basis
        assert self.parts is not None
        n, sizes = len(self.parts), np.bincount(self.parts)
        entries = 1 / np.sqrt(sizes[self.parts])
        return sparse.csc_array((entries, (np.arange(n), self.parts)), (n, len(sizes)))


def null_space(given: Any, A: Any) -> NullSpace:
    """What the caller calls the null space of A: ``"constants"``, or vectors."""
    n = A.shape[0]
    if isinstance(given, str):
        if given != "constants":
            raise ValueError(f"nullspace = {given!r}; pass 'constants', or null vectors as columns")
        if not is_sparse(A):
            return NullSpace(parts=np.zeros(n, dtype=np.int32))
        pattern = sparse.csr_array(A != 0).astype(np.float64)
        return NullSpace(parts=connected_components(pattern, directed=False)[1])
    V = dense_array("nullspace", given, real=False)
    V = V[:, None] if V.ndim == 1 else V
    if V.ndim != 2 or V.shape[0] != n or not 0 < V.shape[1] < n:
        raise ValueError(f"nullspace has shape {np.shape(given)}; pass {n} rows, fewer columns")
    if not np.isfinite(V).all():
        raise ValueError("nullspace holds NaN or infinity; remove these before the call")
    sizes = np.abs(V).max(axis=0)
    if not sizes.all():
        raise ValueError("nullspace has a column of zeros; leave it out")
    Q, R, _ = linalg.qr(V / sizes, mode="economic", pivoting=True)
    if abs(R[-1, -1]) <= n * FP64.unit_roundoff * abs(R[0, 0]):
        raise ValueError("the columns of nullspace are dependent; pass independent ones")
    return NullSpace(basis=np.asarray(Q))


def solve_singular(A: Any, b: Any, nullspace: Any, tol: float | None, factor: Factor) -> Solution:
    """The shortest solution of a consistent singular system, verified.

    What it tells of condition and error is that of the nonsingular system that was solved.
    """
    with ieee_arithmetic(), np.errstate(all="ignore"):  # infinity and NaN never pass the gate
        right = dense_array("b", b, real=False)
        matrix = A if is_sparse(A) else dense_array("A", A, real=False)
        if matrix.ndim != 2 or right.ndim not in (1, 2):
            raise ValueError("nullspace is for one system; pass a square A, and b as columns")
        given = products_with(matrix, right)
        if len(right) != given.n:
            raise ValueError(f"b has {len(right)} rows, A has {given.n}; pass {given.n} rows")
        if right.size and not np.isfinite(right).all():
            raise ValueError("b holds NaN or infinity; remove these before the call")
        dtype = answer_dtype(matrix, right)
        single = dtype in SINGLE
        usual = default_tolerance(given.n, FP32 if single else FP64)
        tolerance = usual if tol is None else tol
        N = null_space(nullspace, given.matrix)
        _require_null(given, N, (FP32 if matrix.dtype in SINGLE else FP64).unit_roundoff)
        B = right.astype(given.matrix.dtype).reshape(given.n, -1)
        where = f"the null space of dimension {N.columns.shape[1]} was taken out"
        inner = target_of(tolerance, np.float32 if single else np.float64) / 4
        try:
            way = _pinned if given.is_symmetric else _bordered
            solved = way(given, N, factor, max(inner, usual / 4))
            answer, X = solved(B)
            for left in reversed(range(MOST_CORRECTIONS + 1)):
                x = N.project(X).astype(dtype)
                R, errors, bounds = _judged(given, x.astype(B.dtype), B)
                if passes(bounds, tolerance) or not left:
                    break
                X = X + solved(R)[1]
        except SolveFailed as failure:
            failure.args = (
                f"{failure.reason} ({where}: if A is still singular, pass all of its null vectors)",
            )
            raise
        x, worst = x.reshape(right.shape), float(bounds.max(initial=0.0))
        if not passes(bounds, tolerance):
            raise SolveFailed(_named(given, N, B, R, tolerance), x, worst, answer.attempts)
        return replace(
            answer,
            x=x,
            backward_error=float(errors.max(initial=0.0)),
            tolerance=tolerance,
            decision=f"{where[0].upper()}{where[1:]}. {answer.decision}",
        )


Solved = Callable[[Array], tuple[Solution, Array]]


def _pinned(given: Products, N: NullSpace, factor: Factor, tol: float) -> Solved:
    """Solves a Hermitian system with some unknowns pinned to zero."""
    kept = np.delete(np.arange(given.n), N.pinned)
    rows = given.matrix[kept]
    smaller = rows[:, kept].tocsr() if is_sparse(rows) else np.ascontiguousarray(rows[:, kept])
    F = factor(smaller, tol)

    def solved(B: Array) -> tuple[Solution, Array]:
        X = np.zeros(B.shape, dtype=B.dtype, order="F")
        answer = F.solve(N.project(B)[kept], full_output=True)
        X[kept] = answer.x
        return answer, X

    return solved


def _bordered(given: Products, N: NullSpace, factor: Factor, tol: float) -> Solved:
    """Solves the bordered system; y is what of b is not in the range."""
    columns, dimension = N.columns, N.columns.shape[1]
    border = columns * given.norm  # so that the rows of both blocks are of about the same size
    if is_sparse(given.matrix):
        border = sparse.csr_array(border)
        whole: Any = sparse.block_array([[given.matrix, border], [border.conj().T, None]])
        whole = whole.tocsr()
    else:
        none = np.zeros((dimension, dimension))
        dense = border.toarray() if is_sparse(border) else border
        whole = np.block([[given.matrix, dense], [dense.conj().T, none]])
    F = factor(whole, tol)

    def solved(B: Array) -> tuple[Solution, Array]:
        right = np.concatenate([B, np.zeros((dimension, B.shape[1]))])
        answer = F.solve(right, full_output=True)
        return answer, answer.x[: given.n]

    return solved


def _judged(given: Products, X: Array, B: Array) -> tuple[Array, Array, Array]:
    """``B - A X``, backward errors, and upper bounds of them."""
    R, unknown = given.residual(X, B)
    r, x, beta = (np.abs(Y).max(axis=0, initial=0.0) for Y in (R, X, B))
    errors = backward_errors(r, given.norm, x, beta)
    zero = (x == 0) & (beta == 0)
    return R, errors, np.where(zero, 0.0, upper_bounds(errors, given.n, unknown))


def _require_null(given: Products, N: NullSpace, unit_roundoff: float) -> None:
    """Refuse vectors that A does not map to zero."""
    columns = N.columns
    image = given.matrix @ columns
    largest = float(abs(image).max()) if given.n else 0.0
    size = float(abs(columns).max()) * given.norm
    longest = np.diff(given.matrix.indptr).max() if is_sparse(given.matrix) else given.n
    allowed = 16 * (float(longest) + math.sqrt(given.n)) * unit_roundoff * size
    if not largest <= allowed:
        raise ValueError(
            f"nullspace: A v is not zero, but up to {largest / max(size, 1e-300):.1e} of "
            "||A|| ||v||; pass vectors with A v = 0, or leave nullspace out"
        )


def _named(given: Products, N: NullSpace, B: Array, R: Array, tolerance: float) -> str:
    """Why the answer did not pass the gate."""
    share = np.abs(R).max(axis=0) / np.maximum(np.abs(B).max(axis=0), np.finfo(float).tiny)
    if given.is_symmetric:
        part = np.abs(N.component(B)).max(axis=0)
        share = part / np.maximum(np.abs(B).max(axis=0), np.finfo(float).tiny)
    return (
        f"b is not in the range of A: {float(share.max()):.1e} of it is outside, so that no x has "
        f"a backward error of {tolerance:.1e}; subtract b's part along the left null vectors "
        "(for a symmetric A those of nullspace, for constants the mean of b), or solve a least "
        "squares problem"
    )


def _sums(parts: NDArray[np.int32], x: Array) -> Array:
    if x.dtype.kind == "c":
        return np.bincount(parts, x.real) + 1j * np.bincount(parts, x.imag)
    return np.bincount(parts, x)
