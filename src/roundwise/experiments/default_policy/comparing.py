"""Which policy ships: all that can be deployed, compared on left-out systems in measured time.

Every candidate is trained on the same outcomes (four folds of five) and chooses for the systems of
the fifth. What a choice costs is the measured time of the climb that it starts, and of the
features that the policy looks at. The oracle pays for no features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.costs import MeasuredTime, Prices, cost_matrix
from roundwise.discretizer import FeatureDiscretizer
from roundwise.evaluation import (
    Interval,
    best_fixed_action,
    climb_costs,
    mean_interval,
    ratio_interval,
)
from roundwise.experiments.default_policy.gathering import KAPPA
from roundwise.features import KAPPA_FLOOR
from roundwise.formats import FP32
from roundwise.outcomes import OutcomeView
from roundwise.policies import (
    FixedAction,
    LinearUCB,
    NeighbourPolicy,
    OnlinePolicy,
    Policy,
    RegressionPolicy,
    TabularQ,
    TheoryRule,
    ThompsonSampling,
)
from roundwise.policies.look import Seen, fitting_actions
from roundwise.report import Table
from roundwise.rewards import ClimbReward
from roundwise.rewards.climb import climbed
from roundwise.tuning import LOOK_CONTEXT, Context, train, view_contexts, view_rewards

FOLDS = 5
EPISODES = 30
Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
BLIND = Context(("n",), (1.0,))
"""For policies that look at nothing: n is known anyway."""


@dataclass(frozen=True)
class Candidate:
    """A policy to compare, and what it sees."""

    name: str
    make: Callable[[Floats, ActionSpace], Policy]
    context: Context = LOOK_CONTEXT


def candidates(prices: Prices | None = None) -> list[Candidate]:
    """All policies that can be deployed; `prices` are this machine's if not given."""
    kappa = Context((KAPPA,), (KAPPA_FLOOR,))

    def priced() -> NeighbourPolicy:
        return NeighbourPolicy(prices=prices)

    def table() -> TabularQ:
        return TabularQ(FeatureDiscretizer(4), alpha="1/N", generalise="nearest")

    def always_fp32(rewards: Floats, space: ActionSpace) -> Policy:
        return FixedAction(max(i for i, action in enumerate(space) if action[0] == FP32))

    return [
        Candidate("neighbours, priced", lambda rewards, space: priced()),
        Candidate("online learner", lambda rewards, space: OnlinePolicy(priced())),
        Candidate("tabular Q, 4 bins, 1/N, nearest", lambda rewards, space: table()),
        Candidate("linear UCB", lambda rewards, space: LinearUCB()),
        Candidate("Thompson sampling", lambda rewards, space: ThompsonSampling()),
        Candidate("gradient boosting", lambda rewards, space: RegressionPolicy(kappa_feature=None)),
        Candidate("theory's limits on kappa", lambda rewards, space: TheoryRule(), kappa),
        Candidate(
            "best fixed action in training",
            lambda rewards, space: FixedAction(best_fixed_action(rewards)),
            BLIND,
        ),
        Candidate("always FP32 first", always_fp32, BLIND),
        Candidate("always FP64", lambda rewards, space: FixedAction(), BLIND),
    ]


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


def chosen_seconds(candidate: Candidate, measured: Measured) -> Floats:
    """Seconds on each system if the policy, trained without its fold, decides; features paid."""
    view, space = measured.view, measured.space
    contexts = view_contexts(view, candidate.context)
    rewards = view_rewards(view, ClimbReward(), space)
    seconds, fold_of = np.zeros(len(contexts)), np.arange(len(contexts)) % FOLDS
    for fold in range(FOLDS):
        test, known = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
        policy = candidate.make(rewards[known], space)
        rng = np.random.default_rng(fold)
        train(policy, contexts[known], rewards[known], space, EPISODES, rng, view.take(known))
        _, seconds[test] = first_actions(policy, candidate.context, measured, test)
    return seconds


def first_actions(
    policy: Policy, context: Context, measured: Measured, systems: Ints
) -> tuple[Ints, Floats]:
    """The action that a trained policy starts with on each of these systems, and the seconds.

    They are those of the climb from it and of the features, but for systems so small that the
    front door does not look at them.
    """
    contexts, space = view_contexts(measured.view, context)[systems], measured.space
    paid = measured.seconds_of([name for name in context.features if name != "n"])
    first, seconds = np.zeros(len(systems), dtype=np.intp), np.zeros(len(systems))
    for k, (i, state) in enumerate(zip(systems, policy.encode(contexts), strict=True)):
        if isinstance(policy, NeighbourPolicy) and _is_small(policy, state):
            # FP64 by the method of the system's kind: the first that fits, as the front door does.
            safe = space[space.safe][0]
            first[k], cost = next(a for a in measured.allowed[i] if space[a][0] == safe), 0.0
        else:
            first[k], cost = policy.rank(state, measured.allowed[i]).first, paid[i]
        seconds[k] = measured.climbs[i, first[k]] + cost
    return first, seconds


def _is_small(policy: NeighbourPolicy, seen: Seen) -> bool:
    """Whether the front door would not even look at the system."""
    return policy.small(seen.kind, seen.entries if seen.is_sparse else seen.n) is not None


@dataclass(frozen=True)
class Comparison:
    """One policy on one kind of systems."""

    kind: str
    policy: str
    systems: int
    regret: Interval  # mean log2 of its seconds over the oracle's; 1 means twice as long
    total: Interval  # its seconds over the oracle's, in all
    near: float  # the share of systems where it takes at most 1.05 times the oracle's time
    worst: float  # its speed against the safe action, on the system where that is lowest


def compare(
    views: Mapping[bool, OutcomeView],
    prices: Prices | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Comparison]:
    """Every candidate on dense and on sparse systems, each left out once.

    The group "looked at" leaves out the systems that the front door solves in FP64 without a look,
    as no format gains time there: only the neighbour policy knows this beforehand.
    """
    policies, door = candidates(prices), NeighbourPolicy(prices=prices)
    found = []
    for done, (sparse, view) in enumerate(sorted(views.items())):
        measured = Measured.of(view)
        oracle, safe = measured.oracle, measured.safe
        kind = "sparse" if sparse else "dense"
        states = door.states(view_contexts(view, LOOK_CONTEXT))
        looked_at = np.array([seen is None or not _is_small(door, seen) for seen in states])
        groups = {"all": np.ones(len(oracle), dtype=bool), "looked at": looked_at}
        for i, candidate in enumerate(policies):
            if progress is not None:
                progress(done * len(policies) + i, len(views) * len(policies))
            seconds = chosen_seconds(candidate, measured)
            for group, members in groups.items():
                if members.any():
                    times = (x[members] for x in (seconds, oracle, safe))
                    found.append(judged(f"{kind}, {group}", candidate.name, *times))
    return sorted(found, key=lambda comparison: comparison.kind)


def judged(kind: str, policy: str, seconds: Floats, oracle: Floats, safe: Floats) -> Comparison:
    rng = np.random.default_rng(0)
    return Comparison(
        kind,
        policy,
        len(seconds),
        mean_interval(np.log2(seconds / oracle), rng),
        ratio_interval(seconds, oracle, rng),
        float(np.mean(seconds <= 1.05 * oracle)),
        float((safe / seconds).min()),
    )


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """As the docs have it: intervals in brackets."""
    columns = ("systems", "policy", "count", "regret (log2)", "total time", "within 5 %", "worst")
    rows = [
        (
            c.kind,
            c.policy,
            c.systems,
            f"{c.regret.value:.3f} [{c.regret.low:.3f}, {c.regret.high:.3f}]",
            f"{c.total.value:.3f} [{c.total.low:.3f}, {c.total.high:.3f}]",
            f"{100 * c.near:.0f} %",
            f"{c.worst:.2f}",
        )
        for c in comparisons
    ]
    caption = "Policies on left-out systems, in measured time, all costs included."
    return Table(caption, columns, rows)
