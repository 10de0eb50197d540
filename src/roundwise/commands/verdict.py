"""`Verdict`: what ``roundwise solve`` prints, writes or refuses, whoever chose the action."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.actions import Action
from roundwise.algorithms import Algorithm, Outcome, OutcomeStatus, VerifiedSolve
from roundwise.algorithms.accuracy import default_tolerance, max_norm, passes
from roundwise.commands.outputs import format_table
from roundwise.commands.systems import FileSystem
from roundwise.formats import FP64
from roundwise.solver import Solution, SolveFailed


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether the answers to the right-hand sides of one matrix pass the gate, and how they came.

    With `by_column`, attempt k is the answer for column k; if not, the attempts were made one after
    the other for all columns together, and the last one is the answer. `X` (n, columns) has the
    answers, if there is one for each column.
    """

    system: FileSystem
    algorithm: Algorithm
    arithmetic: str
    attempts: Sequence[Outcome]
    by_column: bool
    X: NDArray[Any] | None
    timings: Mapping[str, float]  # seconds by purpose
    decision: str = ""  # why the first attempt was made
    explanation: str = ""
    forward_error_bound: float = nan
    error_kind: str = "estimate"  # or "bound"
    condition: float = nan
    failure: str = ""  # why a solve failed; if A is singular, perhaps with an x that passes

    @classmethod
    def of_solve(cls, system: FileSystem, answer: Solution | SolveFailed) -> Verdict:
        """The verdict on what `roundwise.solve` returned or raised for all columns."""
        facts: dict[str, Any] = {"timings": {"solve": _seconds(answer.attempts)}}
        if isinstance(answer, SolveFailed):
            facts["failure"] = answer.reason
        if isinstance(answer, Solution):
            names = ("timings", "decision", "forward_error_bound", "error_kind", "condition")
            facts = {name: getattr(answer, name) for name in names}
            facts["explanation"] = answer.explain()
        attempts, arithmetic = answer.attempts, answer.attempts[-1].arithmetic
        return cls(system, VerifiedSolve(), arithmetic, attempts, False, answer.x, **facts)

    @classmethod
    def of_runs(
        cls,
        system: FileSystem,
        algorithm: Algorithm,
        action: Action,
        arithmetic: str,
        decision: str,
        deciding_seconds: float = 0.0,
    ) -> Verdict:
        """Run one action on every column, one after the other."""
        attempts = [algorithm.run(one, action, arithmetic) for one in system.columns()]
        found = [attempt.x for attempt in attempts if attempt.x is not None]
        X = np.array(found).T if len(found) == len(attempts) else None
        timings = {"features": deciding_seconds, "solve": _seconds(attempts)}
        return cls(system, algorithm, arithmetic, attempts, True, X, timings, decision)

    @property
    def b_assumed(self) -> bool:
        """Whether b was made from an assumed x."""
        return self.system.x_assumed is not None

    @property
    def tolerance(self) -> float:
        """The largest backward error that the gate accepts."""
        return default_tolerance(self.system.n)

    @property
    def answers(self) -> Sequence[Outcome]:
        """The outcomes that the answers come from: one for each column, or one for all."""
        return self.attempts if self.by_column else self.attempts[-1:]

    @property
    def accepted(self) -> bool:
        return not self.failure and passes(self.backward_error, self.tolerance)

    @property
    def backward_error(self) -> float:
        """The largest of all columns; NaN if one is."""
        return float(np.max([outcome.nbe for outcome in self.answers]))

    @cached_property
    def forward_error(self) -> float:
        """The relative error of x where no b was given; NaN elsewhere, or if it is not known.

        Against a solution that was refined with residuals in twice the precision.
        """
        if not self.b_assumed or self.X is None or self.system.accurate is None:
            return nan
        accurate = self.system.accurate
        return max_norm(self.X[:, 0] - accurate) / max_norm(accurate)

    def refusal(self) -> str:
        """Why the first column that is not accepted is not, in one line."""
        if passes(self.backward_error, self.tolerance):
            return f"x is not accepted: {self.failure}"
        bad = next(k for k, o in enumerate(self.answers) if not passes(o.nbe, self.tolerance))
        outcome, count = self.answers[bad], len(self.answers)
        action = Action.parse(outcome.action)
        which = "x" if count == 1 else f"column {bad + 1} of {count}"
        singular = outcome.status is OutcomeStatus.ZERO_PIVOT and action[0] == FP64
        why = "A is singular in fp64" if singular else outcome.reason or outcome.status.value
        advice = ""
        if self.by_column and set(action) != {FP64}:
            advice = "; leave out --action and --arithmetic, and the library chooses"
        return (
            f"{which} is not accepted with {action}: backward error {outcome.nbe:.2g}, "
            f"tolerance {self.tolerance:.2g}: {why}{advice}"
        )

    def lines(self, explain: bool) -> Iterator[str]:
        """The lines to print if x is accepted."""
        system = self.system
        kind = f"sparse, {100 * system.density:.3g} % nonzero" if system.is_sparse else "dense"
        yield f"{system.name}: n = {system.n}, {kind}"
        if self.b_assumed:
            yield "no b was given: b = A x of an assumed x, rounded"
        yield f"{type(self.algorithm).__name__} in {self.arithmetic} arithmetic"
        if explain:
            yield f"\n{self.explanation}\n"
        else:
            yield self.decision
            hidden = {"reason"} if len(self.answers) > 1 else {"reason", "column"}
            shown = [key for key in self.rows()[0] if key not in hidden]
            headings = {key: key.removesuffix("_iterations").replace("_", " ") for key in shown}
            rows = [{headings[key]: row[key] for key in shown} for row in self.rows()]
            yield f"\n{format_table(rows)}\n"
        if self.b_assumed and isnan(self.forward_error):
            yield "forward error not known: A is too ill-conditioned for a reference solution"
        elif self.b_assumed:
            yield f"forward error {self.forward_error:.2g}, against a solve in twice the precision"
        yield f"accepted: backward error {self.backward_error:.2g} <= {self.tolerance:.2g}"

    def rows(self) -> list[dict[str, Any]]:
        """The facts of every attempt; column None stands for all of them."""
        return [
            {
                "column": k if self.by_column else None,
                "action": outcome.action,
                "status": outcome.status.name.lower().replace("_", " "),
                "reason": outcome.reason,
                "backward_error": outcome.nbe,
                "outer_iterations": outcome.outer_iterations,
                "inner_iterations": outcome.inner_iterations,
                "seconds": outcome.seconds,
            }
            for k, outcome in enumerate(self.attempts, start=1)
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the keys are the same whoever chose the action."""
        system = self.system
        return {
            "matrix": system.name,
            "n": system.n,
            "sparse": system.is_sparse,
            "b_assumed": self.b_assumed,
            "algorithm": type(self.algorithm).__name__,
            "stages": list(self.algorithm.stages),
            "arithmetic": self.arithmetic,
            "decision": self.decision,
            "action": self.attempts[-1].action,
            "accepted": self.accepted,
            "reason": "" if self.accepted else self.refusal(),
            "backward_error": self.backward_error,
            "tolerance": self.tolerance,
            "forward_error": self.forward_error,
            "forward_error_bound": self.forward_error_bound,
            "error_kind": self.error_kind,
            "condition": self.condition,
            "timings": dict(self.timings),
            "attempts": self.rows(),
        }


def _seconds(attempts: Sequence[Outcome]) -> float:
    return sum(attempt.seconds or 0.0 for attempt in attempts)
