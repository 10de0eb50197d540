"""Measure the prices of the ways by which sparse systems are solved at once.

`backends/native/small_sparse.py` prices each way by what one analysis counts: rows and entries of
A, entries of L, multiplications. Here each way is timed on grids, graphs and random matrices, and
on a folder of application matrices if one is given, in the process's own time, one thread. The
prices, none of them negative, are those with the least sum of absolute logarithms of priced over
measured time, nearly; they are printed as that file has them.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import least_squares

import roundwise._kernels as _kernels
from roundwise._csr import read_sparse
from roundwise.backends.contract import ArithmeticFailure
from roundwise.backends.emulated.ordering import superlu
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.engines.superlu import OPTIONS
from roundwise.backends.engines.supernodal import SupernodalSymbolic
from roundwise.backends.native.small_sparse import LARGEST, Inverse, solved, stored_rows
from roundwise.formats import FP64
from roundwise.problems import convection_diffusion_2d, poisson_2d, read_matrix_market
from roundwise.problems.pde import laplace_3d

TERMS = ("call", "row", "entry", "filled", "multiplication")


def matrices(folder: Path | None) -> Iterator[Any]:
    for n in (9, 14, 22, 35, 55, 80):
        yield poisson_2d(n).A
        yield convection_diffusion_2d(n, 0.1, (1.0, 3.0)).A
    for n in (5, 8, 12, 16):
        yield laplace_3d(n)
    rng = np.random.default_rng(0)
    for n in (80, 200, 500, 1200, 3000):
        for density in (1.5, 3):
            A = sparse.random_array((n, n), density=density / n, rng=rng)
            yield sparse.csr_array(A + sparse.diags_array(2 + rng.random(n)))
    for path in sorted(folder.glob("*.mtx*")) if folder else ():
        A = sparse.csr_array(read_matrix_market(path).A)
        if A.shape[0] == A.shape[1] and A.dtype.kind == "f" and A.nnz <= LARGEST:
            yield A


def least(call: Callable[[], Any], seconds: float) -> float:
    """The least process time of repeated calls."""
    best, begin = np.inf, time.process_time()
    while time.process_time() - begin < seconds or best == np.inf:
        start = time.process_time_ns()
        call()
        best = min(best, 1e-9 * (time.process_time_ns() - start))
    return float(best)


def analysed(A: Any) -> Any:
    lu = read_sparse(A, "A")
    lu.analyse(np.inf, np.inf)
    return lu


def measured(A: Any, seconds: float) -> Iterator[tuple[str, tuple[float, ...], float]]:
    """For each way its name, what it counts, and its seconds."""
    A = sparse.csr_array(A).astype(np.float64)
    A.sum_duplicates()
    lu = analysed(A)
    if lu.result != "analysed":
        return
    filled, counted = lu.filled, lu.counted
    whole = (1.0, float(lu.n), float(lu.stored))
    analysis = least(lambda: analysed(A), seconds)
    yield "ANALYSIS", (*whole, 0.0, 0.0), analysis

    def factorized() -> Any:
        made = analysed(A)
        made.factorize()
        return made

    first = factorized()
    if first.result == "factorized":
        arrays = 0, A.indptr, A.indices, A.data
        taken = least(factorized, seconds) - analysis
        yield "LEFT", (0.0, 0.0, 0.0, filled, counted), max(taken, 1e-7)
        again = least(lambda: first.refactored(*arrays), seconds)
        yield "LEFT_AGAIN", (0.0, 0.0, 0.0, filled, counted), again
    b, columns = np.ones(lu.n), A.tocsc()
    symmetric = abs(A - A.T).max() == 0
    kinds = ["lu"] if not symmetric else ["ldl", *["cholesky"] * bool((A.diagonal() > 0).all())]
    for kind in kinds if symmetric or lu.has_strong_diagonal else ():

        def in_panels(kind: str = kind) -> Any:
            lu = analysed(A)
            rows = stored_rows(lu)
            _kernels.sparse_is_symmetric(rows.indptr, rows.indices, rows.data)
            orders = Orders(rows, matched=not symmetric, strong=lu.has_strong_diagonal)
            if len(lu.order):
                orders.know(lu.pattern, "amd", lu.order)
            symbolic = orders.symbolic("amd")
            factors = SupernodalSymbolic(rows, kind, "amd", orders).factorize(rows.data, FP64)
            exact = factors.replaced_pivots == 0
            found = Inverse(factors.solve, f"{kind}/amd", exact, orders)
            solved(rows, b, 1e-14, found)
            return symbolic

        try:
            symbolic = in_panels()
        except ArithmeticFailure:
            continue
        sizes = (*whole, float(symbolic.entries), float(symbolic.flops))
        yield f"PANELS[{kind!r}]", sizes, max(least(in_panels, seconds) - analysis, 1e-6)
    taken = least(lambda: superlu(columns, pattern_is_regular=True, **OPTIONS["colamd"]), seconds)
    yield "SUPERLU", (*whole, 0.0, 0.0), taken


def fitted(counts: Any, taken: Any) -> Any:
    """Prices of the counts; those of counts that are always zero are zero."""
    used = counts.any(axis=0)
    counts = counts[:, used]
    typical = np.median(taken) / counts.mean(axis=0) / counts.shape[1]

    def off(logarithms: Any) -> Any:
        return np.log(counts @ (typical * np.exp(logarithms)) / taken)

    found = least_squares(off, np.zeros(counts.shape[1]), loss="soft_l1", f_scale=0.1)
    prices = np.zeros(len(used))
    prices[used] = typical * np.exp(found.x)
    return prices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="of application matrices")
    parser.add_argument("--seconds", type=float, default=0.02, help="for each way of each matrix")
    options = parser.parse_args()
    found: dict[str, list[tuple[tuple[float, ...], float]]] = defaultdict(list)
    for A in matrices(options.folder):
        for name, counts, taken in measured(A, options.seconds):
            if any(counts):  # nothing fills in where A is triangular
                found[name].append((counts, taken))
    for name, rows in found.items():
        counts, taken = np.array([one for one, _ in rows]), np.array([one for _, one in rows])
        if name == "SUPERLU":  # at the least: what it takes where hardly anything fills in
            cheap = taken / counts.sum(axis=1) <= np.quantile(taken / counts.sum(axis=1), 0.3)
            counts, taken = counts[cheap], taken[cheap]
        prices = fitted(counts, taken)
        ratios = np.quantile(counts @ prices / taken, [0.1, 0.5, 0.9])
        told = ", ".join(f"{term}={p:.2g}" for term, p in zip(TERMS, prices, strict=True) if p)
        print(f"{name} = Price({told})  # {len(taken)} matrices; priced over measured {ratios}")


if __name__ == "__main__":
    main()
