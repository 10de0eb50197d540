"""Rewards from what their ``to_dict`` wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from roundwise.rewards.base import Reward, from_saved
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
    return from_saved(saved, "reward", [*REWARDS.values(), *rewards])
