"""``roundwise solve``: one matrix from a file, one right-hand side or several, one verdict.

Without a word about formats it is `roundwise.solve`. With an action or a saved policy it is a run
of GMRES-IR as the experiments have it, in emulated arithmetic unless told otherwise.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from roundwise.actions import Action, format_action, parse_action
from roundwise.algorithms import Algorithm, DeploymentRule, GmresIR, Outcome, OutcomeStatus
from roundwise.commands.endings import data_errors, echo_json
from roundwise.commands.front_door import heading, solve_files, system_facts, whereabouts
from roundwise.commands.options import (
    EXISTING_FILE,
    FILE,
    arithmetic_option,
    bad_value,
    checked_output,
    json_option,
)
from roundwise.commands.systems import check_kappa
from roundwise.evaluation import format_table
from roundwise.formats import FP64
from roundwise.problems import (
    LinearSystem,
    read_columns,
    read_matrix_market,
    write_matrix_market,
)
from roundwise.tuning import Tuner

RULE = DeploymentRule()


def parsed_action(ctx: click.Context, param: click.Parameter, text: str | None) -> Action | None:
    with bad_value():
        return None if text is None else parse_action(text, GmresIR.stages)


@click.command("solve")
@click.argument("matrix", metavar="A.mtx", type=EXISTING_FILE)
@click.argument("rhs", metavar="[b.mtx]", type=EXISTING_FILE, required=False)
@click.option("-o", "--out", type=FILE, metavar="x.mtx", callback=checked_output, help="Write x.")
@click.option("--policy", type=EXISTING_FILE, metavar="PATH", help="Let a saved policy choose.")
@click.option(
    "--action",
    metavar="F-F-F-F",
    callback=parsed_action,
    help="Run GMRES-IR with these formats of factor, update, gmres and residual.",
)
@arithmetic_option("With --policy or --action.  [default: the policy's, or operation]")
@click.option("--explain", is_flag=True, help="Tell why it was solved in this way.")
@json_option()
def solve_command(
    matrix: Path,
    rhs: Path | None,
    out: Path | None,
    policy: Path | None,
    action: Action | None,
    arithmetic: str | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Solve A x = b in as little precision as it takes.

    Files are Matrix Market, plain or gzipped: dense (array) or sparse (coordinate). b may have
    several columns. Without b, an x is assumed and b = A x, so that the error of x is known too.

    x is accepted, and written, only if its normwise backward error, in float64 with the original
    A and b, is at most sqrt(n) 2^-53, whoever chose the formats. If not, the exit code is 1.

    With --action or --policy, GMRES-IR runs once with one format for each stage, emulated: to study
    precision, not to save time.

    \b
    Examples
      roundwise solve A.mtx b.mtx -o x.mtx --explain
      roundwise solve A.mtx --action bf16-fp64-fp64-fp64
      roundwise solve A.mtx.gz --policy policy.json --json
    """
    if policy is not None and action is not None:
        raise click.UsageError("--policy and --action are both given; choose one")
    if policy is None and action is None:
        if arithmetic is not None:
            raise click.UsageError("--arithmetic is given without --policy or --action; add one")
        solve_files(matrix, rhs, out, explain, as_json)
        return
    if explain:
        raise click.UsageError("--explain tells of the library's own choice; leave out the other")
    with data_errors():
        columns = iter([read_matrix_market(matrix)]) if rhs is None else read_columns(matrix, rhs)
        first = next(columns)
        choice = choose(first, policy, action, arithmetic)
    outcomes = [
        choice.algorithm.run(column, choice.action, choice.arithmetic)
        for column in chain([first], columns)
    ]
    verdict = Verdict(first, rhs is None, choice, outcomes)
    if verdict.accepted and out is not None:
        write_matrix_market(out, np.array([outcome.x for outcome in outcomes]).T)
    if as_json:
        echo_json(verdict.to_dict() | {"x": str(out) if verdict.accepted and out else None})
    if not verdict.accepted:
        raise click.ClickException(verdict.refusal())
    if not as_json:
        click.echo("\n".join(verdict.lines()))
        click.echo(whereabouts(out))


@dataclass(frozen=True)
class Choice:
    """What to run, and the seconds that a policy took to choose it."""

    algorithm: Algorithm
    action: Action
    arithmetic: str
    seconds: float | None = None


def choose(
    system: LinearSystem, policy: Path | None, action: Action | None, arithmetic: str | None
) -> Choice:
    """The action that was asked for, or the policy's; all features are those of A alone."""
    if policy is None:
        assert action is not None
        return Choice(GmresIR(stop=RULE), action, arithmetic or "operation")
    tuner = Tuner.load(policy)
    check_kappa(tuner.context, [system])
    start = time.perf_counter()
    chosen = tuner.predict(system)
    seconds = time.perf_counter() - start
    algorithm = dataclasses.replace(tuner.algorithm, stop=RULE)  # type: ignore[type-var]
    return Choice(algorithm, chosen, arithmetic or tuner.arithmetic, seconds)


@dataclass(frozen=True)
class Verdict:
    """What became of each right-hand side."""

    system: LinearSystem
    b_assumed: bool
    choice: Choice
    outcomes: Sequence[Outcome]

    @property
    def tolerance(self) -> float:
        return RULE.target(self.system.n)

    @property
    def refused(self) -> list[int]:
        """The columns that are not accepted; NaN never is."""
        return [k for k, outcome in enumerate(self.outcomes) if not outcome.nbe <= self.tolerance]

    @property
    def accepted(self) -> bool:
        return not self.refused

    def columns(self) -> list[dict[str, Any]]:
        return [
            {
                "column": k,
                "status": outcome.status.name.lower().replace("_", " "),
                "backward_error": outcome.nbe,
                "forward_error": outcome.ferr,
                "outer_iterations": outcome.outer_iterations,
                "inner_iterations": outcome.inner_iterations,
                "seconds": outcome.seconds,
            }
            for k, outcome in enumerate(self.outcomes, start=1)
        ]

    def lines(self) -> Iterator[str]:
        choice = self.choice
        yield from heading(self.system, self.b_assumed)
        used = zip(choice.algorithm.stages, choice.action, strict=True)
        formats = ", ".join(f"{stage} {fmt.name}" for stage, fmt in used)
        yield f"{type(choice.algorithm).__name__}: {formats}; {choice.arithmetic} arithmetic"
        if choice.seconds is not None:
            yield f"the policy's choice took {choice.seconds:.2g} s"
        rows = self.columns()
        if not self.b_assumed:
            rows = [{key: row[key] for key in row if key != "forward_error"} for row in rows]
        short = [
            {k.removesuffix("_iterations").replace("_", " "): row[k] for k in row} for row in rows
        ]
        yield f"\n{format_table(short)}\n"
        yield f"accepted: backward error <= {self.tolerance:.2g}"

    def refusal(self) -> str:
        """Why, in one line, for the first column that is not accepted."""
        column = self.refused[0]
        outcome = self.outcomes[column]
        which = "x" if len(self.outcomes) == 1 else f"column {column + 1} of {len(self.outcomes)}"
        everywhere_fp64 = set(self.choice.action) == {FP64}
        if everywhere_fp64 and outcome.status is OutcomeStatus.ZERO_PIVOT:
            why = "A is singular in fp64"
        else:
            why = outcome.reason or outcome.status.value
        advice = "" if everywhere_fp64 else "; or pass no action, and let the library choose"
        return (
            f"{which} is not accepted with {outcome.action}: backward error {outcome.nbe:.2g}, "
            f"tolerance {self.tolerance:.2g}: {why}{advice}"
        )

    def to_dict(self) -> dict[str, Any]:
        choice = self.choice
        return system_facts(self.system, self.b_assumed) | {
            "algorithm": type(choice.algorithm).__name__,
            "stages": list(choice.algorithm.stages),
            "action": format_action(choice.action),
            "arithmetic": choice.arithmetic,
            "tolerance": self.tolerance,
            "accepted": self.accepted,
            "choosing_seconds": choice.seconds,
            "columns": self.columns(),
        }
