"""Figures of measured times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from roundwise.report.drawing import (
    FAINT,
    GROUP_MARKERS,
    LINE_STYLES,
    case_panels,
    group_look,
    legend_above,
    need_cases,
    styled,
    vector,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = Mapping[str, tuple[ArrayLike, ArrayLike]]
SPREAD = 0.25
"""Decades: methods are drawn side by side, up to this far from their kappa."""


@styled
def ratios_against_kappa(
    kappas: ArrayLike, cases: Mapping[str, Mapping[str, ArrayLike]], reference: str
) -> Figure:
    """How many times faster than a reference each method is, one point per system.

    Parameters
    ----------
    kappas : array_like
        Condition numbers of the systems.
    cases : mapping of case to (mapping of method to array_like)
        One panel per case; ratios of times, above 1 where the method is faster.
    reference : str
        What the ratios are against.
    """
    x = vector(kappas, "kappas")
    figure, axes = case_panels(cases, "cases", len(cases), lambda rows: 3.9, sharey=True)
    for ax, (case, methods) in zip(axes[0], cases.items(), strict=True):
        need_cases(methods, "methods")
        shifts = np.linspace(-SPREAD, SPREAD, len(methods)) if len(methods) > 1 else np.zeros(1)
        for i, (name, values) in enumerate(methods.items()):
            color, marker = group_look(i)
            ax.plot(
                x * 10.0 ** shifts[i], vector(values, name, len(x)), marker, color=color,
                markersize=4, alpha=0.7, markeredgewidth=0, label=name,
            )  # fmt: skip
        _ratio_axis(ax, f"times faster than {reference}" if ax is axes[0, 0] else "")
        ax.set(xscale="log", xlabel=r"$\kappa$", title=case)
    legend_above(figure, axes[0, 0].get_legend_handles_labels()[0])
    return figure


@styled
def ratios_against_size(cases: Mapping[str, Curves], reference: str) -> Figure:
    """How many times faster than a reference each method is, against the number of unknowns.

    Parameters
    ----------
    cases : mapping of case to (mapping of method to (sizes, ratios))
        One panel per case. A NaN is a size at which the method missed its target.
    reference : str
    """
    figure, axes = case_panels(cases, "cases", min(len(cases), 3), lambda rows: 3.1 * rows)
    methods = list(dict.fromkeys(name for curves in cases.values() for name in curves))
    handles = {}
    for ax, (case, curves) in zip(axes.flat, cases.items(), strict=False):
        for name, (sizes, ratios) in curves.items():
            i = methods.index(name)
            color, marker = group_look(i)
            (handles[name],) = ax.plot(
                np.asarray(sizes, dtype=np.float64), np.asarray(ratios, dtype=np.float64),
                LINE_STYLES[i // len(GROUP_MARKERS)] + marker, color=color, markersize=5,
                label=name,
            )  # fmt: skip
        _ratio_axis(ax, f"times faster than {reference}" if ax in axes[:, 0] else "")
        ax.set(xscale="log", xlabel="unknowns", title=case)
        ax.set_xticks(*_measured_sizes(curves), minor=False)
        ax.set_xticks([], minor=True)
    legend_above(figure, [handles[name] for name in methods], columns=4)
    return figure


def _measured_sizes(curves: Curves) -> tuple[list[float], list[str]]:
    """The sizes of all curves, and how to write them."""
    sizes = sorted({float(n) for measured, _ in curves.values() for n in np.ravel(measured)})
    return sizes, [f"{n / 1000:.3g}k" if n >= 10_000 else f"{n:.0f}" for n in sizes]


def _ratio_axis(ax: Axes, label: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.25, 1.5, 1.75)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    ax.axhline(1.0, color=FAINT, linewidth=1.0, zorder=1)
    ax.set_ylabel(label)
