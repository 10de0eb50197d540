"""Figures of measured times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from roundwise_studies.report import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = Mapping[str, tuple[ArrayLike, ArrayLike]]
SPREAD = 0.25
"""Decades: methods are drawn side by side, up to this far from their kappa."""


@drawing.styled
def ratios_against_kappa(
    kappas: ArrayLike, cases: Mapping[str, Mapping[str, ArrayLike]], reference: str
) -> Figure:
    """How many times faster than a reference each method is, one point per system.

    `cases` maps a case, which gets a panel, to a mapping of method to ratios of times, above 1
    where the method is faster than `reference`.
    """
    x = drawing.vector(kappas, "kappas")
    figure, axes = drawing.case_panels(cases, 0.0, 3.9, columns=len(cases), sharey=True)
    for ax, methods in zip(axes[0], cases.values(), strict=True):
        drawing.need_cases(methods, "methods")
        shifts = np.linspace(-SPREAD, SPREAD, len(methods)) if len(methods) > 1 else np.zeros(1)
        for i, (name, values) in enumerate(methods.items()):
            color, marker = drawing.group_look(i)
            ax.plot(
                x * 10.0 ** shifts[i], drawing.vector(values, name, len(x)), marker, color=color,
                markersize=4, alpha=0.7, markeredgewidth=0, label=name,
            )  # fmt: skip
        _ratio_axis(ax, f"times faster than {reference}" if ax is axes[0, 0] else "")
        ax.set(xscale="log", xlabel=r"$\kappa$")
    drawing.legend_above(figure, axes[0, 0].get_legend_handles_labels()[0])
    return figure


@drawing.styled
def ratios_against_size(cases: Mapping[str, Curves], reference: str) -> Figure:
    """How many times faster than a reference each method is, against the number of unknowns.

    `cases` maps a case, which gets a panel, to a mapping of method to (sizes, ratios). A NaN is a
    size at which the method missed its target.
    """
    figure, axes = drawing.case_panels(cases, 0.0, 3.1, columns=min(len(cases), 3))
    methods = list(dict.fromkeys(name for curves in cases.values() for name in curves))
    handles = {}
    for ax, curves in zip(axes.flat, cases.values(), strict=False):
        for name, (sizes, ratios) in curves.items():
            i = methods.index(name)
            color, marker = drawing.group_look(i)
            line = drawing.LINE_STYLES[i // len(drawing.GROUP_MARKERS)]
            look = {"color": color, "markersize": 5, "label": name}
            (handles[name],) = ax.plot(np.asarray(sizes), np.asarray(ratios), line + marker, **look)
        _ratio_axis(ax, f"times faster than {reference}" if ax in axes[:, 0] else "")
        ax.set(xscale="log", xlabel="unknowns")
        measured = sorted({float(n) for sizes, _ in curves.values() for n in np.ravel(sizes)})
        ax.set_xticks(
            measured, [f"{n / 1000:.3g}k" if n >= 10_000 else f"{n:.0f}" for n in measured]
        )
        ax.set_xticks([], minor=True)
    drawing.legend_above(figure, [handles[name] for name in methods], columns=4)
    return figure


def _ratio_axis(ax: Axes, label: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.25, 1.5, 1.75)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    ax.axhline(1.0, color=drawing.FAINT, linewidth=1.0, zorder=1)
    ax.set_ylabel(label)
