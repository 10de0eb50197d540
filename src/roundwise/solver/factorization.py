"""`Factorization`: factor once, solve many, and climb to more precision only when needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import ForkSafeLock
from roundwise.actions import Action
from roundwise.algorithms import Outcome, OutcomeStatus, Stages, VerifiedSolve
from roundwise.algorithms.answer import Answer
from roundwise.algorithms.error_bound import PROVED_UP_TO
from roundwise.backends import Analysis, ArithmeticFailure, Backend, Factors
from roundwise.formats import FP64, FP64X2
from roundwise.solver.choosing import Choice
from roundwise.solver.examining import (
    FEW_DIGITS,
    UNEXAMINED,
    Accuracy,
    Examined,
    Singularity,
    warn_of,
)
from roundwise.solver.factored import Factored, with_pattern_of
from roundwise.solver.inputs import (
    GivenColumns,
    GivenMatrix,
    checked_columns,
    checked_matrix,
    is_transposed,
    scaled_blocks,
)
from roundwise.solver.solution import Solution, SolveFailed, joined

RETRY_AFTER = 8
"""Refactorizations after which a format that once did not suffice is tried again."""

BOUND_STEPS = 2
"""Corrections that a bound of the error needs."""


@dataclass(frozen=True, eq=False)
class _Try:
    """One rung of the ladder: its outcome, and what only this solve needs besides."""

    outcome: Outcome  # without x
    X: Any
    answer: Answer | None
    factors: Factors | None

    def broke_down(self, action: Action) -> bool:
        """Whether FP64's elimination found no pivot: A is singular, or nearly so."""
        zero_pivot = self.outcome.status is OutcomeStatus.ZERO_PIVOT and action[0] == FP64
        return zero_pivot and action.method != "cholesky"

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
        analyses: dict[str, Analysis] | None = None,
    ) -> None:
        self._accuracy: Literal["backward", "forward"] = accuracy
        if accuracy == "forward":
            choice = replace(choice, ladder=_with_exact_residuals(choice.ladder))
        self._factored = Factored(matrix, choice, backend, analyses)
        self._backend, self._reason, self._budget = backend, choice.reason, choice.budget
        self._tol, self._features_seconds, self._learn = tol, features_seconds, choice.learn
        self._learning = ForkSafeLock()
        self._renewals, self._patience = 0, RETRY_AFTER

    @property
    def shape(self) -> tuple[int, int]:
        return self._matrix.n, self._matrix.n

    @property
    def _matrix(self) -> GivenMatrix:
        return self._factored.matrix

    @property
    def action(self) -> Action:
        """What the factors in use, or to be made first, come from."""
        return self._factored.ladder[self._factored.level]

    @property
    def format(self) -> str:
        """The method and format of the factors in use: ``lu fp32``, ``cholesky fp64``, ..."""
        return f"{self.action.method} {self.action[0]}"

    def __repr__(self) -> str:
        kind = "sparse" if self._matrix.is_sparse else "dense"
        return f"Factorization({kind} {self._matrix.n} x {self._matrix.n}, {self.format})"

    def refactor(self, A: Any) -> Self:
        """Go on with another matrix of the same shape and, if it is sparse, the same pattern.

        For Newton's method, time steps, circuits: the method, the formats and what was analysed
        stay. The pattern is that of the entries that are stored, zeros as well. A is copied, and
        factorized at the next solve; solves of other threads that are under way end with the
        matrix they began with.

        Solves start from the format that the last one ended with. If that was raised, the one
        below is tried again after eight refactorizations, and then after twice as many each time.

        Raises
        ------
        ValueError
            If A has another shape or pattern, or is dense and the factored matrix sparse.
        """
        start, before = perf_counter(), self._factored
        columns = before.matrix.b.shape[1]
        matrix = with_pattern_of(
            before.matrix, checked_matrix(A, self._backend, columns, copy=True)
        )
        level = before.level
        self._renewals += 1
        if level and self._renewals >= self._patience:
            level, self._renewals, self._patience = level - 1, 0, 2 * self._patience
        self._factored = before.renewed(matrix, level)
        self._features_seconds = perf_counter() - start
        return self

    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any:
        """``A^-1 b`` for a vector or columns b, verified; a `Solution` with `full_output`.

        Many columns are solved in blocks, which bounds the memory needed beside b and x.

        Parameters
        ----------
        b : (n,) or (n, k) array_like or sparse
        trans : {"N", "T", "H", 0, 1, 2}
            ``"T"``, ``"H"``, 1 or 2: solve ``A' x = b`` with the same factors, through the same
            gate. The names are those of SciPy's ``SuperLU.solve``, the numbers ``lu_solve``'s.
        full_output : bool

        Raises
        ------
        SolveFailed
            If A is singular, or no answer passes the gate.

        Warns
        -----
        IllConditionedWarning
            If fewer than about three digits of x are right.
        """
        factored = self._factored  # `refactor` does not change it
        if is_transposed(trans):
            factored = factored.transposed
        b = checked_columns(b, factored.matrix)
        blocks = scaled_blocks(b, factored.matrix)
        solutions = (self._run(factored, columns, full_output) for columns in blocks)
        solution = joined(solutions, b.shape)
        return solution if full_output else solution.x

    def _run(self, factored: Factored, columns: GivenColumns, full_output: bool) -> Solution:
        """Climb from the present rung until an answer passes the gate."""
        timings = {"features": self._features_seconds, "factor": 0.0, "refine": 0.0, "verify": 0.0}
        self._features_seconds = 0.0  # later solves do not pay for it again
        least_steps = BOUND_STEPS if full_output else 0
        algorithm = VerifiedSolve(self._tol, self._budget, least_steps, self._accuracy)
        tolerance = algorithm.target(factored.matrix.n, columns.dtype)
        level, ladder = factored.level, factored.ladder
        tries: list[_Try] = []
        while True:
            last = self._try(algorithm, factored, level, columns, timings)
            tries.append(last)
            if last.outcome.converged or last.is_as_good_as_it_gets(ladder[level]):
                break
            if factored.forgets_analysis(level):
                continue
            higher = algorithm.rung_after(ladder, level, last.outcome.status)
            if higher is None or self._is_final(factored, last, ladder[level]):
                singularity = self._singularity(factored, last, ladder[level])
                raise _failure(tries, tolerance, columns, singularity)
            tries[-1] = last = replace(last, factors=None)  # they would stay beside the next ones
            level = higher
        attempts = tuple(one.outcome for one in tries)
        start = perf_counter()
        fell_short = not last.outcome.converged  # of the full accuracy that was asked for
        known = self._accuracy_of(factored, last, columns, full_output or fell_short)
        if math.isinf(known.error) and factored.examiner.singularity is Singularity.SINGULAR:
            raise _failure(tries, tolerance, columns, Singularity.SINGULAR)
        if full_output:
            timings["bound"] = perf_counter() - start
        with self._learning:  # from the first solve: later ones find the factors made
            learn, self._learn = self._learn, None
        if learn is not None:
            learn(attempts, sum(timings.values()) - timings.get("bound", 0.0))
        fell_short |= self._accuracy == "forward" and math.isinf(known.error)
        if fell_short or known.error > FEW_DIGITS:
            warn_of(known, fell_short)
        return Solution(
            _shaped(last.X, columns),
            "accepted" if len(tries) == 1 else "escalated",
            last.outcome.action,
            last.outcome.nbe,
            tolerance,
            known.error,
            known.kind,
            known.how,
            known.condition,
            attempts,
            timings,
            self._reason,
            "backward" if fell_short else self._accuracy,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a Factorization stays in its process, as its factors do; send A, and call "
            "roundwise.factor(A) where it is needed"
        )

    def _try(
        self,
        algorithm: VerifiedSolve,
        factored: Factored,
        level: int,
        columns: GivenColumns,
        timings: dict[str, float],
    ) -> _Try:
        """One rung: its factors, and refinement with them."""
        action, start = factored.ladder[level], perf_counter()
        stages = Stages(algorithm.stages, action, self._backend)
        answer = factors = None
        try:
            factors = factored.factors_of(level)
            made = perf_counter()
            outcome, answer = algorithm.attempt(
                (factored.matrix, columns), factors, stages, factored.matrix_of, columns.dtype
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

    def _accuracy_of(
        self, factored: Factored, last: _Try, columns: GivenColumns, asked: bool
    ) -> Accuracy:
        """What is known of the error of the answer: nothing if nobody asks, and none is feared."""
        assert last.answer is not None
        assert last.factors is not None
        returned = columns.scaled_solution(last.X.astype(np.float64, copy=False))
        answer = Examined(returned, columns, last.factors)
        if not asked and factored.matrix.n > PROVED_UP_TO:
            if last.answer.is_accurate:
                return UNEXAMINED
            return factored.examiner.glanced(answer, last.answer.largest, last.outcome.nbe)
        examiner = factored.examiner
        if not asked and not examiner.suspects(last.factors, last.answer.X, columns):
            return UNEXAMINED
        found = None if asked else examiner.estimated(answer)
        return examiner.examined(answer) if found is None else found

    def _is_final(self, factored: Factored, last: _Try, action: Action) -> bool:
        """Whether no other factors would help: A is singular, or x cannot be held."""
        unholdable = last.answer is not None and last.answer.unholdable
        broken = last.broke_down(action)
        return unholdable or (broken and self._singularity(factored, last, action) in _SINGULAR)

    def _singularity(self, factored: Factored, last: _Try, action: Action) -> Singularity:
        """Whether A is singular, which is examined where the last factors give reason to."""
        unholdable = last.answer is not None and last.answer.unholdable
        asked = last.broke_down(action) or (
            last.factors is not None
            and last.factors.fmt == FP64
            and factored.examiner.shows_signs(last.factors)
        )
        return factored.examiner.singularity if asked or unholdable else Singularity.NONSINGULAR


_SINGULAR = (Singularity.SINGULAR, Singularity.UNDECIDED)


def _with_exact_residuals(ladder: tuple[Action, ...]) -> tuple[Action, ...]:
    """The same actions with residuals in FP64X2, each once."""
    return tuple(dict.fromkeys(Action((*action[:3], FP64X2), action.method) for action in ladder))


def _failure(
    tries: list[_Try], tolerance: float, columns: GivenColumns, singularity: Singularity
) -> SolveFailed:
    best, last = min(tries, key=lambda one: one.outcome.nbe), tries[-1].outcome
    reason = f"no answer reached a backward error of {tolerance:.1e}: {last.reason}"
    if singularity is Singularity.SINGULAR:
        reason = "A is singular: its determinant is zero; remove dependent rows and columns"
    elif last.status is OutcomeStatus.ZERO_PIVOT and singularity is Singularity.UNDECIDED:
        reason = f"A is singular to working precision: {last.reason}"
    elif last.status is OutcomeStatus.ZERO_PIVOT:
        reason = f"A is not singular, but fp64 cannot tell it from a singular matrix: {last.reason}"
    return SolveFailed(
        reason,
        None if best.X is None else _shaped(best.X, columns),
        best.outcome.nbe,
        tuple(one.outcome for one in tries),
    )


def _shaped(X: Any, columns: GivenColumns) -> NDArray[Any]:
    return X[:, 0] if columns.was_vector else X  # type: ignore[no-any-return]
