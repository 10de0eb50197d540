"""The sparse engines, ours and those of others that are installed, against SciPy's spsolve.

Each contender analyses, factorizes and solves for one right-hand side, with as many steps of
refinement in FP64 as a backward error of 4 u needs; contenders take turns, and the medians of all
rounds are compared. ``refactor`` is the time to factorize other values of the same pattern, as a
part of the first analysis and factorization. Run with ``make bench`` on an idle machine, or
directly: ``python benchmarks/bench_sparse_engine.py --rounds 3``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.io import mmread
from scipy.sparse.linalg import spsolve
from timing import in_turns

import roundwise as rw
from roundwise.backends import ENGINES
from roundwise_studies.report import Table, format_text

STEPS = 10


def laplacian(dimensions: int, m: int) -> sparse.csr_array:
    """Second differences on a grid of m points in each dimension."""
    line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    A = line
    for _ in range(dimensions - 1):
        A = sparse.kron(A, sparse.eye_array(m)) + sparse.kron(sparse.eye_array(A.shape[0]), line)
    return sparse.csr_array(A)


def backward_error(A: Any, x: Any, b: Any) -> float:
    size = abs(A).sum(axis=1).max() * abs(x).max() + abs(b).max()
    return float(abs(A @ x - b).max() / size)


def factored(A: sparse.csr_array, b: Any, method: str, fmt: rw.FloatFormat) -> dict[str, float]:
    """Seconds of analysis, factorization and solution, and the error reached."""
    name, ordering = method.split("/")
    values = A.data.astype(np.float32 if fmt == rw.FP32 else np.float64)
    start = time.perf_counter()
    analysis = ENGINES[name].analyse(A, ordering)
    analysed = time.perf_counter()
    factors = analysis.factorize(values, fmt)
    factorized = time.perf_counter()
    x = factors.solve(b)
    goal = 4 * rw.FP64.unit_roundoff
    for _ in range(STEPS):
        if backward_error(A, x, b) <= goal:
            break
        x = x + factors.solve(b - A @ x)
    solved = time.perf_counter()
    analysis.factorize(values, fmt)
    again = time.perf_counter() - solved
    return {
        "all": solved - start,
        "analyse": analysed - start,
        "factor": factorized - analysed,
        "solve": solved - factorized,
        "refactor": again / (factorized - start),
        "error": backward_error(A, x, b),
    }


def timed(call: Callable[[], Any], A: Any, b: Any) -> dict[str, float]:
    start = time.perf_counter()
    x = call()
    return {"all": time.perf_counter() - start, "error": backward_error(A, x, b)}


def medians(contenders: dict[str, Callable[[], dict[str, float]]], rounds: int) -> dict[str, Any]:
    records = in_turns(rounds, *contenders.values())
    return {
        name: {key: statistics.median(r[key] for r in record) for key in record[0]}
        for name, record in zip(contenders, records, strict=True)
    }


def methods(symmetric: bool) -> list[tuple[str, rw.FloatFormat]]:
    """Each engine with each ordering and format."""
    return [
        (f"{engine.name}/{ordering}", fmt)
        for engine in ENGINES.values()
        if symmetric or not engine.symmetric
        for ordering in engine.orderings
        if ordering != "natural"
        for fmt in reversed(engine.formats)
    ]


def rows_for(name: str, A: sparse.csr_array, rounds: int) -> list[list[Any]]:
    b = A @ np.ones(A.shape[0])
    columns = A.tocsc()
    contenders: dict[str, Callable[[], dict[str, float]]] = {
        "spsolve": lambda: timed(lambda: spsolve(columns, b), A, b)
    }
    for method, fmt in methods(symmetric=abs(A - A.T).max() == 0):
        try:
            factored(A, b, method, fmt)
        except rw.ArithmeticFailure:  # such as Cholesky's of an indefinite matrix
            continue
        contenders[f"{method}:{fmt.name}"] = partial(factored, A, b, method, fmt)
    found = medians(contenders, rounds)
    peer = found["spsolve"]["all"]
    return [
        [name, contender, peer / r["all"]]
        + [1e3 * r[key] if key in r else None for key in ("all", "analyse", "factor", "solve")]
        + [r.get("refactor"), r["error"]]
        for contender, r in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("matrices", nargs="*", type=Path, help="Matrix Market files")
    arguments = parser.parse_args()
    problems: dict[str, sparse.csr_array] = {
        "2-D 300^2": laplacian(2, 300),
        "3-D 30^3": laplacian(3, 30),
    }
    if arguments.matrices:
        problems = {path.name: sparse.csr_array(mmread(path)) for path in arguments.matrices}
    rows: list[list[Any]] = []
    for name, A in problems.items():
        rows += rows_for(name, A, arguments.rounds)
    header = (
        "matrix", "method", "faster", "all/ms", "analyse", "factor", "solve", "refactor", "error"
    )  # fmt: skip
    caption = f"Times faster than spsolve, {rw.get_num_threads()} threads"
    formats = dict.fromkeys(header[2:], ".1f") | {
        "faster": ".2f",
        "refactor": ".2f",
        "error": ".0e",
    }
    print(format_text(Table(caption, header, rows, formats=formats)))


if __name__ == "__main__":
    main()
