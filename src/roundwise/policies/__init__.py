"""Policies: which action for which context, learned or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from roundwise.exceptions import UnknownNameError
from roundwise.policies.base import Policy
from roundwise.policies.baselines import Escalation, FixedAction, Oracle, TheoryRule
from roundwise.policies.linear import LinearUCB, ThompsonSampling
from roundwise.policies.regression import RegressionPolicy
from roundwise.policies.tabular import TabularQ

__all__ = [
    "POLICIES",
    "Escalation",
    "FixedAction",
    "LinearUCB",
    "Oracle",
    "Policy",
    "RegressionPolicy",
    "TabularQ",
    "TheoryRule",
    "ThompsonSampling",
    "load_policy",
]

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        TabularQ,
        LinearUCB,
        ThompsonSampling,
        RegressionPolicy,
        FixedAction,
        TheoryRule,
        Escalation,
        Oracle,
    )
}
"""The policies by name, as saved files name them."""


def load_policy(saved: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Policy:
    """The policy that its `Policy.to_dict` and `Policy.arrays` wrote."""
    name = saved.get("policy") if isinstance(saved, Mapping) else None
    if not isinstance(name, str) or name not in POLICIES:
        raise UnknownNameError("policy", name, list(POLICIES))
    return POLICIES[name].from_dict(saved, arrays)
