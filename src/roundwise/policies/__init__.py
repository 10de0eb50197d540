"""Policies: which action for which state, learned or not; `Policy` is the contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from roundwise.exceptions import UnknownNameError
from roundwise.policies.base import Policy, Ranking
from roundwise.policies.baselines import Escalation, FixedAction, Oracle, TheoryRule
from roundwise.policies.facts import Facts, FactsError, shipped_facts
from roundwise.policies.linear import LinearUCB, ThompsonSampling
from roundwise.policies.memory import Memory, MemoryFileWarning
from roundwise.policies.memory_file import MemoryFileError
from roundwise.policies.neighbours import NeighbourPolicy
from roundwise.policies.online import OnlinePolicy
from roundwise.policies.regression import RegressionPolicy
from roundwise.policies.tabular import TabularQ

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        TabularQ,
        LinearUCB,
        ThompsonSampling,
        RegressionPolicy,
        NeighbourPolicy,
        OnlinePolicy,
        FixedAction,
        TheoryRule,
        Escalation,
        Oracle,
    )
}
"""The policies by name, as saved files name them."""


def load_policy(
    saved: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    policies: Iterable[type[Policy]] = (),
) -> Policy:
    """The policy that its `Policy.to_dict` and `Policy.arrays` wrote.

    `policies` are classes of your own that a file may name, beside those of `POLICIES`.

    Parameters
    ----------
    saved : mapping
    arrays : mapping of str to array
    policies : iterable of type
        Classes of your own.

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import FixedAction, load_policy
    >>> policy = FixedAction("fp32")
    >>> policy.start([[1.0]], list_space(["factor"], ["fp32", "fp64"]))
    >>> load_policy(policy.to_dict(), policy.arrays()).predict([[1.0]])
    array([0])
    """
    known = POLICIES | {policy.name: policy for policy in policies}
    name = saved.get("policy") if isinstance(saved, Mapping) else None
    if not isinstance(name, str) or name not in known:
        raise UnknownNameError("policy", name, list(known))
    return known[name].from_dict(saved, arrays)
