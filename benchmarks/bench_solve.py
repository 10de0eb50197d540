"""`roundwise.solve` against `numpy.linalg.solve`, LAPACK's `dsgesv` and `spsolve`, all included.

Run on an idle machine, on all its cores: ``make speed``. Every contender solves every system in
this one process, medians of several; between contenders it waits until the threads of the last
one's BLAS have stopped spinning. Writes out/solve.csv and out/solve.png.
"""

from __future__ import annotations

import argparse
import csv
import gc
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve
from tqdm import tqdm

import roundwise as rw
from roundwise.experiments.direct import dsgesv
from roundwise.machine import Machine
from roundwise.problems import randsvd, read_matrix_market

OUT = Path("out")
MATRICES = Path(__file__).parents[2] / "shared" / "matrices"
PAUSE = 0.15  # seconds; the threads of a BLAS go on spinning for up to a tenth of one

Row = dict[str, object]


def seconds(repeats: int, *contenders: Callable[[], object]) -> list[float]:
    """The median of each contender; they take turns, so that a busy moment meets all of them."""
    times: list[list[float]] = [[] for _ in contenders]
    for _ in range(repeats):
        for call, taken in zip(contenders, times, strict=True):
            time.sleep(PAUSE)
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def mixed_dense(
    count: int, sizes: tuple[int, int], seed: int
) -> Iterator[tuple[str, rw.LinearSystem]]:
    """Systems of every kind: condition numbers 10 to 1e9 in all modes, Gaussian, heavy, SPD."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        n = int(rng.integers(sizes[0], sizes[1] + 1))
        kind = i % 10
        if kind < 7:
            kappa = 10.0 ** rng.uniform(1, 9)
            mode = (2, 3, 2, 4, 5, 1, 3)[kind]
            yield f"randsvd mode {mode}", randsvd(n, kappa, mode, rng=rng)
            continue
        A = rng.standard_normal((n, n))
        if kind == 8:
            A = A / np.sqrt(n) + 2 * np.eye(n)
        elif kind == 9:
            A = A @ A.T / n + 1e-3 * np.eye(n)
        name = {7: "Gaussian", 8: "diagonally heavy", 9: "positive definite"}[kind]
        yield name, rw.LinearSystem.from_solution(A, rng.standard_normal(n))


def poisson_3d(m: int) -> sp.csr_array:
    T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    eye = sp.eye_array(m)
    return sp.csr_array(
        sp.kron(sp.kron(T, eye), eye)
        + sp.kron(sp.kron(eye, T), eye)
        + sp.kron(eye, sp.kron(eye, T))
    )


def convection_diffusion_3d(m: int, speed: float) -> sp.csr_array:
    """Poisson's with a first-order upwind wind along x."""
    D = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(m, m))
    eye = sp.eye_array(m)
    return sp.csr_array(poisson_3d(m) + speed / (m + 1) * sp.kron(sp.kron(eye, eye), D))


def sparse_systems(quick: bool) -> Iterator[tuple[str, sp.csr_array]]:
    for m in (10, 15) if quick else (20, 25, 30):
        yield f"Poisson 3-D {m}^3", poisson_3d(m)
        yield f"convection-diffusion 3-D {m}^3", convection_diffusion_3d(m, 50.0)
    if not MATRICES.is_dir():
        return
    with (MATRICES / "index.csv").open() as file:
        for entry in csv.DictReader(file):
            if int(entry["n"]) >= 2000 and not quick:
                yield entry["name"], read_matrix_market(MATRICES / entry["file"]).A


def time_dense(name: str, system: rw.LinearSystem, repeats: int) -> Row:
    A, b = system.A, system.b
    lapack, ours, mixed = seconds(
        repeats, lambda: np.linalg.solve(A, b), lambda: rw.solve(A, b), lambda: dsgesv(A, b)
    )
    solution = rw.solve(A, b, full_output=True)
    return {
        "set": "dense",
        "name": name,
        "n": system.n,
        "kappa": system.meta.get("kappa", ""),
        "peer_ms": 1e3 * lapack,
        "ours_ms": 1e3 * ours,
        "ratio": lapack / ours,
        "dsgesv_ratio": lapack / mixed,
        "action": solution.action,
        "attempts": len(solution.attempts),
        "backward_error": solution.backward_error,
        "tolerance": solution.tolerance,
    }


def time_sparse(name: str, A: sp.csr_array, repeats: int) -> Row | None:
    b = A @ np.ones(A.shape[0])
    csc = A.tocsc()
    try:
        solution = rw.solve(A, b, full_output=True)
    except rw.SolveFailed:
        return None
    ours, peer = seconds(repeats, lambda: rw.solve(A, b), lambda: spsolve(csc, b))
    return {
        "set": "sparse",
        "name": name,
        "n": A.shape[0],
        "kappa": "",
        "peer_ms": 1e3 * peer,
        "ours_ms": 1e3 * ours,
        "ratio": peer / ours,
        "dsgesv_ratio": "",
        "action": solution.action,
        "attempts": len(solution.attempts),
        "backward_error": solution.backward_error,
        "tolerance": solution.tolerance,
    }


def summary(label: str, rows: list[Row], peer: str) -> None:
    ratios = np.array([row["ratio"] for row in rows], dtype=float)
    line = (
        f"{label:<28} {len(rows):>4} systems: {peer} / ours: median {np.median(ratios):.2f}, "
        f"mean {ratios.mean():.2f}, worst {ratios.min():.2f}"
    )
    mixed = np.array(
        [row["dsgesv_ratio"] for row in rows if row["dsgesv_ratio"] != ""], dtype=float
    )
    if mixed.size:
        line += (
            f"; dsgesv: median {np.median(mixed):.2f}, mean {mixed.mean():.2f}, "
            f"worst {mixed.min():.2f}"
        )
    print(line)
    bad = [row for row in rows if not row["backward_error"] <= row["tolerance"]]
    print(f"{'':<28}      backward errors above the gate: {len(bad)}")


def overheads() -> None:
    rng = np.random.default_rng(0)
    for n in (10, 50, 100, 200):
        A, b = rng.standard_normal((n, n)), rng.standard_normal(n)
        ours, numpy = (
            min(timeit.repeat("solve(A, b)", globals=names, number=300, repeat=7)) / 300
            for names in (
                {"solve": rw.solve, "A": A, "b": b},
                {"solve": np.linalg.solve, "A": A, "b": b},
            )
        )
        print(
            f"n = {n:<4} numpy.linalg.solve {1e6 * numpy:7.1f} us, ours {1e6 * ours:7.1f} us, "
            f"difference {1e6 * (ours - numpy):6.1f} us"
        )
    base = "import numpy, scipy.linalg, scipy.sparse.linalg"
    times = {}
    for text in (base, base + "; import roundwise"):
        runs = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", text], check=True)
            runs.append(time.perf_counter() - start)
        times[text] = statistics.median(runs)
    base_seconds, with_ours = times.values()
    extra = with_ours - base_seconds
    print(f"import roundwise: {extra:.3f} s over NumPy and SciPy ({base_seconds:.3f} s)")


def figure(rows: list[Row], path: Path) -> None:
    dense = [row for row in rows if row["set"] == "dense"]
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    sizes = np.array([row["n"] for row in dense], dtype=float)
    ours, mixed = (
        np.array([row[key] for row in dense], dtype=float) for key in ("ratio", "dsgesv_ratio")
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
    known = np.array([row["kappa"] != "" and row["n"] < 2000 for row in dense])
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
    quick = parser.parse_args().quick
    seed = parser.parse_args().seed
    OUT.mkdir(exist_ok=True)
    print(f"{Machine.this()}")
    overheads()
    plan = (
        [(10, (300, 400), 3)]
        if quick
        else [
            (10, (500, 500), 7),
            (100, (1000, 1500), 3),
            (10, (2000, 2000), 3),
            (10, (4000, 4000), 3),
        ]
    )
    rows: list[Row] = []
    for count, sizes, repeats in plan:
        label = f"dense n = {sizes[0]}" + (f" to {sizes[1]}" if sizes[1] > sizes[0] else "")
        new = [
            time_dense(name, system, repeats)
            for name, system in tqdm(mixed_dense(count, sizes, seed), label, count, leave=False)
        ]
        gc.collect()
        summary(label, new, "NumPy")
        rows += new
    timed = (
        time_sparse(name, A, 3) for name, A in tqdm(sparse_systems(quick), "sparse", leave=False)
    )
    new = [row for row in timed if row is not None]
    for title, chosen in (
        ("sparse 3-D", [row for row in new if "3-D" in str(row["name"])]),
        ("sparse shared, n >= 2000", [row for row in new if "3-D" not in str(row["name"])]),
    ):
        if chosen:
            summary(title, chosen, "spsolve")
    rows += new
    with (OUT / "solve.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    figure(rows, OUT / "solve.png")
    print(f"{OUT / 'solve.csv'}, {OUT / 'solve.png'}")


if __name__ == "__main__":
    main()
