"""`roundwise.solve` against NumPy, SciPy, LAPACK's `dsgesv`, MKL, torch and `spsolve`.

Run on an idle machine, on all its cores: ``make speed``; it tells the machine and its threads.
Every contender solves every system in this one process, medians of several times (of one at n =
4000, where there are 30 systems); between contenders it waits until the threads of the last one's
BLAS have stopped spinning ("at rest"). Then ours and the first peer are called in turns without
pauses, as programs call them: NumPy's threads go on spinning beside ours ("in turns").
PARDISO, KLU and CHOLMOD join on sparse systems where they are installed (`make extras`;
scikit-sparse), MKL and torch on dense ones. Writes out/solve.csv,
out/solve-summary.csv, out/solve-peers.csv, out/solve.png and out/solve-dense-MACHINE.json; `make
speed-docs` puts them into README.md and docs/benchmarks.md. With ``--dense`` it writes the last one
alone, which belongs into docs/machines/ (docs/native.md shows what is there). With ``--sparse`` it
compares with `spsolve` alone, on all matrices of the shared folder, and writes
out/solve-sparse.csv; on a busy machine add ``--processor-time``, and set OPENBLAS_NUM_THREADS=1 and
ROUNDWISE_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
import sparse_applications
from dense_peers import absent
from dense_peers import peers as dense_peers
from scipy.sparse.linalg import splu, spsolve
from timing import add_clock, timed
from timing import median_seconds as seconds
from tqdm import tqdm

import roundwise as rw
from roundwise.backends import ENGINES, ArithmeticFailure
from roundwise.backends.engines.structure import suits_symmetric_mode
from roundwise.backends.engines.superlu import OPTIONS
from roundwise.machine.identity import Machine
from roundwise.problems import laplace_3d, read_matrix_market
from roundwise.problems.pde import convection_diffusion_3d
from roundwise_studies.datasets import mixed_dense
from roundwise_studies.report import Table, format_text, write_csv

OUT = Path("out")
MATRICES = Path(__file__).parents[2] / "shared" / "matrices"
PDES, LARGE, MEDIUM = (
    "sparse, 3-D PDEs",
    "sparse, applications, n >= 10 000",
    "sparse, applications, 2000 <= n < 10 000",
)
PEERS = {
    "PARDISO": ("pardiso/metis", "pardiso-cholesky/metis"),
    "KLU": ("klu/amd",),
    "CHOLMOD": ("cholmod/metis", "cholmod/amd"),
}
"""Libraries that sparse systems can be solved with from Python, and their methods: the fastest that
a matrix suits counts."""
TIMED_ABOVE = ("ours", "numpy", "dsgesv")
"""What every row has anyway."""
LONG = 3.0  # seconds; a peer that takes longer is timed once

COLUMNS = (
    *("median", "mean", "worst", "in turns: median", "in turns: worst"),
    *("beside: median", "beside: mean", "beside: worst"),
)
TURNS = 5
"""Calls of each in turns, at least: some milliseconds are up to the scheduler. A taste."""

Row = dict[str, object]


def sparse_systems(quick: bool) -> Iterator[tuple[str, str, sp.csr_array]]:
    """Group, name and matrix."""
    for m in (10, 15) if quick else (20, 25, 30):
        yield PDES, f"Poisson 3-D {m}^3", laplace_3d(m)
        yield PDES, f"convection-diffusion 3-D {m}^3", convection_diffusion_3d(m, 50.0)
    if quick or not MATRICES.is_dir():
        return
    with (MATRICES / "index.csv").open() as file:
        for entry in csv.DictReader(file):
            n = int(entry["n"])
            if n >= 2000:
                group = LARGE if n >= 10_000 else MEDIUM
                yield group, entry["name"], read_matrix_market(MATRICES / entry["file"]).A


def time_dense(group: str, name: str, system: rw.LinearSystem, repeats: int) -> Row:
    A, b = system.A, system.b
    found = {"ours": rw.solve} | dense_peers()
    calls = [lambda solve=solve: solve(A, b) for solve in found.values()]
    times = dict(zip(found, seconds(repeats, *calls), strict=True))
    turns = in_turns_ratio(repeats, lambda: found["numpy"](A, b), lambda: rw.solve(A, b))
    solution = rw.solve(A, b, full_output=True)
    taken = times["numpy"], times["ours"], times.get("dsgesv", math.nan)
    kappa = system.meta.get("kappa", "")
    made = row(group, "numpy.linalg.solve", name, kappa, solution, taken, turns)
    others = {f"{key}_ms": 1e3 * value for key, value in times.items() if key not in TIMED_ABOVE}
    return made | others


def time_sparse(group: str, name: str, A: sp.csr_array, repeats: int) -> Row:
    b = A @ np.ones(A.shape[0])
    csc = A.tocsc()
    solution = rw.solve(A, b, full_output=True)
    contenders = [lambda: spsolve(csc, b), lambda: rw.solve(A, b)]
    options = OPTIONS["mmd" if suits_symmetric_mode(A) else "colamd"]
    for dtype in (np.float32, np.float64):
        M, rhs = csc.astype(dtype), b.astype(dtype)
        contenders.append(lambda M=M, rhs=rhs: splu(M, **options).solve(rhs))
    peer, ours, *superlu = seconds(repeats, *contenders)
    times = peer, ours, min(superlu)
    turns = in_turns_ratio(repeats, *contenders[:2])
    return row(group, "spsolve", name, "", solution, times, turns) | {
        f"{library}_ms": 1e3 * library_seconds(A, b, methods, repeats)
        for library, methods in PEERS.items()
    }


def in_turns_ratio(repeats: int, peer: Callable[[], object], ours: Callable[[], object]) -> float:
    """The peer's time over ours, called in turns without pauses."""
    theirs, taken = seconds(max(repeats, TURNS), peer, ours, pause=0.0)
    return theirs / taken


def library_seconds(
    A: sp.csr_array, b: np.ndarray, methods: tuple[str, ...], repeats: int
) -> float:
    """Of analysis, FP64 factors and one solve by the fastest method, the answer unchecked.

    NaN where the library is not installed, or fails on this matrix.
    """
    fastest = math.nan
    for method in methods:
        name, ordering = method.split("/")
        if name not in ENGINES or ordering not in ENGINES[name].orderings:
            continue

        def call(engine=ENGINES[name], ordering=ordering) -> None:
            engine.analyse(A, ordering).factorize(A.data, rw.FP64).solve(b)

        try:
            first = timed(call)
        except ArithmeticFailure:  # such as Cholesky's of a matrix that is not positive definite
            continue
        fastest = np.fmin(fastest, first if first > LONG else seconds(repeats, call)[0])
    return float(fastest)


def row(
    group: str,
    peer: str,
    name: str,
    kappa: object,
    solution: rw.Solution,
    times: tuple[float, float, float],
    turns_ratio: float,
) -> Row:
    theirs, ours, other = times
    return {
        "group": group,
        "peer": peer,
        "name": name,
        "n": len(solution.x),
        "kappa": kappa,
        "peer_ms": 1e3 * theirs,
        "ours_ms": 1e3 * ours,
        "other_ms": 1e3 * other,
        "ratio": theirs / ours,
        "other_ratio": theirs / other,
        "turns_ratio": turns_ratio,
        "action": solution.action,
        "attempts": len(solution.attempts),
        "backward_error": solution.backward_error,
        "tolerance": solution.tolerance,
    }


def summary(rows: list[Row]) -> Table:
    """Medians, means and worst cases of the ratios by group; and of what stands beside us."""
    groups: dict[str, list[Row]] = {}
    for one in rows:
        groups.setdefault(str(one["group"]), []).append(one)
    if LARGE in groups:
        groups[f"{PDES}, and {LARGE.removeprefix('sparse, ')}"] = groups[PDES] + groups[LARGE]
    lines: list[list[object]] = []
    for group, members in groups.items():
        ratios, turns, others = (
            np.array([one[key] for one in members], dtype=float)
            for key in ("ratio", "turns_ratio", "other_ratio")
        )
        found = [f(ratios) for f in (np.median, np.mean, np.min)]
        found += [np.median(turns), np.min(turns)]
        found += [f(others) for f in (np.median, np.mean, np.min)]
        missed = sum(not one["backward_error"] <= one["tolerance"] for one in members)
        lines.append([group, len(members), members[0]["peer"], *map(float, found), missed])
    return Table(
        "Times as fast as the peer",
        ("systems", "count", "peer", *COLUMNS, "above the gate"),
        lines,
        note="The first columns: at rest; then in turns with the peer, without pauses. "
        "Beside: LAPACK's dsgesv on dense systems; on sparse ones what SuperLU alone takes "
        "for factors and one solve with our ordering, in the faster format, its answer unchecked.",
        formats=dict.fromkeys(COLUMNS, ".2f"),
    )


def peers(rows: list[Row]) -> Table:
    """How many times as fast as spsolve we and each library are on sparse systems."""
    contenders = {"roundwise.solve": "ours_ms"} | {name: f"{name}_ms" for name in PEERS}
    sparse_rows = [one for one in rows if one["peer"] == "spsolve"]
    lines: list[list[object]] = []
    for group in dict.fromkeys(str(one["group"]) for one in sparse_rows):
        members = [one for one in sparse_rows if one["group"] == group]
        line: list[object] = [group, len(members)]
        for key in contenders.values():
            ratios = np.array([one["peer_ms"] / one[key] for one in members], dtype=float)
            solved = ratios[np.isfinite(ratios)]
            line += [float(np.median(solved)) if len(solved) else None, len(solved)]
        lines.append(line)
    header = [text for name in contenders for text in (name, f"{name} solved")]
    return Table(
        "Times as fast as spsolve, medians over the systems that each solved",
        ("systems", "count", *header),
        lines,
        note="The libraries: analysis, FP64 factors and one solve by the fastest of their methods "
        "that a matrix suits, the answer unchecked. None solved: not installed, or not suited.",
        formats=dict.fromkeys(contenders, ".2f"),
    )


DENSE_ALONE = [
    (10, (1000, 1000), 3),
    (10, (2000, 2000), 3),
    (10, (4000, 4000), 1),
    (3, (8000, 8000), 1),
]
"""Systems, sizes and repeats of ``--dense``: ten are of every kind."""


def dense_rows(plan: list[tuple[int, tuple[int, int], int]], seed: int, share: float) -> list[Row]:
    rows: list[Row] = []
    for most, sizes, repeats in plan:
        count = min(most, max(10, round(most * share)))
        group = f"dense, n = {sizes[0]}" + (f" to {sizes[1]}" if sizes[1] > sizes[0] else "")
        kinds = range(10) if count >= 10 else (7, 8, 9)  # large ones without an SVD to make them
        systems = tqdm(mixed_dense(count, sizes, seed, kinds), group, count, leave=False)
        rows += [time_dense(group, name, system, repeats) for name, system in systems]
        gc.collect()
    return rows


def write_dense(rows: list[Row]) -> None:
    """How many times as fast we are as each peer, by size: medians and worst cases."""
    machine = Machine.this()
    peers_of = [key.removesuffix("_ms") for key in rows[0] if key.endswith("_ms")]
    lines: list[Row] = []
    for group in dict.fromkeys(str(one["group"]) for one in rows):
        members = [one for one in rows if one["group"] == group]
        line: Row = {"systems": group.removeprefix("dense, "), "count": len(members)}
        line["ours/ms"] = float(np.median([one["ours_ms"] for one in members]))
        for name in (peer for peer in peers_of if peer != "ours"):
            ratios = np.array([one[f"{name}_ms"] / one["ours_ms"] for one in members], dtype=float)
            shown = {"peer": "numpy", "other": "dsgesv"}.get(name, name)
            if np.isfinite(ratios).all():
                line |= {shown: float(np.median(ratios)), f"{shown}, worst": float(ratios.min())}
        turns = [float(str(one["turns_ratio"])) for one in members]
        line |= {"numpy, in turns": float(np.median(turns)), "in turns, worst": min(turns)}
        line["missed"] = sum(not one["backward_error"] <= one["tolerance"] for one in members)
        lines.append(line)
    floats = [name for name, value in lines[0].items() if isinstance(value, float)]
    cells = [list(line.values()) for line in lines]
    table = Table(
        f"Times as fast as each peer, on {machine}",
        tuple(lines[0]),
        cells,
        formats=dict.fromkeys(floats, ".2f"),
    )
    print(format_text(table))
    content = {
        "machine": str(machine),
        "threads": machine.threads,
        "absent": absent(),
        "columns": list(lines[0]),
        "rows": cells,
    }
    path = OUT / f"solve-dense-{machine.key}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(path)


def import_seconds() -> None:
    base = "import numpy, scipy.linalg, scipy.sparse.linalg"
    programs = [[sys.executable, "-c", text] for text in (base, base + "; import roundwise")]
    calls = [partial(subprocess.run, program, check=True) for program in programs]
    base_seconds, with_ours = seconds(5, *calls, pause=0.0)
    extra = with_ours - base_seconds
    print(f"import roundwise: {extra:.3f} s over NumPy and SciPy ({base_seconds:.3f} s)")


def figure(rows: list[Row], path: Path) -> None:
    dense = [row for row in rows if str(row["group"]).startswith("dense")]
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    sizes = np.array([row["n"] for row in dense], dtype=float)
    ours, mixed = (
        np.array([row[key] for row in dense], dtype=float) for key in ("ratio", "other_ratio")
    )
    groups = list(dict.fromkeys(_group(n) for n in sorted(sizes)))
    for values, label, color, offset in (
        (ours, "roundwise.solve", "C0", -0.17),
        (mixed, "LAPACK dsgesv", "C1", 0.17),
    ):
        data = [values[[_group(n) == g for n in sizes]] for g in groups]
        boxes = left.boxplot(
            data,
            positions=np.arange(len(groups)) + offset,
            widths=0.28,
            whis=(0, 100),
            patch_artist=True,
            medianprops={"color": "black"},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=color, alpha=0.6, label=label)
            label = "_"
    left.set_xticks(range(len(groups)), groups)
    left.set_xlabel("n")
    left.legend(loc="upper left")
    known = np.array([row["kappa"] != "" and 1000 <= row["n"] < 2000 for row in dense])
    kappas = np.array([row["kappa"] for row, k in zip(dense, known, strict=True) if k], dtype=float)
    right.semilogx(kappas, ours[known], "o", color="C0", ms=4, label="roundwise.solve")
    right.semilogx(kappas, mixed[known], "x", color="C1", ms=4, label="LAPACK dsgesv")
    right.set_xlabel("condition number (n = 1000 to 1500)")
    for axes in (left, right):
        axes.axhline(1, color="gray", lw=1)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    left.set_ylabel("times as fast as numpy.linalg.solve")
    fig.savefig(path, dpi=130)


def _group(n: float) -> str:
    return "500" if n < 1000 else "1000 to 1500" if n <= 1500 else f"{int(n)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a taste, with small systems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, help="of each system with --dense or --sparse")
    parser.add_argument("--dense", action="store_true", help="dense systems alone, n <= 8000")
    parser.add_argument(
        "--sparse", action="store_true", help="all matrices of the shared folder against spsolve"
    )
    add_clock(parser)
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the dense systems, but at least ten of a size"
    )
    asked = parser.parse_args()
    quick, seed = asked.quick, asked.seed
    OUT.mkdir(exist_ok=True)
    print(f"{Machine.this()}")
    if asked.sparse:
        path = OUT / "solve-sparse.csv"
        sparse_applications.run(MATRICES, path, asked.repeats or 7, asked.clock)
        return
    print("\n".join(f"without {reason}" for reason in absent()))
    if asked.dense:
        rows: list[Row] = []
        for count, sizes, repeats in DENSE_ALONE:
            plan = [(count, sizes, asked.repeats or repeats)]
            rows += dense_rows(plan, seed, asked.share)
            write_dense(rows)  # after each size: what is there is kept if time runs out
        return
    import_seconds()
    plan = (
        [(10, (300, 400), 3)]
        if quick
        else [
            (10, (500, 500), 7),
            (100, (1000, 1500), 5),
            (10, (2000, 2000), 5),
            (30, (4000, 4000), 1),
        ]
    )
    rows = dense_rows(plan, seed, asked.share)
    write_dense(rows)
    for group, name, A in tqdm(sparse_systems(quick), "sparse", leave=False):
        rows.append(time_sparse(group, name, A, 3))
    print(format_text(summary(rows)))
    print(format_text(peers(rows)))
    with (OUT / "solve.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for one in rows for key in one)))
        writer.writeheader()
        writer.writerows(rows)
    write_csv(summary(rows), OUT / "solve-summary.csv")
    write_csv(peers(rows), OUT / "solve-peers.csv")
    figure(rows, OUT / "solve.png")
    names = ("solve.csv", "solve-summary.csv", "solve-peers.csv", "solve.png")
    print(", ".join(str(OUT / name) for name in names))


if __name__ == "__main__":
    main()
