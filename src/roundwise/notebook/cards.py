"""HTML and plots of `Solution`, `LeastSquaresSolution`, `Solver` and `Tuner` for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roundwise._lazy import require
from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.policies.online import Learned

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def solution_card(solution: Any, errors: str) -> str:
    """The decision, the ladder of attempts with errors against the gate, and where time went.

    `errors` says in words how large the error of x may be.
    """
    shape = " x ".join(str(size) for size in solution.x.shape)
    name = type(solution).__name__
    title = f"{name}: {solution.status}, x of {shape}, {1e3 * solution.seconds:.3g} ms"
    header = ("", "factors", "formats", "steps", "backward error", "time", "")
    ladder = [
        (str(i), *_attempt(attempt, solution.tolerance))
        for i, attempt in enumerate(solution.attempts, start=1)
    ]
    gate = (
        f"Backward error {solution.backward_error:.1e}; the gate, the mark in each bar, is "
        f"{solution.tolerance:.1e}. Longer bars are smaller errors."
    )
    return card(
        title,
        paragraph(solution.decision),
        table(header, ladder) if ladder else "",
        paragraph(gate, faint=True),
        paragraph(errors),
        time_bar(solution.timings),
    )


def _attempt(attempt: Outcome, gate: float) -> tuple[object, ...]:
    action = Action.parse(attempt.action)
    accepted = attempt.converged and not attempt.reason
    steps = str(attempt.outer_iterations)
    if attempt.inner_iterations:
        steps += f", GMRES {attempt.inner_iterations}"
    verdict = "accepted" if accepted else attempt.reason
    return (
        action.method,
        "-".join(fmt.name for fmt in action),
        steps,
        error_bar(attempt.nbe, gate, accepted),
        f"{1e3 * (attempt.seconds or 0.0):.3g} ms",
        verdict,
    )


def solver_card(title: str, learned: Learned | None) -> str:
    """A Solver's memory: relative times by system and start, the fastest of each bold."""
    if learned is None:
        return card(title, paragraph("This Solver does not learn: its policy decides."))
    if not learned.rows:
        return card(title, paragraph("It has learned nothing yet: solve with it first."))
    rows = [(words, *_relative_times(learned, arms)) for words, arms in learned.rows.items()]
    account = learned.account
    return card(
        title,
        table(("systems", *learned.starts), rows),
        paragraph(
            "Measured time / predicted FP64 time (number of solves), by starting format; the "
            "fastest is bold.",
            faint=True,
        ),
        paragraph(
            f"{account.solves} solves took {account.seconds:.3g} s; {account.explorations} to "
            f"explore took {account.exploring:.2g} s more than expected of the best."
        ),
    )


def _relative_times(learned: Learned, arms: Mapping[str, Any]) -> Iterator[object]:
    fastest = min(arms, key=lambda start: arms[start].relative_time)
    for start in learned.starts:
        if start not in arms:
            yield "-"
            continue
        shown = f"{arms[start].relative_time:.2f} ({arms[start].count})"
        yield element("b", "", shown) if start == fastest else shown


def facts_card(title: str, facts: Mapping[str, str], rewards: Sequence[float] = ()) -> str:
    """Settings as a table, and, once trained, the mean reward by episode."""
    below = curve(rewards, "Mean reward by episode") if len(rewards) else Html("")
    return card(title, table((), facts.items()), below)


GOOD, BAD, FAINT = "#2a9d6f", "#d9772b", "rgba(127,127,127,0.35)"
PARTS = ("#3f88c5", "#d9772b", "#2a9d6f", "#b565a7", "#8a8f98", "#c9a227")
"""Colours of the parts of a bar; a seventh part has the first colour again."""

MOST_DIGITS = 18.0
"""Decimal digits at the right end of an error's bar; backward errors of FP64 end before."""


SENTENCE = 24
"""Characters from which on a cell's text is broken into lines."""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(content: object) -> Html:
    """Anything as HTML; what is no `Html` is escaped."""
    return content if isinstance(content, Html) else Html(escape(str(content)))


def element(tag: str, style: str, *content: object) -> Html:
    return Html(f'<{tag} style="{escape(style)}">{"".join(map(text, content))}</{tag}>')


def card(title: str, *content: object) -> Html:
    """A frame with a title: the whole of what an object shows."""
    head = element("div", "font-weight:600;margin-bottom:0.3em", title)
    style = f"border:1px solid {FAINT};border-radius:6px;padding:0.6em 0.8em;margin:0.2em 0;"
    style += "display:inline-block;max-width:60em;font-size:0.95em;line-height:1.45"
    return element("div", style, head, *content)


def paragraph(content: object, faint: bool = False) -> Html:
    return element("div", "margin:0.3em 0" + (";opacity:0.75" if faint else ""), content)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table whose cells are left-aligned (Jupyter's are not); the header may be empty."""
    cell = "text-align:left;vertical-align:middle;padding:0.2em 0.7em"
    line = f"border-top:1px solid {FAINT}"
    names = [element("tr", "", *(element("th", cell, name) for name in header))] if header else []
    body = [
        element("tr", "", *(element("td", f"{cell};{line};{_wrapping(x)}", x) for x in row))
        for row in rows
    ]
    style = "border-collapse:collapse;margin:0.3em 0;font-size:inherit;color:inherit"
    return element("table", style, *names, *body)


def _wrapping(content: object) -> str:
    """Only sentences are broken into lines."""
    is_sentence = not isinstance(content, Html) and len(str(content)) > SENTENCE
    return f"white-space:{'normal' if is_sentence else 'nowrap'}"


def error_bar(error: float, gate: float, passed: bool) -> Html:
    """A bar as long as the error has zeros after the decimal point, and a mark at the gate."""
    filled, mark = _place(error), _place(gate)
    track = f"position:relative;width:9em;height:0.75em;background:{FAINT};border-radius:3px"
    inner = f"position:absolute;left:0;top:0;height:100%;width:{100 * filled:.1f}%;"
    inner += f"background:{GOOD if passed else BAD};border-radius:3px"
    line = f"position:absolute;left:{100 * mark:.1f}%;top:-0.2em;height:1.15em;width:0;"
    line += "border-left:2px solid currentColor"
    shown = f"{error:.1e}" if math.isfinite(error) else "no answer"
    bar = element("div", track, element("div", inner), element("div", line))
    return element("div", "display:flex;align-items:center;gap:0.6em", bar, shown)


def _place(error: float) -> float:
    """Where an error lies between 1, at the left end, and the smallest, at the right end."""
    if not error < 1:  # NaN and infinity, too
        return 0.0
    return min(1.0, -math.log10(error) / MOST_DIGITS) if error > 0 else 1.0


def time_bar(seconds: Mapping[str, float]) -> Html:
    """A bar of parts, as long as their times, and a legend with milliseconds."""
    total = sum(seconds.values()) or 1.0
    parts, legend = [], []
    for i, (name, taken) in enumerate(seconds.items()):
        color = PARTS[i % len(PARTS)]
        style = f"display:inline-block;height:100%;width:{100 * taken / total:.2f}%;"
        parts.append(element("span", f"{style}background:{color};vertical-align:top"))
        square = (
            f"display:inline-block;width:0.7em;height:0.7em;margin-right:0.3em;background:{color}"
        )
        what = f"{name} {1e3 * taken:.3g} ms"
        legend.append(
            element("span", "margin-right:1em;white-space:nowrap", element("span", square), what)
        )
    style = "height:0.8em;border-radius:3px;overflow:hidden;white-space:nowrap;font-size:1em"
    bar = element("div", f"{style};line-height:0;background:{FAINT}", *parts)
    return Html(bar + element("div", "margin-top:0.2em", *legend))


def curve(values: Sequence[float], label: str) -> Html:
    """A small line chart without axes: the first and the last value stand beside it."""
    width, height = 160.0, 32.0
    low, high = min(values), max(values)
    scale = height / (high - low) if high > low else 0.0
    step = width / max(len(values) - 1, 1)
    points = " ".join(
        f"{i * step:.1f},{height - (value - low) * scale:.1f}" for i, value in enumerate(values)
    )
    svg = Html(
        f'<svg width="{width:.0f}" height="{height + 4:.0f}" viewBox="0 -2 {width:.0f} '
        f'{height + 4:.0f}" role="img" style="vertical-align:middle;margin:0 0.5em">'
        f'<polyline points="{points}" fill="none" stroke="{PARTS[0]}" stroke-width="1.5"/></svg>'
    )
    return element("div", "", f"{label}: {values[0]:.3g}", svg, f"{values[-1]:.3g}")


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


def plot_history(history: NDArray[np.float64], title: str, ax: Axes | None = None) -> Axes:
    """Residual norms by iteration, relative to the first ones, a line for each right-hand side."""
    ax = _axes(ax, (6.4, 3.6))
    first = np.where(history[0] > 0, history[0], 1.0)
    ax.plot(np.maximum(history / first, SMALLEST))
    ax.set(yscale="log", xlabel="iteration", ylabel="residual norm, relative to the first")
    ax.set_title(title)
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
    ax.set(
        xscale="log",
        xlabel="measured time / predicted FP64 time",
        title="Learned, by starting format",
    )
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
