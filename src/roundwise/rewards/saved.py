"""Rewards and targets from what their ``to_dict`` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from roundwise.costs.machines import MachineProfile, MeasuredTime
from roundwise.exceptions import UnknownNameError
from roundwise.rewards.base import Reward
from roundwise.rewards.cost import CostReward
from roundwise.rewards.paper import PaperReward
from roundwise.rewards.targets import AccuracyTarget, BackwardErrorTarget, StrictTarget

T = TypeVar("T")


def target_from_dict(saved: Any) -> AccuracyTarget:
    """The target that `AccuracyTarget.to_dict` wrote."""
    kinds: dict[str, type[AccuracyTarget]] = {
        "backward_error": BackwardErrorTarget,
        "strict": StrictTarget,
    }
    return _from_settings("target", kinds, _settings("target", saved))


def reward_from_dict(saved: Any) -> Reward:
    """The reward that `Reward.to_dict` wrote."""
    settings = _settings("reward", saved)
    if settings["reward"] == "cost":
        cost = settings.get("cost")
        measured = cost == MeasuredTime().to_dict()
        settings["cost"] = MeasuredTime() if measured else MachineProfile.from_dict(cost)
        settings["target"] = target_from_dict(settings.get("target"))
    kinds: dict[str, type[Reward]] = {"paper": PaperReward, "cost": CostReward}
    return _from_settings("reward", kinds, settings)


def _settings(kind: str, saved: Any) -> dict[str, Any]:
    if not isinstance(saved, Mapping) or not isinstance(saved.get(kind), str):
        raise ValueError(f"not a saved {kind}: {saved!r}; save it again")
    return dict(saved)


def _from_settings(kind: str, kinds: Mapping[str, type[T]], settings: dict[str, Any]) -> T:
    name = settings.pop(kind)
    if name not in kinds:
        raise UnknownNameError(kind, name, list(kinds))
    try:
        return kinds[name](**settings)
    except TypeError as error:
        raise ValueError(f"not a saved {kind} ({error}); save it again") from error
