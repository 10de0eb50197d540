"""Every installed sparse engine on Laplacians and application matrices, against `spsolve`.

Run on an idle machine: ``make engines``. For each matrix, engine, ordering and format it prints the
milliseconds of

analysis       the first factorization, less a later one of the same pattern
factor         a later factorization
solve          one right-hand side
ratio          what spsolve takes, over what analysis, factor and solve take together
error          the backward error of that solve, unrefined; or the status of a failure

They are the least of several runs. Engines that a matrix does not suit are left out. Writes
out/engines.csv.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve
from timing import in_turns, timed

import roundwise as rw
from roundwise.backends import ENGINES, NativeBackend
from roundwise.machine.identity import Machine
from roundwise.problems import laplace_3d, poisson_2d, read_matrix_market
from roundwise_studies.report import Table, format_text

OUT = Path("out")
MATRICES = Path(__file__).parents[2] / "shared" / "matrices"
LONG = 5.0  # seconds
COLUMNS = ("analysis", "factor", "solve", "ratio")


def matrices(quick: bool, names: list[str]) -> Iterator[tuple[str, sp.csr_array]]:
    """Laplacians, and the application matrices with n >= 2000."""
    sizes = (60, 12) if quick else (300, 30)
    laplacians: dict[str, Callable[[], sp.csr_array]] = {
        f"Laplacian 2-D {sizes[0]}^2": lambda: poisson_2d(sizes[0]).A,
        f"Laplacian 3-D {sizes[1]}^3": lambda: laplace_3d(sizes[1]),
    }
    for name, make in laplacians.items():
        if not names or name in names:
            yield name, make()
    if quick or not MATRICES.is_dir():
        return
    with (MATRICES / "index.csv").open() as file:
        for entry in csv.DictReader(file):
            if entry["name"] in names or (not names and int(entry["n"]) >= 2000):
                yield entry["name"], read_matrix_market(MATRICES / entry["file"]).A


def least(repeats: int, call: Callable[[], Any]) -> tuple[float, Any]:
    """The least seconds of several calls (of one, if that is long), and what the last returned."""
    kept: list[Any] = []

    def run() -> None:
        kept.clear()  # what it holds may be used again
        kept.append(call())

    first = in_turns(1, lambda: timed(run))[0]
    others = in_turns(repeats - 1, lambda: timed(run))[0] if first[0] <= LONG else []
    return min(first + others), kept[0]


def backward_error(A: sp.csr_array, x: Any, b: Any) -> float:
    size = abs(A).sum(axis=1).max() * abs(x).max() + abs(b).max()
    return float(abs(b - A @ x).max() / size)


def measure(A: sp.csr_array, method: str, fmt: rw.FloatFormat, repeats: int) -> dict[str, Any]:
    """Seconds of the phases, or a status."""
    backend, b = NativeBackend(), A @ np.ones(A.shape[0])
    try:
        first, (analysis, factors) = least(
            repeats, lambda: (analysis := backend.analyse(A, method), analysis.factorize(A, fmt))
        )
        del factors
        later, factors = least(repeats, lambda: analysis.factorize(A, fmt))
        solve, x = least(repeats, lambda: factors.solve(b))
    except rw.backends.ArithmeticFailure as failure:
        return {"error": failure.status.name.lower()}
    return {
        "analysis": 1e3 * max(first - later, 0.0),
        "factor": 1e3 * later,
        "solve": 1e3 * solve,
        "total": 1e3 * (first + solve),
        "entries": factors.entries,
        "error": f"{backward_error(A, x, b):.0e}",
    }


def rows_of(name: str, A: sp.csr_array, repeats: int) -> Iterator[dict[str, Any]]:
    csc, b = A.tocsc(), A @ np.ones(A.shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of singular matrices
        peer, _ = least(repeats, lambda: spsolve(csc, b))
    for engine in ENGINES.values():
        for ordering in engine.orderings:
            for fmt in engine.formats:
                method = f"{engine.name}/{ordering}"
                found = {"spsolve": 1e3 * peer} | measure(A, method, fmt, repeats)
                if "total" in found:
                    found["ratio"] = found["spsolve"] / found["total"]
                yield {
                    "matrix": name,
                    "n": A.shape[0],
                    "method": method,
                    "format": fmt.name,
                } | found


def table(name: str, rows: list[dict[str, Any]]) -> Table:
    header = ("method and format", *COLUMNS, "error")
    cells = [
        [f"{row['method']} {row['format']}", *(row.get(column) for column in header[1:])]
        for row in rows
        if row["error"] != "unsuited"
    ]
    caption = f"{name}, n = {rows[0]['n']}: spsolve takes {rows[0]['spsolve']:.1f} ms"
    formats = dict.fromkeys(COLUMNS, ".1f") | {"ratio": ".2f"}
    return Table(caption, header, cells, formats=formats)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="these matrices only; all if none is named")
    parser.add_argument("--quick", action="store_true", help="a taste, with small Laplacians")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    print(Machine.this())
    rows: list[dict[str, Any]] = []
    for name, A in matrices(asked.quick, asked.names):
        found = list(rows_of(name, A, asked.repeats))
        print(f"\n{format_text(table(name, found))}", flush=True)
        rows += found
    columns = ("matrix", "n", "method", "format", "spsolve", *COLUMNS, "total", "entries", "error")
    with (OUT / "engines.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    print(f"\n{OUT / 'engines.csv'}")


if __name__ == "__main__":
    main()
