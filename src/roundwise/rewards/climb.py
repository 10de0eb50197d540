"""The reward of a whole climb: what `roundwise.solve` takes if it starts with an action."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms import OutcomeStatus, VerifiedSolve
from roundwise.costs import MachineProfile, MeasuredTime, OutcomeRow
from roundwise.rewards.base import ProblemFacts, with_baseline
from roundwise.rewards.cost import CostReward


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
        unsuited = {i for i, o in enumerate(outcomes) if o is not None and o.status is _UNSUITED}
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


_UNSUITED = OutcomeStatus.UNSUITED


def climbed(ladder: Sequence[int], outcomes: OutcomeRow, space: ActionSpace) -> tuple[int, ...]:
    """The rungs of a ladder that a solve comes to, if none before the last meets the target."""
    rungs, level = [], 0
    actions = [space[i] for i in ladder]
    while True:
        rungs.append(ladder[level])
        outcome = outcomes[ladder[level]]
        # Of a rung that was not run nothing is known: the next one is taken.
        higher = level + 1 if outcome is None else _rung_after(actions, level, outcome.status)
        if higher is None or higher >= len(ladder) - 1:
            return tuple(dict.fromkeys((*rungs, ladder[-1])))
        level = higher


_rung_after = VerifiedSolve.rung_after


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
