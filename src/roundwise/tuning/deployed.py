"""`DeployedPolicy`: a trained policy with the features that it sees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundwise.algorithms import Algorithm, Outcome
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

    def ranked(
        self, features: Mapping[str, float], allowed: Collection[int]
    ) -> tuple[Ranking, Callable[[Sequence[Outcome], float], None] | None]:
        """The allowed actions for a system with these features, and what learns from its solve.

        The latter is called with the attempts of the solve and its seconds; None: nobody learns.
        """
        state = self.policy.encode(self.context.vector(features)[None])[0]
        return self.policy.rank(state, allowed), None
