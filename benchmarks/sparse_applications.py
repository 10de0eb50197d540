"""`bench_solve.py --sparse`: `roundwise.solve` and `spsolve` on all matrices of a folder."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve
from timing import Clock, median_seconds
from tqdm import tqdm

import roundwise as rw
from roundwise.problems import read_matrix_market
from roundwise_studies.report import Table, format_text

LARGE = 2000
"""The n from which systems count as large."""

SLOWER = 0.95
"""Systems on which we are less than so many times as fast are listed by name."""

PAUSE = 0.02
"""Seconds before each call. SuperLU calls BLAS on small blocks, with one thread."""

Row = dict[str, object]


def matrices(folder: Path) -> Iterator[tuple[str, sp.csr_array]]:
    """Name and matrix of all that the folder's index.csv lists."""
    with (folder / "index.csv").open() as file:
        entries = list(csv.DictReader(file))
    for entry in tqdm(entries, "sparse", leave=False):
        yield entry["name"], sp.csr_array(read_matrix_market(folder / entry["file"]).A)


def compare(name: str, A: sp.csr_array, repeats: int, clock: Clock) -> Row:
    """The ratio is NaN where A is singular, so that we give no answer."""
    b = A @ np.ones(A.shape[0])
    csc = A.tocsc()
    row: Row = {"name": name, "n": A.shape[0], "entries": A.nnz}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of either, about singular and ill-conditioned matrices
        try:
            rw.solve(A, b)
        except rw.SolveFailed:
            return row | {"spsolve_ms": np.nan, "ours_ms": np.nan, "ratio": np.nan}
        contenders = (lambda: spsolve(csc, b)), (lambda: rw.solve(A, b))
        theirs, ours = median_seconds(repeats, *contenders, pause=PAUSE, clock=clock)
    return row | {"spsolve_ms": 1e3 * theirs, "ours_ms": 1e3 * ours, "ratio": theirs / ours}


def summary(rows: Sequence[Row]) -> Table:
    """Medians and worst cases of small and of large systems."""
    lines = []
    for group, is_large in ((f"n >= {LARGE}", True), (f"n < {LARGE}", False)):
        members = [row for row in rows if (row["n"] >= LARGE) == is_large]
        solved = [row for row in members if np.isfinite(row["ratio"])]
        ratios = [float(row["ratio"]) for row in solved]
        worst = min(solved, key=lambda row: row["ratio"], default=None)
        lines.append(
            [
                group,
                len(solved),
                float(np.median(ratios)) if ratios else None,
                min(ratios, default=None),
                "" if worst is None else worst["name"],
                sum(ratio < SLOWER for ratio in ratios),
                len(members) - len(solved),
            ]
        )
    columns = ("systems", "count", "median", "worst", "which", f"below {SLOWER}", "singular")
    return Table(
        "Times as fast as spsolve", columns, lines, formats={"median": ".2f", "worst": ".2f"}
    )


def slower(rows: Sequence[Row]) -> Table:
    """The systems on which we are slower, worst first."""
    found = [row for row in rows if row["ratio"] < SLOWER]
    found.sort(key=lambda row: row["ratio"])
    formats = {"spsolve_ms": ".3f", "ours_ms": ".3f", "ratio": ".2f"}
    columns = ("name", "n", "entries", *formats)
    cells = [[row[column] for column in columns] for row in found]
    return Table(f"Less than {SLOWER} times as fast", columns, cells, formats=formats)


def run(folder: Path, out: Path, repeats: int, clock: Clock) -> None:
    """Print both tables, and write all ratios to a file."""
    rows = [compare(name, A, repeats, clock) for name, A in matrices(folder)]
    print(format_text(summary(rows)))
    print(format_text(slower(rows)))
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(out)
