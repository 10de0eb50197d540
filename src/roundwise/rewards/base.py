"""The base of all rewards: facts of the problem, accuracy targets, rewards of whole tables."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import Action, ActionSpace
from roundwise.algorithms.accuracy import default_tolerance, passes
from roundwise.algorithms.base import Outcome
from roundwise.costs.machines import OutcomeRow
from roundwise.exceptions import UnknownNameError
from roundwise.problems import Problem


@dataclass(frozen=True)
class ProblemFacts:
    """The facts of a problem that rewards use, without its arrays; norms as in `Problem.norms`.

    `Reward.row` takes the baseline from its outcomes, if the facts have none.

    Parameters
    ----------
    n : int
    kappa : float
        The condition number.
    norm_A, norm_x_true, norm_b : float
    baseline : Outcome, optional
        The outcome of the safe action.

    Examples
    --------
    >>> from roundwise.rewards import ProblemFacts
    >>> ProblemFacts(n=10, kappa=1e3, norm_A=1.0, norm_x_true=1.0, norm_b=1.0).kappa
    1000.0
    """

    n: int
    kappa: float  # condition number, exact or estimated; infinity is allowed
    norm_A: float
    norm_x_true: float
    norm_b: float
    baseline: Outcome | None = field(default=None, repr=False)  # of the safe action (all-FP64)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n = {self.n}; a problem has at least one unknown")
        for name in ("kappa", "norm_A", "norm_b", "norm_x_true"):
            value = getattr(self, name)
            if value < 0 or (math.isnan(value) and name != "norm_x_true"):
                raise ValueError(f"{name} = {value}; pass a number >= 0; NaN for an unknown x_true")

    @classmethod
    def from_problem(
        cls, problem: Problem, kappa: float, baseline: Outcome | None = None
    ) -> ProblemFacts:
        """The facts of a problem whose condition number is known, e.g. from its features."""
        return cls(problem.n, float(kappa), *problem.norms, baseline)

    @classmethod
    def from_stored(cls, facts: Any, kappa: float, baseline: Outcome | None = None) -> ProblemFacts:
        """The facts from the `StoredProblem` of an outcome table."""
        return cls(facts.n, float(kappa), facts.norm_A, facts.norm_x_true, facts.norm_b, baseline)


class Saved(ABC):
    """A frozen dataclass of settings that JSON can hold; rewards and accuracy targets are such."""

    kind: ClassVar[str]  # what it is
    name: ClassVar[str]  # by which saved files know the class

    def to_dict(self) -> dict[str, Any]:
        """The name and the settings, for JSON."""
        this: Any = self
        try:
            return {self.kind: self.name} | dataclasses.asdict(this)
        except TypeError:
            raise TypeError(
                f"{type(self).__name__} cannot be saved; make it a frozen dataclass"
            ) from None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The object of what `to_dict` wrote, but its name."""
        return cls(**settings)


S = TypeVar("S", bound=Saved)


def from_saved(saved: Any, kind: str, classes: Iterable[type[S]]) -> S:
    """The object that `to_dict` of one of the classes wrote."""
    known = {cls.name: cls for cls in classes}
    if not isinstance(saved, Mapping) or not isinstance(saved.get(kind), str):
        raise ValueError(f"not a saved {kind}: {saved!r}; save it again")
    settings = dict(saved)
    name = settings.pop(kind)
    if name not in known:
        raise UnknownNameError(kind, name, list(known))
    try:
        return known[name].from_settings(settings)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a saved {kind} {name!r} ({error!r}); save it again") from error


class Reward(Saved):
    """A number to maximise, and the named, signed components that it is the sum of.

    A reward of your own is a frozen dataclass that sets `name` and writes `components`.

    Examples
    --------
    >>> from roundwise.rewards import PaperReward, Reward
    >>> isinstance(PaperReward(), Reward)
    True
    """

    kind: ClassVar[str] = "reward"
    needs_kappa: ClassVar[bool] = True  # whether `components` reads `ProblemFacts.kappa`

    @abstractmethod
    def components(self, outcome: Outcome, facts: ProblemFacts, action: Action) -> dict[str, float]:
        """The summands by name; the same names for every outcome."""

    def __call__(self, outcome: Outcome, facts: ProblemFacts, action: Action) -> float:
        return sum(self.components(outcome, facts, action).values())

    def row(
        self, outcomes: OutcomeRow, facts: ProblemFacts, space: ActionSpace
    ) -> NDArray[np.float64]:
        """The rewards of all actions on one problem; NaN where an outcome is None.

        If `facts` has no baseline, the outcome of the space's safe action is the baseline.
        """
        facts = with_baseline(facts, outcomes, space)
        return np.array(
            [
                math.nan if outcome is None else self(outcome, facts, action)
                for outcome, action in zip(outcomes, space, strict=True)
            ]
        )


def reward_matrix(
    reward: Reward,
    outcome_rows: Sequence[OutcomeRow],
    facts: Sequence[ProblemFacts],
    space: ActionSpace,
) -> NDArray[np.float64]:
    """Rewards of N problems and A actions, shape (N, A); NaN where an outcome is None."""
    pairs = zip(outcome_rows, facts, strict=True)
    rows = [reward.row(outcomes, fact, space) for outcomes, fact in pairs]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(space))


def with_baseline(facts: ProblemFacts, outcomes: OutcomeRow, space: ActionSpace) -> ProblemFacts:
    """The facts with the safe action's outcome as baseline, unless they have one."""
    if len(outcomes) != len(space):
        raise ValueError(f"a row has {len(outcomes)} outcomes, the space {len(space)} actions")
    for outcome, name in zip(outcomes, space.names, strict=True):
        if outcome is not None and outcome.action not in ("", name):
            raise ValueError(
                f"an outcome of {outcome.action} stands where the space has {name}; pass the "
                "outcomes in the order of the space"
            )
    if facts.baseline is None:
        return dataclasses.replace(facts, baseline=outcomes[space.safe])
    return facts


def baseline_of(facts: ProblemFacts) -> Outcome:
    """The baseline of the facts, or an error that says how to add it."""
    if facts.baseline is None:
        raise ValueError(
            "the facts have no baseline; run the safe action on the problem and pass "
            "dataclasses.replace(facts, baseline=outcome)"
        )
    return facts.baseline


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


def target_from_dict(saved: Any) -> AccuracyTarget:
    """The target that `AccuracyTarget.to_dict` wrote."""
    return from_saved(saved, "target", (BackwardErrorTarget, StrictTarget))
