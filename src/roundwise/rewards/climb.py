"""The reward of a whole climb: what `roundwise.solve` takes if it starts with an action."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.costs import MachineProfile, MeasuredTime, OutcomeRow
from roundwise.rewards.base import ProblemFacts, with_baseline
from roundwise.rewards.cost import CostReward


@dataclass(frozen=True)
class ClimbReward(CostReward):
    """log2 of the speedup over the safe action, of the climb that starts with an action.

    With ``C(a)`` the summed cost of the actions of ``space.climb(a)`` up to the first that meets
    the target, and F the cost of the safe action, the reward of a is ``log2(F / C(a))``. An outcome
    by itself, without those of the other actions, is rewarded as by `CostReward`: a miss pays for
    the safe action at once.
    """

    name: ClassVar[str] = "climb"

    cost: MachineProfile | MeasuredTime = field(default_factory=MeasuredTime)

    def row(
        self, outcomes: OutcomeRow, facts: ProblemFacts, space: ActionSpace
    ) -> NDArray[np.float64]:
        facts = with_baseline(facts, outcomes, space)
        costs = [math.nan if o is None else self.cost.cost(o, facts.n) for o in outcomes]
        met = [o is not None and self.target.met(o, facts) for o in outcomes]
        safe = costs[space.safe]
        rewards = []
        for first in range(len(space)):
            spent = 0.0
            for action in space.climb(first):
                spent += costs[action]
                if met[action]:
                    break
            rewards.append(math.log2(safe / spent) if first != space.safe else 0.0)
        return np.array(rewards)
