"""Figures that compare variants of one experiment with reference values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roundwise_studies.report import drawing
from roundwise_studies.report.drawing import INK, WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@drawing.styled
def heat_table(rows: Sequence[str], columns: Sequence[str], values: NDArray[np.float64]) -> Figure:
    """A table of numbers >= 0 whose cells darken from 0 to the largest of their column."""
    from matplotlib import colormaps

    if values.shape != (len(rows), len(columns)):
        raise ValueError(f"values have shape {values.shape}; pass {(len(rows), len(columns))}")
    figure, axes = drawing.panels(1, 1, (0.82 * WIDTH, 0.7 + 0.33 * len(rows)))
    ax = axes[0, 0]
    largest = np.nanmax(values, axis=0)
    shades = 0.85 * values / np.where(largest > 0, largest, 1.0)
    colors = colormaps["Blues"](shades)
    ax.imshow(colors, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        drawing.write_on(ax, j, i, f"{value:.2f}", colors[i, j].tolist())
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return figure


@drawing.styled
def stacked_bars(
    shares: Mapping[str, NDArray[np.float64]],
    bars: Sequence[str],
    formats: Sequence[str],
    shades: int,
) -> Figure:
    """Horizontal bars, one per variant and stacked by format, in a panel per case.

    `shares` maps a case to an array, (bars, formats), NaN where there is nothing. The first bar is
    the reference, set off by a line. `shades` is the number of colours of the scale: the same in
    all figures gives a format the same colour.
    """
    height = 0.5 + 0.19 * len(bars)
    figure, axes = drawing.case_panels(shares, 0.6, height, columns=3, sharex=True, sharey=True)
    colors = drawing.sequential_colors(shades)[: len(formats)]
    for ax, table in zip(axes.flat, shares.values(), strict=False):
        left = np.zeros(len(bars))
        for j, color in enumerate(colors):
            widths = np.nan_to_num(table[:, j])
            ax.barh(range(len(bars)), widths, 0.72, left, color=color)
            left += widths
        ax.axhline(0.5, color=INK, linewidth=0.8)
        ax.set_yticks(range(len(bars)), bars)
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")
    axes[0, 0].invert_yaxis()
    figure.supxlabel("stages below FP64 (of 4)", fontsize=10)
    drawing.legend_above(figure, drawing.patch_keys(colors, formats))
    return figure


@drawing.styled
def dots_against(
    values: Mapping[tuple[str, str], Mapping[str, tuple[float, Sequence[list[float]]]]],
    variants: Sequence[str],
) -> Figure:
    """Dots of every variant, and a line at the reference, for several groups in each panel.

    `values` maps (row, column) to a mapping of group to (reference, values of each variant); values
    are lists, empty where a variant has none. The names of the variants stand on the vertical axis.
    The horizontal axis is logarithmic, and linear from 0 to 1 in a row with zeros.
    """
    drawing.need_cases(values, "values")
    rows = list(dict.fromkeys(row for row, _ in values))
    columns = list(dict.fromkeys(column for _, column in values))
    size = (WIDTH, 0.6 + len(rows) * (0.5 + 0.2 * len(variants)))
    figure, axes = drawing.panels(len(rows), len(columns), size, sharex="row", sharey=True)
    groups = list(dict.fromkeys(group for panel in values.values() for group in panel))
    for (row, column), panel in values.items():
        ax = axes[rows.index(row), columns.index(column)]
        for group, (reference, found) in panel.items():
            k = groups.index(group)
            color, marker = drawing.group_look(k)
            offset = 0.24 * (k - (len(groups) - 1) / 2)
            ax.axvline(reference, color=color, linewidth=1.0)
            for i, numbers in enumerate(found):
                dot = 6 if len(numbers) == 1 else 3  # a single dot is easily missed
                ax.plot(
                    numbers, [i + offset] * len(numbers), marker, color=color, markersize=dot,
                    alpha=0.6, markeredgewidth=0,
                )  # fmt: skip
        ax.set_yticks(range(len(variants)), variants)
        ax.tick_params(axis="y", length=0)
        if row == rows[0]:
            ax.set_title(column)
        if column == columns[0]:
            ax.set_ylabel(row, fontweight="bold")
    for line, row in zip(axes, rows, strict=True):
        _scale(line, [panel for (name, _), panel in values.items() if name == row])
    axes[0, 0].invert_yaxis()
    look = {"linestyle": "-", "markersize": 5}
    drawing.legend_above(figure, [drawing.group_key(k, g, **look) for k, g in enumerate(groups)])
    return figure


def _scale(
    axes: NDArray[Any], row: Sequence[Mapping[str, tuple[float, Sequence[list[float]]]]]
) -> None:
    """Scale the horizontal axes of a row, which are shared; counts get plain numbers."""
    from matplotlib.ticker import FixedLocator, NullLocator

    groups = [group for panel in row for group in panel.values()]
    references = [reference for reference, _ in groups]
    numbers = [x for _, found in groups for each in found for x in each] + references
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    axes[0].set_xscale("log" if low > 0 else "symlog", **({} if low > 0 else {"linthresh": 1.0}))
    if low == 0 or (low > 0.1 and high < 1e5):
        ticks = [t for t in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if low <= t <= high]
        ticks = ticks if len(ticks) <= 6 else [t for t in ticks if str(t)[0] in "01"]
        for ax in axes:
            ax.xaxis.set_major_locator(FixedLocator(ticks))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter("{x:.0f}")
    if low == 0:
        axes[0].set_xlim(left=-0.2)
