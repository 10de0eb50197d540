"""Stopping rules of iterative refinement, as small frozen objects.

A rule is asked twice in each outer step: after the residual, and after the update. It answers
with the status to stop with, or None to go on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from roundwise.algorithms.base import OutcomeStatus
from roundwise.formats import FP64, FloatFormat


@dataclass
class Progress:
    """What a rule may look at: norms (all max norms) of the steps so far, never x_true."""

    n: int
    norm_A: float
    norm_b: float
    update_format: FloatFormat
    x_norms: list[float] = field(default_factory=list)
    z_norms: list[float] = field(default_factory=list)
    backward_errors: list[float] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Corrections applied so far."""
        return len(self.z_norms)


class StoppingRule:
    """Never stops; rules override what they need."""

    def after_residual(self, progress: Progress) -> OutcomeStatus | None:
        return None

    def after_update(self, progress: Progress) -> OutcomeStatus | None:
        return None

    def confirm(self, status: OutcomeStatus, n: int, nbe: float) -> OutcomeStatus:
        """The status once the backward error is known in float64, from the original data."""
        return status


@dataclass(frozen=True)
class PaperRule(StoppingRule):
    """The paper's rule, on the size of the corrections z_i alone.

    - converged: ``||z_i|| <= u ||x_i||``, u the unit roundoff of the update stage;
    - stagnated: ``||z_i|| >= tau ||z_{i-1}||`` in `patience` consecutive steps, or z_i = 0
      although the residual is not;
    - the limit: `max_steps` corrections.

    The paper's equation stops at the first stagnating step (patience 1), its prose speaks of
    scripts that wait for three; its iteration counts agree with the equation.
    """

    tau: float = 1e-6
    max_steps: int = 9999
    patience: int = 1

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise ValueError(f"tau = {self.tau}; choose tau > 0")
        if self.max_steps < 1 or self.patience < 1:
            raise ValueError("max_steps and patience are counts; choose at least 1")

    def after_update(self, progress: Progress) -> OutcomeStatus | None:
        z = progress.z_norms
        if z[-1] == 0 and progress.backward_errors[-1] > 0:
            return OutcomeStatus.STAGNATED  # the inner solver gave up, or z underflowed
        if z[-1] <= progress.update_format.unit_roundoff * progress.x_norms[-1]:
            return OutcomeStatus.CONVERGED
        last = zip(z[-self.patience - 1 :], z[-self.patience :], strict=False)
        if len(z) > self.patience and all(now >= self.tau * before for before, now in last):
            return OutcomeStatus.STAGNATED
        return OutcomeStatus.ITERATION_LIMIT if len(z) >= self.max_steps else None


@dataclass(frozen=True)
class DeploymentRule(StoppingRule):
    """Stop when the answer is good, or will not become so within the budget.

    - converged: ``||r|| <= tolerance (||A|| ||x|| + ||b||)``; without a tolerance,
      ``sqrt(n) u`` with float64's u, about what LAPACK's own refinement asks for;
    - unconfirmed: that residual was too coarse, or of a scaled system: in float64 the original
      one is larger;
    - hopeless: after `patience` corrections or more, at the rate of the last step, the tolerance
      is not reached in `max_steps`. The rate is the better one of backward errors and of
      corrections: a step of left-preconditioned GMRES may gain digits of x and yet lose some of
      the residual;
    - the limit: `max_steps` corrections.
    """

    tolerance: float | None = None
    max_steps: int = 30
    patience: int = 2

    def __post_init__(self) -> None:
        if self.tolerance is not None and not self.tolerance > 0:
            raise ValueError(f"tolerance = {self.tolerance}; choose tolerance > 0, or None")
        if self.max_steps < 1 or self.patience < 2:
            raise ValueError(
                f"max_steps = {self.max_steps}, patience = {self.patience}; choose at least 1, 2"
            )

    def target(self, n: int) -> float:
        """The backward error to reach for a system of n equations."""
        return math.sqrt(n) * FP64.unit_roundoff if self.tolerance is None else self.tolerance

    def confirm(self, status: OutcomeStatus, n: int, nbe: float) -> OutcomeStatus:
        reached = nbe <= self.target(n)
        if status is OutcomeStatus.CONVERGED and not reached:
            return OutcomeStatus.UNCONFIRMED
        return status

    def after_residual(self, progress: Progress) -> OutcomeStatus | None:
        tolerance = self.target(progress.n)
        errors = progress.backward_errors
        if errors[-1] <= tolerance:
            return OutcomeStatus.CONVERGED
        remaining = self.max_steps - progress.steps
        if remaining <= 0:
            return OutcomeStatus.ITERATION_LIMIT
        z = progress.z_norms
        if len(z) >= self.patience:
            rate = min(errors[-1] / errors[-2], z[-1] / z[-2]) if z[-2] > 0 else math.inf
            if rate >= 1 or math.log(tolerance / errors[-1]) / math.log(rate) > remaining:
                return OutcomeStatus.HOPELESS
        return None
