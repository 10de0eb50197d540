"""Algorithms from their saved settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roundwise import algorithms
from roundwise.algorithms import Algorithm, StoppingRule
from roundwise.exceptions import UnknownNameError
from roundwise.outcomes.records import algorithm_json
from roundwise.tuning.files import TunerFileError

_CLASSES: dict[str, type] = {
    name: member
    for name, member in vars(algorithms).items()
    if isinstance(member, type) and issubclass(member, Algorithm | StoppingRule)
}
"""The algorithms and stopping rules that `roundwise.algorithms` lists, by name."""


def saved_algorithm(saved: Mapping[str, Any], given: Algorithm | None = None) -> Algorithm:
    """The algorithm whose class, stages and settings were saved.

    One that is given must have these settings. Its code may have changed since: that can make its
    policy slow, not wrong.
    """
    if given is None:
        made = _made(saved["algorithm"])
        if not isinstance(made, Algorithm):
            raise TypeError(f"{saved['algorithm']!r} is no algorithm")
        return made
    here = json.loads(algorithm_json(given))
    if any(here[part] != saved[part] for part in ("algorithm", "stages")):
        raise TunerFileError(f"the tuner was trained for other settings: {saved}; pass these")
    return given


def _made(saved: Any) -> Any:
    """A value from its JSON; mappings that name a class become instances of it."""
    if isinstance(saved, list):
        return tuple(_made(item) for item in saved)
    if not isinstance(saved, Mapping):
        return saved
    settings = {name: _made(value) for name, value in saved.items()}
    kind = settings.pop("class")
    if kind not in _CLASSES:
        raise UnknownNameError("algorithm or stopping rule", kind, list(_CLASSES))
    return _CLASSES[kind](**settings)
