"""Condition numbers, estimated from factors of A in any format, and what such factors have lost.

For any vector y, ``||A|| ||y|| / ||A y||`` is a lower bound of A's condition number. A good y comes
from factors M of A: M^-1 stretches it most. If M is too coarse, A y is smaller than M's rounding
errors; then ``I - M^-1 A`` leaves y nearly unchanged, and shrinks the directions that M resolves.
So ``Y - M^-1 A Y``, again and again, ends with the directions that M has lost (`sharpened`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import cached_property
from roundwise.backends import ArithmeticFailure, Backend, Factors, Matrix
from roundwise.backends.arrays import on_host
from roundwise.backends.native import exact
from roundwise.formats import FP32, FP64

Array = NDArray[np.float64]

RESOLVED = 0.25
"""Factors M resolve a vector y if ``||y - M^-1 A y|| <= RESOLVED ||y||``. Errors then shrink by
that in a correction, and one more of them estimates what is left. (A taste: well below 1/2.)"""

LOST = 16.0
"""Pivots, and images of vectors, below this multiple of the factors' rounding errors count as lost
to these. (A taste: rounding errors of pivots are seldom that many times larger.)"""

DIRECTIONS = 6
"""How many directions that factors have lost are told apart. (A taste: few matrices have more.)"""

STEPS = 12
"""How often what factors resolve is shrunk, at most: by a quarter each time, as they resolve it."""

GAIN = 4.0
"""Shrinking goes on as long as two steps make the lower bound grow by this factor."""

POWER_STEPS = 5
"""Steps of the power method: they are seldom off by more than a factor of ten."""

QR_ROWS = 512
"""Rows of a tall matrix whose QR factorization LAPACK leaves to one thread."""


class SupportsSolve(Protocol):
    """All that an estimate asks of a factorization; `roundwise.backends.Factors` has it."""

    def solve(self, b: NDArray[Any], transpose: bool = False) -> Array:
        """``A^-1 b``, or ``A^-T b``, for a block b of columns."""


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def condition_estimate(A: Any, solver: SupportsSolve, norm: float | None = None) -> float:
    """`kappa_est` of a dense or sparse matrix, with a solver applied as it is.

    ``||A||_1`` is computed unless `norm` is given.
    """
    return stretched_vector(A, solver, norm)[0]


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def stretched_vector(
    A: Any, solver: SupportsSolve, norm: float | None = None
) -> tuple[float, Array | None]:
    """The condition estimate with the y that it is from, which A maps to almost nothing.

    ``||A||_1 ||y||_1 / ||A y||_1`` is the estimate if the solver is exact, and a lower bound of the
    condition number whatever the solver. There is no y if applying the inverse overflows.
    """
    norm = np.asarray(abs(A).sum(axis=0)).max() if norm is None else norm

    def apply(X: Array, transpose: bool = False) -> Array:
        # Scaled by ||A||_1 here, so that only an ill-conditioned A overflows, not a small one.
        Y = on_host(solver.solve(norm * X, transpose=transpose))
        if not np.isfinite(Y).all():
            raise OverflowError
        return Y

    try:
        return _one_norm_estimate(apply, A.shape[0])
    except ArithmeticError:  # also a kernel's ArithmeticFailure; A and its factors are finite
        return math.inf, None


def _one_norm_estimate(apply: Callable[..., Array], n: int, steps: int = 5) -> tuple[float, Array]:
    """Lower bound of ``||B||_1``, where ``apply(X)`` is B X and ``apply(X, True)`` is B' X.

    It is the 1-norm of the vector that is returned, too: B x for an x of norm 1.
    """
    if n <= 2:
        Y = apply(np.eye(n))
        norms = np.abs(Y).sum(axis=0)
        return float(norms.max()), Y[:, int(norms.argmax())]
    i = np.arange(n)
    X = np.column_stack([np.ones(n), np.where(i % 2, -1.0, 1.0) * (1 + i / (n - 1))])
    X /= np.abs(X).sum(axis=0)
    estimate, chosen, visited = 0.0, None, np.zeros(n, dtype=bool)
    longest = np.zeros(n)
    for _ in range(steps):
        Y = apply(X)
        norms = np.abs(Y).sum(axis=0)
        best = int(np.argmax(norms))
        if norms[best] <= estimate:
            break
        estimate, longest = float(norms[best]), Y[:, best]
        # A subgradient of ||B x||_1; the unit vectors along its largest entries come next.
        h = np.abs(apply(np.where(Y < 0, -1.0, 1.0), True)).max(axis=1)
        if chosen is not None and h[chosen[best]] >= h.max():
            break
        h[visited] = -1.0
        chosen = np.argsort(-h, kind="stable")[:2]
        visited[chosen] = True
        X = np.where(i[:, None] == chosen, 1.0, 0.0)
    return estimate, longest


def largest_eigenvalue(apply: Callable[[Array], Array], v: Array) -> float:
    """About that of a symmetric matrix without negative ones, from below.

    By the power method from v; ``apply`` is the product with the matrix.
    """
    size = float(np.linalg.norm(v))
    for _ in range(POWER_STEPS):
        v = apply(v / size)
        size = float(np.linalg.norm(v))
    return size


def sharpened(Y: Array, images: Array, solve: Callable[[Array], Array]) -> Array:
    """An orthonormal basis of ``Y - M^-1 A Y``: what M resolves has shrunk, what it lost has not.

    `images` are ``A Y``; `solve` applies M^-1 to columns.
    """
    return orthonormal(Y - solve(images))


def orthonormal(Y: Array) -> Array:
    """An orthonormal basis of the columns' span, each of which is scaled first."""
    sizes = np.abs(Y).max(axis=0)
    return np.asfortranarray(orthogonal_factors(Y / np.where(sizes > 0, sizes, 1.0))[0])


def orthogonal_factors(Y: Array) -> tuple[Array, Array]:
    """Q and R of a matrix with few columns, by LAPACK on one thread.

    Given the whole matrix, LAPACK would wake BLAS's threads, which go on spinning beside the next
    LU. So it factorizes blocks of rows, and then their triangles (TSQR, Demmel et al., SIAM J.
    Sci. Comput. 34(1), 2012).
    """
    if len(Y) <= QR_ROWS:
        return np.linalg.qr(Y)
    parts = [np.linalg.qr(Y[i : i + QR_ROWS]) for i in range(0, len(Y), QR_ROWS)]
    Q, R = orthogonal_factors(np.vstack([R for _, R in parts]))
    bounds = np.cumsum([len(R) for _, R in parts])[:-1]
    pieces = zip(parts, np.split(Q, bounds), strict=True)
    return np.vstack([first @ second for (first, _), second in pieces]), R


@dataclass(frozen=True)
class ConditionEstimate:
    """A's condition number as some factors show it, and whether they can."""

    condition: float  # of A in the 1-norm, at least
    rate: float
    """The share of an error that the factors leave along the vector A shrinks most. Below 1, they
    tell A from a singular matrix; from `RESOLVED` on, they are too coarse to estimate errors."""


class Conditioning:
    """Condition estimates of a dense or sparse float64 matrix, from factors of it.

    Vectors are NumPy's, wherever the matrix and its factors are.
    """

    def __init__(self, A: Any, backend: Backend) -> None:
        self.A, self._backend = A, backend

    @cached_property
    def norm_one(self) -> float:
        return self._backend.sizes(self.A.T)[0]

    @cached_property
    def norm_inf(self) -> float:
        return self._backend.sizes(self.A)[0]

    def lower_bound(self, y: Array) -> float:
        """``||A|| ||y|| / ||A y||`` in the 1-norm, where A y is computed in twice the precision."""
        y = y[:, None] / np.abs(y).max()
        length = np.abs(y).sum()
        image = np.abs(self._negative_image(y)).sum()
        image += exact.error_of(len(y)) * self.norm_one * length
        return float(self.norm_one * length / image) if image else math.inf

    @np.errstate(all="ignore")
    def quick_estimate(self, factors: Factors) -> ConditionEstimate:
        """An estimate by LAPACK's estimator alone: for factors that are not low."""
        try:
            return self._stretched(factors.to(FP64))[0]
        except ArithmeticFailure:
            return ConditionEstimate(1.0, math.inf)

    @np.errstate(all="ignore")
    def estimate(self, factors: Factors) -> ConditionEstimate:
        """An estimate for any factors: directions that they have lost are searched for."""
        best = ConditionEstimate(1.0, 0.0)
        found: list[float] = []
        try:
            M = factors.to(FP64)
            best, y = self._stretched(M)
            if y is None or self._has_lost_nothing(M):
                return best
            starts = np.column_stack([y, _solutions(M, _noise(len(y), DIRECTIONS - 1))])
            for y in self._weakest(M, starts):
                condition = max(best.condition, self.lower_bound(y))
                best = ConditionEstimate(condition, max(best.rate, self._rate(M, y)))
                found.append(condition)
                if _settled(found):
                    break
        except (ArithmeticFailure, np.linalg.LinAlgError):  # something overflowed
            return ConditionEstimate(best.condition, math.inf)
        return best

    @np.errstate(all="ignore")
    def is_resolved_by(self, factors: Factors) -> bool:
        """Whether factors M tell A from a singular matrix, by two substitutions.

        A random right-hand side, in units of the rows' sizes, is stretched to y. If A is singular,
        M^-1 A leaves next to nothing of y; if M resolves A, less than `RESOLVED` of it is missing.
        Numbers are compared in units of the columns' sizes: one of tiny entries would hide others.
        """
        sizes = abs(self.A)
        rows = np.asarray(on_host(sizes.sum(axis=1))).ravel()
        if sparse.issparse(sizes):
            columns = (sizes.T @ sparse.diags_array(1.0 / rows)).max(axis=1).toarray().ravel()
        else:
            columns = on_host((sizes / self._backend.array(rows)[:, None]).max(axis=0))
        try:
            M = factors.to(FP64)
            y = on_host(M.solve(rows * _noise(len(rows), 1)[:, 0]))[:, None]
            left = y + on_host(M.solve(self._negative_image(y)))
        except ArithmeticFailure:
            return False
        units = columns[:, None]
        return bool(np.abs(units * left).max() < RESOLVED * np.abs(units * y).max())

    @np.errstate(all="ignore")
    def hidden_by(self, factors: Factors, norm: float) -> float:
        """A lower bound of the condition number that low factors may hide; infinite on overflow.

        M^-1 stretches a random vector to y. If M resolves all of y, two substitutions show that
        nothing is hidden. Otherwise the part that M resolves is removed from y, again and again, so
        that A maps the rest to ever less. `norm` is A's infinity norm.
        """
        n, backend = self.A.shape[0], self._backend
        try:
            # Where A is: most matrices on a GPU are through after two substitutions.
            y = factors.solve(backend.array(_noise(n, 1)[:, 0]))
            y = y / abs(y).max()
            image = backend.matrix(self.A, FP64).matvec(y)
            found = [norm / (float(abs(image).max()) + n * FP64.unit_roundoff * norm)]
            left = y - factors.solve(image)
            if not math.isfinite(size := float(abs(left).max())):
                return math.inf  # as on a processor, where substitution itself fails
            if size <= RESOLVED:
                return float(found[0])
            left = on_host(left)
            while np.abs(left).max() > RESOLVED and len(found) <= STEPS:
                y = (left / np.abs(left).max())[:, None]
                image = -self._negative_image(y)[:, 0]
                found.append(norm / (float(np.abs(image).max()) + exact.error_of(n) * norm))
                if found[-1] < GAIN * found[-2]:
                    break
                left = y[:, 0] - on_host(factors.solve(image))
        except ArithmeticFailure:
            return math.inf
        return float(max(found))

    @np.errstate(all="ignore")
    def may_exceed(self, condition: float, factors: Factors, lost: int) -> bool:
        """Whether low factors, which lost so many directions, may hide so large a condition.

        This takes a few substitutions with them, and as many products.
        """
        found: list[float] = []
        try:
            M = factors if factors.fmt == FP32 else factors.to(FP64)
            starts = _solutions(M, _noise(self.A.shape[0], min(lost + 1, DIRECTIONS)))
            for y in self._weakest(M, starts):
                found.append(self.lower_bound(y))
                if not found[-1] < condition:
                    return True
                if _settled(found):
                    return False
        except (ArithmeticFailure, np.linalg.LinAlgError):
            return True
        return False

    def _stretched(self, M: Factors) -> tuple[ConditionEstimate, Array | None]:
        """The estimate of LAPACK's estimator with its vector; None if it finds none."""
        _, y = stretched_vector(self.A, M, self.norm_one)
        if y is None or not y.any():
            return ConditionEstimate(1.0, math.inf), None
        return ConditionEstimate(self.lower_bound(y), self._rate(M, y)), y

    def _weakest(self, M: Factors, Y: Array) -> Iterator[Array]:
        """The combination of Y's columns that A maps to the least, improved step by step."""
        Y = orthonormal(Y)
        for _ in range(STEPS):
            images = self._images(Y)
            least = np.linalg.svd(orthogonal_factors(images)[1])[2][-1]
            yield np.einsum("ij,j->i", Y, least)
            Y = sharpened(Y, images, lambda B: _solutions(M, B))

    @cached_property
    def _matrix(self) -> Matrix:
        return self._backend.matrix(self.A, FP64)

    def _images(self, Y: Array) -> Array:
        """``A Y`` column by column, which our own threads compute."""
        return np.column_stack([on_host(self._matrix.matvec(y)) for y in Y.T])

    def _has_lost_nothing(self, M: Factors) -> bool:
        """Whether ``||I - M^-1 A|| < RESOLVED`` in the 2-norm, as good as surely.

        For a matrix G and normally distributed v, ``||G v|| < ||G|| / 100`` has a probability below
        0.008; for two of them it is below 1e-4.
        """
        V = _noise(self.A.shape[0], 2)
        left = V - _solutions(M, self._images(V))
        return bool(100 * np.linalg.norm(left, axis=0).max() < RESOLVED)

    def _rate(self, M: Factors, y: Array) -> float:
        """``||y - M^-1 A y|| / ||y||`` in the max norm."""
        y = y[:, None] / np.abs(y).max()
        left = y + on_host(M.solve(self._negative_image(y)))
        return float(np.abs(left).max())

    def _negative_image(self, y: Array) -> Array:
        """``-A y`` in twice the precision."""
        return on_host(exact.doubled_residual(self._backend, self.A, y, np.zeros_like(y)))


def _settled(conditions: list[float]) -> bool:
    return len(conditions) > 2 and conditions[-1] < GAIN * conditions[-3]


def _noise(n: int, columns: int) -> Array:
    return np.random.default_rng(0).standard_normal((n, columns))


def _solutions(M: Factors, B: Array) -> Array:
    """Dense ones column by column: BLAS's threads for blocks would slow down the next LU."""
    if M.is_sparse:
        return np.asarray(M.solve(B))
    return np.column_stack([on_host(M.solve(b)) for b in B.T])
