"""Stopping rules of iterative refinement, as small frozen objects.

A rule is asked twice in each outer step: after the residual, and after the update. It answers
with the status to stop with, or None to go on. It sees all columns of a block together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms.accuracy import default_tolerance, passes
from roundwise.algorithms.base import OutcomeStatus
from roundwise.formats import FloatFormat

Array = NDArray[np.float64]

LEAST_RATE = 2.0**-9
"""Faster rates are not relied on: errors that shrink more slowly may be hidden at first."""


@dataclass
class Progress:
    """The facts that a rule may use: max norms of the steps so far, never x_true.

    Each entry of a list is an array with one number for each column.
    """

    n: int
    update_format: FloatFormat
    x_norms: list[Array] = field(default_factory=list)
    z_norms: list[Array] = field(default_factory=list)
    backward_errors: list[Array] = field(default_factory=list)
    inner_iterations: int = 0  # in all steps so far
    inner_residual: float = 0.0  # of the last step
    _relative: list[Array] = field(default_factory=list)  # what `relative_correction` has computed

    @property
    def steps(self) -> int:
        """Corrections applied so far."""
        return len(self.z_norms)

    def relative_correction(self, step: int) -> Array:
        """``||z|| / ||x||`` after a step; that of step 0, which made x from nothing, is 1."""
        if step == 0:
            return np.ones_like(self.x_norms[0])
        for k in range(len(self._relative), step):
            self._relative.append(self.z_norms[k] / np.maximum(self.x_norms[k], _TINY))
        return self._relative[step - 1]

    def rates(self) -> Array:
        """Ratios of relative corrections to the ones before; a row for each step."""
        sizes = np.array([self.relative_correction(step) for step in range(self.steps + 1)])
        return np.asarray(sizes[1:] / np.maximum(sizes[:-1], _TINY))

    def remaining(self) -> Array:
        """About what all further corrections would amount to, relative to x.

        ``2 ||z|| rate / (1 - rate)`` for the last correction z and the slowest of the rates, which
        is taken to be at least `LEAST_RATE`. Without any rate the answer is infinite.
        """
        rates = self.rates()
        if not len(rates):
            return np.full_like(self.x_norms[-1], np.inf)
        rate = np.maximum(rates.max(axis=0), LEAST_RATE)
        amount = 2 * self.relative_correction(self.steps) * rate
        return np.where(rate < 1, amount / np.maximum(1 - rate, _TINY), np.inf)


_TINY = float(np.finfo(np.float64).tiny)


def largest(numbers: Array) -> float:
    """The largest of a number for each column; NaN if there is one, 0 if there is no column."""
    found = numbers.tolist()
    total = sum(found)
    return total if total != total else max(found, default=0.0)


class StoppingRule:
    """The base class of stopping rules, which never stops; a rule overrides the hooks it needs.

    Examples
    --------
    >>> from roundwise.algorithms import StoppingRule
    >>> isinstance(rw.algorithms.PaperRule(), StoppingRule)
    True
    """

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
    - iteration limit: `max_steps` corrections were made.

    The paper's equation stops at the first stagnating step (patience 1), its prose speaks of
    scripts that wait for three; its iteration counts agree with the equation.

    Parameters
    ----------
    tau : float
        A correction that is not below tau times the last one stagnates.
    max_steps : int
        Corrections at most.
    patience : int
        Stagnating steps in a row that end the run.

    Examples
    --------
    >>> rw.LuIR(stop=rw.algorithms.PaperRule(tau=0.5, max_steps=10)).stop.max_steps
    10
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
        if ((z[-1] == 0) & (progress.backward_errors[-1] > 0)).any():
            return OutcomeStatus.STAGNATED  # the inner solver gave up, or z underflowed
        converged = z[-1] <= progress.update_format.unit_roundoff * progress.x_norms[-1]
        if converged.all():
            return OutcomeStatus.CONVERGED
        if len(z) > self.patience:
            last = np.array(z[-self.patience - 1 :])
            stagnating = (last[1:] >= self.tau * last[:-1]).all(axis=0)
            if (stagnating & ~converged).any():
                return OutcomeStatus.STAGNATED
        return OutcomeStatus.ITERATION_LIMIT if len(z) >= self.max_steps else None


@dataclass(frozen=True)
class DeploymentRule(StoppingRule):
    """Stop when the backward error is small enough, or will not be within the budget.

    - converged: ``||r|| <= tolerance (||A|| ||x|| + ||b||)``; without a tolerance, that of the
      gate, ``sqrt(n) u`` with float64's u;
    - unconfirmed: that residual met the tolerance, but the one in float64 with the original data
      does not. The first one was computed in too low a format, or for a scaled system;
    - hopeless: at the rate of the last step the tolerance will not be reached in `max_steps`. This
      is asked after `patience` corrections. The rate is that of the backward errors or that of the
      corrections, whichever is better: a step of left-preconditioned GMRES may gain digits of x and
      yet enlarge the residual;
    - iteration limit: `max_steps` corrections were made.

    Parameters
    ----------
    tolerance : float, optional
        The backward error to reach; ``sqrt(n) u`` if not given.
    max_steps : int
        Corrections at most.
    patience : int
        Corrections before a run may be called hopeless.

    Examples
    --------
    >>> rw.GmresIR(stop=rw.algorithms.DeploymentRule(tolerance=1e-12)).stop.tolerance
    1e-12
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
        return default_tolerance(n) if self.tolerance is None else self.tolerance

    def confirm(self, status: OutcomeStatus, n: int, nbe: float) -> OutcomeStatus:
        if status is OutcomeStatus.CONVERGED and not passes(nbe, self.target(n)):
            return OutcomeStatus.UNCONFIRMED
        return status

    def after_residual(self, progress: Progress) -> OutcomeStatus | None:
        tolerance = self.target(progress.n)
        errors = progress.backward_errors
        if passes(errors[-1], tolerance):
            return OutcomeStatus.CONVERGED
        remaining = self.max_steps - progress.steps
        if remaining <= 0:
            return OutcomeStatus.ITERATION_LIMIT
        if progress.steps >= self.patience and self._is_hopeless(progress, tolerance, remaining):
            return OutcomeStatus.HOPELESS
        return None

    @staticmethod
    def _is_hopeless(progress: Progress, tolerance: float, remaining: int) -> bool:
        errors, z = progress.backward_errors, progress.z_norms
        open_columns = ~(errors[-1] <= tolerance)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.minimum(errors[-1] / errors[-2], z[-1] / z[-2])
            rates = np.where(z[-2] > 0, rates, np.inf)
            steps = np.log(tolerance / errors[-1]) / np.log(rates)
        return bool((open_columns & ((rates >= 1) | (steps > remaining))).any())


@dataclass(frozen=True)
class HalvingRule(StoppingRule):
    """For refinement by the factors alone: go on as long as corrections halve.

    - converged: every backward error is at most `tolerance`, and `least_steps` corrections were
      made, which a measurement may ask for;
    - stagnated: a column that is not good enough got a correction, relative to its x, of more
      than half the one before;
    - the limit: `max_steps` corrections.
    """

    tolerance: float
    least_steps: int = 0
    max_steps: int = 30

    def after_residual(self, progress: Progress) -> OutcomeStatus | None:
        errors, steps = progress.backward_errors[-1].tolist(), progress.steps
        if all(error <= self.tolerance for error in errors):
            if steps >= self.least_steps:
                return OutcomeStatus.CONVERGED
        elif steps > 0:
            now, before = (progress.relative_correction(k).tolist() for k in (steps, steps - 1))
            numbers = zip(errors, now, before, strict=True)
            if not all(e <= self.tolerance or z <= 0.5 * last for e, z, last in numbers):
                return OutcomeStatus.STAGNATED
        return OutcomeStatus.ITERATION_LIMIT if steps >= self.max_steps else None


@dataclass(frozen=True)
class ForwardRule(StoppingRule):
    """Go on until x is right to the last place, by corrections that shrink fast enough.

    For residuals in twice the working precision, and correctors that are the same matrix in each
    step: the rates seen then tell what comes (Demmel et al., ACM Trans. Math. Softw. 32(2), 2006).

    - converged: every backward error is at most `tolerance`, and all corrections to come would
      amount to less than u relative to x (`Progress.remaining`), u the update format's;
    - stagnated: a correction, relative to x, is more than `slowest` times the one before; the first
      one may be twice that, as the first x is often worse than what a correction leaves later;
    - the limit: `max_steps` corrections.
    """

    tolerance: float
    slowest: float = 0.25
    max_steps: int = 30

    def after_residual(self, progress: Progress) -> OutcomeStatus | None:
        small = progress.remaining() <= progress.update_format.unit_roundoff
        if small.all() and passes(progress.backward_errors[-1], self.tolerance):
            return OutcomeStatus.CONVERGED
        rates = progress.rates()
        if not ((rates[1:] <= self.slowest).all() and (rates[:1] <= 2 * self.slowest).all()):
            return OutcomeStatus.STAGNATED
        return OutcomeStatus.ITERATION_LIMIT if progress.steps >= self.max_steps else None


@dataclass(frozen=True)
class BudgetRule(StoppingRule):
    """For GMRES with factors that may be too poor: stop when better factors would be faster.

    - converged: the backward error is at most `tolerance`;
    - hopeless: the last GMRES cycle left a relative residual above `slow`;
    - stagnated: neither the correction nor the backward error halved;
    - the limit: `budget` GMRES iterations (None: no limit) or `max_steps` corrections.
    """

    tolerance: float
    budget: int | None
    slow: float
    max_steps: int = 30

    def after_residual(self, progress: Progress) -> OutcomeStatus | None:
        errors, z, steps = progress.backward_errors, progress.z_norms, progress.steps
        if passes(errors[-1], self.tolerance):
            return OutcomeStatus.CONVERGED
        if steps > 0 and self.budget is not None and progress.inner_residual > self.slow:
            return OutcomeStatus.HOPELESS
        halved = steps < 2 or (z[-1] < 0.5 * z[-2]).all() or (errors[-1] <= 0.5 * errors[-2]).all()
        if not halved:
            return OutcomeStatus.STAGNATED
        spent = self.budget is not None and progress.inner_iterations >= self.budget
        return OutcomeStatus.ITERATION_LIMIT if spent or steps >= self.max_steps else None
