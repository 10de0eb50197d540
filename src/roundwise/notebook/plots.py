"""Figures of a solve and of what a Solver has learned; matplotlib is imported when one is drawn.

Each function draws on `ax`, or on a new figure of pyplot, and returns the Axes, as pandas and
scikit-learn do: colours and fonts are those that the user has set.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from roundwise._lazy import require
from roundwise.algorithms import Outcome
from roundwise.policies.online import Learned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALLEST = 1e-20
"""An error of zero is drawn here: a logarithmic axis has no zero."""

SPREAD = 0.15
"""The ways to start are drawn side by side, up to this far from their row."""

LABEL_WIDTH = 42
"""Characters of a line of a row's label."""


def plot_attempts(
    attempts: Sequence[Outcome], tolerance: float, title: str, ax: Axes | None = None
) -> Axes:
    """The backward error after every refinement step, attempt after attempt, and the gate."""
    ax = _axes(ax, (6.4, 3.6))
    start = 0
    for number, attempt in enumerate(attempts, start=1):
        before = [step["backward_error"] for step in attempt.history if "backward_error" in step]
        errors = np.array([*before, attempt.nbe], dtype=np.float64)
        shown = np.where(np.isfinite(errors), np.maximum(errors, SMALLEST), np.nan)
        label = f"{number}. {attempt.action}" + ("" if np.isfinite(shown).any() else " (failed)")
        ax.plot(start + np.arange(len(shown)), shown, "o-", label=label)
        start += len(shown)
    ax.axhline(tolerance, linestyle="--", color="gray", label=f"gate, {tolerance:.1e}")
    ax.set(yscale="log", xlabel="refinement step, attempt after attempt", ylabel="backward error")
    ax.set_xlim(-0.5, max(start, 1) - 0.5)
    ax.locator_params(axis="x", integer=True)
    ax.set_title(title)
    ax.legend()
    return ax


def plot_learned(learned: Learned, ax: Axes | None = None) -> Axes:
    """Relative times by system, one marker for each way to start; dots grow with the solves."""
    rows = list(learned.rows)
    ax = _axes(ax, (8.0, 1.4 + 0.6 * len(rows)))
    shifts = np.linspace(-SPREAD, SPREAD, len(learned.starts)) if len(learned.starts) > 1 else [0]
    for start, shift in zip(learned.starts, shifts, strict=True):
        arms = {
            i: learned.rows[row][start] for i, row in enumerate(rows) if start in learned.rows[row]
        }
        times = [arm.relative_time for arm in arms.values()]
        sizes = [30 + 25 * np.log2(1 + arm.count) for arm in arms.values()]
        ax.scatter(times, [i + shift for i in arms], sizes, label=start)
    ax.axvline(1.0, linestyle="--", color="gray", label="FP64, as priced")
    ax.set(xscale="log", xlabel="time over FP64's priced time", title="Learned, by first action")
    ax.set_yticks(range(len(rows)), [fill(words, LABEL_WIDTH) for words in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    pyplot = require("matplotlib.pyplot", "plot")
    made: Axes = pyplot.subplots(figsize=size, layout="constrained")[1]
    return made
