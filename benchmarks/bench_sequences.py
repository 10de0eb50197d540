"""Factoring again with the same pattern, and the memory of a factorization.

Run on an idle machine: ``python benchmarks/bench_sequences.py``. Two kinds of tables:

- For a 2-D and a 3-D problem, and each method in FP64: the seconds of the first factorization
  (analysis and numbers), those of the next one with the same pattern (numbers alone), and their
  ratio, the least of some repeats.
- `factor` and the first solve, `refactor` and the next one, as a user calls them, with the method
  and format that the policy chose. ``numbers / first`` is the part of the first call that the
  numeric factorization alone takes: no refactorization by this method can have a smaller ratio.

Memory is the most that a fresh process had resident, less what it had before, and A; over A and the
factors: their numbers alone, and with an index of 4 bytes for each, as in compressed columns. What
is freed goes back to the system at once there, so that it is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from timing import add_clock, least_seconds

import roundwise as rw
from roundwise.backends import get_backend
from roundwise.problems import laplace_3d, poisson_2d
from roundwise.problems.pde import convection_diffusion_3d
from roundwise_studies.report import Table, format_text

MEMORY = ("peak / (numbers + A)", "peak / (factors + A)")
SECONDS = {"first (s)": ".3f", "again (s)": ".3f", "ratio": ".2f"}
METHODS = (
    "superlu/colamd",
    "superlu/mmd",
    "cholesky/amd",
    "cholesky/nd",
    "ldl/amd",
    "lu/amd",
    "lu/nd",
)


def problem(name: str, side: int) -> sparse.csr_array:
    """The Laplacian in 2-D or 3-D, shifted to be well-conditioned; or an unsymmetric matrix."""
    if name == "convection-diffusion 3-D":
        return convection_diffusion_3d(side, 50.0)
    A = poisson_2d(side).A if name == "Laplace 2-D" else laplace_3d(side)
    return sparse.csr_array(A + 0.01 * sparse.eye_array(A.shape[0]))


clock = time.perf_counter


def count_processor_time() -> None:
    """Of one thread, from now on: for a machine that is not idle."""
    global clock
    clock = time.process_time
    rw.set_num_threads(1)


def least(repeats: int, call: Callable[[], object]) -> float:
    return least_seconds(repeats, call, clock=clock)[0]


def engine_seconds(A: sparse.csr_array, method: str, repeats: int) -> tuple[float, float]:
    """The first factorization by a method, and another one with the same analysis."""
    native = get_backend("native")
    first = least(repeats, lambda: native.analyse(A, method).factorize(A, "fp64"))
    analysis = native.analyse(A, method)
    analysis.factorize(A, "fp64")
    other = sparse.csr_array((1.5 * A.data, A.indices, A.indptr), shape=A.shape)
    return first, least(repeats, lambda: analysis.factorize(other, "fp64"))


def solver_seconds(A: sparse.csr_array, repeats: int) -> tuple[str, float, float, float]:
    """The action; `factor` and the first solve, `refactor` and the next; the numbers' part."""
    b, other = np.ones(A.shape[0]), 1.5 * A
    first = least(repeats, lambda: rw.factor(A).solve(b))
    F = rw.factor(A)
    F.solve(b)
    again = least(repeats, lambda: F.refactor(other).solve(b))
    method, fmt = F.action.method, F.action[0]
    analysis = get_backend("native").analyse(A, method)
    analysis.factorize(A, fmt)
    numbers = least(repeats, lambda: analysis.factorize(other, fmt))
    return f"{method} {fmt}", first, again, numbers


def peak_memory() -> int:
    """The most bytes that this process has had in memory (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def factorize_and_solve(A: sparse.csr_array, method: str) -> None:
    factors = get_backend("native").analyse(A, method).factorize(A, "fp64")
    factors.solve(np.ones(A.shape[0]))


CALLS: dict[str, Callable[[sparse.csr_array], object]] = {
    "solve": lambda A: rw.solve(A, np.ones(A.shape[0])),
    "factor": lambda A: rw.factor(A).solve(np.ones(A.shape[0])),
    **{method: partial(factorize_and_solve, method=method) for method in METHODS},
}


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
    method, fmt = call, "fp64"
    if call in ("solve", "factor"):
        action = rw.solve(A, np.ones(A.shape[0]), full_output=True).action
        method, fmt = action.split(":")[0], action.split(":")[1].split("-")[0]
    entries = get_backend("native").analyse(A, method).factorize(A, fmt).entries
    return {"peak": peak, "entries": entries, "size": 4 if fmt == "fp32" else 8, "A": own}


def memory_ratios(name: str, side: int, call: str) -> list[float]:
    """The peak over A and the numbers of the factors; and the same with 4 bytes for each index."""
    command = [sys.executable, __file__, "--memory", name, str(side), call]
    freed_at_once = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | freed_at_once
    )
    found = json.loads(done.stdout)
    return [
        found["peak"] / (found["A"] + size * found["entries"])
        for size in (found["size"], found["size"] + 4)
    ]


def methods_table(name: str, side: int, repeats: int) -> Table:
    A, rows = problem(name, side), []
    for method in METHODS:
        first, again = engine_seconds(A, method, repeats)
        rows.append([method, first, again, again / first, *memory_ratios(name, side, method)])
    header = ("method", "first (s)", "again (s)", "ratio", *MEMORY)
    return Table(
        f"{name}, {side} a side, FP64", header, rows, formats=SECONDS | dict.fromkeys(MEMORY, ".2f")
    )


def calls_table(problems: list[tuple[str, int]], repeats: int) -> Table:
    rows: list[list[Any]] = []
    for name, side in problems:
        action, first, again, numbers = solver_seconds(problem(name, side), repeats)
        ratios = [again / first, numbers / first]
        memory = [memory_ratios(name, side, call)[1] for call in ("solve", "factor")]
        rows.append([name, side, action, first, again, *ratios, *memory])
    header = ("problem", "side", "factors", "first (s)", "again (s)", "ratio", "numbers / first")
    header += ("solve: peak / (factors + A)", "factor: peak / (factors + A)")
    caption = f"factor and refactor, {rw.get_num_threads()} threads"
    return Table(caption, header, rows, formats=SECONDS | dict.fromkeys(header[-3:], ".2f"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--square", type=int, default=300, help="unknowns along a side in 2-D")
    parser.add_argument("--cube", type=int, default=30, help="and in 3-D")
    parser.add_argument("--repeats", type=int, default=5)
    add_clock(parser)
    parser.add_argument("--memory", nargs=3, metavar=("PROBLEM", "SIDE", "CALL"))
    options = parser.parse_args()
    if options.memory:
        name, side, call = options.memory
        print(json.dumps(measure_memory(name, int(side), call)))
        return
    if options.clock is time.process_time:
        count_processor_time()
    square, cube, repeats = options.square, options.cube, options.repeats
    print(format_text(methods_table("Laplace 2-D", square, repeats)))
    print(format_text(methods_table("Laplace 3-D", cube, repeats)))
    problems = [("Laplace 2-D", square)]
    for side in (2 * cube // 3, cube, 4 * cube // 3):
        problems += [("Laplace 3-D", side), ("convection-diffusion 3-D", side)]
    print(format_text(calls_table(problems, repeats)))


if __name__ == "__main__":
    main()
