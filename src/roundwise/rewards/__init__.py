"""Rewards: pure functions of an outcome, facts of its problem and the action.

`PaperReward` is Carson & Chen's, term by term. `CostReward` is the logarithm of a modelled
speedup: a `MachineProfile` prices the operations that an outcome counted, an `AccuracyTarget`
says whether the answer was good enough, and a miss pays for the fallback. Nothing is solved
here: a table of outcomes becomes rewards, of any kind, in milliseconds.
"""

from collections.abc import Iterable
from typing import Any

from roundwise.rewards.base import (
    AccuracyTarget,
    BackwardErrorTarget,
    ProblemFacts,
    Reward,
    StrictTarget,
)
from roundwise.rewards.base import from_saved as _from_saved
from roundwise.rewards.cost import ClimbReward, CostReward
from roundwise.rewards.paper import PAPER_W1, PAPER_W2, PaperReward

REWARDS: dict[str, type[Reward]] = {
    reward.name: reward for reward in (PaperReward, CostReward, ClimbReward)
}
"""The rewards by name, as saved files name them."""


def reward_from_dict(saved: Any, rewards: Iterable[type[Reward]] = ()) -> Reward:
    """The reward that `Reward.to_dict` wrote.

    `rewards` are classes of your own that a file may name, beside those of `REWARDS`.

    Parameters
    ----------
    saved : mapping
    rewards : iterable of type
        Classes of your own.

    Examples
    --------
    >>> from roundwise.rewards import PaperReward, reward_from_dict
    >>> reward_from_dict(PaperReward().to_dict()) == PaperReward()
    True
    """
    return _from_saved(saved, "reward", [*REWARDS.values(), *rewards])
