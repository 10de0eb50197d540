"""Figures that compare a policy with all-FP64, system by system."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.report.drawing import (
    FAINT,
    INK,
    WIDTH,
    decade_ticks,
    group_look,
    legend_above,
    marker_key,
    need_cases,
    panels,
    styled,
    vector,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALLEST_ERROR = 1e-18
"""Errors of zero are drawn here."""


@styled
def errors_against_fp64(
    policy: Mapping[str, tuple[ArrayLike, ArrayLike]],
    fp64: Mapping[str, tuple[ArrayLike, ArrayLike]],
    kappas: ArrayLike,
    groups: Sequence[str] | None = None,
    tau: Mapping[str, float] | None = None,
) -> Figure:
    """Forward and backward error of every system, under the policy and in all-FP64.

    Systems are sorted by condition number; a thin line leads from FP64's error to the policy's.
    A run without a finite error is drawn on a line of its own, above all others.

    Parameters
    ----------
    policy, fp64 : mapping of case to (ferr, nbe)
        One number per system each, the same cases in both.
    kappas : array_like
        Condition numbers, one per system.
    groups : sequence of str, optional
        Size or family of each system, which its marker shows; the legend sorts by numbers.
    tau : mapping of case to float, optional
        A dotted line where the tolerance is.
    """
    drawing = _Systems(policy, fp64, kappas, groups)
    figure, axes = panels(2, len(policy), (_width(len(policy)), 5.6), sharex=True, sharey="row")
    labels = ("forward error", "normwise backward error")
    for row, (label, which) in enumerate(zip(labels, (0, 1), strict=True)):
        pairs = {
            case: (
                vector(policy[case][which], f"{label} of {case!r}", drawing.count),
                vector(fp64[case][which], f"FP64 {label} of {case!r}", drawing.count),
            )
            for case in policy
        }
        every = np.concatenate([values for pair in pairs.values() for values in pair])
        finite = every[np.isfinite(every) & (every > 0)]
        highest = max(finite.max(initial=1e-15), *(tau or {"": 0.0}).values())
        lost = 10.0 ** (np.ceil(np.log10(highest)) + 1)
        for column, (case, (ours, reference)) in enumerate(pairs.items()):
            ax = axes[row, column]
            ax.set_yscale("log")
            drawing.draw(ax, *(_drawable(v, lost) for v in (ours, reference)))
            if tau is not None and case in tau:
                ax.axhline(tau[case], color=INK, linestyle=":", linewidth=1.1)
            if np.any(~np.isfinite(every)):
                ax.axhline(lost, color=FAINT, linewidth=0.8)
                ax.set_ylim(top=lost * 30)
                ax.text(
                    1, lost * 1.5, "no result", transform=ax.get_yaxis_transform(), ha="right",
                    va="bottom", fontsize=9, color=FAINT,
                )  # fmt: skip
            if row == 0:
                ax.set_title(case)
        axes[row, 0].set_ylabel(label, labelpad=8)
    drawing.finish(figure, axes, tau=tau)
    return figure


@styled
def iterations_against_fp64(
    policy: Mapping[str, ArrayLike],
    fp64: Mapping[str, ArrayLike],
    kappas: ArrayLike,
    groups: Sequence[str] | None = None,
    label: str = "GMRES iterations",
) -> Figure:
    """Iterations of every system, under the policy and in all-FP64; see `errors_against_fp64`.

    Parameters
    ----------
    policy, fp64 : mapping of case to array_like
        Iterations, one number per system; drawn on a logarithmic axis, 0 at 1/2.
    kappas, groups
        As there.
    label : str
        What was counted.
    """
    drawing = _Systems(policy, fp64, kappas, groups)
    figure, axes = panels(1, len(policy), (_width(len(policy)), 3.7), sharex=True, sharey=True)
    top = 4.0
    for ax, case in zip(axes[0], policy, strict=True):
        ours = vector(policy[case], f"iterations of {case!r}", drawing.count)
        reference = vector(fp64[case], f"FP64 iterations of {case!r}", drawing.count)
        top = max(top, np.nanmax(ours, initial=1), np.nanmax(reference, initial=1))
        ax.set_yscale("log", base=2)
        drawing.draw(ax, np.maximum(ours, 0.5), np.maximum(reference, 0.5))
        ax.set_title(case)
    powers = 2.0 ** np.arange(0, ceil(np.log2(top)) + 1)
    axes[0, 0].set_yticks(powers, [f"{p:.0f}" for p in powers])
    axes[0, 0].set_ylim(0.7 if _positive(policy, fp64) else 0.4, powers[-1] * 1.2)
    axes[0, 0].set_ylabel(label)
    drawing.finish(figure, axes)
    return figure


class _Systems:
    """Draws one marker per system, over the systems in order of kappa."""

    def __init__(
        self,
        policy: Mapping[str, Any],
        fp64: Mapping[str, Any],
        kappas: ArrayLike,
        groups: Sequence[str] | None,
    ) -> None:
        need_cases(policy, "policy")
        if set(policy) != set(fp64):
            raise ValueError(f"cases of policy {list(policy)} and fp64 {list(fp64)} must be equal")
        self.kappas = vector(kappas, "kappas")
        self.count = len(self.kappas)
        if not self.count or np.isnan(self.kappas).any():
            raise ValueError("kappas must be condition numbers, at least one, without NaN")
        self.groups = np.array(["policy"] * self.count if groups is None else list(groups))
        if self.groups.shape != (self.count,):
            raise ValueError(f"{len(self.groups)} groups; pass {self.count}, one per system")
        self.names = sorted(set(self.groups.tolist()), key=_natural)
        self.order = np.argsort(self.kappas, kind="stable")

    def draw(self, ax: Axes, ours: NDArray[np.float64], reference: NDArray[np.float64]) -> None:
        ours, reference = ours[self.order], reference[self.order]
        places = np.arange(self.count)
        ax.vlines(places, reference, ours, color="#c5cad1", linewidth=0.8, zorder=1.5)
        ax.plot(places, reference, "_", color=INK, markersize=5, zorder=2)
        for i, name in enumerate(self.names):
            color, marker = group_look(i)
            members = self.groups[self.order] == name
            ax.scatter(
                places[members], ours[members], s=20, marker=marker, color=color, alpha=0.85,
                linewidths=0, zorder=2.5,
            )  # fmt: skip
        ax.minorticks_off()  # over many decades there would be hundreds
        decade_ticks(ax, self.kappas[self.order])
        ax.grid(visible=False, axis="x")

    def finish(
        self, figure: Figure, axes: NDArray[Any], tau: Mapping[str, float] | None = None
    ) -> None:
        from matplotlib.lines import Line2D

        figure.supxlabel(f"{self.count} systems by condition number", fontsize=10)
        handles = []
        for i, name in enumerate(self.names):
            color, marker = group_look(i)
            handles.append(marker_key(marker, color, name, markersize=5.5))
        handles.append(marker_key("_", INK, "all-FP64", markersize=8))
        if tau:
            handles.append(Line2D([], [], linestyle=":", color=INK, label=r"$\tau$"))
        legend_above(figure, handles)


def _width(cases: int) -> float:
    return WIDTH if cases <= 2 else WIDTH * 1.3


def _drawable(errors: NDArray[np.float64], lost: float) -> NDArray[np.float64]:
    return np.where(np.isfinite(errors), np.maximum(errors, SMALLEST_ERROR), lost)


def _positive(policy: Mapping[str, ArrayLike], fp64: Mapping[str, ArrayLike]) -> bool:
    return all(np.min(v) >= 1 for group in (policy, fp64) for v in group.values())


def _natural(name: str) -> tuple[list[int], str]:
    """Sort key: numbers in the name first, so that ``n < 200`` precedes ``n = 200 to 299``."""
    return [int(digits) for digits in re.findall(r"\d+", name)], name
