"""Which policy ships: all that can be deployed, compared on left-out systems in measured time.

Every candidate is trained on the same outcomes (four folds of five) and chooses for the systems of
the fifth. What a choice costs is the measured time of the climb that it starts, and of the
features that the policy looks at. The oracle pays for no features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundwise.actions import ActionSpace
from roundwise.costs.prices import Prices
from roundwise.discretizer import FeatureDiscretizer
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
from roundwise.rewards import ClimbReward
from roundwise.tuning import PROBE_CONTEXT, Context, train, view_contexts, view_rewards
from roundwise_studies.default_policy.gathering import KAPPA
from roundwise_studies.evaluation import best_fixed_action
from roundwise_studies.evaluation.times import (
    Floats,
    Measured,
    PolicyTimes,
    first_actions,
    is_small,
    policy_times,
)
from roundwise_studies.report import Table

FOLDS = 5
EPISODES = 30
BLIND = Context(("n",), (1.0,))
"""For policies that look at nothing: n is known anyway."""


@dataclass(frozen=True)
class Candidate:
    """A policy to compare, and what it sees."""

    name: str
    make: Callable[[Floats, ActionSpace], Policy]
    context: Context = PROBE_CONTEXT


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


def compare(
    views: Mapping[bool, OutcomeView],
    prices: Prices | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[PolicyTimes]:
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
        states = door.states(view_contexts(view, PROBE_CONTEXT))
        looked_at = np.array([seen is None or not is_small(door, seen) for seen in states])
        groups = {"all": np.ones(len(oracle), dtype=bool), "looked at": looked_at}
        for i, candidate in enumerate(policies):
            if progress is not None:
                progress(done * len(policies) + i, len(views) * len(policies))
            seconds = chosen_seconds(candidate, measured)
            for group, members in groups.items():
                if members.any():
                    times = (x[members] for x in (seconds, oracle, safe))
                    found.append(policy_times(f"{kind}, {group}", candidate.name, *times))
    return sorted(found, key=lambda comparison: comparison.kind)


def comparison_table(comparisons: Sequence[PolicyTimes]) -> Table:
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
