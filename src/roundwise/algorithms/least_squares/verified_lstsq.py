"""One attempt of `roundwise.lstsq`: refine with factors of one action, and pass the gate or not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.algorithms.accuracy import default_tolerance, passes
from roundwise.algorithms.base import Outcome, OutcomeStatus, Shared
from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.least_squares.augmented import (
    AugmentedFactors,
    AugmentedMatrix,
    residual_errors,
)
from roundwise.algorithms.least_squares.certificate import judged
from roundwise.algorithms.least_squares.ls_ir import (
    augmented_factors,
    refine_augmented,
    shared_augmented,
)
from roundwise.algorithms.least_squares.scaling import ScaledLeastSquares
from roundwise.algorithms.refinement import Correction, Refined, Substitution, by_columns
from roundwise.algorithms.stage import Stages, Vector
from roundwise.algorithms.stopping import BudgetRule, HalvingRule, StoppingRule
from roundwise.backends import ArithmeticFailure
from roundwise.formats import FP32, FP64, FloatFormat

Array = NDArray[np.float64]

INNER_TOLERANCE, RESTART, BUDGET = 1e-6, 20, 40
"""Settings of GMRES; after BUDGET iterations for a column, better factors are cheaper."""

TARGET = 0.8
"""Refinement goes on to this share of the tolerance: rounding x to its type costs the rest."""


def target_error(m: int, n: int, dtype: Any) -> float:
    """The backward error that the gate accepts: ``sqrt(m + n) u``, and at least ``6 u``.

    m + n are the equations of the augmented system. Rounding x and y of minimum norm to float64
    can cost 5 u.
    """
    fmt: FloatFormat = FP32 if dtype == np.float32 else FP64
    return max(default_tolerance(m + n, fmt), 6 * fmt.unit_roundoff)


@dataclass(eq=False)
class Attempt:
    """The result of trying an action."""

    outcome: Outcome
    x: NDArray[Any] | None = None  # as it would be returned
    X: Array | None = None  # x and its witness, stacked, in the scale of the system
    R: Array | None = None  # the residual of X
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
        return _Attempt(scaled, stages, M, A, matrix, tolerance, dtype).run()
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

    def run(self) -> Attempt:
        stages = self.stages
        by_factors = Substitution(stages["factor"], self.M)
        rule = HalvingRule(TARGET * self.tolerance)
        found = self._refined(by_factors, by_factors, rule)
        if found.X is None:
            return Attempt(Outcome(found.status, None, reason=found.reason), M=self.M)
        steps, iterations, last = found.progress.steps, 0, found
        x, X, R, bounds = self._judged(found.best, found)
        if not passes(bounds, self.tolerance):
            applied, best = self.M.to(stages["gmres"].fmt), found.best
            for column in np.flatnonzero(~(bounds <= self.tolerance)).tolist():
                last = self._by_gmres(best[:, [column]], [column], applied)
                best[:, [column]] = last.best
                steps += last.progress.steps
                iterations += last.progress.inner_iterations
                if not last.errors[0] <= self.tolerance:
                    break  # the other columns share the matrix
            x, X, R, bounds = self._judged(best)
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
        return Attempt(outcome, x if math.isfinite(worst) else None, X, R, self.M)

    def _judged(
        self, X: Array, found: Refined | None = None
    ) -> tuple[NDArray[Any], Array, Array, Array]:
        """x as it is returned, X with it, its residual, and the bounds of its backward errors.

        Refinement has judged X already, and that holds unless x is another one once it is rounded.
        """
        system = self.scaled.system
        x = self.scaled.solution(X).astype(self.dtype, copy=False)
        stacked = self.scaled.with_solution(X, x)
        if found is not None and found.R is not None and self._known is not None:
            same = np.array_equal(system.x(stacked), system.x(X))
            if same and passes(found.errors, self.tolerance):
                return x, X, found.R, found.errors
        bounds, R = judged(system, stacked, self.tolerance)
        return x, stacked, R, bounds

    @cached_property
    def _known(self) -> tuple[float, float] | None:
        """The errors of the residual stage; None if they are not known."""
        errors = residual_errors(self.stages["residual"], self.A.T)
        return errors if all(map(math.isfinite, errors)) else None

    def _refined(
        self, start: Any, correct: Any, rule: StoppingRule, columns: Any = slice(None)
    ) -> Refined:
        _, update, _, residual = self.stages.values()
        stages = residual, update, rule, self.matrix
        return refine_augmented(self.scaled, start, correct, *stages, columns, self._known)

    def _by_gmres(self, start: Array, columns: list[int], applied: AugmentedFactors) -> Refined:
        inner = self.stages["gmres"]

        def solve(r: Vector) -> Correction:
            return gmres(inner, self.A, applied, r, INNER_TOLERANCE, RESTART, 1)

        rule = BudgetRule(TARGET * self.tolerance, BUDGET, slow=0.5)
        return self._refined(start, by_columns(solve), rule, columns)
