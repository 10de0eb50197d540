"""The answer of one attempt of `VerifiedSolve`, as refinement makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms.base import OutcomeStatus
from roundwise.algorithms.refinement import Refined
from roundwise.algorithms.stage import Vector
from roundwise.algorithms.stopping import ForwardRule

Array = NDArray[np.float64]


@dataclass(eq=False)
class Answer:
    """The best X so far, column by column, and how refinement got there."""

    X: Vector
    errors: Array  # the backward error of each column
    before: Array  # the last two corrections of each column, relative to x
    last: Array
    status: OutcomeStatus
    reason: str
    steps: int
    inner_iterations: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    unholdable: bool = False  # X passes the gate, but rounded to the answer's type it does not
    passed: bool = False  # X passes the gate
    largest: float = 0.0  # correction of all, relative to x
    accurate: Array = field(init=False)
    """About the relative error of each column that was refined to full accuracy; else infinite."""

    def __post_init__(self) -> None:
        self.accurate = np.full(len(self.errors), np.inf)

    @classmethod
    def of(cls, refined: Refined) -> Answer:
        """What refinement by the factors alone gave."""
        before, last = _last_corrections(refined)
        return cls(
            refined.best,
            refined.errors,
            before,
            last,
            refined.status,
            refined.reason,
            refined.progress.steps,
            history=refined.history,
            largest=_largest_correction(refined),
        )

    def take(self, column: int, refined: Refined) -> None:
        """Take what GMRES gave for one column."""
        self.X[:, column], self.errors[column] = refined.best[:, 0], refined.errors[0]
        if refined.progress.steps:
            before, last = _last_corrections(refined)
            self.before[column] = before[0] if refined.progress.steps > 1 else self.last[column]
            self.last[column] = last[0]
        self.steps += refined.progress.steps
        self.inner_iterations += refined.progress.inner_iterations
        self.history += refined.history
        self.status, self.reason = refined.status, refined.reason

    def take_accurate(self, refined: Refined, rule: ForwardRule, column: int | None = None) -> bool:
        """Take the last iterate of refinement under a `ForwardRule`; False if it did not end well.

        It is that of all columns, or that of one, by GMRES.
        """
        progress = refined.progress
        if column is not None:
            self.steps += progress.steps
            self.inner_iterations += progress.inner_iterations
            self.history += refined.history
        if refined.status is not OutcomeStatus.CONVERGED:
            return False
        chosen: Any = slice(None) if column is None else [column]
        self.X[:, chosen], self.errors[chosen] = refined.X, progress.backward_errors[-1]
        self.accurate[chosen] = rule.left(progress) + progress.update_format.unit_roundoff
        return True

    @property
    def full_accuracy(self) -> float:
        """A bound of the relative error if refinement to full accuracy ended well; else infinite.

        It is an estimate of what further corrections would change, and the rounding of x.
        """
        return float(self.accurate.max(initial=0.0))

    def remaining_correction(self, expected_rate: float) -> float:
        """What further corrections would amount to, relative to x; NaN if too few were made.

        ``||z|| rate / (1 - rate)`` of the last correction z, the largest over the columns (after
        Demmel et al., ACM Trans. Math. Softw. 32(2), 2006). A lucky correction shrinks faster than
        the next one will, so the rate is taken to be at least the expected one. A rate beyond 1/2
        means that the corrections are as small as they get.
        """
        if not np.isfinite(self.before).all():
            return np.nan
        rates = np.where(self.last > 0, self.last / self.before, 0.0)
        rates = np.clip(rates, min(expected_rate, 0.5), 0.5)
        return float((self.last * rates / (1 - rates)).max(initial=0.0))


def _last_corrections(refined: Refined) -> tuple[Array, Array]:
    """The last two relative corrections; the first solve corrects zero by x itself."""
    progress, steps = refined.progress, refined.progress.steps
    if not progress.x_norms:
        unknown = np.full(len(refined.errors), np.inf)
        return unknown, unknown.copy()
    last = progress.relative_correction(steps)
    before = progress.relative_correction(steps - 1) if steps else np.full_like(last, np.inf)
    return before, last


def _largest_correction(refined: Refined) -> float:
    """The largest correction of any column, relative to x; 0 if there was none."""
    progress = refined.progress
    steps = range(1, progress.steps + 1)
    return max(
        (float(progress.relative_correction(k).max(initial=0.0)) for k in steps), default=0.0
    )
