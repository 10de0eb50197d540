"""Regret of policies under any reward, and modelled speedup, with bootstrap intervals.

All numbers come from a table of rewards (or costs) of N problems and A actions, and from the
index of the action that a policy chose for each problem: shape (N,), or (S, N) for S seeds of
its training. Intervals are percentile bootstraps over the *problems* (Efron & Tibshirani, An
Introduction to the Bootstrap, chapter 13), after averaging over seeds; the spread over seeds is
told apart from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.evaluation.tables import Row

Vector = NDArray[np.float64]

_DRAWS_AT_ONCE = 2**20  # bounds the memory of a bootstrap; fixed, so that it changes no result


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class SeedSpread:
    """Mean, sample standard deviation (NaN for one seed), smallest and largest over seeds."""

    mean: float
    std: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.std:.2g} ({self.low:.3g} to {self.high:.3g})"


def seed_spread(values: ArrayLike) -> SeedSpread:
    """The spread of one number per seed."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not x.size:
        raise ValueError("pass one number per seed, at least one")
    std = float(x.std(ddof=1)) if x.size > 1 else math.nan
    return SeedSpread(float(x.mean()), std, float(x.min()), float(x.max()), x.size)


def mean_interval(
    values: ArrayLike,
    rng: np.random.Generator,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Interval:
    """The mean of one number per problem, with a percentile bootstrap interval."""
    x = np.asarray(values, dtype=np.float64)
    return ratio_interval(x, np.ones_like(x), rng, resamples, confidence)


def ratio_interval(
    numerators: ArrayLike,
    denominators: ArrayLike,
    rng: np.random.Generator,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Interval:
    """``sum(numerators) / sum(denominators)`` over problems, which are resampled in pairs.

    Denominators must not be negative, and not all 0. A resample that draws none but zeros
    gives infinity (or NaN, if the numerators are 0 too, which counts as infinity).
    """
    x, y = (np.asarray(v, dtype=np.float64) for v in (numerators, denominators))
    if x.ndim != 1 or x.shape != y.shape or not x.size:
        raise ValueError("pass one number per problem, at least one, in vectors of equal length")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("the numbers to average hold NaN or infinity; leave these problems out")
    if (y < 0).any() or not y.any():
        raise ValueError("the sum to divide by must be positive; compare with another reference")
    if resamples < 1 or not 0 < confidence < 1:
        raise ValueError("choose resamples >= 1 and 0 < confidence < 1")
    block = max(1, _DRAWS_AT_ONCE // x.size)
    ratios = np.empty(resamples)
    for start in range(0, resamples, block):
        drawn = rng.integers(x.size, size=(min(block, resamples - start), x.size))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios[start : start + block] = x[drawn].sum(axis=1) / y[drawn].sum(axis=1)
    ratios[np.isnan(ratios)] = math.inf
    # Neighbours are not interpolated: one of them may be infinite.
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(ratios, tails, method="nearest")
    return Interval(float(x.sum() / y.sum()), float(low), float(high))


def best_fixed_action(rewards: ArrayLike) -> int:
    """The action with the highest mean reward among those that every problem has.

    Of equals the last, as policies choose. From training rewards this is a policy; from test
    rewards it is chosen in hindsight.
    """
    R = _matrix("rewards", rewards)
    complete = np.flatnonzero(~np.isnan(R).any(axis=0))
    if not complete.size:
        raise ValueError("no action has a reward for every problem; fill the outcome table")
    means = R[:, complete].mean(axis=0)
    return int(complete[len(means) - 1 - np.argmax(means[::-1])])


def regrets(rewards: ArrayLike, chosen: ArrayLike) -> Vector:
    """``max_a R[i, a] - R[i, chosen[i]]``, never negative; the shape of `chosen`.

    Actions without a reward (NaN) are no candidates of the maximum, and must not be chosen.
    """
    R = _matrix("rewards", rewards)
    return np.asarray(_oracle(R) - _picked("rewards", R, chosen))


@dataclass(frozen=True)
class PolicyRegret:
    """Mean reward that a policy gives away, per problem; below 0 it is ahead of the reference.

    Attributes
    ----------
    policy : str
    reward : float
        Mean reward.
    oracle, best_fixed, fp64 : Interval
        Mean of the reference's reward minus the policy's: against the best action of each
        problem, the best fixed action, and the safe action (all-FP64).
    seeds : SeedSpread
        Of the regret against the oracle.
    """

    policy: str
    reward: float
    oracle: Interval
    best_fixed: Interval
    fp64: Interval
    seeds: SeedSpread


@dataclass(frozen=True)
class RegretTable:
    """Policies, and the references themselves, under one reward on one set of problems."""

    count: int
    confidence: float
    resamples: int
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
    resamples: int = 2000,
    confidence: float = 0.95,
) -> RegretTable:
    """Compare policies on the same problems.

    Parameters
    ----------
    rewards : array_like, (N, A)
        Under any reward; see `roundwise.rewards.reward_matrix`.
    choices : mapping of policy name to array_like, (N,) or (S, N)
        Indices of the chosen actions, for one or S seeds.
    safe : int
        Index of the safe action, ``space.safe``.
    rng : numpy.random.Generator
        All policies are bootstrapped with the same resamples.
    fixed : int, optional
        The best fixed action, e.g. of the training problems; by default that of these
        problems, which is in hindsight and so the harder reference.

    The rows ``oracle``, ``best fixed`` and ``all-FP64`` are added.
    """
    R = _matrix("rewards", rewards)
    count = len(R)
    fixed = best_fixed_action(R) if fixed is None else fixed
    oracle = _oracle(R)
    references = {
        "oracle": np.nanargmax(R, axis=1),
        "best fixed": np.full(count, fixed),
        "all-FP64": np.full(count, safe),
    }
    if taken := references.keys() & choices.keys():
        raise ValueError(f"{', '.join(sorted(taken))}: added by regret_table; choose other names")
    at_fixed, at_safe = (_picked("rewards", R, references[k]) for k in ("best fixed", "all-FP64"))
    seed = int(rng.integers(2**63))

    def interval(differences: Vector) -> Interval:
        return mean_interval(differences, np.random.default_rng(seed), resamples, confidence)

    def judge(policy: str, chosen: ArrayLike) -> PolicyRegret:
        picked = np.atleast_2d(_picked(f"the choices of {policy}", R, chosen))
        mean = picked.mean(axis=0)
        return PolicyRegret(
            policy,
            reward=float(mean.mean()),
            oracle=interval(oracle - mean),
            best_fixed=interval(at_fixed - mean),
            fp64=interval(at_safe - mean),
            seeds=seed_spread((oracle - picked).mean(axis=1)),
        )

    everything = {**choices, **references}
    entries = tuple(judge(policy, chosen) for policy, chosen in everything.items())
    return RegretTable(count, confidence, resamples, entries)


@dataclass(frozen=True)
class Speedup:
    """What a policy saves over all-FP64, every failed try and fallback paid for.

    Attributes
    ----------
    speedup : Interval
        ``sum F / sum (cost of the try + F if it missed the target)`` over the problems, F the
        cost of all-FP64: the ratio of the total times, so that large problems weigh most.
    oracle : float
        The same for the cheapest action that meets the target (all-FP64 where none does).
    fallback_rate : float
        Share of solves that missed the target and fell back to all-FP64.
    unsolved_rate : float
        Share of solves where all-FP64 missed the target too.
    """

    speedup: Interval
    oracle: float
    fallback_rate: float
    unsolved_rate: float

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
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Speedup:
    """Total cost of all-FP64 over the total cost of a policy.

    Parameters
    ----------
    costs, met : array_like, (N, A)
        What each run costs, and whether it met the accuracy target: `cost_matrix` and
        `met_matrix` of `roundwise.rewards`.
    chosen : array_like, (N,) or (S, N)
    safe : int
        Index of the safe action; it has no fallback.
    rng : numpy.random.Generator
    feature_costs : array_like, optional
        What the policy's features cost, for each problem or for all; all-FP64 needs none.
    """
    C, M = _matrix("costs", costs), np.asarray(met, dtype=np.bool_)
    if C.shape != M.shape:
        raise ValueError(f"costs are {C.shape}, met is {M.shape}; pass one of each for each run")
    F = _picked("costs", C, np.full(len(C), safe))
    tries = np.atleast_2d(_picked("the choices", C, chosen))
    indices = np.atleast_2d(np.asarray(chosen))
    missed = ~M[np.arange(len(C)), indices]
    fallback = missed & (indices != safe)
    # A choice of the safe action that misses the target is unsolved, but falls back to nothing.
    unsolved = missed & ~M[:, safe]
    features = np.broadcast_to(np.asarray(feature_costs, dtype=np.float64), F.shape)
    spent = (tries + np.where(fallback, F, 0.0)).mean(axis=0) + features
    cheapest = np.where(M & ~np.isnan(C), C, math.inf).min(axis=1)
    best = np.where(np.isfinite(cheapest), cheapest, F)
    return Speedup(
        ratio_interval(F, spent, rng, resamples, confidence),
        oracle=float(F.sum() / best.sum()),
        fallback_rate=float(fallback.mean()),
        unsolved_rate=float(unsolved.mean()),
    )


def _matrix(what: str, values: ArrayLike) -> Vector:
    M = np.asarray(values, dtype=np.float64)
    if M.ndim != 2 or 0 in M.shape:
        raise ValueError(
            f"{what} have shape {M.shape}; pass N problems by A actions, no empty axis"
        )
    if np.isnan(M).all(axis=1).any():
        raise ValueError(f"{what}: a problem has no action with a value; leave it out")
    return M


def _oracle(R: Vector) -> Vector:
    return np.asarray(np.nanmax(R, axis=1))


def _picked(what: str, M: Vector, chosen: ArrayLike) -> Vector:
    """The values of the chosen actions, in the shape of `chosen`; checks the indices."""
    indices = np.asarray(chosen)
    count, actions = M.shape
    if indices.dtype.kind not in "iu" or indices.ndim not in (1, 2) or not indices.size:
        raise ValueError(f"{what}: chosen actions must be indices, shape (N,) or (S, N)")
    if indices.shape[-1] != count:
        raise ValueError(f"{what}: {indices.shape[-1]} choices for {count} problems")
    if indices.min() < 0 or indices.max() >= actions:
        raise ValueError(f"{what}: an index is outside 0 to {actions - 1}")
    picked = np.asarray(M[np.arange(count), indices])
    if np.isnan(picked).any():
        raise ValueError(f"{what}: a chosen action has no value; fill the outcome table")
    return picked
