"""How a `Tuner` learned, drawn by matplotlib: rewards and regrets by episode, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roundwise._lazy import require
from roundwise.policies.base import Policy
from roundwise.policies.maps import draw_maps
from roundwise.policies.tabular import TabularQ

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_training(
    reward: NDArray[np.float64],
    epsilon: NDArray[np.float64],
    rewards: NDArray[np.float64] | None,
    safe: int,
    policy: Policy,
    names: Sequence[str],
) -> Figure:
    """Mean reward by episode and, where `rewards` (N, A) of all actions are known, mean regret.

    The regret of an episode is the mean reward of the best actions less that of the actions tried.
    Below them are the maps of a table of one or two features.
    """
    pyplot = require("matplotlib.pyplot", "plot")
    has_maps = isinstance(policy, TabularQ) and len(policy.discretizer_.bins_) <= 2
    rows = 2 if has_maps else 1
    figure: Figure = pyplot.figure(figsize=(11, 3.2 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, 6)
    episodes = np.arange(1, len(reward) + 1)
    ax = figure.add_subplot(grid[0, :3] if rewards is not None else grid[0, :])
    ax.plot(episodes, reward, label="actions tried")
    if rewards is not None:
        best, always = float(np.nanmean(np.nanmax(rewards, axis=1))), np.nanmean(rewards[:, safe])
        ends = episodes[[0, -1]]
        ax.plot(ends, [best, best], "--", color="0.4", label="best action of each problem")
        ax.plot(ends, [always, always], ":", color="0.4", label="the safe action")
    ax.set(xlabel="episode", ylabel="mean reward", title="learning curve")
    ax.legend(frameon=False)
    if rewards is not None:
        ax = figure.add_subplot(grid[0, 3:])
        ax.plot(episodes, best - reward, label="regret")
        ax.axhline(best - float(always), color="0.4", linestyle=":", label="the safe action")
        ax.set(xlabel="episode", ylabel="mean regret", title="regret curve")
        share = ax.twinx()
        share.plot(episodes, epsilon, color="0.7")
        share.set(ylabel="share of random choices (grey)", ylim=(0, 1))
        ax.legend(frameon=False)
    if isinstance(policy, TabularQ) and has_maps:
        axes = [figure.add_subplot(grid[1, 2 * j : 2 * j + 2]) for j in range(3)]
        draw_maps(policy, axes, names)
    return figure
