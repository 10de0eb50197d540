"""Gradients through `roundwise.solve` in torch and JAX, against their own solvers.

Run on an idle machine: ``python benchmarks/bench_autodiff.py`` (a minute; ``--only torch`` for a
part). Medians of contenders that take turns. What is not installed is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from timing import median_seconds

import roundwise as rw
from roundwise.machine.identity import Machine
from roundwise_studies.report import Table, format_text

SIZES = (10, 100, 500, 1000, 2000)


def torch_rows(repeats: int) -> list[tuple[str, ...]]:
    """Forward and backward, and the backward solve alone against its parts."""
    import torch

    rows = []
    for n in SIZES:
        rng = np.random.default_rng(n)
        A = torch.from_numpy(rng.standard_normal((n, n))).requires_grad_()
        b = torch.from_numpy(rng.standard_normal(n)).requires_grad_()
        g = torch.from_numpy(rng.standard_normal(n))

        def forward(solve: Callable[..., Any], A: Any = A, b: Any = b) -> Callable[[], Any]:
            return lambda: solve(A, b)

        def both(solve: Callable[..., Any], A: Any = A, b: Any = b, g: Any = g) -> Any:
            return lambda: torch.autograd.grad(solve(A, b), (A, b), g)

        theirs, ours = torch.linalg.solve, rw.solve
        seconds = median_seconds(repeats, forward(theirs), forward(ours), both(theirs), both(ours))
        x = rw.solve(A, b)
        F = rw.factor(A.detach().numpy())
        F.solve(b.detach().numpy())
        w, v = g[:, None], x.detach()[None]
        parts = median_seconds(
            repeats,
            lambda x=x, A=A, b=b, g=g: torch.autograd.grad(x, (A, b), g, retain_graph=True),
            lambda F=F, g=g: F.solve(g.numpy(), "T"),
            lambda w=w, v=v: w @ v,
        )
        told = [f"{1e3 * one:.3g}" for one in (*seconds, *parts)]
        ratios = seconds[0] / seconds[1], seconds[2] / seconds[3], parts[0] / (parts[1] + parts[2])
        rows.append((str(n), *told, *(f"{one:.2f}" for one in ratios)))
    return rows


TORCH = (
    "n",
    *("torch", "ours", "torch, with backward", "ours, with backward"),
    *("our backward", "F.solve", "writing A's gradient"),
    *("forward: torch / ours", "with backward: torch / ours", "backward / parts"),
)


def jax_rows(repeats: int) -> list[tuple[str, ...]]:
    """A compiled solve, and one with its gradient."""
    import jax

    jax.config.update("jax_enable_x64", True)
    rows = []
    for n in SIZES:
        rng = np.random.default_rng(n)
        A, b = (jax.numpy.asarray(rng.standard_normal(shape)) for shape in ((n, n), (n,)))
        contenders = []
        for solve in (jax.numpy.linalg.solve, lambda A, b: rw.solve(A, b)):

            def loss(A: Any, b: Any, solve: Any = solve) -> Any:
                return jax.numpy.sin(solve(A, b)).sum()

            functions = jax.jit(solve), jax.jit(jax.grad(loss, (0, 1)))
            calls = 200 if n <= 100 else 1
            contenders += [repeated(jax, function, A, b, calls) for function in functions]
        seconds = median_seconds(repeats, *contenders, pause=0.15 if n > 100 else 0.0)
        seconds = [one / calls for one in seconds]
        forward, both, our_forward, our_both = seconds
        told = [f"{1e3 * one:.3g}" for one in (forward, our_forward, both, our_both)]
        rows.append((str(n), *told, f"{forward / our_forward:.2f}", f"{both / our_both:.2f}"))
    return rows


def repeated(jax: Any, function: Any, A: Any, b: Any, calls: int) -> Callable[[], None]:
    """Many calls in a row, each waited for."""

    def run() -> None:
        for _ in range(calls):
            jax.block_until_ready(function(A, b))

    return run


JAX = (
    "n",
    *("jax", "ours", "jax, with gradient", "ours, with gradient"),
    *("jax / ours", "with gradient: jax / ours"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", choices=("torch", "jax"), default=None)
    arguments = parser.parse_args()
    print(Machine.this())
    if arguments.only in (None, "torch") and find_spec("torch") is not None:
        rows = torch_rows(arguments.repeats)
        print(format_text(Table("Dense, float64, one column: milliseconds", TORCH, rows)))
    if arguments.only in (None, "jax") and find_spec("jax") is not None:
        rows = jax_rows(arguments.repeats)
        print(format_text(Table("Compiled by JAX, float64, one column: milliseconds", JAX, rows)))


if __name__ == "__main__":
    main()
