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
from roundwise.policies.look import Seen
from roundwise.report import Table
from roundwise.rewards import ClimbReward
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

    def neighbours(rewards: Floats, space: ActionSpace) -> Policy:
        return NeighbourPolicy(prices=prices)

    def online(rewards: Floats, space: ActionSpace) -> Policy:
        return OnlinePolicy(NeighbourPolicy(prices=prices))

    def table(rewards: Floats, space: ActionSpace) -> Policy:
        return TabularQ(FeatureDiscretizer(4), alpha="1/N", generalise="nearest")

    def fixed(fmt: str) -> Callable[[Floats, ActionSpace], Policy]:
        return lambda rewards, space: FixedAction(_last_with(space, fmt))

    return [
        Candidate("neighbours, priced", neighbours),
        Candidate("online learner", online),
        Candidate("tabular Q, 4 bins, 1/N, nearest", table),
        Candidate("linear UCB", lambda rewards, space: LinearUCB()),
        Candidate("Thompson sampling", lambda rewards, space: ThompsonSampling()),
        Candidate("gradient boosting", lambda rewards, space: RegressionPolicy(kappa_feature=None)),
        Candidate("theory's limits on kappa", lambda rewards, space: TheoryRule(), kappa),
        Candidate(
            "best fixed action in training",
            lambda rewards, space: FixedAction(best_fixed_action(rewards)),
            BLIND,
        ),
        Candidate("always FP32 first", fixed("fp32"), BLIND),
        Candidate("always FP64", lambda rewards, space: FixedAction(), BLIND),
    ]


def _last_with(space: ActionSpace, fmt: str) -> int:
    return max(i for i, action in enumerate(space) if action[0].name == fmt)


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
        met = np.array([[outcome.converged for outcome in row] for row in rows])
        ladders = [space.climb(a) for a in range(len(space))]
        climbs = climb_costs(cost_matrix(MeasuredTime(), rows), met, ladders)
        allowed = [_fitting(space, view.features_of(i)) for i in range(len(rows))]
        return cls(view, space, climbs, allowed)

    def seconds_of(self, features: Sequence[str]) -> Floats:
        """What computing these features takes, for each system."""
        places = [self.view.feature_names.index(name) for name in features]
        return np.asarray(self.view.feature_seconds[:, places].sum(axis=1))

    @property
    def oracle(self) -> Floats:
        """Seconds of the best start of each system."""
        masked = np.full(self.climbs.shape, np.inf)
        for i, allowed in enumerate(self.allowed):
            masked[i, list(allowed)] = self.climbs[i, list(allowed)]
        return np.asarray(masked.min(axis=1))

    @property
    def safe(self) -> Floats:
        return np.asarray(self.climbs[:, self.space.safe])


def _fitting(space: ActionSpace, features: Mapping[str, float]) -> tuple[int, ...]:
    """The actions whose method fits a system, as the front door sees it."""
    unsuited = {
        "cholesky": not features["looks_positive_definite"],
        "superlu/mmd": not features["symmetric_pattern"],
    }
    return tuple(i for i, action in enumerate(space) if not unsuited.get(action.method, False))


def chosen_seconds(candidate: Candidate, measured: Measured, folds: int = FOLDS) -> Floats:
    """Seconds on each system if the policy, trained without its fold, decides; features paid."""
    view, space = measured.view, measured.space
    contexts = view_contexts(view, candidate.context)
    rewards = view_rewards(view, ClimbReward(), space)
    seconds = np.zeros(len(contexts))
    everyone = np.arange(len(contexts))
    for fold in range(folds):
        test = everyone[everyone % folds == fold]
        known = everyone[everyone % folds != fold]
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
    contexts = view_contexts(measured.view, context)[systems]
    paid = measured.seconds_of([name for name in context.features if name != "n"])
    first, seconds = np.zeros(len(systems), dtype=np.intp), np.zeros(len(systems))
    for k, (i, state) in enumerate(zip(systems, policy.encode(contexts), strict=True)):
        if isinstance(policy, NeighbourPolicy) and _is_small(policy, state):
            first[k], cost = _safe_start(measured, i), 0.0
        else:
            first[k], cost = policy.rank(state, measured.allowed[i]).first, paid[i]
        seconds[k] = measured.climbs[i, first[k]] + cost
    return first, seconds


def _is_small(policy: NeighbourPolicy, seen: Seen) -> bool:
    """Whether the front door would not even look at the system."""
    return policy.small(seen.kind, seen.entries if seen.is_sparse else seen.n) is not None


def _small(measured: Measured, prices: Prices | None) -> NDArray[np.bool_]:
    """Which systems the front door would not look at."""
    policy = NeighbourPolicy(prices=prices)
    states = policy.states(view_contexts(measured.view, LOOK_CONTEXT))
    return np.array([seen is not None and _is_small(policy, seen) for seen in states])


def _safe_start(measured: Measured, system: int) -> int:
    """FP64 by the method of the system's kind: the first that fits, as the front door takes it."""
    space, allowed = measured.space, measured.allowed[system]
    safest = [i for i in allowed if space[i][0] == space[space.safe][0]]
    return safest[0]


@dataclass(frozen=True)
class Comparison:
    """One policy on one kind of systems.

    Attributes
    ----------
    regret : Interval
        Mean log2 of its seconds over the oracle's; 1 means twice as long.
    total : Interval
        Its seconds over the oracle's, in all.
    near : float
        The share of systems on which it takes at most 1.05 times the oracle's time.
    worst : float
        Its speed against the safe action, on the system where that is lowest.
    """

    kind: str
    policy: str
    systems: int
    regret: Interval
    total: Interval
    near: float
    worst: float


def compare(
    views: Mapping[bool, OutcomeView],
    prices: Prices | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Comparison]:
    """Every candidate on dense and on sparse systems, each left out once.

    The group "looked at" leaves out the systems that the front door solves in FP64 without a look,
    as no format gains time there: only the neighbour policy knows this beforehand.
    """
    policies = candidates(prices)
    found = []
    for done, (sparse, view) in enumerate(sorted(views.items())):
        measured = Measured.of(view)
        oracle, safe = measured.oracle, measured.safe
        kind = "sparse" if sparse else "dense"
        groups = {"all": np.ones(len(oracle), dtype=bool), "looked at": ~_small(measured, prices)}
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
