"""Algorithms from their saved settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from roundwise.algorithms import Algorithm, CgIR, DeploymentRule, GmresIR, LuIR, PaperRule
from roundwise.exceptions import UnknownNameError

_ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    cls.__name__: cls for cls in (GmresIR, LuIR, CgIR)
}
_RULES = {cls.__name__: cls for cls in (PaperRule, DeploymentRule)}


def algorithm_from_json(saved: Mapping[str, Any]) -> Algorithm:
    """The algorithm whose class, stages and settings were saved."""
    settings = dict(saved["algorithm"])
    name = settings.pop("class")
    if name not in _ALGORITHMS:
        raise UnknownNameError("algorithm (pass it to load)", name, list(_ALGORITHMS))
    rule = dict(settings.pop("stop"))
    kind = rule.pop("class")
    if kind not in _RULES:
        raise UnknownNameError("stopping rule (pass the algorithm to load)", kind, list(_RULES))
    return _ALGORITHMS[name](**settings, stop=_RULES[kind](**rule))
