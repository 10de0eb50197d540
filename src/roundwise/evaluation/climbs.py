"""The cost of climbing a ladder of actions until one meets the target, and the speedup of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.evaluation.choices import Vector, picked, value_matrix
from roundwise.evaluation.intervals import Interval, ratio_interval
from roundwise.evaluation.tables import Row
from roundwise.rewards.climb import climb_totals


def climb_costs(costs: ArrayLike, met: ArrayLike, ladders: Sequence[Sequence[int]]) -> Vector:
    """Cost of solving each problem when action a is tried first, shape (N, A).

    With the ladder ``l_1 = a, l_2, ..., l_m`` of action a, problem i costs::

        sum of costs[i, l_k] for k = 1..K,   K = min {k : met[i, l_k]}, or m if there is none.

    A cost is NaN where an action was not run. The result is NaN where a itself was not run; it is
    an error if a later step needs such a run. ``ladders[a]`` lists the actions to try, a first.

    Parameters
    ----------
    costs : array_like, (N, A)
    met : array_like of bool, (N, A)
        Whether each run met its target.
    ladders : sequence of sequences of int
        What to try in turn, for each first action.

    Returns
    -------
    array, (N, A)

    Examples
    --------
    >>> from roundwise.evaluation import climb_costs
    >>> climb_costs([[1.0, 2.0], [1.0, 2.0]], [[True, True], [False, True]], [[0, 1], [1]])
    array([[1., 2.],
           [3., 2.]])
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

    Parameters
    ----------
    speedup : Interval
    oracle : float
        What an oracle would reach.
    fallback_rate, unsolved_rate : float
        Shares of problems whose try missed, and that all-FP64 misses as well.

    Examples
    --------
    >>> from roundwise.evaluation import modelled_speedup
    >>> rng = np.random.default_rng(0)
    >>> result = modelled_speedup([[1.0, 2.0]], [[True, True]], [0], safe=1, rng=rng)
    >>> float(result.speedup.value), float(result.fallback_rate)
    (2.0, 0.0)
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
    `cost_matrix` and `met_matrix` of `roundwise.rewards`. `chosen` is (N,) or (S, N). The safe
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
    >>> from roundwise.evaluation import modelled_speedup
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
