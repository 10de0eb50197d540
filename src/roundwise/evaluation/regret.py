"""Regret of policies under any reward.

All numbers come from a table of rewards of N problems and A actions, and from the index of the
action that a policy chose for each problem: shape (N,), or (S, N) if it was trained with S seeds.
Intervals are over the problems, after averaging over seeds; `SeedSpread` shows the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from roundwise.evaluation.choices import Vector, picked, value_matrix
from roundwise.evaluation.intervals import Interval, SeedSpread, mean_interval, seed_spread
from roundwise.evaluation.tables import Row
from roundwise.policies.base import last_argmax


def best_fixed_action(rewards: ArrayLike) -> int:
    """The action with the highest mean reward among those that every problem has.

    Of equal ones it returns the last, as policies do.

    Parameters
    ----------
    rewards : array_like, (N, A)

    Returns
    -------
    int

    Examples
    --------
    >>> from roundwise.evaluation import best_fixed_action
    >>> best_fixed_action([[1.0, 0.0], [-2.0, 0.0]])
    1
    """
    R = value_matrix("rewards", rewards)
    complete = np.flatnonzero(~np.isnan(R).any(axis=0))
    if not complete.size:
        raise ValueError("no action has a reward for every problem; fill the outcome table")
    return int(complete[last_argmax(R[:, complete].mean(axis=0))])


def regrets(rewards: ArrayLike, chosen: ArrayLike) -> Vector:
    """``max_a R[i, a] - R[i, chosen[i]]``, never negative; the shape of `chosen`.

    Actions without a reward (NaN) are no candidates of the maximum, and must not be chosen.

    Parameters
    ----------
    rewards : array_like, (N, A)
    chosen : array_like of int

    Returns
    -------
    array

    Examples
    --------
    >>> from roundwise.evaluation import regrets
    >>> regrets([[1.0, 0.0], [-2.0, 0.0]], [0, 0])
    array([0., 2.])
    """
    R = value_matrix("rewards", rewards)
    return np.asarray(np.nanmax(R, axis=1) - picked("rewards", R, chosen))


@dataclass(frozen=True)
class PolicyRegret:
    """Mean reward per problem, and what the policy loses against three references.

    A loss is the reference's reward minus the policy's, negative where the policy is better. The
    references: the best action of each problem, the best fixed action, the safe action.
    """

    policy: str
    reward: float
    oracle: Interval
    best_fixed: Interval
    fp64: Interval
    seeds: SeedSpread  # of the loss against the oracle


@dataclass(frozen=True)
class RegretTable:
    """Policies, and the references themselves, under one reward on one set of problems.

    Parameters
    ----------
    count : int
        Problems.
    policies : tuple of PolicyRegret

    Examples
    --------
    >>> from roundwise.evaluation import regret_table
    >>> rng = np.random.default_rng(0)
    >>> table = regret_table([[1.0, 0.0], [-1.0, 0.0]], {"mine": [0, 1]}, safe=1, rng=rng)
    >>> len(table.policies)  # with oracle, best fixed and all-FP64
    4
    """

    count: int  # of problems
    policies: tuple[PolicyRegret, ...]

    def __getitem__(self, policy: str) -> PolicyRegret:
        for entry in self.policies:
            if entry.policy == policy:
                return entry
        raise KeyError(f"no policy {policy!r}; known: {', '.join(p.policy for p in self.policies)}")

    def to_rows(self) -> list[Row]:
        """Rows for `format_table`, with intervals as ``value [low, high]``."""
        return [
            {
                "policy": p.policy,
                "reward": p.reward,
                "regret: oracle": str(p.oracle),
                "best fixed": str(p.best_fixed),
                "all-FP64": str(p.fp64),
                "seeds": p.seeds.seeds,
                "std": p.seeds.std,
                "min": p.seeds.low,
                "max": p.seeds.high,
            }
            for p in self.policies
        ]


def regret_table(
    rewards: ArrayLike,
    choices: Mapping[str, ArrayLike],
    safe: int,
    rng: np.random.Generator,
    fixed: int | None = None,
) -> RegretTable:
    """Compare policies on the same problems, and add ``oracle``, ``best fixed`` and ``all-FP64``.

    `rewards` are (N, A), see `roundwise.rewards.reward_matrix`; `choices` maps the name of a policy
    to the indices of its actions, (N,), or (S, N) for S seeds; `safe` is ``space.safe``. All
    policies are bootstrapped with the same resamples. `fixed` is the fixed action to compare with,
    e.g. the best one of the training problems; by default the best one of these problems, which no
    policy could know beforehand.

    Parameters
    ----------
    rewards : array_like, (N, A)
    choices : mapping of str to array_like of int
        The chosen actions of each policy, by name.
    safe : int
        The index of all-FP64.
    rng : numpy.random.Generator
        Of the bootstrap.
    fixed : int, optional

    Returns
    -------
    RegretTable

    Examples
    --------
    >>> from roundwise.evaluation import regret_table
    >>> rng = np.random.default_rng(0)
    >>> table = regret_table([[1.0, 0.0], [-1.0, 0.0]], {"mine": [0, 1]}, safe=1, rng=rng)
    >>> table.count
    2
    """
    R = value_matrix("rewards", rewards)
    fixed = best_fixed_action(R) if fixed is None else fixed
    oracle = np.nanmax(R, axis=1)
    references = {
        "oracle": np.nanargmax(R, axis=1),
        "best fixed": np.full(len(R), fixed),
        "all-FP64": np.full(len(R), safe),
    }
    if taken := references.keys() & choices.keys():
        raise ValueError(f"{', '.join(sorted(taken))}: added by regret_table; choose other names")
    at_fixed, at_safe = (picked("rewards", R, references[k]) for k in ("best fixed", "all-FP64"))
    seed = int(rng.integers(2**63))

    def judge(policy: str, chosen: ArrayLike) -> PolicyRegret:
        earned = np.atleast_2d(picked(f"the choices of {policy}", R, chosen))
        mean = earned.mean(axis=0)
        of_oracle, of_fixed, of_safe = (
            mean_interval(reference - mean, np.random.default_rng(seed))
            for reference in (oracle, at_fixed, at_safe)
        )
        spread = seed_spread((oracle - earned).mean(axis=1))
        return PolicyRegret(policy, float(mean.mean()), of_oracle, of_fixed, of_safe, spread)

    judged = (judge(*named) for named in {**choices, **references}.items())
    return RegretTable(len(R), tuple(judged))
