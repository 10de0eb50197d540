"""What a table of action values looks like: maps over its two features, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roundwise._lazy import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from roundwise.policies.tabular import TabularQ

TITLES = ("value of the best action", "visits", "margin over the second best")


def maps_of(policy: TabularQ) -> tuple[NDArray[np.float64], ...]:
    """Of each state, on the grid of its bins: the best tried action's value, how often training was
    there, and by how much that value exceeds the next one; NaN where nothing was tried.

    A state where one action alone was tried has no margin.
    """
    policy.check_started()
    bins = policy.discretizer_.bins_
    if len(bins) > 2:
        raise ValueError(
            f"the table has {len(bins)} features; a map has two: train a policy on two, or read "
            "`values` and `counts`"
        )
    shape = (*bins, 1)[:2]
    visits = policy.counts.sum(axis=1).astype(np.float64)
    tried = policy.counts > 0
    ranked = np.sort(np.where(tried, policy.values, -np.inf), axis=1)
    best = np.where(visits > 0, ranked[:, -1], np.nan)
    second = ranked[:, -2] if ranked.shape[1] > 1 else np.full(len(best), -np.inf)
    margin = np.where(np.isfinite(second), best - second, np.nan)
    seen = np.where(visits > 0, visits, np.nan)
    return tuple(found.reshape(shape) for found in (best, seen, margin))


def draw_maps(policy: TabularQ, axes: Sequence[Axes], names: Sequence[str]) -> None:
    """Draw `maps_of` a policy into three axes, its first feature along the horizontal one."""
    ends = [(centers[0], centers[-1]) for centers in policy.discretizer_.bin_centers_]
    bins = (*policy.discretizer_.bins_, 1)[:2]
    ends = [*ends, (0.0, 0.0)][:2]
    halves = [
        (high - low) / (2 * (count - 1)) if count > 1 else 0.5
        for (low, high), count in zip(ends, bins, strict=True)
    ]
    spans = [(e[0] - h, e[1] + h) for e, h in zip(ends, halves, strict=True)]
    for ax, title, found in zip(axes, TITLES, maps_of(policy), strict=True):
        shown: Any = ax.imshow(
            found.T, origin="lower", aspect="auto", extent=(*spans[0], *spans[1]), cmap="viridis"
        )
        ax.figure.colorbar(shown, ax=ax, shrink=0.85)
        ax.set_title(title)
        ax.set_xlabel(names[0])
        if len(names) > 1:
            ax.set_ylabel(names[1])
        else:
            ax.set_yticks([])


def plot_table(policy: TabularQ, names: Sequence[str] | None) -> Figure:
    """A figure of the three maps."""
    policy.check_started()
    if names is None:
        names = [f"feature {j}" for j in range(len(policy.discretizer_.bins_))]
    if len(names) != len(policy.discretizer_.bins_):
        raise ValueError(
            f"{len(names)} names for {len(policy.discretizer_.bins_)} features; name each"
        )
    maps_of(policy)  # refuse before a figure is made
    pyplot = require("matplotlib.pyplot", "plot")
    figure: Figure = pyplot.figure(figsize=(11, 3.2), layout="constrained")
    draw_maps(policy, figure.subplots(1, 3), names)
    return figure
