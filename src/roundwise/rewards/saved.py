"""Rewards from what their ``to_dict`` wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from roundwise.exceptions import UnknownNameError
from roundwise.rewards.base import Reward
from roundwise.rewards.climb import ClimbReward
from roundwise.rewards.cost import CostReward
from roundwise.rewards.paper import PaperReward

REWARDS: dict[str, type[Reward]] = {
    reward.name: reward for reward in (PaperReward, CostReward, ClimbReward)
}
"""The rewards by name, as saved files name them."""


def reward_from_dict(saved: Any, rewards: Iterable[type[Reward]] = ()) -> Reward:
    """The reward that `Reward.to_dict` wrote.

    `rewards` are classes of your own that a file may name, beside those of `REWARDS`.
    """
    known = REWARDS | {reward.name: reward for reward in rewards}
    if not isinstance(saved, Mapping) or not isinstance(saved.get("reward"), str):
        raise ValueError(f"not a saved reward: {saved!r}; save it again")
    settings = dict(saved)
    name = settings.pop("reward")
    if name not in known:
        raise UnknownNameError("reward", name, list(known))
    try:
        return known[name].from_settings(settings)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a saved {name} reward ({error!r}); save it again") from error
