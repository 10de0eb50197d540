"""What docs/sparse-engines.md tabulates: `roundwise.solve` beside `spsolve` and MKL PARDISO, FP32
beside FP64, a second factorization beside the first, and memory beside the factors.

Run on an idle machine: ``make sparse-docs`` (some minutes; bcsstk23 and bcsstk24 are among the
systems where ``../shared/matrices`` has them). With ``--processor-time`` it counts the processor
seconds of one thread, which a machine that is not idle changes less. Contenders take turns; medians
of three calls, one where spsolve takes longer than three seconds. Writes out/sparse.md and
out/sequences.md, which ``docs/refresh.py sparse`` puts into the page.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_sequences
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve
from timing import Clock, add_clock, median_seconds, timed

import roundwise as rw
from roundwise.backends import ENGINES, ArithmeticFailure, get_backend
from roundwise.backends.engines.supernodal import SupernodalEngine
from roundwise.machine.identity import Machine
from roundwise.problems import laplace_3d, poisson_2d, read_matrix_market
from roundwise_studies.report import Table, format_markdown

OUT = Path("out")
MATRICES = Path(__file__).parents[2] / "shared" / "matrices"
STIFFNESS = ("bcsstk23", "bcsstk24")
PARDISO = "pardiso-cholesky"  # all of these systems are positive definite
LONG = 3.0  # seconds

HEADER = (
    "system",
    "n",
    "action",
    "spsolve (ms)",
    "ours (ms)",
    "times spsolve",
    "PARDISO (ms)",
    "times PARDISO",
    "flops per entry",
    "FP64 / FP32",
)
DIGITS = dict.fromkeys(("times spsolve", "times PARDISO", "FP64 / FP32"), ".2f") | dict.fromkeys(
    ("spsolve (ms)", "ours (ms)", "PARDISO (ms)"), ".1f"
)


def systems(quick: bool) -> Iterator[tuple[str, sparse.csr_array]]:
    square, *cubes = (60, 10) if quick else (300, 30, 40)
    yield f"Laplacian {square}^2", poisson_2d(square).A
    for side in cubes:
        yield f"Laplacian {side}^3", laplace_3d(side)
    for name in STIFFNESS:
        path = MATRICES / f"{name}.mtx.gz"
        if path.exists() and not quick:
            yield name, read_matrix_market(path).A


def pardiso_seconds(A: sparse.csr_array, b: Any, repeats: int, clock: Clock) -> float:
    """Analysis, factors and one solve by PARDISO's fastest method and format; NaN if there is none.

    Its answers are not checked, and in FP32 not refined.
    """
    if PARDISO not in ENGINES:
        return math.nan
    engine, calls = ENGINES[PARDISO], []
    for ordering in engine.orderings:
        for fmt in engine.formats:

            def call(ordering=ordering, fmt=fmt) -> None:
                engine.analyse(A, ordering).factorize(A.data, fmt).solve(b)

            try:
                call()
            except ArithmeticFailure:  # of a stiffness matrix in FP32, say
                continue
            calls.append(call)
    return min(median_seconds(repeats, *calls, clock=clock), default=math.nan)


def formats_ratio(
    A: sparse.csr_array, method: str, repeats: int, clock: Clock
) -> tuple[float, float]:
    """Flops per entry of the factors; the numeric factorization in FP64 over that in FP32.

    Of the method itself if it is our own, else of our Cholesky: all of these systems suit it.
    """
    engine = ENGINES[method.split("/")[0]]
    own = method if isinstance(engine, SupernodalEngine) else "cholesky/amd"
    analysis = get_backend("native").analyse(A, own)
    factors = analysis.factorize(A, rw.FP64)
    double, single = median_seconds(
        repeats,
        lambda: analysis.factorize(A, rw.FP64),
        lambda: analysis.factorize(A, rw.FP32),
        clock=clock,
    )
    return factors.flops / factors.entries, double / single


def solve_row(name: str, A: sparse.csr_array, clock: Clock) -> list[Any]:
    b, columns = A @ np.ones(A.shape[0]), A.tocsc()
    action = rw.solve(A, b, full_output=True).action
    method, formats = action.split(":")
    first = timed(lambda: spsolve(columns, b), clock)
    repeats = 1 if first > LONG else 3
    theirs = first
    if repeats > 1:
        theirs = median_seconds(repeats, lambda: spsolve(columns, b), clock=clock)[0]
    (ours,) = median_seconds(3, lambda: rw.solve(A, b), clock=clock)
    pardiso = pardiso_seconds(A, b, repeats, clock)
    flops, ratio = formats_ratio(A, method, 3, clock)
    shown = f"{method} {formats.split('-')[0]}"
    times = [1e3 * theirs, 1e3 * ours, theirs / ours, 1e3 * pardiso, pardiso / ours]
    cells = [None if math.isnan(cell) else cell for cell in times]
    return [name, A.shape[0], shown, *cells, round(flops), ratio]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a taste, with small systems")
    add_clock(parser)
    asked = parser.parse_args()
    by_processor = asked.clock is time.process_time
    if by_processor:
        bench_sequences.count_processor_time()
    rows = [solve_row(name, A, asked.clock) for name, A in systems(asked.quick)]
    solved = Table("", HEADER, rows, formats=DIGITS)
    square, *cubes = (40, 8) if asked.quick else (300, 20, 30, 40)
    problems = [("Laplace 2-D", square)]
    for side in cubes:
        problems += [("Laplace 3-D", side), ("convection-diffusion 3-D", side)]
    again = bench_sequences.calls_table(problems, 3)
    kind = "processor seconds of one thread" if by_processor else "seconds"
    note = f"{kind.capitalize()}, on {Machine.this()}."
    OUT.mkdir(exist_ok=True)
    for name, table in (("sparse", solved), ("sequences", again)):
        text = f"{format_markdown(replace(table, caption='')).strip()}\n\n{note}\n"
        (OUT / f"{name}.md").write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
