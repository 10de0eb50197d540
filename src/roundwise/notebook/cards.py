"""What `Solution`, `LeastSquaresSolution`, `Solver` and `Tuner` show in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.notebook.elements import (
    Html,
    card,
    curve,
    element,
    error_bar,
    paragraph,
    table,
    time_bar,
)
from roundwise.policies.online import Learned


class Solved(Protocol):
    """What the solutions of linear systems and of least squares problems have in common."""

    @property
    def x(self) -> Any: ...
    @property
    def status(self) -> str: ...
    @property
    def backward_error(self) -> float: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def attempts(self) -> tuple[Outcome, ...]: ...
    @property
    def timings(self) -> Mapping[str, float]: ...
    @property
    def decision(self) -> str: ...
    @property
    def seconds(self) -> float: ...


def solution_card(solution: Solved, trust: str) -> str:
    """The decision, the ladder of attempts with errors against the gate, and where time went.

    `trust` says in words how far x is to be trusted.
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
        paragraph(trust),
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
    """What a Solver has learned: relative times by system and start, the fastest of each bold."""
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
            "Time over FP64's priced time (solves), by how a solve starts; the fastest is bold.",
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
