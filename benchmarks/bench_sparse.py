"""What docs/sparse-engines.md tabulates: `roundwise.solve` beside `spsolve` and MKL PARDISO, FP32
beside FP64, a second factorization beside the first, and memory beside the factors.

Run on an idle machine: ``make sparse-docs`` (some minutes; bcsstk23 and bcsstk24 are among the
systems where ``../shared/matrices`` has them). With ``--processor-time`` it counts the processor
seconds of one thread, which a machine that is not idle changes less. Contenders take turns; medians
of three calls, one where spsolve takes longer than three seconds. Writes out/sparse.md and
out/sequences.md, which ``docs/refresh.py sparse`` puts into the page.

In the second one, first is `factor` with its first solve, again is `refactor` with the next one,
and ``numbers / first`` the part of the first call that the numeric factorization alone takes: no
refactorization by this method can have a smaller ratio. Memory is the most that a fresh process had
resident, less what it had before, and A; what is freed goes back to the system at once there, so
that it is not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve
from timing import Clock, add_clock, least_seconds, median_seconds, timed

import roundwise as rw
from roundwise.backends import ENGINES, ArithmeticFailure, get_backend
from roundwise.backends.engines.supernodal import SupernodalEngine
from roundwise.machine.identity import Machine
from roundwise.problems import laplace_3d, poisson_2d, read_matrix_market
from roundwise.problems.pde import convection_diffusion_3d
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
    own = of_an_engine(method) if isinstance(engine, SupernodalEngine) else "cholesky/amd"
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


SECONDS = {"first (s)": ".3f", "again (s)": ".3f", "ratio": ".2f"}
CALLS: dict[str, Callable[[sparse.csr_array], object]] = {
    "solve": lambda A: rw.solve(A, np.ones(A.shape[0])),
    "factor": lambda A: rw.factor(A).solve(np.ones(A.shape[0])),
}


def of_an_engine(method: str) -> str:
    """The method, or for the compiled call of small systems that of an engine which is like it."""
    return "lu/amd" if method == "lu/left-looking" else method


def problem(name: str, side: int) -> sparse.csr_array:
    """The Laplacian in 2-D or 3-D, shifted to be well-conditioned; or an unsymmetric matrix."""
    if name == "convection-diffusion 3-D":
        return convection_diffusion_3d(side, 50.0)
    A = poisson_2d(side).A if name == "Laplace 2-D" else laplace_3d(side)
    return sparse.csr_array(A + 0.01 * sparse.eye_array(A.shape[0]))


def solver_seconds(
    A: sparse.csr_array, repeats: int, clock: Clock
) -> tuple[str, float, float, float]:
    """The action; `factor` and the first solve, `refactor` and the next; the numbers' part."""
    b, other = np.ones(A.shape[0]), 1.5 * A
    F = rw.factor(A)
    F.solve(b)
    method, fmt = F.action.method, F.action[0]
    analysis = get_backend("native").analyse(A, of_an_engine(method))
    analysis.factorize(A, fmt)
    first, again, numbers = (
        least_seconds(repeats, call, clock=clock)[0]
        for call in (
            lambda: rw.factor(A).solve(b),
            lambda: F.refactor(other).solve(b),
            lambda: analysis.factorize(other, fmt),
        )
    )
    return f"{method} {fmt}", first, again, numbers


def peak_memory() -> int:
    """The most bytes that this process has had in memory (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def measure_memory(name: str, side: int, call: str) -> dict[str, Any]:
    """Peak bytes of a call and of A, in this process, which must be a fresh one."""
    for small in (4, 12):  # what is imported and loaded by the first calls does not count
        CALLS[call](problem(name, small))
    A = problem(name, side)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = peak_memory()
    CALLS[call](A)
    own = A.data.nbytes + A.indices.nbytes + A.indptr.nbytes
    peak = peak_memory() - before + own
    action = rw.solve(A, np.ones(A.shape[0]), full_output=True).action
    method, fmt = action.split(":")[0], action.split(":")[1].split("-")[0]
    entries = get_backend("native").analyse(A, of_an_engine(method)).factorize(A, fmt).entries
    return {"peak": peak, "entries": entries, "size": 4 if fmt == "fp32" else 8, "A": own}


def memory_ratio(name: str, side: int, call: str) -> float:
    """The peak over A and the factors, with 4 bytes for each index, in a process of its own."""
    command = [sys.executable, __file__, "--memory", name, str(side), call]
    freed_at_once = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | freed_at_once
    )
    found = json.loads(done.stdout)
    return found["peak"] / (found["A"] + (found["size"] + 4) * found["entries"])


def calls_table(problems: list[tuple[str, int]], repeats: int, clock: Clock) -> Table:
    rows: list[list[Any]] = []
    for name, side in problems:
        action, first, again, numbers = solver_seconds(problem(name, side), repeats, clock)
        ratios = [again / first, numbers / first]
        memory = [memory_ratio(name, side, call) for call in ("solve", "factor")]
        rows.append([name, side, action, first, again, *ratios, *memory])
    header = ("problem", "side", "factors", "first (s)", "again (s)", "ratio", "numbers / first")
    header += ("solve: peak / (factors + A)", "factor: peak / (factors + A)")
    caption = f"factor and refactor, {rw.get_num_threads()} threads"
    return Table(caption, header, rows, formats=SECONDS | dict.fromkeys(header[-3:], ".2f"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a taste, with small systems")
    add_clock(parser)
    parser.add_argument("--memory", nargs=3, metavar=("PROBLEM", "SIDE", "CALL"))
    asked = parser.parse_args()
    if asked.memory:
        name, side, called = asked.memory
        print(json.dumps(measure_memory(name, int(side), called)))
        return
    by_processor = asked.clock is time.process_time
    if by_processor:
        rw.set_num_threads(1)
    rows = [solve_row(name, A, asked.clock) for name, A in systems(asked.quick)]
    solved = Table("", HEADER, rows, formats=DIGITS)
    square, *cubes = (40, 8) if asked.quick else (300, 20, 30, 40)
    problems = [("Laplace 2-D", square)]
    for side in cubes:
        problems += [("Laplace 3-D", side), ("convection-diffusion 3-D", side)]
    again = calls_table(problems, 3, asked.clock)
    kind = "processor seconds of one thread" if by_processor else "seconds"
    note = f"{kind.capitalize()}, on {Machine.this()}."
    OUT.mkdir(exist_ok=True)
    for name, table in (("sparse", solved), ("sequences", again)):
        text = f"{format_markdown(replace(table, caption='')).strip()}\n\n{note}\n"
        (OUT / f"{name}.md").write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
