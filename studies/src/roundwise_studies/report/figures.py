"""Figures of experiments, from plain arrays.

Each function returns a matplotlib Figure, one panel per case where cases are named (a case is,
e.g., ``"W1, tau = 1e-6"``). matplotlib is imported when one is called. Backgrounds are opaque, so
that a figure is read alike on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from roundwise_studies.report import drawing
from roundwise_studies.report.comparison import errors_against_fp64, iterations_against_fp64
from roundwise_studies.report.drawing import FAINT, INK, WIDTH, vector
from roundwise_studies.report.variants import dots_against, heat_table, stacked_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "dots_against",
    "errors_against_fp64",
    "heat_table",
    "iterations_against_fp64",
    "kappa_distribution",
    "policy_map",
    "reward_landscape",
    "stacked_bars",
    "training_curves",
    "usage_by_range",
]

STAGES = 4


@drawing.styled
def training_curves(curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Figure:
    """Reward and reward prediction error per episode.

    `curves` maps a case to both, each with one number per episode, or (seeds, episodes): then the
    mean is drawn, and a band from the lowest to the highest seed.
    """
    drawing.need_cases(curves, "curves")
    figure, axes = drawing.panels(1, 2, (WIDTH, 3.7))
    for which, label in enumerate(("Mean reward", "Mean |prediction error|")):
        ax = axes[0, which]
        for i, (name, pair) in enumerate(curves.items()):
            runs = np.atleast_2d(np.asarray(pair[which], dtype=np.float64))
            if runs.ndim != 2 or runs.size == 0:
                raise ValueError(f"{label} of {name!r}; pass (episodes) or (seeds, episodes)")
            color, _ = drawing.group_look(i)
            episodes = np.arange(1, runs.shape[1] + 1)
            style = drawing.LINE_STYLES[i % len(drawing.LINE_STYLES)]
            ax.plot(episodes, runs.mean(axis=0), style, color=color, label=name)
            if len(runs) > 1:
                low, high = runs.min(axis=0), runs.max(axis=0)
                ax.fill_between(episodes, low, high, color=color, alpha=0.15, linewidth=0)
        ax.set(xlabel="episode", title=label)
        ax.margins(x=0.02)
    axes[0, 1].set_ylim(bottom=0)
    drawing.legend_above(figure, axes[0, 0].get_legend_handles_labels()[0])
    return figure


@drawing.styled
def usage_by_range(
    shares: Mapping[str, ArrayLike],
    ranges: Sequence[str],
    formats: Sequence[str],
    counts: Sequence[int] | None = None,
) -> Figure:
    """How many of the four stages use each format, stacked, by range of the condition number.

    `shares` maps a case to the mean numbers, (ranges, formats); a row adds up to 4, and is NaN
    without systems. Formats go from low to high precision; `counts` are the systems in each range.
    """
    tables = {name: np.asarray(values, dtype=np.float64) for name, values in shares.items()}
    for name, table in tables.items():
        if table.shape != (len(ranges), len(formats)):
            shape = (len(ranges), len(formats))
            raise ValueError(f"{name!r} has shape {table.shape}; pass {shape}, ranges by formats")
    figure, axes = drawing.case_panels(shares, 0.9, 2.3, sharey=True)
    colors = drawing.sequential_colors(len(formats))
    ticks = [f"{r}\n{c} systems" for r, c in zip(ranges, counts, strict=True)] if counts else ranges
    for ax, table in zip(axes.flat, tables.values(), strict=False):
        bottom = np.zeros(len(ranges))
        for j, color in enumerate(colors):
            heights = np.nan_to_num(table[:, j])
            ax.bar(range(len(ranges)), heights, 0.66, bottom, color=color, edgecolor="white")
            for i, height in enumerate(heights):
                if height >= 0.09 * STAGES:  # else the number would not fit
                    middle = bottom[i] + height / 2
                    drawing.write_on(ax, i, middle, f"{height:.2f}", color, fontsize=9)
            bottom += heights
        ax.set(ylim=(0, STAGES), yticks=range(STAGES + 1))
        ax.set_xticks(range(len(ranges)), ticks)
        ax.grid(visible=False, axis="x")
    figure.supylabel(f"stages (of {STAGES})", fontsize=10)
    drawing.legend_above(figure, drawing.patch_keys(colors, formats))
    return figure


@drawing.styled
def kappa_distribution(values: Mapping[str, ArrayLike]) -> Figure:
    """Histograms, in bins of half a decade, of the condition numbers of each family.

    `values` maps a family to condition numbers, at least 1 and finite.
    """
    drawing.need_cases(values, "values")
    logs = {name: np.log10(vector(v, f"kappas of {name!r}")) for name, v in values.items()}
    every = np.concatenate(list(logs.values()))
    if not (every.size and np.all(np.isfinite(every)) and every.min() > -1e-6):
        raise ValueError("condition numbers must be finite and at least 1; leave others out")
    edges = np.arange(np.floor(every.min()), np.ceil(every.max() + 1e-9) + 0.75, 0.5)
    figure, axes = drawing.panels(
        len(values), 1, (WIDTH, 0.9 + 0.95 * len(values)), sharex=True, sharey=True
    )
    for ax, (name, family) in zip(axes[:, 0], logs.items(), strict=True):
        # Other figures number the groups alphabetically: the same colour here.
        color, _ = drawing.group_look(sorted(values).index(name))
        ax.hist(family, bins=edges, color=color, alpha=0.8, edgecolor="white")
        ax.plot(
            family, np.zeros_like(family), "|", color=INK, markersize=7, alpha=0.6, clip_on=False
        )
        described = f"{family.size} systems"
        if family.size:
            mantissa, power = f"{10 ** np.median(family):.1e}".split("e")
            described += rf", median ${mantissa} \times 10^{{{int(power)}}}$"
        ax.set_title(f"{name}  ", pad=2)
        place = {"transform": ax.transAxes, "ha": "right", "va": "bottom"}
        ax.text(1, 1.02, described, fontsize=9, color=FAINT, **place)
        ax.yaxis.get_major_locator().set_params(integer=True, nbins=3)
    powers = np.arange(edges[0], edges[-1] + 0.1, 1 if edges[-1] - edges[0] <= 10 else 2)
    axes[-1, 0].set_xticks(powers, [f"$10^{{{p:.0f}}}$" for p in powers])
    axes[-1, 0].set_xlabel("condition number")
    figure.supylabel("systems", fontsize=10)
    return figure


@drawing.styled
def policy_map(
    grids: Mapping[str, Sequence[Sequence[str | None]]],
    x: ArrayLike,
    y: ArrayLike,
    order: Sequence[str] | None = None,
) -> Figure:
    """The action a policy takes in each state of a grid, by colour and letter.

    `grids` maps a case to the names of the actions, (len(x), len(y)); None (drawn empty) where the
    policy has seen nothing. `x` and `y` are log10 of kappa and of the infinity-norm at the middle
    of the bins. Colours go from light to dark in the order of `order`, all actions from low to
    high precision; alphabetic if not given.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    x, y = vector(x, "x"), vector(y, "y")
    for case, grid in grids.items():
        if len(grid) != len(x) or any(len(line) != len(y) for line in grid):
            raise ValueError(f"the grid of {case!r} must be len(x) = {len(x)} by len(y) = {len(y)}")
    names = {name for grid in grids.values() for line in grid for name in line if name}
    if order is not None and (unknown := names - set(order)):
        raise ValueError(f"actions {sorted(unknown)} are not in order; pass all actions")
    used = [name for name in (order or sorted(names)) if name in names]
    colors = drawing.sequential_colors(len(used))
    keys = [ascii_uppercase[i % 26] + (str(i // 26) if i >= 26 else "") for i in range(len(used))]
    figure, axes = drawing.case_panels(grids, 0.7, 3.1, sharex=True, sharey=True)
    for ax, grid in zip(axes.flat, grids.values(), strict=False):
        codes = np.array([[used.index(name) if name else -1 for name in line] for line in grid]).T
        ax.set_facecolor("#f3f4f6")
        ax.pcolormesh(
            np.arange(len(x) + 1) - 0.5, np.arange(len(y) + 1) - 0.5,
            np.ma.masked_less(codes, 0), cmap=ListedColormap(colors or ["white"]),
            vmin=-0.5, vmax=len(used) - 0.5, edgecolors="white", linewidth=1,
        )  # fmt: skip
        for (j, i), code in np.ndenumerate(codes):
            if code >= 0:
                drawing.write_on(ax, i, j, keys[code], colors[code], fontsize=8)
        ax.grid(visible=False)
        for axis, centers in ((ax.xaxis, x), (ax.yaxis, y)):
            step = ceil(len(centers) / 6)
            axis.set_ticks(range(0, len(centers), step), [f"{c:.1f}" for c in centers[::step]])
    figure.supxlabel(r"$\log_{10}\,\kappa$", fontsize=10)
    figure.supylabel(r"$\log_{10}\,\|A\|_\infty$", fontsize=10)
    handles = drawing.patch_keys(colors, [f"{k}  {n}" for k, n in zip(keys, used, strict=True)])
    handles.append(Patch(facecolor="#f3f4f6", edgecolor="#c5cad1", label="never seen"))
    figure.legend(
        handles=handles, loc="outside right upper", prop={"family": "monospace", "size": 9}
    )
    return figure


@drawing.styled
def reward_landscape(
    rewards: Mapping[str, ArrayLike],
    actions: Sequence[str],
    failed: Sequence[bool] | None = None,
    chosen: Mapping[str, int] | None = None,
) -> Figure:
    """The rewards of one problem over all actions, the best and the chosen one marked.

    `rewards` maps a case to one reward per action; NaN or infinite ones are left out. `actions` go
    from low to high precision, and are drawn from top to bottom. `failed` tells whose run broke
    off or gave no finite error: these are drawn as crosses. `chosen` maps a case to the index of
    the action that the policy takes.
    """
    drawing.need_cases(rewards, "rewards")
    count = len(actions)
    broken = np.array([False] * count if failed is None else failed, dtype=np.bool_)
    if broken.shape != (count,):
        raise ValueError(f"failed has shape {broken.shape}; pass one for each of {count} actions")
    figure, axes = drawing.panels(1, len(rewards), (WIDTH, 1.1 + 0.19 * count), sharey=True)
    places = np.arange(count)
    good, bad, best, pick = drawing.GROUP_COLORS[0], FAINT, drawing.GROUP_COLORS[1], INK
    for ax, (case, given) in zip(axes[0], rewards.items(), strict=True):
        values = vector(given, f"rewards of {case!r}", count)
        finite = np.isfinite(values)
        ax.plot(values[finite & ~broken], places[finite & ~broken], "o", color=good, markersize=5)
        ax.plot(values[finite & broken], places[finite & broken], "x", color=bad, markersize=5)
        if finite.any():
            top = int(np.argmax(np.where(finite, values, -np.inf)))
            ax.plot(values[top], top, "*", color=best, markersize=13)
        if chosen is not None and case in chosen:
            ring = {"color": pick, "markerfacecolor": "none", "markeredgewidth": 1.4}
            ax.plot(values[chosen[case]], chosen[case], "o", markersize=13, **ring)
        ax.set(title=case, xlabel="reward")
        ax.margins(x=0.08)
    axes[0, 0].set_yticks(places, actions, family="monospace", fontsize=8)
    axes[0, 0].set_ylim(count - 0.4, -0.6)
    handles = [drawing.marker_key("o", good, "an action")]
    if broken.any():
        handles.append(drawing.marker_key("x", bad, "no result"))
    handles.append(drawing.marker_key("*", best, "the best", markersize=12))
    if chosen:
        look = {"markersize": 11, "markerfacecolor": "none"}
        handles.append(drawing.marker_key("o", pick, "what the policy takes", **look))
    drawing.legend_above(figure, handles)
    return figure
