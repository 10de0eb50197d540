"""What ``roundwise solve`` does when nothing is said about formats: `roundwise.solve`.

What it says about files, `system_facts` to `whereabouts`, is the same when formats are given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from roundwise.commands.endings import data_errors, echo_json
from roundwise.problems import (
    LinearSystem,
    read_columns,
    read_matrix_market,
    write_matrix_market,
)
from roundwise.solver import Solution, SolveFailed, solve


def solve_files(
    matrix: Path, rhs: Path | None, out: Path | None, explain: bool, as_json: bool
) -> None:
    """Solve, print the verdict, and write x if it was accepted."""
    with data_errors():
        systems = [read_matrix_market(matrix)] if rhs is None else list(read_columns(matrix, rhs))
    first = systems[0]
    B = np.column_stack([system.b for system in systems])
    known = system_facts(first, rhs is None) | {"arithmetic": "native"}
    try:
        solution = solve(first.A, B if rhs is not None else first.b, full_output=True)
    except SolveFailed as failure:
        if as_json:
            echo_json(known | {"accepted": False, "reason": failure.reason, "x": None})
        raise click.ClickException(f"x is not accepted: {failure.reason}") from failure
    if out is not None:
        write_matrix_market(out, solution.x if rhs is not None else solution.x[:, None])
    if as_json:
        x = {"accepted": True, "x": str(out) if out else None}
        echo_json(known | x | _solution_facts(solution, first))
        return
    click.echo("\n".join(_lines(solution, first, rhs, explain)))
    click.echo(whereabouts(out))


def system_facts(system: LinearSystem, b_assumed: bool) -> dict[str, Any]:
    return {
        "matrix": system.name,
        "n": system.n,
        "sparse": system.is_sparse,
        "b_assumed": b_assumed,
    }


def heading(system: LinearSystem, b_assumed: bool) -> Iterator[str]:
    kind = f"sparse, {100 * system.density:.3g} % nonzero" if system.is_sparse else "dense"
    yield f"{system.name}: n = {system.n}, {kind}"
    if b_assumed:
        yield "no b was given: b = A x of an assumed x"


def whereabouts(out: Path | None) -> str:
    return f"x is in {out}" if out else "x was not written; pass -o x.mtx to keep it"


def _solution_facts(solution: Solution, system: LinearSystem) -> dict[str, Any]:
    return {
        "status": solution.status,
        "action": solution.action,
        "backward_error": solution.backward_error,
        "tolerance": solution.tolerance,
        "forward_error": _forward_error(solution, system),
        "forward_error_bound": solution.forward_error_bound,
        "condition": solution.condition,
        "iterations": solution.iterations,
        "inner_iterations": solution.inner_iterations,
        "seconds": solution.seconds,
        "timings": dict(solution.timings),
        "attempts": [dataclasses.asdict(attempt) for attempt in solution.attempts],
        "decision": solution.decision,
    }


def _forward_error(solution: Solution, system: LinearSystem) -> float:
    """Against the assumed x, where b came from one."""
    if system.x_true is None:
        return float("nan")
    return float(np.abs(solution.x - system.x_true).max() / np.abs(system.x_true).max())


def _lines(
    solution: Solution, system: LinearSystem, rhs: Path | None, explain: bool
) -> Iterator[str]:
    yield from heading(system, rhs is None)
    if explain:
        yield f"\n{solution.explain()}\n"
    if rhs is None:
        yield f"forward error {_forward_error(solution, system):.2g}"
    yield (
        f"accepted: backward error {solution.backward_error:.2g} <= {solution.tolerance:.2g}, "
        f"{solution.action}, {1e3 * solution.seconds:.3g} ms"
    )
