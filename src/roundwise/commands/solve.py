"""``roundwise solve``: one matrix from a file, one right-hand side or several, one verdict.

The front door, `roundwise.solve`, solves natively, with its own policy or a trained one. With
``--action``, or a policy in emulated arithmetic, one action is run once on every right-hand side.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import click

from roundwise.actions import Action, as_action
from roundwise.algorithms import Algorithm, DeploymentRule, GmresIR, VerifiedSolve
from roundwise.backends import backend_class, get_backend
from roundwise.commands import options
from roundwise.commands.outputs import data_errors, echo_json, keep, replacing
from roundwise.commands.systems import FileSystem
from roundwise.commands.verdict import Verdict
from roundwise.exceptions import UnknownNameError
from roundwise.features.definitions import KAPPA_EXACT_SPARSE_LIMIT
from roundwise.methods import METHODS
from roundwise.problems import LinearSystem, write_matrix_market
from roundwise.solver import Solution, SolveFailed, solve
from roundwise.tuning import Context, Tuner


def parsed_action(text: str) -> Action:
    action = as_action(text, VerifiedSolve.stages)
    if action.method and action.method not in METHODS:
        raise UnknownNameError("method", action.method, list(METHODS))
    return action


@click.command("solve")
@click.argument("matrix", metavar="A.mtx", type=options.EXISTING_FILE)
@click.argument("rhs", metavar="[b.mtx]", type=options.EXISTING_FILE, required=False)
@options.output("File to write x to.", "x.mtx")
@options.valued(
    "--policy",
    options.EXISTING_FILE,
    "Let a policy that `roundwise train` saved choose.",
    metavar="POLICY.json",
)
@options.valued(
    "--action",
    str,
    "Run the formats of factor, update, gmres and residual once. lu:fp32-... runs the solver "
    "behind `solve`; fp32-... runs the paper's GMRES-IR.",
    metavar="[METHOD:]F-F-F-F",
    check=parsed_action,
)
@options.arithmetic("For --action and --policy.  [default: operation for --action, else native]")
@options.choice("--device", ["cpu", "cuda"], "Solve on the processor, or on a GPU.  [default: cpu]")
@click.option("--explain", is_flag=True, help="Tell why it was solved in this way.")
@options.as_json()
def solve_command(
    matrix: Path,
    rhs: Path | None,
    out: Path | None,
    policy: Path | None,
    action: Action | None,
    arithmetic: str | None,
    device: str | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Solve A x = b in as little precision as it takes.

    Files are Matrix Market, plain or gzipped: dense (array) or sparse (coordinate). b may have
    several columns. Without b, it is made as b = A x of an assumed x, and the forward error of the
    answer is told, too: against a second solve, with residuals in twice the precision.
    Complex and Hermitian files are solved natively; --action and emulation are for real ones.

    x is accepted, and written, only if its normwise backward error, in float64 with the original
    A and b, is at most sqrt(n) 2^-53, whoever chose the formats. If not, the exit code is 1.

    The library, or a trained policy (--policy), chooses a method and formats to start with, and
    goes on to higher ones where the answer is not accepted. A policy saves time if it was trained
    with `roundwise train --algorithm verified-solve`. With --action, or with --policy and an
    emulated arithmetic (operation, storage), one action runs once on every column: to study
    precision.

    \b
    Examples
      roundwise solve A.mtx b.mtx -o x.mtx --explain
      roundwise solve A.mtx b.mtx --device cuda
      roundwise solve A.mtx.gz --policy policy.json --json
      roundwise solve A.mtx --action bf16-fp64-fp64-fp64
      roundwise solve A.mtx --action lu:fp32-fp64-fp64-fp64 --arithmetic native
    """
    keep([matrix, rhs, policy], out=out)
    if policy is not None and action is not None:
        raise click.UsageError("--policy and --action are both given; choose one")
    if device is not None and (policy or action or arithmetic):
        raise click.UsageError(
            "--device is for the library's own choice; leave out --policy, --action and "
            "--arithmetic (--arithmetic cuda runs an action on a GPU)"
        )
    if policy is None and action is None and arithmetic is not None:
        raise click.UsageError("--arithmetic is given without --policy or --action; add one")
    if arithmetic is None:
        arithmetic = "native" if action is None else "operation"
    emulated = not backend_class(arithmetic).timed
    if explain and (action is not None or emulated):
        raise click.UsageError(
            "--explain tells how the library chose and solved; leave out --action and --arithmetic"
        )
    with data_errors():
        tuner = None if policy is None else Tuner.load(policy)
        system = FileSystem.read(matrix, rhs)
        if system.is_complex:
            given = ("--action", action), ("--arithmetic", emulated), ("--device", device == "cuda")
            if others := [name for name, value in given if value]:
                raise click.UsageError(
                    f"{' and '.join(others)}: for real systems only, and these files are complex; "
                    "leave that out, and the library chooses"
                )
        elif tuner is not None:
            check_kappa(tuner.context_, system.columns()[:1])
        if action is not None:
            algorithm = VerifiedSolve() if action.method else GmresIR(stop=DeploymentRule())
            reason = f"You asked for {action}."
            verdict = Verdict.of_runs(system, algorithm, action, arithmetic, reason)
        elif tuner is not None and emulated:
            chosen = chosen_run(tuner, system.columns()[0], arithmetic)
            verdict = Verdict.of_runs(system, *chosen)
        else:
            verdict = Verdict.of_solve(system, solved(system, tuner, device))
    if verdict.accepted and out is not None:
        assert verdict.X is not None
        with replacing(out) as written:
            write_matrix_market(written, verdict.X)
    if as_json:
        echo_json(verdict.to_dict() | {"x": str(out) if verdict.accepted and out else None})
    if not verdict.accepted:
        raise click.ClickException(verdict.refusal())
    if not as_json:
        click.echo("\n".join(verdict.lines(explain)))
        click.echo(f"x is in {out}" if out else "x was not written; pass -o x.mtx to keep it")


def check_kappa(context: Context, systems: Sequence[LinearSystem]) -> None:
    """Refuse, before any run, a system that is too large for its exact condition number."""
    for system in systems:
        large = system.is_sparse and system.n > KAPPA_EXACT_SPARSE_LIMIT
        if large and "kappa_exact" in context.features:
            raise click.ClickException(
                f"{system.name} has n = {system.n}; exact condition numbers of sparse matrices "
                f"end at n = {KAPPA_EXACT_SPARSE_LIMIT}: train with --kappa estimate"
            )


def solved(system: FileSystem, tuner: Tuner | None, device: str | None) -> Solution | SolveFailed:
    """Solve natively for all right-hand sides together."""
    policy = "default" if tuner is None else tuner
    try:
        answer = solve(system.A, system.B, policy=policy, full_output=True, device=device)
    except SolveFailed as failure:
        return failure
    assert isinstance(answer, Solution)
    return answer


def chosen_run(
    tuner: Tuner, system: LinearSystem, arithmetic: str
) -> tuple[Algorithm, Action, str, str, float]:
    """The action that ranks first among those that run in an emulated arithmetic.

    Returns what to run in which arithmetic, why, and the seconds that it took to choose.
    """
    policy, methods = tuner.policy_, get_backend(arithmetic).methods(system.is_sparse)
    allowed = [i for i, a in enumerate(policy.space) if not a.method or a.method in methods]
    if not allowed:
        raise click.ClickException(
            f"{arithmetic} arithmetic runs none of the policy's methods "
            f"({', '.join(policy.space.methods)}); leave out --arithmetic to solve natively"
        )
    start = time.perf_counter()
    state = tuner.deployed.state(system, arithmetic=tuner.arithmetic_)
    ranking = policy.rank(state, allowed)
    seconds = time.perf_counter() - start
    algorithm = tuner.algorithm
    if hasattr(algorithm, "stop"):  # stop as the gate judges
        algorithm = dataclasses.replace(algorithm, stop=DeploymentRule())  # type: ignore[type-var]
    return algorithm, policy.space[ranking.first], arithmetic, ranking.reason, seconds
