"""What a policy is worth in measured time.

What a choice costs is the measured time of the climb that it starts, and of the features that the
policy looks at. The oracle pays for no features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.costs import MeasuredTime
from roundwise.outcomes import OutcomeView
from roundwise.policies import NeighbourPolicy, Policy
from roundwise.policies.profile import Profile, fitting_actions
from roundwise.rewards.cost import climbed
from roundwise.tuning import Context, view_contexts
from roundwise_studies.evaluation.choices import climb_costs, cost_matrix
from roundwise_studies.evaluation.tables import Interval, mean_interval, ratio_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Measured:
    """The systems of one kind: seconds of every climb, and what features cost."""

    view: OutcomeView
    space: ActionSpace
    climbs: Floats  # (N, A): seconds if action a is first
    allowed: Sequence[tuple[int, ...]]  # the actions that fit each system

    @classmethod
    def of(cls, view: OutcomeView) -> Measured:
        space = ActionSpace(view.stages, tuple(view.actions))
        rows = [view.row(i) for i in range(view.shape[0])]
        costs = cost_matrix(MeasuredTime(), rows)
        climbs = np.empty(costs.shape)
        for i, row in enumerate(rows):  # outcomes decide which rungs are passed over
            met = [[outcome.converged for outcome in row]]
            ladders = [climbed(space.climb(a), row, space) for a in range(len(space))]
            climbs[i] = climb_costs(costs[i : i + 1], met, ladders)[0]
        allowed = [fitting_actions(space, view.features_of(i)) for i in range(len(rows))]
        return cls(view, space, climbs, allowed)

    def seconds_of(self, features: Sequence[str]) -> Floats:
        """What computing these features takes, for each system."""
        places = [self.view.feature_names.index(name) for name in features]
        return np.asarray(self.view.feature_seconds[:, places].sum(axis=1))

    @property
    def oracle(self) -> Floats:
        """Seconds of the best start of each system."""
        pairs = zip(self.climbs, self.allowed, strict=True)
        return np.array([climbs[list(allowed)].min() for climbs, allowed in pairs])

    @property
    def safe(self) -> Floats:
        return np.asarray(self.climbs[:, self.space.safe])


def first_actions(
    policy: Policy, context: Context, measured: Measured, systems: Ints
) -> tuple[Ints, Floats]:
    """The action that a trained policy starts with on each of these systems, and the seconds.

    They are those of the climb from it and of the features, but for systems so small that the
    front door does not probe them.
    """
    contexts, space = view_contexts(measured.view, context)[systems], measured.space
    paid = measured.seconds_of([name for name in context.features if name != "n"])
    first, seconds = np.zeros(len(systems), dtype=np.intp), np.zeros(len(systems))
    for k, (i, state) in enumerate(zip(systems, policy.encode(contexts), strict=True)):
        if isinstance(policy, NeighbourPolicy) and is_small(policy, state):
            # FP64 by the method of the system's kind: the first that fits, as the front door does.
            safe = space[space.safe][0]
            first[k], cost = next(a for a in measured.allowed[i] if space[a][0] == safe), 0.0
        else:
            first[k], cost = policy.rank(state, measured.allowed[i]).first, paid[i]
        seconds[k] = measured.climbs[i, first[k]] + cost
    return first, seconds


def is_small(policy: NeighbourPolicy, profile: Profile) -> bool:
    """Whether the front door would not even probe the system."""
    return (
        policy.small(profile.kind, profile.entries if profile.is_sparse else profile.n) is not None
    )


@dataclass(frozen=True)
class PolicyTimes:
    """One policy on one kind of systems."""

    kind: str
    policy: str
    systems: int
    regret: Interval  # mean log2 of its seconds over the oracle's; 1 means twice as long
    total: Interval  # its seconds over the oracle's, in all
    near: float  # the share of systems where it takes at most 1.05 times the oracle's time
    worst: float  # its speed against the safe action, on the system where that is lowest


def policy_times(
    kind: str, policy: str, seconds: Floats, oracle: Floats, safe: Floats
) -> PolicyTimes:
    """What these seconds per system are worth, beside the oracle's and the safe action's."""
    rng = np.random.default_rng(0)
    return PolicyTimes(
        kind,
        policy,
        len(seconds),
        mean_interval(np.log2(seconds / oracle), rng),
        ratio_interval(seconds, oracle, rng),
        float(np.mean(seconds <= 1.05 * oracle)),
        float((safe / seconds).min()),
    )
