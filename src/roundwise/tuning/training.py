"""Training a policy by replaying a table of rewards: no system is solved here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import ActionSpace
from roundwise.outcomes import OutcomeView
from roundwise.policies import Policy
from roundwise.rewards import ProblemFacts, Reward
from roundwise.rewards.base import reward_matrix
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
