"""Training a policy by replaying a table of rewards, and what it is worth in measured time.

No system is solved here. What a choice costs is the measured time of the climb that it starts, and
of the features that the policy looks at. The oracle pays for no features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import ActionSpace
from roundwise.costs import MeasuredTime, cost_matrix
from roundwise.evaluation.choices import climb_costs
from roundwise.evaluation.tables import Interval, mean_interval, ratio_interval
from roundwise.outcomes import OutcomeView
from roundwise.policies import NeighbourPolicy, Policy
from roundwise.policies.profile import Profile, fitting_actions
from roundwise.rewards import ProblemFacts, Reward
from roundwise.rewards.base import reward_matrix
from roundwise.rewards.cost import climbed
from roundwise.tuning.context import Context, kappa_for


@dataclass(frozen=True)
class TrainingCurves:
    """One number per episode.

    Parameters
    ----------
    reward : array
        Mean reward of the actions tried.
    error : array
        Mean absolute error of the predicted reward.
    epsilon : array
        Share of random choices.
    coverage : array
        Share of what could be tried that was tried so far.

    Examples
    --------
    >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
    >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
    >>> tuner.curves_.reward.shape
    (10,)
    """

    reward: NDArray[np.float64]  # mean of the actions tried
    error: NDArray[np.float64]  # mean absolute error of the predicted reward
    epsilon: NDArray[np.float64]  # share of random choices
    coverage: NDArray[np.float64]  # share of what could be tried that was tried so far

    def to_dict(self) -> dict[str, list[float]]:
        return {name: values.tolist() for name, values in vars(self).items()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> TrainingCurves:
        return cls(**{name: np.array(values, dtype=np.float64) for name, values in saved.items()})


def view_contexts(view: OutcomeView, context: Context) -> NDArray[np.float64]:
    """The contexts of a view's problems, (N, d).

    Parameters
    ----------
    view : OutcomeView
    context : Context

    Returns
    -------
    array, (N, d)

    Examples
    --------
    >>> import tempfile
    >>> from roundwise.outcomes import OutcomeTable, fill
    >>> from roundwise.tuning import PAPER_CONTEXT, view_contexts
    >>> problems, actions = [rw.problems.randsvd(10, 100.0, rng=0)], ["fp64-fp64-fp64-fp64"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = OutcomeTable(f"{folder}/outcomes.sqlite")
    ...     done = fill(table, rw.GmresIR(), problems, actions)
    ...     view = table.view(rw.GmresIR(), problems, actions)
    >>> view_contexts(view, PAPER_CONTEXT).shape
    (1, 2)
    """
    return np.array([context.vector(view.features_of(i)) for i in range(view.shape[0])])


def view_rewards(view: OutcomeView, reward: Reward, space: ActionSpace) -> NDArray[np.float64]:
    """The rewards of a view's outcomes, (N, A).

    Parameters
    ----------
    view : OutcomeView
    reward : Reward
    space : ActionSpace

    Returns
    -------
    array, (N, A)

    Examples
    --------
    >>> import tempfile
    >>> from roundwise.actions import list_space
    >>> from roundwise.outcomes import OutcomeTable, fill
    >>> from roundwise.rewards import PaperReward
    >>> from roundwise.tuning import view_rewards
    >>> problems = [rw.problems.randsvd(10, 100.0, rng=0)]
    >>> space = list_space(rw.GmresIR.stages, ["fp32-fp64-fp64-fp64", "fp64-fp64-fp64-fp64"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = OutcomeTable(f"{folder}/outcomes.sqlite")
    ...     done = fill(table, rw.GmresIR(), problems, space)
    ...     view = table.view(rw.GmresIR(), problems, space)
    >>> view_rewards(view, PaperReward(), space).shape
    (1, 2)
    """
    if (view.action_names, view.actions) != (space.names, space.actions):
        raise ValueError("the view's actions are not those of the space; view(..., space)")
    problems = range(view.shape[0])
    facts = [
        ProblemFacts.from_stored(view.problems[i], kappa_for(reward, view.features_of(i)))
        for i in problems
    ]
    return reward_matrix(reward, [view.row(i) for i in problems], facts, space)


def checked_rewards(rewards: ArrayLike, problems: int, actions: int) -> NDArray[np.float64]:
    """The rewards as an array (problems, actions) of finite numbers."""
    table = np.array(rewards, dtype=np.float64)
    if table.shape != (problems, actions):
        raise ValueError(
            f"rewards have shape {table.shape}; pass one row for each of {problems} contexts "
            f"and one column for each of {actions} actions"
        )
    if not np.isfinite(table).all():
        raise ValueError("rewards hold NaN or inf; leave out problems without all outcomes")
    return table


def train(
    policy: Policy,
    contexts: ArrayLike,
    rewards: ArrayLike,
    space: ActionSpace,
    episodes: int,
    rng: np.random.Generator,
    view: OutcomeView | None = None,
) -> TrainingCurves:
    """Start the policy and let it learn (Carson & Chen, Algorithms 1 and 3).

    In episode t = 1..T each problem is met once, in the given order: the policy explores an
    action at progress t/T and learns its reward from the table.

    `view` holds the outcomes that the rewards come from. It is passed to `Policy.study`: a policy
    that prices work needs it.

    Parameters
    ----------
    policy : Policy
    contexts : array_like, (N, d)
    rewards : array_like, (N, A)
    space : ActionSpace
    episodes : int
    rng : numpy.random.Generator
    view : OutcomeView, optional

    Returns
    -------
    TrainingCurves

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import TabularQ
    >>> from roundwise.tuning import train
    >>> space, rng = list_space(["factor"], ["fp32", "fp64"]), np.random.default_rng(0)
    >>> curves = train(TabularQ(), [[1.0], [9.0]], [[1.0, 0.0], [-1.0, 0.0]], space, 30, rng)
    >>> float(curves.coverage[-1])  # everything was tried
    1.0
    """
    if episodes < 1:
        raise ValueError(f"episodes = {episodes}; choose at least 1")
    contexts = np.asarray(contexts, dtype=np.float64)
    table = checked_rewards(rewards, len(contexts), len(space))
    policy.start(contexts, space)
    if view is not None:
        policy.study(view, contexts)
    curves = np.zeros((4, episodes))
    if policy.learns:
        states = list(policy.encode(contexts))
        rows = table.tolist()  # plain floats: reading one from an array costs more than a policy
        explore, update = policy.explore, policy.update
        for t in range(episodes):
            progress = (t + 1) / episodes
            reward_sum = error_sum = 0.0
            for state, row in zip(states, rows, strict=True):
                action = explore(state, rng, progress)
                error_sum += abs(update(state, action, row[action]))
                reward_sum += row[action]
            means = reward_sum / len(rows), error_sum / len(rows)
            curves[:, t] = *means, policy.epsilon(progress), policy.coverage
    else:
        chosen = policy.predict(contexts)
        curves[0] = table[np.arange(len(table)), chosen].mean()
        curves[3] = 1.0
    return TrainingCurves(*curves)


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
