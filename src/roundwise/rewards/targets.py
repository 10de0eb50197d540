"""Accuracy targets: when an answer is good enough."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms.accuracy import default_tolerance, passes
from roundwise.algorithms.base import Outcome
from roundwise.costs.machines import OutcomeRow
from roundwise.rewards.base import ProblemFacts, Saved, baseline_of, from_saved, with_baseline


class AccuracyTarget(Saved):
    """When an answer is good enough; NaN never is.

    Examples
    --------
    >>> from roundwise.rewards import AccuracyTarget, StrictTarget
    >>> isinstance(StrictTarget(), AccuracyTarget)
    True
    """

    kind: ClassVar[str] = "target"

    @abstractmethod
    def met(self, outcome: Outcome, facts: ProblemFacts) -> bool:
        """Whether the run's answer is good enough, whatever its status."""


@dataclass(frozen=True)
class BackwardErrorTarget(AccuracyTarget):
    """``nbe <= tolerance``; without a tolerance ``sqrt(n) u``, u = 2**-53, as `DeploymentRule`.

    Parameters
    ----------
    tolerance : float, optional

    Examples
    --------
    >>> from roundwise.rewards import BackwardErrorTarget, ProblemFacts
    >>> system = rw.problems.randsvd(20, 10.0, rng=0)
    >>> outcome = rw.GmresIR(stop=rw.algorithms.DeploymentRule()).run(system, "fp32-fp64-fp64-fp64")
    >>> BackwardErrorTarget().met(outcome, ProblemFacts(20, 10.0, 1.0, 1.0, 1.0))
    True
    """

    name: ClassVar[str] = "backward_error"

    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and not self.tolerance > 0:
            raise ValueError(f"tolerance = {self.tolerance}; choose tolerance > 0, or None")

    def met(self, outcome: Outcome, facts: ProblemFacts) -> bool:
        tolerance = default_tolerance(facts.n) if self.tolerance is None else self.tolerance
        return passes(outcome.nbe, tolerance)


def strict_success(
    ferr: ArrayLike, nbe: ArrayLike, baseline_ferr: ArrayLike, tau: float
) -> NDArray[np.bool_]:
    """``nbe <= tau`` and ``ferr <= max(tau, 10 ferr of the FP64 baseline)``; NaN is no success.

    A baseline without a result (inf), or with an unknown error (NaN), gives no slack.
    """
    ferr, nbe = np.asarray(ferr, dtype=np.float64), np.asarray(nbe, dtype=np.float64)
    reference = np.asarray(baseline_ferr, dtype=np.float64)
    limit = np.maximum(tau, 10 * np.where(np.isfinite(reference), reference, 0.0))
    return np.asarray((nbe <= tau) & (ferr <= limit))


@dataclass(frozen=True)
class StrictTarget(AccuracyTarget):
    """``nbe <= tau`` and ``ferr <= max(tau, 10 ferr of FP64's run)``, as in `strict_success`.

    Parameters
    ----------
    tau : float
        The accuracy asked for.

    Examples
    --------
    >>> from roundwise.rewards import StrictTarget
    >>> StrictTarget(1e-8).tau
    1e-08
    """

    name: ClassVar[str] = "strict"

    tau: float = 1e-6

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise ValueError(f"tau = {self.tau}; choose tau > 0")

    def met(self, outcome: Outcome, facts: ProblemFacts) -> bool:
        reference = baseline_of(facts).ferr
        if math.isnan(outcome.ferr) or math.isnan(reference):
            raise ValueError(
                "the strict target needs forward errors; pass problems with x_true, or use "
                "BackwardErrorTarget"
            )
        return bool(strict_success(outcome.ferr, outcome.nbe, reference, self.tau))


def met_matrix(
    target: AccuracyTarget,
    outcome_rows: Sequence[OutcomeRow],
    facts: Sequence[ProblemFacts],
    space: ActionSpace,
) -> NDArray[np.bool_]:
    """Whether each outcome met the target, shape (N, A); False where an outcome is None.

    Parameters
    ----------
    target : AccuracyTarget
    outcome_rows : sequence of sequences of Outcome or None
        A row for each problem.
    facts : sequence of ProblemFacts
        One for each problem.
    space : ActionSpace

    Returns
    -------
    array of bool, (N, A)

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.rewards import BackwardErrorTarget, ProblemFacts, met_matrix
    >>> algorithm = rw.GmresIR(stop=rw.algorithms.DeploymentRule())
    >>> system = rw.problems.randsvd(20, 10.0, rng=0)
    >>> space = list_space(algorithm.stages, ["bf16-bf16-bf16-bf16", "fp64-fp64-fp64-fp64"])
    >>> outcomes = [algorithm.run(system, action) for action in space]
    >>> facts = ProblemFacts(20, 10.0, 1.0, 1.0, 1.0)
    >>> met_matrix(BackwardErrorTarget(), [outcomes], [facts], space)
    array([[False,  True]])
    """
    rows = []
    for outcomes, fact in zip(outcome_rows, facts, strict=True):
        completed = with_baseline(fact, outcomes, space)
        rows.append([o is not None and target.met(o, completed) for o in outcomes])
    return np.array(rows, dtype=np.bool_).reshape(len(rows), len(space))


def target_from_dict(saved: Any) -> AccuracyTarget:
    """The target that `AccuracyTarget.to_dict` wrote."""
    return from_saved(saved, "target", (BackwardErrorTarget, StrictTarget))
