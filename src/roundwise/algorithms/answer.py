"""The answer of one attempt of `VerifiedSolve`, as refinement makes it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms.base import OutcomeStatus
from roundwise.algorithms.refinement import Refined
from roundwise.algorithms.stage import Vector
from roundwise.algorithms.stopping import largest
from roundwise.backends.contract import AtOnce
from roundwise.formats import FP64, FloatFormat

Array = NDArray[np.float64]


@dataclass(eq=False)
class Answer:
    """The best X so far, column by column, and how refinement got there."""

    X: Vector
    errors: Array  # the backward error of each column
    status: OutcomeStatus
    reason: str
    steps: int = 0
    inner_iterations: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    is_accurate: bool = False  # X is right to the last place
    unholdable: bool = False  # X passes the gate, but rounded to the answer's type it does not
    passed: bool = False  # X passes the gate
    largest: float = 0.0  # correction of all, relative to x
    R: Vector | None = None  # B - A X, if one computation gave it for all columns
    residual_format: FloatFormat = FP64  # in which R was computed

    @classmethod
    def of(cls, refined: Refined, residual_format: FloatFormat) -> Answer:
        """What refinement of all columns by the factors alone gave."""
        answer = cls(refined.best, refined.errors, refined.status, refined.reason)
        answer.R, answer.residual_format = refined.R, residual_format
        answer.count(refined)
        answer.largest = _largest_correction(refined)
        return answer

    @classmethod
    def at_once(cls, found: AtOnce) -> Answer:
        """What one compiled call gave; every column is good enough."""
        answer = cls(found.X, found.errors, OutcomeStatus.CONVERGED, "", len(found.history) // 2)
        # Of a few columns that were corrected, residuals are summed in another order than of all.
        is_whole = found.X.ndim == 1 or found.X.shape[1] == 1 or not found.history
        answer.R, answer.largest = found.R if is_whole else None, found.largest
        answer.history = [
            {
                "backward_error": error,
                "correction": correction,
                "inner_iterations": 0,
                "inner_residual": 0.0,
            }
            for error, correction in zip(found.history[::2], found.history[1::2], strict=True)
        ]
        return answer

    @classmethod
    def accurate(cls, refined: Refined, residual_format: FloatFormat) -> Answer:
        """The last iterate of refinement to full accuracy, if that ended well."""
        answer = cls.of(refined, residual_format)
        answer.X, answer.errors = refined.X, refined.progress.backward_errors[-1]
        answer.R = refined.last_R
        answer.is_accurate = True
        return answer

    def take(self, column: int, refined: Refined) -> None:
        """Take what GMRES gave for one column."""
        self.X[:, column], self.errors[column] = refined.best[:, 0], refined.errors[0]
        self.R = refined.R if self.X.shape[1] == 1 else None
        self.status, self.reason = refined.status, refined.reason
        self.count(refined)

    def count(self, refined: Refined) -> None:
        """Count the work of a refinement, whether or not anything of it is kept."""
        self.steps += refined.progress.steps
        self.inner_iterations += refined.progress.inner_iterations
        self.history += refined.history


def _largest_correction(refined: Refined) -> float:
    """The largest correction of any column, relative to x; 0 if there was none."""
    progress = refined.progress
    steps = range(1, progress.steps + 1)
    return max((largest(progress.relative_correction(k)) for k in steps), default=0.0)
