"""Climb: the third of the four steps of a solve. Run, judge by the gate, take the next rung.

Every rung is `VerifiedSolve.rung`: factors of its action, refinement with them, and the gate. What
passes first is the answer. Where no rung is left, or none would help, `SolveFailed` says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action
from roundwise.algorithms import Outcome, OutcomeStatus, Stage, Stages, VerifiedSolve
from roundwise.algorithms.refinement import Answer
from roundwise.algorithms.verified_solve import Rung
from roundwise.backends import Factors, Matrix
from roundwise.formats import FP64
from roundwise.solver.factored import Factored, Tried
from roundwise.solver.inputs import GivenColumns, scaled_blocks
from roundwise.solver.solution import Solution, SolveFailed
from roundwise.solver.trust.error_bound import PROVED_UP_TO
from roundwise.solver.trust.examining import FEW_DIGITS, UNEXAMINED, Examined, Singularity, warn_of
from roundwise.solver.trust.knowledge import ErrorEstimate, Knowledge

NOT_ASKED_FOR = Knowledge.known(UNEXAMINED)

CONVERGED = OutcomeStatus.CONVERGED
_SINGULAR = (Singularity.SINGULAR, Singularity.UNDECIDED)


@dataclass(frozen=True, eq=False)
class Climbed:
    """What passed the gate, and how it came about."""

    X: Any
    columns: GivenColumns
    factored: Factored
    examined: Examined
    known: ErrorEstimate  # of its error, as far as every solve finds that out
    is_all: bool  # that could be known
    accuracy: str
    tolerance: float
    attempts: tuple[Outcome, ...]
    timings: dict[str, float]

    def solution(self, reason: str, full_output: bool) -> Solution:
        """The answer as callers get it; its error is found out when they read it."""
        knowledge = NOT_ASKED_FOR
        if full_output:
            examiner = self.factored.examiner
            knowledge = (
                Knowledge.known(self.known) if self.is_all else examiner.knowledge(self.examined)
            )
        last = self.attempts[-1]
        return Solution(
            _shaped(self.X, self.columns),
            "accepted" if len(self.attempts) == 1 else "escalated",
            last.action,
            last.nbe,
            self.tolerance,
            knowledge,
            self.attempts,
            self.timings,
            reason,
            self.accuracy,
        )


def told(
    factored: Factored, level: int, tried: Tried, b: NDArray[Any], features: float
) -> Solution:
    """What a climb would tell of a rung that one compiled call has made the answer."""
    found, action = tried.found, factored.ladder[level]
    assert found is not None
    answer, columns = Answer.at_once(found), next(scaled_blocks(b, factored.matrix))
    timings = {"features": features, "factor": tried.factor_seconds}
    timings |= {"refine": tried.seconds - tried.factor_seconds, "verify": 0.0}
    outcome = Outcome(
        CONVERGED,
        None,
        nbe=found.error,
        outer_iterations=answer.steps,
        history=tuple(answer.history),
        action=action.text,
        arithmetic=factored.matrix.backend.arithmetic,
        seconds=tried.seconds,
        timings=dict.fromkeys(VerifiedSolve.stages, 0.0) | {"factor": tried.seconds},
    )
    x: Any = tried.x
    X = columns.scaled_solution(x if x.ndim == 2 else x[:, None])
    R = answer.R if answer.R is None or answer.R.ndim == 2 else answer.R[:, None]
    knowledge = factored.examiner.knowledge(Examined(X, columns, tried.factors, R))
    facts = outcome.nbe, tried.tolerance, knowledge, (outcome,), timings, factored.plan.reason
    return Solution(x, "accepted", outcome.action, *facts)


def climb(
    algorithm: VerifiedSolve,
    factored: Factored,
    columns: GivenColumns,
    timings: dict[str, float],
    tried: Tried | None = None,
) -> Climbed:
    """Climb from the rung that `factored` has reached until an answer passes the gate.

    The seconds of the climb are added to `timings`. An `IllConditionedWarning` tells of few digits.
    `tried` is what a compiled call has already made of that rung.
    """
    timings = timings | {"factor": 0.0, "refine": 0.0, "verify": 0.0}
    tolerance = algorithm.target(factored.matrix.n, columns.dtype)
    level, ladder = factored.level, factored.ladder
    rungs: list[Rung] = []
    while True:
        last = _tried(algorithm, factored, level, columns, timings, tried)
        tried = None
        rungs.append(last)
        action = ladder[level]
        passed = last.answer is not None and last.answer.passed
        if last.outcome.status is CONVERGED or (passed and action[0] == FP64):
            break  # where full accuracy was asked for, FP64 factors cannot do better
        if factored.forgets_analysis(level):
            continue
        ladder = factored.ladder_behind(level)
        higher = algorithm.rung_after(ladder, level, last.outcome.status)
        if higher is None or _is_final(factored, last, action):
            singularity = _singularity(factored, last, action)
            raise _failure(rungs, tolerance, columns, singularity)
        rungs[-1] = last = replace(last, factors=None)  # they would stay beside the next ones
        level = higher
    fell_short = last.outcome.status is not CONVERGED  # of the full accuracy that was asked for
    examined = _examined(last, columns)
    known, is_all = _signs(factored, last, examined, fell_short)
    if math.isinf(known.error) and factored.examiner.singularity is Singularity.SINGULAR:
        raise _failure(rungs, tolerance, columns, Singularity.SINGULAR)
    fell_short |= algorithm.accuracy == "forward" and math.isinf(known.error)
    if fell_short or known.error > FEW_DIGITS:
        warn_of(known, fell_short)
    accuracy = "backward" if fell_short else algorithm.accuracy
    attempts = tuple(_recorded(one.outcome) for one in rungs)
    x = last.outcome.x
    return Climbed(
        x, columns, factored, examined, known, is_all, accuracy, tolerance, attempts, timings
    )


def _tried(
    algorithm: VerifiedSolve,
    factored: Factored,
    level: int,
    columns: GivenColumns,
    timings: dict[str, float],
    before: Tried | None,
) -> Rung:
    """One rung, its outcome with action and seconds, those `before` included."""
    action, backend = factored.ladder[level], factored.matrix.backend
    stages = Stages(algorithm.stages, action, backend)

    def factors() -> Factors:
        if before is not None and before.failure is not None:
            raise before.failure.with_traceback(None)
        return factored.factors_of(level)

    def matrix(stage: Stage) -> Matrix:
        return factored.in_format(stage.fmt)

    rung = algorithm.rung(
        (factored.matrix, columns),
        factors,
        stages,
        matrix,
        columns.dtype,
        None if before is None else lambda: before.columns,
        partial(factored.gmres_budget, level),
    )
    factor_seconds, seconds = rung.factor_seconds, rung.seconds
    if before is not None:
        factor_seconds, seconds = before.factor_seconds, seconds + before.seconds
    verified = stages["residual"].seconds
    timings["factor"] += factor_seconds
    timings["verify"] += verified
    timings["refine"] += seconds - factor_seconds - verified
    by_stage = {stage.name: stage.seconds for stage in stages.values()}
    by_stage["factor"] += factor_seconds if before is None else before.seconds
    facts = {
        "action": action.text,
        "arithmetic": backend.arithmetic,
        "seconds": seconds,
        "timings": by_stage,
    }
    return replace(rung, outcome=Outcome(**vars(rung.outcome) | facts))


def _recorded(outcome: Outcome) -> Outcome:
    """An outcome without its x: attempts are kept as long as a `Solution` is."""
    return Outcome(**vars(outcome) | {"x": None})


def _signs(
    factored: Factored, last: Rung, examined: Examined, fell_short: bool
) -> tuple[ErrorEstimate, bool]:
    """What every solve finds out about its error, to warn of it, and whether that is all.

    The answer is not examined unless A or x shows signs of trouble, or x `fell_short` of the
    accuracy that was asked for.
    """
    assert last.answer is not None
    assert last.factors is not None
    examiner = factored.examiner
    if fell_short:
        return examiner.examined(examined), True
    if factored.matrix.n > PROVED_UP_TO:
        if last.answer.is_accurate:
            return UNEXAMINED, False
        return examiner.glanced(examined, last.answer.largest, last.outcome.nbe), False
    if not examiner.suspects(last.factors, last.answer.X, examined.columns):
        return UNEXAMINED, False
    found = examiner.estimated(examined)
    return (examiner.examined(examined), True) if found is None else (found, False)


def _broke_down(last: Rung, action: Action) -> bool:
    """Whether FP64's elimination found no pivot: A is singular, or nearly so."""
    zero_pivot = last.outcome.status is OutcomeStatus.ZERO_PIVOT and action[0] == FP64
    return zero_pivot and action.method != "cholesky"


def _is_final(factored: Factored, last: Rung, action: Action) -> bool:
    """Whether no other factors would help: A is singular, or x leaves float64's range."""
    unholdable = last.answer is not None and last.answer.unholdable
    broken = _broke_down(last, action)
    return unholdable or (broken and _singularity(factored, last, action) in _SINGULAR)


def _singularity(factored: Factored, last: Rung, action: Action) -> Singularity:
    """Whether A is singular. It is examined only if the last factors give reason to."""
    unholdable = last.answer is not None and last.answer.unholdable
    asked = _broke_down(last, action) or (
        last.factors is not None
        and last.factors.fmt == FP64
        and factored.examiner.shows_signs(last.factors)
    )
    return factored.examiner.singularity if asked or unholdable else Singularity.NONSINGULAR


def _failure(
    rungs: list[Rung], tolerance: float, columns: GivenColumns, singularity: Singularity
) -> SolveFailed:
    best, last = min(rungs, key=lambda one: one.outcome.nbe).outcome, rungs[-1].outcome
    reason = f"no answer reached a backward error of {tolerance:.1e}: {last.reason}"
    if singularity is Singularity.SINGULAR:
        reason = (
            "A is singular: its determinant is zero; remove dependent rows and columns, or, if b "
            "is in A's range, pass solve(A, b, nullspace='constants') or null vectors"
        )
    elif last.status is OutcomeStatus.ZERO_PIVOT and singularity is Singularity.UNDECIDED:
        reason = f"A is singular to working precision: {last.reason}"
    elif last.status is OutcomeStatus.ZERO_PIVOT:
        reason = f"A is not singular, but fp64 cannot tell it from a singular matrix: {last.reason}"
    x = None if best.x is None else _shaped(best.x, columns)
    return SolveFailed(reason, x, best.nbe, tuple(_recorded(one.outcome) for one in rungs))


def _examined(last: Rung, columns: GivenColumns) -> Examined:
    """The answer of the last rung, as it is examined."""
    assert last.answer is not None
    assert last.factors is not None
    x: Any = last.outcome.x
    X = columns.scaled_solution(x.astype(np.float64, copy=False))
    return Examined(X, columns, last.factors, last.answer.R, last.answer.residual_format)


def _shaped(X: Any, columns: GivenColumns) -> NDArray[Any]:
    return X[:, 0] if columns.was_vector else X  # type: ignore[no-any-return]
