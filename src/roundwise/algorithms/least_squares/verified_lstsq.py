"""One attempt of `roundwise.lstsq`: refine with factors of one action, and pass the gate or not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms.accuracy import default_tolerance, passes
from roundwise.algorithms.base import Outcome, OutcomeStatus, Shared
from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.least_squares.augmented import AugmentedFactors, AugmentedMatrix
from roundwise.algorithms.least_squares.certificate import proven_errors
from roundwise.algorithms.least_squares.ls_ir import (
    augmented_factors,
    refine_augmented,
    shared_augmented,
)
from roundwise.algorithms.least_squares.scaling import ScaledLeastSquares
from roundwise.algorithms.refinement import Correction, Refined, Substitution, by_columns
from roundwise.algorithms.stage import Stages, Vector
from roundwise.algorithms.stopping import BudgetRule, HalvingRule
from roundwise.backends import ArithmeticFailure
from roundwise.formats import FP32, FP64, FloatFormat

Array = NDArray[np.float64]

INNER_TOLERANCE, RESTART, BUDGET = 1e-6, 20, 40
"""Of GMRES; after so many iterations for one column the next factors are the better deal."""


def target_error(m: int, n: int, dtype: Any) -> float:
    """The backward error that the gate accepts: ``sqrt(m + n) u``, and at least ``6 u``.

    m + n are the equations of the augmented system. Rounding x and y of minimum norm to float64
    can cost 5 u.
    """
    fmt: FloatFormat = FP32 if dtype == np.float32 else FP64
    return max(default_tolerance(m + n, fmt), 6 * fmt.unit_roundoff)


@dataclass(eq=False)
class Attempt:
    """What came of an action."""

    outcome: Outcome
    X: Array | None = None  # stacked, in the scale of the system
    x: NDArray[Any] | None = None  # as it would be returned
    M: AugmentedFactors | None = None


def attempt(
    scaled: ScaledLeastSquares,
    stages: Stages,
    shared: Shared,
    tolerance: float,
    dtype: Any,
    M: AugmentedFactors | None = None,
) -> Attempt:
    """Factorize, unless factors are given, refine every column, and judge what is returned."""
    factor, inner = stages["factor"], stages["gmres"]
    matrix = partial(shared_augmented, scaled=scaled, shared=shared)
    try:
        A = matrix(inner)
        if M is None:
            M = shared.get(
                ("factors", stages.method, factor.fmt),
                lambda: augmented_factors(factor, inner, A, scaled.system.T, stages.method, shared),
                factor,
            )
        made = _Attempt(scaled, stages, M, A, matrix, tolerance, dtype)
        return made.run()
    except ArithmeticFailure as failure:
        return Attempt(Outcome.from_failure(failure), M=M)


@dataclass(eq=False)
class _Attempt:
    scaled: ScaledLeastSquares
    stages: Stages
    M: AugmentedFactors
    A: AugmentedMatrix
    matrix: Any
    tolerance: float
    dtype: Any

    @np.errstate(all="ignore")  # infinity and NaN never pass the gate
    def run(self) -> Attempt:
        factor, update, inner, residual = self.stages.values()
        # What the float64 residuals of large problems leave open is about half of the tolerance.
        target = self.tolerance * (0.4 if self.scaled.system.n > 100 else 0.8)
        by_factors = Substitution(factor, self.M)
        rule = HalvingRule(target)
        found = refine_augmented(
            self.scaled, by_factors, by_factors, residual, update, rule, self.matrix
        )
        if found.X is None:
            return Attempt(Outcome(found.status, None, reason=found.reason), M=self.M)
        X, steps, iterations, last = found.best, found.progress.steps, 0, found
        x, bounds = self._judged(X)
        if not passes(bounds, self.tolerance):
            applied = self.M.to(inner.fmt)
            for column in np.flatnonzero(~(bounds <= self.tolerance)).tolist():
                last = self._by_gmres(X[:, [column]], [column], applied, target)
                X[:, [column]] = last.best
                steps += last.progress.steps
                iterations += last.progress.inner_iterations
                if not last.errors[0] <= self.tolerance:
                    break  # the other columns share the matrix
            x, bounds = self._judged(X)
        worst, accepted = float(bounds.max(initial=0.0)), passes(bounds, self.tolerance)
        status = OutcomeStatus.CONVERGED if accepted else last.status
        if status is OutcomeStatus.CONVERGED and not accepted:
            status = OutcomeStatus.UNCONFIRMED
        outcome = Outcome(
            status,
            None,
            nbe=worst,
            outer_iterations=steps,
            inner_iterations=iterations,
            reason="" if accepted else last.reason or status.value,
        )
        return Attempt(outcome, X, x if math.isfinite(worst) else None, self.M)

    def _judged(self, X: Array) -> tuple[NDArray[Any], Array]:
        x = self.scaled.solution(X).astype(self.dtype)
        stacked = self.scaled.with_solution(X, x)
        return x, proven_errors(self.scaled.system, stacked, self.tolerance)

    def _by_gmres(
        self, start: Array, columns: list[int], applied: AugmentedFactors, target: float
    ) -> Refined:
        _, update, inner, residual = self.stages.values()

        def solve(r: Vector) -> Correction:
            return gmres(inner, self.A, applied, r, INNER_TOLERANCE, RESTART, 1)

        rule = BudgetRule(target, BUDGET, slow=0.5)
        return refine_augmented(
            self.scaled, start, by_columns(solve), residual, update, rule, self.matrix, columns
        )
