"""The augmented system of a least squares problem, and approximate solvers of it.

With T the tall one of A and A' (m-by-n, m >= n), both problems are

    [ I   T ] [p]   [f]
    [ T'  0 ] [q] = [g],

- min ||b - A x||:  T = A,   f = b, g = 0;  then q = x and p = b - A x;
- min ||x||, A x = b:  T = A',  f = 0, g = b;  then p = x and q = -y, where x = A' y.

(Bjorck, BIT 7, 1967.) Vectors and blocks are stacked, p above q. The refinement loop, GMRES and the
stopping rules of linear systems serve for it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import cached_property
from roundwise.algorithms.least_squares.error import (
    Sizes,
    least_squares_errors,
    lengths,
    minimum_norm_errors,
)
from roundwise.algorithms.stage import Stage, Vector
from roundwise.backends import Factors, Matrix
from roundwise.backends.arrays import array_module, column_norms, is_sparse, on_host
from roundwise.formats import FP64, FloatFormat

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AugmentedSystem:
    """The system, and the norms that refinement goes by; it stands for a `ScaledMatrix`.

    `weights` are powers of two near the lengths of T's columns. Errors are those of the problem
    with columns divided by them (rows of A if A is wide), which has the same solutions.
    """

    T: Any  # float64 array or csr_array, m-by-n with m >= n
    B: Array  # (m + n, k): f above g
    wide: bool  # A = T', and x of minimum norm is wanted
    weights: Array
    norm: float  # ||T D||_F with D = diag(1 / weights)
    backend: Any = None  # that of the GPU which has T and B; None for the processor
    all_weights: Array = field(init=False)  # of p, which are 1, and of q, in a column
    sizes_b: Array = field(init=False)  # the norms of b's columns

    weighs_rows, weighs_columns = False, True
    has_plain_norms = False  # those of solutions are of a part

    def __post_init__(self) -> None:
        weights = np.concatenate([np.ones(self.rows), self.weights])[:, None]
        weights = array_module(self.B).asarray(weights)
        sizes = lengths(self.B / weights, self.rows)[1 if self.wide else 0]
        object.__setattr__(self, "all_weights", weights)
        object.__setattr__(self, "sizes_b", sizes)

    @property
    def rows(self) -> int:
        return int(self.T.shape[0])

    @property
    def n(self) -> int:
        """The equations of the augmented system."""
        return len(self.B)

    def parts(self, stacked: Vector) -> tuple[Vector, Vector]:
        return stacked[: self.rows], stacked[self.rows :]

    def x(self, stacked: Vector) -> Vector:
        """The part of a solution that is asked for."""
        return self.parts(stacked)[0 if self.wide else 1]

    def sizes(self, X: Array) -> Sizes:
        p, q = lengths(X * self.all_weights, self.rows)
        x, witness = (p, q) if self.wide else (q, p)
        return Sizes(self.norm, x, self.sizes_b, witness)

    @cached_property
    def transposed(self) -> Any:
        """T', a csr_array if it is sparse."""
        return self.T.T.tocsr() if is_sparse(self.T) else self.T.T

    def of_columns(self, columns: Any) -> AugmentedSystem:
        """The system with some of its right-hand sides."""
        if columns == slice(None):
            return self
        return replace(self, B=self.B[:, columns])

    def backward_errors(self, X: Array, R: Array, c: tuple[float, float] = (0.0, 0.0)) -> Array:
        """Backward errors of each column of X, whose residual is R; `error` explains them."""
        formula = minimum_norm_errors if self.wide else least_squares_errors
        f, g = lengths(R / self.all_weights, self.rows)
        return np.asarray(formula(f, g, self.sizes(X), c))

    def residual_norms(self, R: Array) -> Array:
        return column_norms(R)

    def solution_norms(self, X: Array) -> Array:
        return column_norms(self.x(X))

    def norms_of_solutions(self, *blocks: Array) -> list[Array]:
        return [self.solution_norms(X) for X in blocks]


def exact_difference(f: Array, p: Array) -> tuple[Array, Array]:
    """``f - p`` as the sum of two float64 numbers (Knuth's TwoSum)."""
    difference = f - p
    virtual = difference - f
    return difference, (f - (difference - virtual)) - (p + virtual)


class AugmentedMatrix(Matrix):
    """The matrix above, from T and T' in a format."""

    def __init__(self, stage: Stage, T: Matrix, transposed: Matrix) -> None:
        self.fmt, self.is_sparse = stage.fmt, T.is_sparse
        self.shape = (sum(T.shape), sum(T.shape))
        self.entries = 2 * T.entries + T.shape[0]
        self.T, self.transposed, self._backend = T, transposed, stage.backend

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        m = self.T.shape[0]
        p, q = x[:m], x[m:]
        top = self._backend.axpy(1.0, self.T.matvec(q), p, self.fmt)
        return np.concatenate([top, self.transposed.matvec(p)])

    def lu(self) -> Factors:
        raise NotImplementedError("the augmented matrix is never formed; factorize T")

    cholesky = lu


class AugmentedStage(Stage):
    """A residual stage for augmented matrices: one residual with T, one with T'."""

    def residual(self, A: Matrix, X: Vector, B: Vector) -> Vector:
        assert isinstance(A, AugmentedMatrix)
        m = A.T.shape[0]
        p, q = X[:m], X[m:]
        # Where the error of residuals is known, that of the gate's is: f - p must have none.
        if all(map(math.isfinite, residual_errors(self, A.T))):
            difference, rest = exact_difference(B[:m], p)
            top = super().residual(A.T, q, difference) + rest
        else:
            top = super().residual(A.T, q, self.add(B[:m], -p))
        return np.concatenate([top, super().residual(A.transposed, p, B[m:])])


def residual_errors(stage: Stage, T: Matrix) -> tuple[float, float]:
    """The errors of a stage's residuals with T and with T'; infinite where they are not known."""
    known, (m, n) = stage.backend.residual_error, T.shape
    return known(stage.fmt, n, T.is_sparse), known(stage.fmt, m, T.is_sparse)


class AugmentedFactors(Factors):
    """An approximate inverse of the augmented matrix."""

    perm = order = None
    m: int
    n: int
    resolution: float = 0.0
    """Smaller singular values of T, columns being of length 1, drown in its rounding errors."""
    diagonal: Array | None = None
    """The diagonal of R with ``T'T = R'R``, if it is at hand."""

    @property
    def L(self) -> Any:
        raise NotImplementedError("the augmented matrix is never formed")

    U = L

    @abstractmethod
    def to(self, fmt: FloatFormat) -> AugmentedFactors: ...

    @abstractmethod
    def correct(self, f: Vector, g: Vector) -> tuple[Vector, Vector]:
        """p and q for blocks of columns f and g."""

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        block = b if b.ndim == 2 else b[:, None]
        pq = np.concatenate(self.correct(block[: self.m], block[self.m :]))
        return pq if b.ndim == 2 else pq[:, 0]

    def inverse_of_normal(self, v: Vector) -> Vector:
        """About ``(T' T)^-1 v``."""
        zeros = array_module(v).zeros((self.m, 1))
        return -self.correct(zeros, v[:, None])[1][:, 0]


class NormalFactors(AugmentedFactors):
    """Solves by Cholesky factors of T'T: ``q = (T'T)^-1 (T' f - g), p = f - T q``.

    Products with T are in the format of the gmres stage. As T'T squares the condition number, this
    is for moderate ones: kappa^2 u_f < 1.
    """

    method = "cholesky"

    def __init__(self, stage: Stage, A: AugmentedMatrix, normal: Factors) -> None:
        self.m, self.n = A.T.shape
        self.fmt, self.shape, self.is_sparse = normal.fmt, A.shape, A.is_sparse
        self.entries = 2 * A.T.entries + normal.entries
        self.flops = normal.flops + gram_flops(A.T)
        # Entries of T'T are off by about sqrt(m) u, and so are the squares of singular values.
        self.resolution = resolution_of_gram(self.m, normal.fmt)
        self.diagonal = normal.diagonal
        self._stage, self._A, self._normal = stage, A, normal

    def to(self, fmt: FloatFormat) -> NormalFactors:
        return NormalFactors(self._stage, self._A, self._normal.to(fmt))

    def correct(self, f: Vector, g: Vector) -> tuple[Vector, Vector]:
        add, fmt = self._stage.backend.add, self._stage.fmt
        q = self._normal.solve(add(_float64(self._A.transposed.times(f)), -g, fmt))
        return add(f, -_float64(self._A.T.times(q)), fmt), q

    def inverse_of_normal(self, v: Vector) -> Vector:
        return self._normal.solve(v)


class OrthogonalFactors(AugmentedFactors):
    """Solves by ``T = Q R``: ``t = Q' f - R^-T g, q = R^-1 t, p = f - Q t``, in one format."""

    method = "qr"
    is_sparse = False

    def __init__(self, stage: Stage, Q: Array, R: Array, fmt: FloatFormat) -> None:
        self.m, self.n = Q.shape
        self.shape = (self.m + self.n, self.m + self.n)
        self.entries = 2 * Q.size + R.size
        self.flops = 4.0 * Q.size * self.n  # Gram-Schmidt, or Householder's Q formed
        self.fmt, self._stage, self._factors = fmt, stage, (Q, R)
        backend = stage.backend
        self._Q, self._transposed = backend.matrix(Q, fmt), backend.matrix(Q.T, fmt)
        self._R = R
        if backend.on_host:
            # R' turned upside down is an upper triangle, which is what backends solve with.
            self._flipped = np.asfortranarray(R.T[::-1, ::-1])
        self.diagonal = np.abs(on_host(R.diagonal()))

    def to(self, fmt: FloatFormat) -> OrthogonalFactors:
        if fmt == self.fmt:
            return self
        return OrthogonalFactors(self._stage, *self._factors, fmt)

    def correct(self, f: Vector, g: Vector) -> tuple[Vector, Vector]:
        backend, fmt = self._stage.backend, self.fmt
        t = _float64(self._transposed.times(f))
        if not backend.on_host:
            t = backend.add(t, -self._there(g, transposed=True), fmt)
            q = self._there(t)
            return backend.add(f, -_float64(self._Q.times(t)), fmt), q
        if g.any():
            w = [backend.solve_upper(self._flipped, column[::-1], fmt)[::-1] for column in g.T]
            t = backend.add(t, -np.stack(w, axis=1), fmt)
        q = np.stack([backend.solve_upper(self._R, column, fmt) for column in t.T], axis=1)
        return backend.add(f, -_float64(self._Q.times(t)), fmt), q

    def inverse_of_normal(self, v: Vector) -> Vector:
        backend, fmt = self._stage.backend, self.fmt
        if not backend.on_host:
            return self._there(self._there(v[:, None], transposed=True))[:, 0]
        w = backend.solve_upper(self._flipped, np.ascontiguousarray(v[::-1]), fmt)
        return backend.solve_upper(self._R, np.ascontiguousarray(w[::-1]), fmt)

    def _there(self, columns: Any, transposed: bool = False) -> Any:
        """``R^-1`` or ``R^-T`` times columns, on a GPU."""
        backend: Any = self._stage.backend
        return backend.solve_triangle(self._R, columns, transposed)


class SvdFactors(AugmentedFactors):
    """Solves by ``T = U S V'``, in float64: `OrthogonalFactors` with ``R = S V'``."""

    method = "svd"
    is_sparse = False
    fmt = FP64

    def __init__(self, U: Array, S: Array, V: Array) -> None:
        self.m, self.n = U.shape
        self.shape = (self.m + self.n, self.m + self.n)
        self.entries, self.flops = 2 * (U.size + V.size), 14.0 * U.size * self.n
        self._U, self._S, self._V = U, S[:, None], V

    def to(self, fmt: FloatFormat) -> SvdFactors:
        return self

    def correct(self, f: Vector, g: Vector) -> tuple[Vector, Vector]:
        t = self._U.T @ f - (self._V.T @ g) / self._S
        return f - self._U @ t, self._V @ (t / self._S)


ALPHA = 2.0**-10
"""With 1 in its place the augmented matrix is as ill-conditioned as T'T (Bjorck, 1967)."""


class DirectFactors(AugmentedFactors):
    """Solves by factors of the sparse ``[alpha I, T; T', 0]``, which takes p / alpha to f."""

    is_sparse = True

    def __init__(self, m: int, n: int, factors: Factors) -> None:
        self.m, self.n, self._factors = m, n, factors
        self.fmt, self.method, self.shape = factors.fmt, factors.method, factors.shape
        self.entries, self.flops = factors.entries, factors.flops
        # A small singular value s of T is an eigenvalue s^2 / alpha of that matrix.
        self.resolution = 10.0 * math.sqrt(math.sqrt(m) * ALPHA * factors.fmt.unit_roundoff)

    @classmethod
    def of(cls, T: Any, stage: Stage, method: str) -> DirectFactors:
        m, n = T.shape
        blocks = [[ALPHA * sparse.eye_array(m), T], [T.T, None]]
        whole = sparse.csr_array(sparse.block_array(blocks, format="csr"))
        analysis = stage.backend.analyse(whole, method)
        return cls(m, n, analysis.factorize(whole, stage.fmt))

    def to(self, fmt: FloatFormat) -> DirectFactors:
        return DirectFactors(self.m, self.n, self._factors.to(fmt))

    def correct(self, f: Vector, g: Vector) -> tuple[Vector, Vector]:
        pq = self._factors.solve(np.concatenate([f, g]))
        return ALPHA * pq[: self.m], pq[self.m :]


def resolution_of_gram(m: int, fmt: FloatFormat) -> float:
    """The least singular value, of m rows and unit columns, that T'T can tell from zero."""
    return 10.0 * math.sqrt(math.sqrt(m) * fmt.unit_roundoff)


def gram_flops(T: Matrix) -> float:
    """Operations of T'T, of which one triangle is computed."""
    if T.is_sparse:
        return float(T.entries) ** 2 / T.shape[0]  # as if all rows were equally full
    return float(T.entries) * (T.shape[1] + 1)


def _float64(X: Vector) -> Vector:
    return X.astype(np.float64, copy=False)
