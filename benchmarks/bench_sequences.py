"""Factoring again with the same pattern, and the memory of a factorization.

Run on an idle machine: ``python benchmarks/bench_sequences.py``. For a 2-D and a 3-D problem, and
each method in FP64: the seconds of the first factorization (analysis and numbers), those of the
next one with the same pattern (numbers alone), and their ratio, the least of some repeats; and the
most memory that a process of its own needed with A, over that of A and the factors: their numbers
alone, and with an index of 4 bytes for each, as in compressed columns. The last row is `factor`,
`refactor` and `solve` as a user calls them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import roundwise as rw
from roundwise.backends import get_backend
from roundwise.report import Table, format_text

METHODS = (
    "superlu/colamd",
    "superlu/mmd",
    "cholesky/amd",
    "cholesky/nd",
    "ldl/amd",
    "lu/amd",
    "lu/nd",
)


def laplacian(side: int, dimensions: int) -> sparse.csr_array:
    """The finite-difference Laplacian on a square or a cube, shifted to be well-conditioned."""
    line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    A, eye = line, sparse.eye_array(side)
    for _ in range(dimensions - 1):
        A = sparse.kron(A, eye) + sparse.kron(sparse.eye_array(A.shape[0]), line)
    return sparse.csr_array(A + 0.01 * sparse.eye_array(A.shape[0]))


def least_seconds(repeats: int, call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def engine_seconds(A: sparse.csr_array, method: str, repeats: int) -> tuple[float, float]:
    """The first factorization by a method, and another one with the same analysis."""
    native = get_backend("native")
    first = least_seconds(repeats, lambda: native.analyse(A, method).factorize(A, "fp64"))
    analysis = native.analyse(A, method)
    analysis.factorize(A, "fp64")
    other = sparse.csr_array((1.5 * A.data, A.indices, A.indptr), shape=A.shape)
    return first, least_seconds(repeats, lambda: analysis.factorize(other, "fp64"))


def solver_seconds(A: sparse.csr_array, repeats: int) -> tuple[float, float]:
    """`factor` and the first solve, `refactor` and the next one."""
    b, other = np.ones(A.shape[0]), 1.5 * A
    first = least_seconds(repeats, lambda: rw.factor(A).solve(b))
    F = rw.factor(A)
    F.solve(b)
    return first, least_seconds(repeats, lambda: F.refactor(other).solve(b))


def peak_memory() -> int:
    """The most bytes that this process has had in memory (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def measure_memory(side: int, dimensions: int, method: str) -> dict[str, Any]:
    """Peak bytes of analysis and factorization, in this process, which must be a fresh one."""
    native, small = get_backend("native"), laplacian(4, dimensions)
    native.analyse(small, method).factorize(small, "fp64").solve(np.ones(small.shape[0]))
    A = laplacian(side, dimensions)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = peak_memory()
    factors = native.analyse(A, method).factorize(A, "fp64")
    factors.solve(np.ones(A.shape[0]))
    own = A.data.nbytes + A.indices.nbytes + A.indptr.nbytes
    return {"peak": peak_memory() - before + own, "entries": factors.entries, "A": own}


def memory_ratios(side: int, dimensions: int, method: str) -> list[str]:
    """The peak over A and the numbers of the factors; and the same with 4 bytes for each index."""
    command = [sys.executable, __file__, "--memory", str(side), str(dimensions), method]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [f"{found['peak'] / (found['A'] + size * found['entries']):.2f}" for size in (8, 12)]


def texts(first: float, again: float) -> list[str]:
    return [f"{first:.3f}", f"{again:.3f}", f"{again / first:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--square", type=int, default=300, help="unknowns along a side in 2-D")
    parser.add_argument("--cube", type=int, default=30, help="and in 3-D")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", nargs=3, metavar=("SIDE", "DIMENSIONS", "METHOD"))
    options = parser.parse_args()
    if options.memory:
        side, dimensions, method = options.memory
        print(json.dumps(measure_memory(int(side), int(dimensions), method)))
        return
    for side, dimensions in ((options.square, 2), (options.cube, 3)):
        A, rows = laplacian(side, dimensions), []
        for method in METHODS:
            first, again = engine_seconds(A, method, options.repeats)
            memory = memory_ratios(side, dimensions, method)
            rows.append([method, *texts(first, again), *memory])
        first, again = solver_seconds(A, options.repeats)
        rows.append(["factor, refactor", *texts(first, again), "", ""])
        header = ["method", "first (s)", "again (s)", "ratio", "peak / (numbers + A)"]
        header.append("peak / (factors + A)")
        print(format_text(Table(f"{side}^{dimensions}, FP64", header, rows)))


if __name__ == "__main__":
    main()
