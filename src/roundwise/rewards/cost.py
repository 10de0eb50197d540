"""Rewards that are speedups: of one run with its fallback, and of a whole climb."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action, ActionSpace
from roundwise.algorithms import OutcomeStatus, VerifiedSolve
from roundwise.algorithms.base import Outcome
from roundwise.costs.machines import MachineProfile, MeasuredTime, OutcomeRow
from roundwise.rewards.base import (
    AccuracyTarget,
    BackwardErrorTarget,
    ProblemFacts,
    Reward,
    baseline_of,
    target_from_dict,
    with_baseline,
)


@dataclass(frozen=True)
class CostReward(Reward):
    """log2 of the speedup over all-FP64, a miss paying for the fallback.

    With c the cost of the run and F that of the baseline (the safe action, all-FP64) on the
    same problem,

    - ``saving = log2(F / c)`` if the accuracy target was met, else 0;
    - ``fallback = log2(F / (c + F)) <= 0`` if it was missed, else 0.

    The baseline itself always earns 0: if even it misses the target, there is nothing to fall
    back to. A mean reward of 1 thus means twice as fast in the geometric mean.

    Parameters
    ----------
    cost : MachineProfile or MeasuredTime
        What a run costs.
    target : AccuracyTarget
        By default the gate's.

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.costs import MachineProfile, Rate
    >>> from roundwise.rewards import CostReward, ProblemFacts
    >>> from roundwise.rewards.base import reward_matrix
    >>> algorithm = rw.GmresIR(stop=rw.algorithms.DeploymentRule())
    >>> system = rw.problems.randsvd(50, 10.0, rng=0)
    >>> space = list_space(algorithm.stages, ["fp32-fp64-fp64-fp64", "fp64-fp64-fp64-fp64"])
    >>> outcomes = [algorithm.run(system, action) for action in space]
    >>> reward = CostReward(MachineProfile("toy", {"fp32": Rate(2e9), "fp64": Rate(1e9)}))
    >>> rewards = reward_matrix(reward, [outcomes], [ProblemFacts(50, 10.0, 1.0, 1.0, 1.0)], space)
    >>> float(rewards[0, 1])  # all-FP64 earns nothing
    0.0
    """

    name: ClassVar[str] = "cost"
    needs_kappa: ClassVar[bool] = False

    cost: MachineProfile | MeasuredTime
    target: AccuracyTarget = field(default_factory=BackwardErrorTarget)

    def components(self, outcome: Outcome, facts: ProblemFacts, action: Action) -> dict[str, float]:
        baseline = baseline_of(facts)
        F, c = self.cost.cost(baseline, facts.n), self.cost.cost(outcome, facts.n)
        if not F > 0:
            raise ValueError(
                f"the baseline {baseline.action!r} costs nothing ({baseline.status.name}: "
                f"{baseline.reason}); leave out problems that it cannot start on"
            )
        if outcome is baseline or str(action) == baseline.action:
            return {"saving": 0.0, "fallback": 0.0}
        if not self.target.met(outcome, facts):
            return {"saving": 0.0, "fallback": math.log2(F / (c + F))}
        if not c > 0:
            raise ValueError(
                f"the run of {action} met the target at no cost; its operations were not counted"
            )
        return {"saving": math.log2(F / c), "fallback": 0.0}

    def to_dict(self) -> dict[str, Any]:
        return {"reward": self.name, "cost": self.cost.to_dict(), "target": self.target.to_dict()}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> CostReward:
        cost = settings["cost"]
        measured = cost == MeasuredTime().to_dict()
        return cls(
            MeasuredTime() if measured else MachineProfile.from_dict(cost),
            target_from_dict(settings["target"]),
        )


@dataclass(frozen=True)
class ClimbReward(CostReward):
    """log2 of the speedup over the safe action, of the climb that starts with an action.

    With ``C(a)`` the summed cost of the actions of ``space.climb(a)`` up to the first that meets
    the target, and F the cost of the safe action, the reward of a is ``log2(F / C(a))``. Rungs that
    a solve would skip cost nothing: once Cholesky in FP32 has shown that A is indefinite, Cholesky
    in FP64 is not tried (`VerifiedSolve.rung_after`). Where the space has methods for dense and for
    sparse systems, the safe action is the safest of those that suit the problem. A single outcome,
    without those of the other actions, is rewarded as by `CostReward`: after a miss the safe action
    follows at once.

    Parameters
    ----------
    cost : MachineProfile or MeasuredTime
        What a run costs; by default its time.
    target : AccuracyTarget
        By default the gate's.

    Examples
    --------
    >>> from roundwise.rewards import ClimbReward
    >>> ClimbReward().target.name
    'backward_error'
    """

    name: ClassVar[str] = "climb"

    cost: MachineProfile | MeasuredTime = field(default_factory=MeasuredTime)

    def row(
        self, outcomes: OutcomeRow, facts: ProblemFacts, space: ActionSpace
    ) -> NDArray[np.float64]:
        facts = with_baseline(facts, outcomes, space)
        costs = [math.nan if o is None else self.cost.cost(o, facts.n) for o in outcomes]
        met = [o is not None and self.target.met(o, facts) for o in outcomes]
        unsuited = {
            i
            for i, o in enumerate(outcomes)
            if o is not None and o.status is OutcomeStatus.UNSUITED
        }
        suited = set(range(len(space))) - unsuited
        safe = space.safe if not suited or space.safe in suited else space.safest(suited)
        firsts = range(len(space))
        ladders = [
            climbed(tuple(dict.fromkeys((*space.climb(first), safe))), outcomes, space)
            for first in firsts
        ]
        totals = climb_totals(np.array([costs]), np.array([met]), ladders)[0]
        rewards: NDArray[np.float64] = np.log2(costs[safe] / totals)
        rewards[safe] = 0.0
        return rewards


def climbed(ladder: Sequence[int], outcomes: OutcomeRow, space: ActionSpace) -> tuple[int, ...]:
    """The rungs of a ladder that a solve comes to, if none before the last meets the target."""
    rungs, level = [], 0
    actions = [space[i] for i in ladder]
    while True:
        rungs.append(ladder[level])
        outcome = outcomes[ladder[level]]
        # Of a rung that was not run nothing is known: the next one is taken.
        higher = (
            level + 1
            if outcome is None
            else VerifiedSolve.rung_after(actions, level, outcome.status)
        )
        if higher is None or higher >= len(ladder) - 1:
            return tuple(dict.fromkeys((*rungs, ladder[-1])))
        level = higher


def climb_totals(
    costs: NDArray[np.float64], met: NDArray[np.bool_], ladders: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Cost of solving each problem when an action is tried first, shape (N, A).

    `costs` and `met`, (N, A), say what each run costs and whether it met the target. Problem i
    pays for the actions of ``ladders[a]``, which begins with a, up to the first that met it. NaN
    where that needs a run whose cost is NaN.
    """
    totals = costs.copy()
    for a, ladder in enumerate(ladders):
        climbing = ~met[:, a]
        for action in ladder[1:]:
            totals[climbing, a] += costs[climbing, action]
            climbing &= ~met[:, action]
    return totals
