"""Iterative against direct ways on large sparse systems, and the prices by which they are chosen.

``--prices`` times the preconditioner and an iteration on grids of all sizes, and counting and
nested dissection: what `roundwise.methods.iterative` and the rates of `multigrid/sa` go by. The
default compares whole solves to the gate, each in a process of its own, with pyamg (smoothed
aggregation and conjugate gradients to the same backward error) and SciPy's `spsolve` where that
takes no minutes; and the application of hierarchies by format at 10^6 unknowns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

import roundwise as rw
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.preconditioners import STORED_IN, Multigrid
from roundwise.krylov import Residual, cg, products_of
from roundwise.machine.identity import Machine

OUT = Path("out") / "iterative.json"
SPSOLVE_UP_TO = 100_000
"""Unknowns: beyond, SuperLU takes minutes in three dimensions."""


def grid(*sides: int) -> sparse.csr_array:
    """The Laplacian on a grid with so many points in each direction."""
    A = sparse.csr_array((1, 1))
    for n in sides:
        T = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
        A = sparse.kron(A, sparse.eye_array(n)) + sparse.kron(sparse.eye_array(A.shape[0]), T)
    return sparse.csr_array(A)


def weighted(A: sparse.csr_array, spread: float) -> sparse.csr_array:
    """The same graph with conductances over so many powers of ten."""
    upper = sparse.triu(A, 1).tocoo()
    w = 10.0 ** np.random.default_rng(0).uniform(-spread / 2, spread / 2, upper.nnz)
    off = sparse.coo_array((w, (upper.row, upper.col)), A.shape)
    off = sparse.csr_array(off + off.T)
    rest = np.asarray(A.sum(axis=1)).ravel()
    return sparse.csr_array(sparse.diags_array(off.sum(axis=1) + rest) - off)


def neighbours(n: int) -> sparse.csr_array:
    """The Laplacian of random points in the plane, each joined with the six nearest; grounded."""
    from scipy.spatial import cKDTree

    points = np.random.default_rng(0).uniform(size=(n, 2))
    near = cKDTree(points).query(points, 7)[1][:, 1:]
    ends = np.repeat(np.arange(n), 6), near.ravel()
    graph = sparse.coo_array((np.ones(6 * n), ends), (n, n)).tocsr()
    graph = sparse.csr_array((graph + graph.T) > 0).astype(np.float64)
    ground = np.zeros(n)
    ground[:: n // 100] = 1.0
    return sparse.csr_array(sparse.diags_array(graph.sum(axis=1) + ground) - graph)


def elasticity(n: int) -> sparse.csr_array:
    """Springs between the neighbours of a cube, diagonals included, clamped at one face."""
    shape = (n, n, n)
    index = np.arange(n**3).reshape(shape)
    parts = []
    for step in np.ndindex(3, 3, 3):
        d = np.array(step) - 1
        if tuple(d) <= (0, 0, 0):
            continue
        here = tuple(slice(max(0, -k), n - max(0, k)) for k in d)
        there = tuple(slice(max(0, k), n - max(0, -k)) for k in d)
        p, q = index[here].ravel(), index[there].ravel()
        unit = d / np.linalg.norm(d)
        block = np.outer(unit, unit).ravel()
        a, b = np.divmod(np.arange(9), 3)
        for x, y, sign in ((p, p, 1.0), (q, q, 1.0), (p, q, -1.0), (q, p, -1.0)):
            rows, columns = (3 * x[:, None] + a).ravel(), (3 * y[:, None] + b).ravel()
            values = np.tile(sign * block, len(x))
            parts.append(sparse.coo_array((values, (rows, columns)), (3 * n**3,) * 2).tocsr())
    K = sparse.csr_array(sum(parts[1:], parts[0]))
    free = np.repeat(index.ravel() >= n * n, 3)
    return sparse.csr_array(K[free][:, free])


SYSTEMS: dict[str, Callable[[], sparse.csr_array]] = {
    "1-D 300 000": lambda: grid(300_000),
    "2-D 300^2": lambda: grid(300, 300),
    "2-D 1000^2": lambda: grid(1000, 1000),
    "2-D 500^2, conductances over 4 decades": lambda: weighted(grid(500, 500), 4),
    "3-D 30^3": lambda: grid(30, 30, 30),
    "3-D 64^3": lambda: grid(64, 64, 64),
    "3-D 100^3": lambda: grid(100, 100, 100),
    "3-D 50^3, conductances over 4 decades": lambda: weighted(grid(50, 50, 50), 4),
    "graph of 200 000 points": lambda: neighbours(200_000),
    "elasticity 32^3": lambda: elasticity(32),
}


def roundwise_way(A: Any, b: Any) -> Any:
    return rw.solve(A, b)


def direct_way(A: Any, b: Any) -> Any:
    return rw.solve(A, b, policy="cholesky/nd:fp32-fp64-fp64-fp64")


def pyamg_way(A: Any, b: Any) -> Any:
    import pyamg

    norm = float(abs(A).sum(axis=1).max())
    hierarchy = pyamg.smoothed_aggregation_solver(A)
    x, tol = np.zeros_like(b), np.sqrt(len(b)) * 2.0**-53
    for _ in range(5):
        r = b - A @ x
        allowed = tol * (norm * abs(x).max() + abs(b).max())
        if abs(r).max() <= allowed:
            break
        # Its rule is the 2-norm: aim at what that is where the max norm is small enough.
        aim = max(1e-13, 0.5 * allowed / abs(r).max()) if x.any() else 1e-10
        x = x + hierarchy.solve(r, tol=aim, accel="cg", maxiter=200)
    return x


def spsolve_way(A: Any, b: Any) -> Any:
    return spsolve(sparse.csc_array(A), b)


WAYS = {
    "roundwise": roundwise_way,
    "direct": direct_way,
    "pyamg": pyamg_way,
    "spsolve": spsolve_way,
}


def one(name: str, way: str) -> dict[str, Any]:
    """Time one way in this process: the best of two, and the peak of memory beyond the system."""
    import resource

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    small = grid(12, 12)
    WAYS[way](small, np.ones(144))  # imports
    A = SYSTEMS[name]()
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    before, seconds, x = peak(), [], b
    while len(seconds) < 2 and sum(seconds) < 30:
        start = time.perf_counter()
        x = WAYS[way](A, b)
        seconds.append(time.perf_counter() - start)
    norm = float(abs(A).sum(axis=1).max())
    error = float(abs(b - A @ x).max() / (norm * abs(x).max() + abs(b).max()))
    used = peak() - before
    found = {"n": len(b), "seconds": min(seconds), "mebibytes": used, "error": error}
    if way == "roundwise":
        found["method"] = rw.solve(A, b, full_output=True).action
    return found


def least(call: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    best, found = np.inf, None
    for _ in range(times):
        start = time.perf_counter()
        found = call()
        best = min(best, time.perf_counter() - start)
    return best, found


def prices() -> Iterator[str]:
    sides = [(n, n, n) for n in (10, 15, 22, 30, 45, 64)] + [(n, n) for n in (60, 200, 800)]
    for side in sides:
        A = grid(*side)
        b, times = np.random.default_rng(0).standard_normal((A.shape[0], 1)), products_of(A)
        counting, counts = least(lambda A=A: Orders(A).counts, 1)
        for fmt in ("fp32", "fp64"):
            setup, M = least(lambda A=A, fmt=fmt: Multigrid(A, fmt))
            run, found = least(
                lambda times=times, b=b, M=M: cg(times, b, M.apply, stop=Residual(1e-11)), 2
            )
            each = run / found.iterations
            yield (
                f"{side} {fmt}: {A.nnz} entries, setup {setup:.4f} s ({setup / A.nnz * 1e9:.0f} ns "
                f"each), iteration {each * 1e3:.3f} ms ({each / A.nnz * 1e9:.1f} ns each), "
                f"counting {counting / A.nnz * 1e9:.0f} ns each, flops {counts['factor_flops']:.1e}"
            )


def applications() -> dict[str, Any]:
    """Milliseconds of a V-cycle by format, and mebibytes, for a cube of 10^6 unknowns."""
    A = grid(100, 100, 100)
    r, found = np.random.default_rng(0).standard_normal(A.shape[0]), {}
    made = {fmt.name: Multigrid(A, fmt) for fmt in STORED_IN}
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(12):
        for name, hierarchy in made.items():
            start = time.perf_counter()
            hierarchy.apply(r)
            seconds[name].append(time.perf_counter() - start)
    for name, hierarchy in made.items():
        found[name] = {
            "milliseconds": 1e3 * min(seconds[name]),
            "mebibytes": hierarchy.bytes / 2**20,
        }
    return found


def tables(results: dict[str, Any]) -> str:
    """The results as the page has them: docs/large-systems.md."""

    def cell(row: dict[str, Any], way: str) -> str:
        if way not in row:
            return ""
        return f"{row[way]['seconds']:.2f} s, {row[way]['mebibytes']:.0f} MiB"

    lines = [
        "| system | n | `roundwise.solve` | its method | direct | pyamg | spsolve |",
        "|---|--:|--:|---|--:|--:|--:|",
    ]
    for name, row in results["systems"].items():
        if "roundwise" not in row:
            continue
        ours = row["roundwise"]
        method = ours["method"].partition("-")[0]
        cells = [cell(row, way) for way in ("direct", "pyamg", "spsolve")]
        head = f"| {name} | {ours['n']} | {cell(row, 'roundwise')} | `{method}` |"
        lines.append(f"{head} {' | '.join(cells)} |")
    lines += ["", "| hierarchy of 10^6 unknowns, stored in | a V-cycle | memory |", "|---|--:|--:|"]
    for fmt, found in results.get("applications", {}).items():
        took, used = found["milliseconds"], found["mebibytes"]
        lines.append(f"| {fmt} | {took:.1f} ms | {used:.0f} MiB |")
    return "\n".join([*lines, "", f"Measured on {results['machine']}."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prices", action="store_true", help="measure prices")
    parser.add_argument("--one", nargs=2, metavar=("SYSTEM", "WAY"), help="one way, as JSON")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), help="these ways")
    parser.add_argument("--only", nargs="*", help="systems whose names begin so")
    given = parser.parse_args()
    if given.prices:
        for line in prices():
            print(line, flush=True)
        return
    if given.one:
        print(json.dumps(one(*given.one)))
        return
    results: dict[str, Any] = {"machine": described(), "systems": {}}
    if OUT.exists():
        results |= json.loads(OUT.read_text(encoding="utf-8")) | {"machine": described()}
    for name in SYSTEMS:
        if given.only and not name.startswith(tuple(given.only)):
            continue
        row = results["systems"].setdefault(name, {})
        for way in given.ways:
            if way == "spsolve" and row.get("roundwise", {}).get("n", 0) > SPSOLVE_UP_TO:
                continue
            command = [sys.executable, __file__, "--one", name, way]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                row[way] = json.loads(done.stdout.splitlines()[-1])
            print(name, way, row.get(way, done.stderr.splitlines()[-1:]), flush=True)
        save(results)
    results["applications"] = applications()
    save(results)
    print(results["applications"])


def described() -> str:
    machine = Machine.this()
    return f"{machine.cpu}, {machine.cores} cores, {machine.threads} threads"


def save(results: dict[str, Any]) -> None:
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    OUT.with_suffix(".md").write_text(tables(results), encoding="utf-8")


if __name__ == "__main__":
    main()
