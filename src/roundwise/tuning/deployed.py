"""`DeployedPolicy`: a trained policy with the features that it sees."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from roundwise.features.definitions import feature_numbers
from roundwise.policies import Policy, Ranking
from roundwise.tuning.context import Context


@dataclass(frozen=True)
class DeployedPolicy:
    """Ranks the actions for a problem: features, state, ranking.

    Parameters
    ----------
    policy : Policy
        A trained one.
    context : Context
        The features that it sees.

    Examples
    --------
    >>> from roundwise.tuning import DeployedPolicy
    >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
    >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
    >>> deployed = DeployedPolicy(tuner.policy_, tuner.context)
    >>> len(deployed.rank(problems[0]).actions) == len(tuner.space_)
    True
    """

    policy: Policy
    context: Context

    @property
    def at_once(self) -> int:
        """Dense systems with fewer unknowns are solved in FP64 without asking; 0: always ask."""
        return self.policy.at_once

    def state(
        self, problem: Any, known: Mapping[str, float] | None = None, arithmetic: str = "native"
    ) -> Any:
        """What the policy sees of a problem; features in `known` are not computed."""
        values = dict(known or {})
        names = [name for name in self.context.features if name not in values]
        values |= feature_numbers(problem, names, arithmetic)
        return self.policy.encode(self.context.vector(values)[None])[0]

    def rank(
        self,
        problem: Any,
        known: Mapping[str, float] | None = None,
        allowed: Collection[int] | None = None,
    ) -> Ranking:
        """The actions of the policy's space, or the allowed ones, best first."""
        return self.policy.rank(self.state(problem, known), allowed)
