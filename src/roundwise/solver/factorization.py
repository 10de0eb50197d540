"""`Factorization`: factor once, solve many, and climb to more precision only when needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import ForkSafeLock
from roundwise.actions import Action
from roundwise.algorithms import Outcome, OutcomeStatus, Stage, Stages, VerifiedSolve
from roundwise.algorithms.verified_solve import Answer
from roundwise.backends import Analysis, ArithmeticFailure, Backend, Factors, Matrix
from roundwise.backends.native.sparse import EngineAnalysis, engine_methods
from roundwise.features import condition_estimate
from roundwise.formats import FP32, FP64, FP64X2, FloatFormat
from roundwise.solver.choosing import Choice
from roundwise.solver.inputs import GivenColumns, GivenMatrix, checked_columns
from roundwise.solver.solution import Solution, SolveFailed

BOUND_STEPS = 2
"""Corrections that a bound of the error needs."""


@dataclass(frozen=True, eq=False)
class _Try:
    """One rung of the ladder: its outcome, and what only this solve needs besides."""

    outcome: Outcome  # without x
    X: Any
    answer: Answer | None
    factors: Factors | None

    def is_final(self, action: Action) -> bool:
        """Whether no other factors would help: A is singular in FP64's LU, or x cannot be held."""
        singular = self.outcome.status is OutcomeStatus.ZERO_PIVOT and action[0] == FP64
        unholdable = self.answer is not None and self.answer.unholdable
        return (singular and action.method != "cholesky") or unholdable

    def is_as_good_as_it_gets(self, action: Action) -> bool:
        """Whether x passes the gate, and FP64 factors cannot make it more accurate."""
        return self.answer is not None and self.answer.passed and action[0] == FP64


class Factorization:
    """A factored matrix whose every answer passes the gate; `roundwise.factor` makes it.

    Later solves start with the factors that the last one ended with. Threads may share it.
    """

    def __init__(
        self,
        matrix: GivenMatrix,
        choice: Choice,
        backend: Backend,
        tol: float | None = None,
        features_seconds: float = 0.0,
        accuracy: Literal["backward", "forward"] = "backward",
    ) -> None:
        self._accuracy: Literal["backward", "forward"] = accuracy
        if accuracy == "forward":
            choice = replace(choice, ladder=_with_exact_residuals(choice.ladder))
        self._matrix, self._backend, self._choice = matrix, backend, choice
        self._tol, self._features_seconds, self._learn = tol, features_seconds, choice.learn
        self._level = 0
        self._factors: Factors | None = None  # of this level
        self._analyses: dict[str, Analysis] = {}  # by method: a climb analyses a pattern once
        self._matrices: dict[FloatFormat, Matrix] = {}  # A in the formats of products
        self._climbing = ForkSafeLock()  # what it protects is consistent after every statement

    @property
    def shape(self) -> tuple[int, int]:
        return self._matrix.n, self._matrix.n

    @property
    def action(self) -> Action:
        """What the factors in use, or to be made first, come from."""
        return self._choice.ladder[self._level]

    @property
    def format(self) -> str:
        """The method and format of the factors in use: ``lu fp32``, ``cholesky fp64``, ..."""
        return f"{self.action.method} {self.action[0]}"

    def __repr__(self) -> str:
        kind = "sparse" if self._matrix.is_sparse else "dense"
        return f"Factorization({kind} {self._matrix.n} x {self._matrix.n}, {self.format})"

    def solve(self, b: Any, *, full_output: bool = False) -> Any:
        """``A^-1 b`` for a vector or columns b, verified; a `Solution` with `full_output`.

        Raises
        ------
        SolveFailed
            If no answer passes the gate: A is singular, or as good as singular.
        """
        solution = self.run(checked_columns(b, self._matrix), full_output)
        return solution if full_output else solution.x

    def run(self, columns: GivenColumns, full_output: bool = True) -> Solution:
        """Climb from the present rung until an answer passes the gate."""
        timings = {"features": self._features_seconds, "factor": 0.0, "refine": 0.0, "verify": 0.0}
        self._features_seconds = 0.0  # later solves do not pay for it again
        least_steps = BOUND_STEPS if full_output else 0
        algorithm = VerifiedSolve(self._tol, least_steps=least_steps, accuracy=self._accuracy)
        tolerance = algorithm.target(self._matrix.n, columns.dtype)
        level, ladder = self._level, self._choice.ladder
        tries: list[_Try] = []
        while True:
            last = self._try(algorithm, level, columns, timings)
            tries.append(last)
            if last.outcome.converged or last.is_as_good_as_it_gets(ladder[level]):
                break
            higher = algorithm.rung_after(ladder, level, last.outcome.status)
            if higher is None or last.is_final(ladder[level]):
                raise _failure(tries, tolerance, columns)
            tries[-1] = last = replace(last, factors=None)  # they would stay beside the next ones
            level = higher
        attempts = tuple(one.outcome for one in tries)
        with self._climbing:  # from the first solve: later ones find the factors made
            learn, self._learn = self._learn, None
        if learn is not None:
            learn(attempts, sum(timings.values()))
        bound = condition = math.nan
        if full_output:
            start = perf_counter()
            bound, condition = self._error_bound(last, ladder[level], columns)
            timings["bound"] = perf_counter() - start
        return Solution(
            _shaped(last.X, columns),
            "accepted" if len(tries) == 1 else "escalated",
            last.outcome.action,
            last.outcome.nbe,
            tolerance,
            bound,
            condition,
            attempts,
            timings,
            self._choice.reason,
        )

    def _try(
        self,
        algorithm: VerifiedSolve,
        level: int,
        columns: GivenColumns,
        timings: dict[str, float],
    ) -> _Try:
        """One rung: its factors, and refinement with them."""
        action, start = self._choice.ladder[level], perf_counter()
        stages = Stages(algorithm.stages, action, self._backend)
        answer = factors = None
        try:
            factors = self._factors_of(level)
            made = perf_counter()
            outcome, answer = algorithm.attempt(
                (self._matrix, columns), factors, stages, self._matrix_of, columns.dtype
            )
        except ArithmeticFailure as failure:
            made = perf_counter()
            outcome = Outcome.from_failure(failure)
        end = perf_counter()
        verified = stages["residual"].seconds
        timings["factor"] += made - start
        timings["verify"] += verified
        timings["refine"] += end - made - verified
        stage_seconds = {stage.name: stage.seconds for stage in stages.values()}
        return _Try(
            replace(
                outcome,
                x=None,
                action=str(action),
                arithmetic=self._backend.arithmetic,
                seconds=end - start,
                timings=stage_seconds | {"factor": stage_seconds["factor"] + made - start},
            ),
            outcome.x,
            answer,
            factors,
        )

    def _factors_of(self, level: int) -> Factors:
        """Factors of this rung, made if they are not there yet; solves to come start there."""
        with self._climbing:  # what one thread makes, others wait for
            if level < self._level:  # another thread has climbed on
                return self._made(level)
            here, higher = self.action, self._choice.ladder[level]
            if (here.method, here[0]) != (higher.method, higher[0]):
                self._factors = None
            self._level = level
            if self._factors is None:
                self._factors = self._made(level)
            return self._factors

    def _made(self, level: int) -> Factors:
        action, A = self._choice.ladder[level], self._matrix.A
        if action.method not in self._analyses:
            self._analyses[action.method] = self._analysed(action.method)
        analysis, granted = self._analyses[action.method], self._choice.granted
        if isinstance(analysis, EngineAnalysis) and level + 1 < len(self._choice.ladder):
            return analysis.factorize(A, action[0], granted)
        return analysis.factorize(A, action[0])

    def _analysed(self, method: str) -> Analysis:
        """With the orders that were found when the method was chosen."""
        A, orders = self._matrix.A, self._choice.orders
        if orders is None or method not in engine_methods():
            return self._backend.analyse(A, method)
        return EngineAnalysis(self._backend, A, method, orders)

    def _matrix_of(self, stage: Stage) -> Matrix:
        if stage.fmt not in self._matrices:
            self._matrices[stage.fmt] = stage.matrix(self._matrix.A)
        return self._matrices[stage.fmt]

    @np.errstate(all="ignore")
    def _error_bound(
        self, last: _Try, action: Action, columns: GivenColumns
    ) -> tuple[float, float]:
        """A bound of the relative error, and the condition number that it rests on.

        Refinement converges to the solution up to ``kappa u``, if the factors tell A from a
        singular matrix: ``kappa u_f < 1``, u_f the factors' unit roundoff. If not, small
        corrections prove nothing, and neither number is known.
        """
        assert last.answer is not None
        assert last.factors is not None
        norm, _ = self._backend.sizes(self._matrix.A.T)
        condition = condition_estimate(self._matrix.A, last.factors, norm)
        rate = condition * action[0].unit_roundoff
        if not rate < 1 or self._matrix.columns is not None:  # these are of a scaled x
            return math.nan, math.nan
        bound = max(last.answer.remaining_correction(rate), condition * FP64.unit_roundoff)
        return bound + (FP32.unit_roundoff if columns.dtype == np.float32 else 0.0), condition


def _with_exact_residuals(ladder: tuple[Action, ...]) -> tuple[Action, ...]:
    """The same actions with residuals in FP64X2, each once."""
    return tuple(dict.fromkeys(Action((*action[:3], FP64X2), action.method) for action in ladder))


def _failure(tries: list[_Try], tolerance: float, columns: GivenColumns) -> SolveFailed:
    best, last = min(tries, key=lambda one: one.outcome.nbe), tries[-1].outcome
    singular = last.status is OutcomeStatus.ZERO_PIVOT
    reason = f"no answer reached a backward error of {tolerance:.1e}"
    return SolveFailed(
        f"{'A is singular' if singular else reason}: {last.reason}",
        None if best.X is None else _shaped(best.X, columns),
        best.outcome.nbe,
        tuple(one.outcome for one in tries),
    )


def _shaped(X: Any, columns: GivenColumns) -> NDArray[Any]:
    return np.asarray(X[:, 0] if columns.was_vector else X)
