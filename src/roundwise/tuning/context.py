"""`Context`: the features that a policy sees, on their scales; `DeployedPolicy` ranks by it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms import Algorithm
from roundwise.exceptions import UnknownNameError
from roundwise.features import FEATURES, KAPPA_FLOOR, NORM_FLOOR, PROBE
from roundwise.features.definitions import feature_numbers, log10_floored
from roundwise.features.probe import FLOORS
from roundwise.policies import Policy, Ranking
from roundwise.policies.base import Learn
from roundwise.rewards import Reward


@dataclass(frozen=True)
class Context:
    """A vector of features; those with a floor enter as ``log10 max(value, floor)``.

    `features` are keys of `FEATURES`. There is a floor for each; None takes the value as it is.

    Parameters
    ----------
    features : tuple of str
    floors : tuple of float or None

    Examples
    --------
    >>> from roundwise.tuning import Context
    >>> Context(("n", "norm_inf"), (None, 1e-300)).features
    ('n', 'norm_inf')
    """

    features: tuple[str, ...]
    floors: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if not self.features or len(self.features) != len(self.floors):
            raise ValueError("a context needs at least one feature, and a floor or None for each")
        for name in self.features:
            if name not in FEATURES:
                raise UnknownNameError("feature", name, list(FEATURES))
        for floor in self.floors:
            if floor is not None and not (floor > 0 and math.isfinite(floor)):
                raise ValueError(f"floor = {floor}; choose a positive number, or None for no log")

    def vector(self, values: Mapping[str, SupportsFloat]) -> NDArray[np.float64]:
        """The context of one problem, from its features by name."""
        missing = [name for name in self.features if name not in values]
        if missing:
            raise ValueError(f"features lack {', '.join(missing)}; pass all of {self.features}")
        vector = [float(values[name]) for name in self.features]
        for i, floor in enumerate(self.floors):
            if floor is not None:
                vector[i] = log10_floored(vector[i], floor)
        return np.array(vector)

    def to_dict(self) -> dict[str, Any]:
        return {"features": list(self.features), "floors": list(self.floors)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Context:
        return cls(tuple(saved["features"]), tuple(saved["floors"]))


def kappa_for(reward: Reward, features: Mapping[str, SupportsFloat]) -> float:
    """The condition number among the features, exact or estimated, if the reward needs one."""
    for name in ("kappa_exact", "kappa_est"):
        if name in features:
            return float(features[name])
    if reward.needs_kappa:
        raise ValueError("this reward needs a condition number; add kappa_exact or kappa_est")
    return math.inf


PAPER_CONTEXT = Context(("kappa_exact", "norm_inf"), (KAPPA_FLOOR, NORM_FLOOR))
"""Carson & Chen's: ``[log10 max(kappa, d_c), log10 max(||A||_inf, d_n)]``."""

PROBE_CONTEXT = Context(PROBE, tuple(FLOORS.get(name) for name in PROBE))
"""The cheap features that the front door decides by: no condition number is among them."""


@dataclass(frozen=True)
class DeployedPolicy:
    """Ranks the actions for a problem: features, state, ranking.

    Parameters
    ----------
    policy : Policy
        A trained one.
    context : Context
        The features that it sees.
    arithmetic : str
        The arithmetic model that it was trained in.
    algorithm : Algorithm, optional
        What it was trained for, if that is known.

    Examples
    --------
    >>> from roundwise.tuning import DeployedPolicy
    >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
    >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
    >>> deployed = DeployedPolicy(tuner.policy_, tuner.context_)
    >>> len(deployed.rank(problems[0]).actions) == len(tuner.space_)
    True
    """

    policy: Policy
    context: Context
    arithmetic: str = "native"
    algorithm: Algorithm | None = None

    def state(
        self, problem: Any, known: Mapping[str, float] | None = None, arithmetic: str = "native"
    ) -> Any:
        """The policy's state for a problem; features in `known` are not computed again."""
        values = dict(known or {})
        names = [name for name in self.context.features if name not in values]
        values |= feature_numbers(problem, names, arithmetic)
        return self.policy.state(self.context.vector(values))

    def rank(
        self,
        problem: Any,
        known: Mapping[str, float] | None = None,
        allowed: Collection[int] | None = None,
    ) -> Ranking:
        """The actions of the policy's space, or the allowed ones, best first."""
        return self.policy.rank(self.state(problem, known), allowed)

    def ranked(
        self, features: Mapping[str, float], allowed: Collection[int]
    ) -> tuple[Ranking, Learn | None]:
        """The allowed actions for a system with these features, and what learns from its solve."""
        state = self.policy.state(self.context.vector(features))
        return self.policy.decided(state, allowed)
