"""The reward that is a speedup: cost against accuracy, with fallbacks paid for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from roundwise.actions import Action
from roundwise.algorithms.base import Outcome
from roundwise.costs.machines import MachineProfile, MeasuredTime
from roundwise.rewards.base import ProblemFacts, Reward, baseline_of
from roundwise.rewards.targets import AccuracyTarget, BackwardErrorTarget, target_from_dict


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
    >>> from roundwise.rewards import CostReward, ProblemFacts, reward_matrix
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
