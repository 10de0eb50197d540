"""Figures that compare a policy with all-FP64, system by system."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise_studies.report import drawing
from roundwise_studies.report.drawing import FAINT, INK, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALLEST_ERROR = 1e-18
"""Errors of zero are drawn here."""


@drawing.styled
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

    `policy` and `fp64` map the same cases to (ferr, nbe), each with one number per system. `groups`
    are sizes or families of the systems, which markers show; the legend sorts by numbers. `tau`
    maps a case to the tolerance, where a dotted line is drawn.
    """
    systems = _Systems(policy, fp64, kappas, groups)
    figure, axes = systems.panels(2, 5.6, sharey="row")
    for row, label in enumerate(("forward error", "normwise backward error")):
        errors = {
            case: systems.pair(policy[case][row], fp64[case][row], f"{label} of {case!r}")
            for case in policy
        }
        every = np.concatenate([values for pair in errors.values() for values in pair])
        finite = every[np.isfinite(every) & (every > 0)]
        highest = max(finite.max(initial=1e-15), *(tau or {"": 0.0}).values())
        lost = 10.0 ** (np.ceil(np.log10(highest)) + 1)
        for ax, (case, pair) in zip(axes[row], errors.items(), strict=True):
            ax.set_yscale("log")
            at_least = (np.maximum(values, SMALLEST_ERROR) for values in pair)
            systems.draw(ax, *(np.where(np.isfinite(v), v, lost) for v in at_least))
            if tau is not None and case in tau:
                ax.axhline(tau[case], color=INK, linestyle=":", linewidth=1.1)
            if not np.all(np.isfinite(every)):
                ax.axhline(lost, color=FAINT, linewidth=0.8)
                ax.set_ylim(top=lost * 30)
                ax.text(
                    1, lost * 1.5, "no result", transform=ax.get_yaxis_transform(), ha="right",
                    va="bottom", fontsize=9, color=FAINT,
                )  # fmt: skip
        axes[row, 0].set_ylabel(label, labelpad=8)
    dotted = drawing.marker_key("", INK, r"$\tau$", linestyle=":")
    systems.finish(figure, [dotted] if tau else [])
    return figure


@drawing.styled
def iterations_against_fp64(
    policy: Mapping[str, ArrayLike],
    fp64: Mapping[str, ArrayLike],
    kappas: ArrayLike,
    groups: Sequence[str] | None = None,
) -> Figure:
    """GMRES iterations of every system, on a logarithmic axis with 0 at 1/2.

    `policy` and `fp64` map a case to one number per system; else as `errors_against_fp64`.
    """
    systems = _Systems(policy, fp64, kappas, groups)
    figure, axes = systems.panels(1, 3.7, sharey=True)
    low, top = np.inf, 4.0
    for ax, case in zip(axes[0], policy, strict=True):
        pair = systems.pair(policy[case], fp64[case], f"iterations of {case!r}")
        low, top = np.minimum(low, np.min(pair)), max(top, np.nanmax(pair, initial=1))
        ax.set_yscale("log", base=2)
        systems.draw(ax, *np.maximum(pair, 0.5))
    powers = 2.0 ** np.arange(0, ceil(np.log2(top)) + 1)
    axes[0, 0].set_yticks(powers, [f"{p:.0f}" for p in powers])
    axes[0, 0].set_ylim(0.7 if low >= 1 else 0.4, powers[-1] * 1.2)
    axes[0, 0].set_ylabel("GMRES iterations")
    systems.finish(figure)
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
        drawing.need_cases(policy, "policy")
        if set(policy) != set(fp64):
            raise ValueError(f"cases of policy {list(policy)} and fp64 {list(fp64)} must be equal")
        self.cases, self.kappas = list(policy), vector(kappas, "kappas")
        self.count = len(self.kappas)
        if not self.count or np.isnan(self.kappas).any():
            raise ValueError("kappas must be condition numbers, at least one, without NaN")
        self.groups = np.array(["policy"] * self.count if groups is None else list(groups))
        if self.groups.shape != (self.count,):
            raise ValueError(f"{len(self.groups)} groups; pass {self.count}, one per system")
        self.names = sorted(set(self.groups.tolist()), key=_natural)
        self.order = np.argsort(self.kappas, kind="stable")

    def panels(self, rows: int, height: float, **options: Any) -> tuple[Figure, NDArray[Any]]:
        """A column of panels for each case."""
        size = (drawing.WIDTH * (1.0 if len(self.cases) <= 2 else 1.3), height)
        figure, axes = drawing.panels(rows, len(self.cases), size, sharex=True, **options)
        for ax, case in zip(axes[0], self.cases, strict=True):
            ax.set_title(case)
        return figure, axes

    def pair(self, ours: ArrayLike, reference: ArrayLike, name: str) -> list[NDArray[np.float64]]:
        """Both as vectors with one number per system."""
        return [vector(values, name, self.count) for values in (ours, reference)]

    def draw(self, ax: Axes, ours: NDArray[np.float64], reference: NDArray[np.float64]) -> None:
        ours, reference = ours[self.order], reference[self.order]
        places = np.arange(self.count)
        ax.vlines(places, reference, ours, color="#c5cad1", linewidth=0.8, zorder=1.5)
        ax.plot(places, reference, "_", color=INK, markersize=5, zorder=2)
        for i, name in enumerate(self.names):
            color, marker = drawing.group_look(i)
            members = self.groups[self.order] == name
            ax.scatter(
                places[members], ours[members], s=20, marker=marker, color=color, alpha=0.85,
                linewidths=0, zorder=2.5,
            )  # fmt: skip
        ax.minorticks_off()  # over many decades there would be hundreds
        _decade_ticks(ax, self.kappas[self.order])
        ax.grid(visible=False, axis="x")

    def finish(self, figure: Figure, more_keys: Sequence[Any] = ()) -> None:
        figure.supxlabel(f"{self.count} systems by condition number", fontsize=10)
        keys = [drawing.group_key(i, name, markersize=5.5) for i, name in enumerate(self.names)]
        fp64 = drawing.marker_key("_", INK, "all-FP64", markersize=8)
        drawing.legend_above(figure, [*keys, fp64, *more_keys])


def _decade_ticks(ax: Axes, kappas: NDArray[np.float64]) -> None:
    """Ticks of an axis of systems sorted by kappa: where each power of ten is first reached."""
    exponents = np.floor(np.log10(np.maximum(kappas, 1.0)) + 1e-6).astype(int)
    first = {int(k): int(np.argmax(exponents == k)) for k in np.unique(exponents)}
    room = len(kappas) / 14  # systems between two labels, so that they do not touch
    places: list[int] = []
    for exponent in sorted(first, key=first.__getitem__):
        if not places or first[exponent] - first[places[-1]] >= room:
            places.append(exponent)
    ax.set_xticks([first[k] - 0.5 for k in places], [f"$10^{{{k}}}$" for k in places])
    ax.set_xlim(-1, len(kappas))


def _natural(name: str) -> tuple[list[int], str]:
    """Sort key: numbers in the name first, so that ``n < 200`` precedes ``n = 200 to 299``."""
    return [int(digits) for digits in re.findall(r"\d+", name)], name
