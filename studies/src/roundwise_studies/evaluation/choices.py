"""What the choices of policies are worth: their regret under any reward, and their speedup.

All numbers come from tables of rewards or costs of N problems and A actions, and from the index of
the action that a policy chose for each problem: shape (N,), or (S, N) if it was trained with S
seeds. Intervals are over the problems, after averaging over seeds; `SeedSpread` shows the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import ActionSpace
from roundwise.costs import MachineProfile, MeasuredTime, OutcomeRow
from roundwise.policies.base import last_argmax
from roundwise.rewards import AccuracyTarget, ProblemFacts
from roundwise.rewards.base import with_baseline
from roundwise.rewards.cost import climb_totals
from roundwise_studies.evaluation.tables import (
    Interval,
    Row,
    SeedSpread,
    mean_interval,
    ratio_interval,
    seed_spread,
)

Vector = NDArray[np.float64]


def value_matrix(what: str, values: ArrayLike) -> Vector:
    """`values` as a float64 matrix, problems by actions; NaN is an action without a value."""
    M = np.asarray(values, dtype=np.float64)
    if M.ndim != 2 or 0 in M.shape:
        raise ValueError(
            f"{what} have shape {M.shape}; pass N problems by A actions, no empty axis"
        )
    if np.isnan(M).all(axis=1).any():
        raise ValueError(f"{what}: a problem has no action with a value; leave it out")
    return M


def picked(what: str, M: Vector, chosen: ArrayLike) -> Vector:
    """The values of the chosen actions, in the shape of `chosen`; checks the indices."""
    indices = np.asarray(chosen)
    count, actions = M.shape
    if indices.dtype.kind not in "iu" or indices.ndim not in (1, 2) or not indices.size:
        raise ValueError(f"{what}: chosen actions must be indices, shape (N,) or (S, N)")
    if indices.shape[-1] != count:
        raise ValueError(f"{what}: {indices.shape[-1]} choices for {count} problems")
    if indices.min() < 0 or indices.max() >= actions:
        raise ValueError(f"{what}: an index is outside 0 to {actions - 1}")
    found = np.asarray(M[np.arange(count), indices])
    if np.isnan(found).any():
        raise ValueError(f"{what}: a chosen action has no value; fill the outcome table")
    return found


def cost_matrix(
    cost: MachineProfile | MeasuredTime,
    outcome_rows: Sequence[OutcomeRow],
    sizes: Sequence[int] | None = None,
) -> Vector:
    """Costs of N problems and A actions, NaN where an outcome is None.

    `sizes` are the problems' n, for profiles whose rates depend on it.
    """
    known = [None] * len(outcome_rows) if sizes is None else sizes
    rows = zip(outcome_rows, known, strict=True)
    return np.array([[math.nan if o is None else cost.cost(o, n) for o in row] for row, n in rows])


def met_matrix(
    target: AccuracyTarget,
    outcome_rows: Sequence[OutcomeRow],
    facts: Sequence[ProblemFacts],
    space: ActionSpace,
) -> NDArray[np.bool_]:
    """Whether each outcome met the target, (N, A); False where an outcome is None."""
    rows = []
    for outcomes, fact in zip(outcome_rows, facts, strict=True):
        completed = with_baseline(fact, outcomes, space)
        rows.append([o is not None and target.met(o, completed) for o in outcomes])
    return np.array(rows, dtype=np.bool_).reshape(len(rows), len(space))


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
    >>> from roundwise_studies.evaluation import best_fixed_action
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
    >>> from roundwise_studies.evaluation import regrets
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
    """Policies, and the references themselves, under one reward on one set of problems."""

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

    `rewards` are (N, A), see `rewards.base.reward_matrix`; `choices` maps the name of a policy
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
    >>> from roundwise_studies.evaluation import regret_table
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


def climb_costs(costs: ArrayLike, met: ArrayLike, ladders: Sequence[Sequence[int]]) -> Vector:
    """Cost of solving each problem when action a is tried first, shape (N, A).

    With the ladder ``l_1 = a, l_2, ..., l_m`` of action a, problem i costs::

        sum of costs[i, l_k] for k = 1..K,   K = min {k : met[i, l_k]}, or m if there is none.

    A cost is NaN where an action was not run. The result is NaN where a itself was not run; it is
    an error if a later step needs such a run. ``ladders[a]`` lists the actions to try, a first.
    """
    C, M = _costs_and_met(costs, met)
    actions = C.shape[1]
    if len(ladders) != actions:
        raise ValueError(f"{len(ladders)} ladders for {actions} actions; pass one for each")
    for a, ladder in enumerate(ladders):
        if not ladder or ladder[0] != a or not all(0 <= step < actions for step in ladder):
            raise ValueError(
                f"the ladder of action {a} is {list(ladder)}; "
                f"begin it with {a} and choose indices from 0 to {actions - 1}"
            )
    totals = climb_totals(C, M, ladders)
    for i, a in np.argwhere(np.isnan(totals) & ~np.isnan(C)).tolist():
        action = next(action for action in ladders[a] if np.isnan(C[i, action]))
        raise ValueError(
            f"problem {i}: the ladder {list(ladders[a])} gets to action {action}, which has no "
            "cost; fill the outcome table"
        )
    return totals


@dataclass(frozen=True)
class Speedup:
    """What a policy saves over all-FP64, if each miss of the target is followed by all-FP64.

    The speedup is ``sum F / sum (cost of the try + F if it missed the target)`` over the problems,
    F the cost of all-FP64: the ratio of the total times, so that large problems weigh most.
    """

    speedup: Interval
    oracle: float  # the same for the cheapest action that meets the target, or else all-FP64
    fallback_rate: float  # share of solves that missed the target and fell back to all-FP64
    unsolved_rate: float  # share of solves where all-FP64 missed the target too

    def to_rows(self) -> list[Row]:
        """One row for `format_table`."""
        return [
            {
                "speedup": str(self.speedup),
                "oracle": self.oracle,
                "fallback %": 100 * self.fallback_rate,
                "unsolved %": 100 * self.unsolved_rate,
            }
        ]


def modelled_speedup(
    costs: ArrayLike,
    met: ArrayLike,
    chosen: ArrayLike,
    safe: int,
    rng: np.random.Generator,
    feature_costs: ArrayLike = 0.0,
) -> Speedup:
    """Total cost of all-FP64 over the total cost of a policy.

    `costs` and `met`, (N, A), tell what each run costs, and whether it met the accuracy target:
    `cost_matrix` and `met_matrix`. `chosen` is (N,) or (S, N). The safe
    action has no fallback. `feature_costs`, what the policy's features cost, is one number, or one
    for each problem; all-FP64 needs none.

    Parameters
    ----------
    costs : array_like, (N, A)
    met : array_like of bool, (N, A)
    chosen : array_like of int, (N,) or (S, N)
    safe : int
        The index of all-FP64.
    rng : numpy.random.Generator
        Of the bootstrap.
    feature_costs : array_like

    Returns
    -------
    Speedup

    Examples
    --------
    >>> from roundwise_studies.evaluation import modelled_speedup
    >>> rng = np.random.default_rng(0)
    >>> met = [[True, True], [False, True]]
    >>> result = modelled_speedup([[1.0, 2.0], [1.0, 2.0]], met, [0, 0], safe=1, rng=rng)
    >>> float(result.speedup.value)  # (2 + 2) / (1 + (1 + 2))
    1.0
    """
    C, M = _costs_and_met(costs, met)
    F = picked("costs", C, np.full(len(C), safe))
    ladders = [(a,) if a == safe else (a, safe) for a in range(C.shape[1])]
    climbs = picked("the choices", climb_costs(C, M, ladders), chosen)
    spent = np.atleast_2d(climbs).mean(axis=0) + np.asarray(feature_costs, dtype=np.float64)
    indices = np.asarray(chosen)
    missed = ~M[np.arange(len(C)), indices]
    cheapest = np.where(M & ~np.isnan(C), C, math.inf).min(axis=1)
    best = np.where(np.isfinite(cheapest), cheapest, F)
    return Speedup(
        ratio_interval(F, spent, rng),
        oracle=float(F.sum() / best.sum()),
        # A safe action that misses the target is unsolved, and has nothing to fall back to.
        fallback_rate=float((missed & (indices != safe)).mean()),
        unsolved_rate=float((missed & ~M[:, safe]).mean()),
    )


def _costs_and_met(costs: ArrayLike, met: ArrayLike) -> tuple[Vector, NDArray[np.bool_]]:
    C, M = value_matrix("costs", costs), np.asarray(met, dtype=np.bool_)
    if C.shape != M.shape:
        raise ValueError(f"costs are {C.shape}, met is {M.shape}; pass one of each for each run")
    return C, M
