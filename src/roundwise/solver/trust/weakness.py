"""The direction in which a matrix is weakest: it tells the condition number, and what factors miss.

For any vector y, ``||A|| ||y|| / ||A y||`` is a lower bound of A's condition number. A good y comes
from factors M of A, in any format. If M is too coarse, A y is smaller than M's rounding errors;
then ``I - M^-1 A`` leaves y nearly unchanged, and shrinks the directions that M resolves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import cached_property
from roundwise.backends import ArithmeticFailure, Backend, Factors, Matrix
from roundwise.backends.arrays import on_host
from roundwise.backends.doubled import doubled_residual
from roundwise.backends.native import exact
from roundwise.features import stretched_vector
from roundwise.formats import FP32, FP64

Array = NDArray[np.float64]

DIRECTIONS = 6
"""How many directions that factors lost are told apart."""

STEPS = 12
"""How often others are shrunk, at most."""

QR_ROWS = 512
"""Rows of a tall matrix whose QR factorization LAPACK leaves to one thread."""

GAIN = 4.0
"""They are shrunk as long as two steps make the bound of the condition number grow by this."""


TOLD = 0.25
"""Of a stretched vector, factors that have lost nothing leave less than that."""


@dataclass(frozen=True)
class Weakness:
    """What A does to the vector that it maps to the least, as far as some factors show it."""

    condition: float  # of A in the 1-norm, at least
    rate: float
    """What the factors leave of the vector's error. Below 1, they tell A from a singular matrix."""


class Weighed:
    """A dense or sparse float64 matrix, and its norms.

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

    def condition_from(self, y: Array) -> float:
        """``||A|| ||y|| / ||A y||`` in the 1-norm, where A y is computed in twice the precision."""
        y = y[:, None] / np.abs(y).max()
        length = np.abs(y).sum()
        image = np.abs(self._negative_image(y)).sum()
        image += exact.error_of(len(y)) * self.norm_one * length
        return float(self.norm_one * length / image) if image else math.inf

    @np.errstate(all="ignore")
    def weakness(self, factors: Factors) -> Weakness:
        """Where A is weakest, as factors of it tell."""
        condition, rate = 1.0, 0.0
        found: list[float] = []
        try:
            M = factors.to(FP64)
            _, y = stretched_vector(self.A, M, self.norm_one)
            if y is None or not y.any():
                return Weakness(1.0, math.inf)
            condition, rate = self.condition_from(y), self._rate(M, y)
            if self._tells_all(M):
                return Weakness(condition, rate)
            starts = np.column_stack([y, _solutions(M, _noise(len(y), DIRECTIONS - 1))])
            for y in self._weakest(M, starts):
                condition = max(condition, self.condition_from(y))
                rate = max(rate, self._rate(M, y))
                found.append(condition)
                if _settled(found):
                    break
        except (ArithmeticFailure, np.linalg.LinAlgError):  # something overflowed
            return Weakness(condition, math.inf)
        return Weakness(condition, rate)

    @np.errstate(all="ignore")
    def quick_weakness(self, factors: Factors) -> Weakness:
        """The same for factors that are not low, from LAPACK's estimator alone."""
        try:
            M = factors.to(FP64)
            _, y = stretched_vector(self.A, M, self.norm_one)
            if y is None or not y.any():
                return Weakness(1.0, math.inf)
            return Weakness(self.condition_from(y), self._rate(M, y))
        except ArithmeticFailure:
            return Weakness(1.0, math.inf)

    @np.errstate(all="ignore")
    def resolved_by(self, factors: Factors, share: float) -> bool:
        """Whether factors M tell A from a singular matrix, by two substitutions.

        A random right-hand side, in units of the rows' sizes, is stretched to y. If A is singular,
        M^-1 A leaves next to nothing of y; if M resolves A, less than this share of it is missing.
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
        return bool(np.abs(units * left).max() < share * np.abs(units * y).max())

    @np.errstate(all="ignore")
    def hidden_condition(self, factors: Factors, norm: float) -> float:
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
            if size <= TOLD:
                return float(found[0])
            left = on_host(left)
            while np.abs(left).max() > TOLD and len(found) <= STEPS:
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
            for y in self._weakest(
                M, _solutions(M, _noise(self.A.shape[0], min(lost + 1, DIRECTIONS)))
            ):
                found.append(self.condition_from(y))
                if not found[-1] < condition:
                    return True
                if _settled(found):
                    return False
        except (ArithmeticFailure, np.linalg.LinAlgError):
            return True
        return False

    def _weakest(self, M: Factors, Y: Array) -> Iterator[Array]:
        """The combination of Y's columns that A maps to the least, improved step by step."""
        for _ in range(STEPS):
            Y = _orthonormal(Y)
            image = self._images(Y)
            if Y.shape[1] == 1:
                yield Y[:, 0]
            else:
                least = np.linalg.svd(orthogonal_factors(image)[1])[2][-1]
                yield np.einsum("ij,j->i", Y, least)
            Y = Y - _solutions(M, image)

    @cached_property
    def _matrix(self) -> Matrix:
        return self._backend.matrix(self.A, FP64)

    def _images(self, Y: Array) -> Array:
        """``A Y`` column by column, which our own threads compute."""
        return np.column_stack([on_host(self._matrix.matvec(y)) for y in Y.T])

    def _tells_all(self, M: Factors) -> bool:
        """Whether ``||I - M^-1 A|| < 1/4`` in the 2-norm, as good as surely: then M lost nothing.

        For a matrix G and normally distributed v, ``||G v|| < ||G|| / 100`` has a probability below
        0.008; for two of them it is below 1e-4.
        """
        V = _noise(self.A.shape[0], 2)
        left = V - _solutions(M, self._images(V))
        return bool(100 * np.linalg.norm(left, axis=0).max() < 0.25)

    def _rate(self, M: Factors, y: Array) -> float:
        """``||y - M^-1 A y|| / ||y||`` in the max norm."""
        y = y[:, None] / np.abs(y).max()
        left = y + on_host(M.solve(self._negative_image(y)))
        return float(np.abs(left).max())

    def _negative_image(self, y: Array) -> Array:
        """``-A y`` in twice the precision."""
        return on_host(doubled_residual(self._backend, self.A, y, np.zeros_like(y)))


def _settled(conditions: list[float]) -> bool:
    return len(conditions) > 2 and conditions[-1] < GAIN * conditions[-3]


def _noise(n: int, columns: int) -> Array:
    return np.random.default_rng(0).standard_normal((n, columns))


def _solutions(M: Factors, B: Array) -> Array:
    """Dense ones column by column: BLAS's threads for blocks would slow down the next LU."""
    if M.is_sparse:
        return np.asarray(M.solve(B))
    return np.column_stack([on_host(M.solve(b)) for b in B.T])


def _orthonormal(Y: Array) -> Array:
    """A basis of the columns' span, each of which is scaled first."""
    sizes = np.abs(Y).max(axis=0)
    Y = Y / np.where(sizes > 0, sizes, 1.0)
    return Y if Y.shape[1] == 1 else orthogonal_factors(Y)[0]


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
