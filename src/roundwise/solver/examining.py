"""How far an answer is to be trusted: its digits, A's condition number, and whether A is singular.

A plain solve looks for signs of trouble that cost next to nothing, and examines A and x only where
it finds one; `full_output` always examines.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from roundwise.algorithms.accuracy import default_tolerance
from roundwise.algorithms.error_bound import PROVED_UP_TO, proved_errors, relative_errors
from roundwise.algorithms.singularity import Singularity, examine
from roundwise.backends import ArithmeticFailure, Backend, Factors
from roundwise.backends.native import exact
from roundwise.backends.native.dense import getrf
from roundwise.exceptions import IllConditionedWarning
from roundwise.features import stretched_vector
from roundwise.formats import FP64
from roundwise.solver.inputs import GivenColumns, GivenMatrix
from roundwise.solver.solution import right_digits

Array = NDArray[np.float64]

FEW_DIGITS = 1e-3
"""The relative error from which on a solve warns."""

SUSPICIOUS = 1e-10
"""Pivots that differ by this factor, or an x that is as much smaller than it could be, are a sign
of trouble. The condition number is then perhaps beyond 1e13, where few digits are left."""

HARMLESS = 1e12
"""With a condition number below that, FP64 residuals leave some digits right."""

RESOLVED = 0.25
"""Factors tell A from a singular matrix if they bring A's weakest direction back to this part."""

SAFETY = 2.0
"""An estimated error is this multiple of what one more correction would change."""

CERTAIN = 10.0
"""The same, where only the condition number and the backward error are known."""

LOST = 6
"""How many directions that low factors lost are told apart."""

PURIFICATIONS = 3
"""How often other directions are shrunk."""

_PROVED = "proved, all rounding errors counted"
_CORRECTED = "estimated from one more correction of x"
_CONDITIONED = "estimated from the condition number and the backward error"
_UNKNOWN = "A is singular to working precision, or close to it: no digit is certain"

_U, _ETA = 2.0**-53, 2.0**-1074


@dataclass(frozen=True)
class Accuracy:
    """What is known about the error of an answer."""

    error: float  # ||x - x_true|| / ||x_true|| at most, or about; infinite if no digit is certain
    is_proved: bool
    how: str  # it was obtained
    condition: float  # at least

    @property
    def kind(self) -> str:
        return "bound" if self.is_proved else "estimate"


UNEXAMINED = Accuracy(math.nan, False, "not asked for", math.nan)


def warn_of(found: Accuracy) -> None:
    """Warn of few digits, at the line that called into Roundwise."""
    digits = right_digits(found.error)
    count = "no digit" if digits == 0 else "one digit" if digits == 1 else f"{digits} digits"
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("roundwise."):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"{count} of x can be relied on: A's condition number is at least {found.condition:.1e}. "
        "x solves a system that differs from yours by rounding errors only "
        "(full_output=True tells more)",
        IllConditionedWarning,
        stacklevel=level,
    )


class Examiner:
    """Examines one matrix, and answers for it; what it finds out about the matrix is kept."""

    def __init__(self, matrix: GivenMatrix, backend: Backend) -> None:
        self._matrix, self._backend = matrix, backend
        self._signs: tuple[Factors, bool] | None = None  # of trouble, in the factors last seen

    @cached_property
    def singularity(self) -> Singularity:
        """Whether A is singular, as far as that can be known."""
        return examine(self._matrix.A) if self._matrix.is_exact else Singularity.UNDECIDED

    @np.errstate(all="ignore")
    def suspects(self, factors: Factors, X: Array, columns: GivenColumns) -> bool:
        """Whether A or an answer shows signs of trouble, at next to no cost.

        Nothing proves that there are none: a matrix can hide its condition from its pivots.
        """
        matrix = self._matrix
        sizes = matrix.norm * matrix.solution_norms(X)
        if (SUSPICIOUS * sizes > matrix.residual_norms(columns.B)).any():
            return True
        return self.shows_signs(factors)

    def shows_signs(self, factors: Factors) -> bool:
        """Whether the factors of A do; looked for once."""
        if self._signs is None or self._signs[0] is not factors:
            self._signs = factors, self._signs_of(factors)
        return self._signs[1]

    def _signs_of(self, factors: Factors) -> bool:
        pivots, n = factors.pivots, self._matrix.n
        limit = max(SUSPICIOUS, default_tolerance(n, factors.fmt))
        if pivots is not None:
            return bool(pivots.min() < limit * pivots.max())
        probe = np.where(np.random.default_rng(0).random(n) < 0.5, -1.0, 1.0)
        try:
            y = factors.solve(probe)
        except ArithmeticFailure:
            return True
        return not limit * self._norms[1] * np.abs(y).max() < 1

    @cached_property
    def _norms(self) -> tuple[float, float]:
        """The 1-norm and the infinity norm of the scaled A."""
        A = self._matrix.A
        return self._backend.sizes(A.T)[0], self._backend.sizes(A)[0]

    @np.errstate(all="ignore")
    def accuracy(
        self, factors: Factors, X: Array, columns: GivenColumns, backward_error: float
    ) -> Accuracy:
        """What is known about the error of X, which `factors` helped to find.

        X is the scaled answer. A bound is proved if n is small and A not too close to a singular
        matrix; the error is estimated otherwise.
        """
        residual = exact.residual(self._matrix.A, X, columns.B)
        if self._matrix.n <= PROVED_UP_TO and self._inverse is not None:
            bounds = self._proved(X, columns, residual)
            if math.isfinite(bounds):
                return Accuracy(bounds, True, _PROVED, self._condition_of(self._longest_column))
        weakest = self.weakest_direction(factors)
        return self._estimated(weakest, factors, X, columns, residual, backward_error)

    def examined(
        self, factors: Factors, X: Array, columns: GivenColumns, backward_error: float
    ) -> Accuracy:
        """The same, with FP64 factors if low ones cannot tell A from a singular matrix."""
        found = self.accuracy(factors, X, columns, backward_error)
        if math.isfinite(found.error) or factors.fmt == FP64:
            return found
        try:
            better = self._backend.matrix(self._matrix.A, FP64).lu()
        except ArithmeticFailure:
            return found
        return self.accuracy(better, X, columns, backward_error)

    def looked_at(
        self, factors: Factors, X: Array, columns: GivenColumns, backward_error: float
    ) -> Accuracy:
        """`examined`, after signs of trouble, unless those of low factors mean nothing."""
        if factors.fmt != FP64 and self.weakest_direction(factors).condition < HARMLESS:
            return UNEXAMINED
        return self.examined(factors, X, columns, backward_error)

    def _estimated(
        self,
        weakest: Direction,
        factors: Factors,
        X: Array,
        columns: GivenColumns,
        residual: Array,
        backward_error: float,
    ) -> Accuracy:
        condition = weakest.condition
        if weakest.rate < RESOLVED:
            try:
                Z = factors.solve(residual)
                Z = np.abs(Z) + np.abs(factors.solve(exact.residual(self._matrix.A, Z, residual)))
            except ArithmeticFailure:
                return Accuracy(math.inf, False, _UNKNOWN, condition)
            errors = SAFETY / (1 - weakest.rate) * Z
            error = float(relative_errors(errors, X, columns.exponents).max(initial=0.0))
            return Accuracy(error, False, _CORRECTED, condition)
        error = CERTAIN * condition * max(backward_error, _U)
        if factors.fmt == FP64 or self._matrix.columns is not None or not error < 1:
            return Accuracy(math.inf, False, _UNKNOWN, condition)
        return Accuracy(error, False, _CONDITIONED, condition)

    def _proved(self, X: Array, columns: GivenColumns, residual: Array) -> float:
        A, n = self._dense, self._matrix.n
        size = (np.abs(A) @ np.abs(X) + np.abs(columns.B)) * (1 + (n + 4) * _U)
        uncertainty = 1.01 * (_U * np.abs(residual) + exact.error_of(n) * size)
        uncertainty = np.where(size > 0, uncertainty + 8 * (n + 1) * _ETA, 0.0)
        errors = proved_errors(self._inverse, A, X, residual, uncertainty)
        return float(relative_errors(errors, X, columns.exponents).max(initial=0.0))

    @cached_property
    def _dense(self) -> Array:
        A = self._matrix.A
        return np.asarray(A.toarray() if self._matrix.is_sparse else A)

    @cached_property
    def _inverse(self) -> Array | None:
        """An approximation of ``A^-1``; None if it cannot be computed in FP64."""
        with np.errstate(all="ignore"):
            lu, swaps, info = getrf(np.array(self._dense, order="F"))
            if info != 0:
                return None
            inverse, info = lapack.dgetri(lu, swaps)
        return inverse if info == 0 and np.isfinite(inverse).all() else None

    @property
    def _longest_column(self) -> Array:
        assert self._inverse is not None
        return np.asarray(self._inverse[:, np.abs(self._inverse).sum(axis=0).argmax()])

    def _condition_of(self, y: Array) -> float:
        """``||A|| ||y|| / ||A y||`` in the 1-norm: no condition number is below that."""
        y = y / np.abs(y).max()
        image = exact.residual(self._matrix.A, y[:, None], np.zeros((len(y), 1)))
        bound = np.abs(image).sum() + exact.error_of(len(y)) * self._norms[0] * np.abs(y).sum()
        return float(self._norms[0] * np.abs(y).sum() / bound) if bound else math.inf

    def weakest_direction(self, factors: Factors) -> Direction:
        """A y that A maps to as little as these factors can tell, and how well they can."""
        M = factors.to(FP64)
        _, y = stretched_vector(self._matrix.A, M, self._norms[0])
        if y is None or not y.any():
            return Direction(math.inf, math.inf)
        rate, condition = self._rate(M, y), self._condition_of(y)
        if factors.fmt != FP64 and not rate < RESOLVED:
            y = self._purified(M, y)
            condition = max(condition, self._condition_of(y))
        return Direction(condition, rate)

    def _rate(self, M: Factors, y: Array) -> float:
        """``||y - M^-1 A y|| / ||y||``: near 1 if A maps y to less than the factors can tell."""
        y = y[:, None] / np.abs(y).max()
        try:
            left = y + M.solve(exact.residual(self._matrix.A, y, np.zeros_like(y)))
        except ArithmeticFailure:
            return math.inf
        return float(np.abs(left).max())

    def _purified(self, M: Factors, y: Array) -> Array:
        """Of a few directions that the factors lost, the one that A maps to the least.

        ``I - M^-1 A`` keeps those that A maps to less than the factors can tell from nothing, and
        shrinks all others.
        """
        A, n = self._matrix.A, self._matrix.n
        starts = np.random.default_rng(0).standard_normal((n, min(n, LOST) - 1))
        Y, _ = np.linalg.qr(np.column_stack([y, M.solve(starts)]) if starts.size else y[:, None])
        for _ in range(PURIFICATIONS):
            Y, _ = np.linalg.qr(Y - M.solve(np.asarray(A @ Y)))
        combinations = np.linalg.svd(np.asarray(A @ Y), full_matrices=False)[2]
        return np.asarray(Y @ combinations[-1])


@dataclass(frozen=True)
class Direction:
    """What A does to a vector that it maps to little."""

    condition: float  # of A, at least, as the vector proves
    rate: float  # what is left of the vector after the factors have solved for it
