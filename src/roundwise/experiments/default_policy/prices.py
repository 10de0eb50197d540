"""Measures the prices that come with the package, for machines that were not calibrated.

``python -m roundwise.experiments.default_policy.prices`` on an idle machine; with one thread
(``ROUNDWISE_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1``) it counts processor time, and the machine may
be busy. Dense prices are those of `roundwise calibrate`. Sparse ones are fitted to a few PDE and
random matrices: for the factorization ``analysis entries(A) + factor entries(L + U) + update
entries(L + U)^2 / n`` with the least relative error, for the rest the median per entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import nnls

from roundwise.backends import NativeBackend, native_formats
from roundwise.costs import calibrate
from roundwise.costs.calibration import Clock, median_seconds
from roundwise.costs.prices import Prices, SparsePrices
from roundwise.formats import FP32, FP64
from roundwise.machine.identity import Machine
from roundwise.outcomes import progress_bar
from roundwise.problems import (
    convection_diffusion_2d,
    laplace_3d,
    poisson_2d,
    random_banded,
    random_sparse,
)

SHIPPED = Path(__file__).parents[2] / "costs" / "generic_prices.json"
SECONDS = 0.2
HEAVY = 10.0
"""A diagonal that lets every format solve random systems."""

FORMATS = ("fp32", "fp64")
METHODS = ("superlu/mmd", "superlu/colamd")
PARTS = ("factor", "update", "more factor", "more update")


def sparse_matrices() -> Iterator[tuple[str, Any]]:
    """Some of each kind, from a thousand to a hundred thousand unknowns."""
    rng = np.random.default_rng(0)
    for m in (40, 80, 160, 320):
        yield METHODS[0], poisson_2d(m).A
    for m in (10, 15, 20, 25):
        yield METHODS[0], laplace_3d(m)
    yield METHODS[0], convection_diffusion_2d(100, 0.1, (1.0, 3.0)).A
    for n in (1000, 1400, 2000):
        yield METHODS[1], random_sparse(n, rng) + HEAVY * sparse.identity(n)
    for n in (2000, 8000, 30000):
        yield METHODS[1], random_banded(n, rng) + HEAVY * sparse.identity(n)


def measure_applied(clock: Clock) -> dict[str, float]:
    """Time the dense factors of lower formats when they are applied in FP64."""
    backend, rng, n = NativeBackend(), np.random.default_rng(0), 1000
    A, b = rng.standard_normal((n, n)), np.ones((n, 1))
    seconds = {}
    for fmt in (f for f in native_formats() if f != FP64):
        factors = backend.matrix(A, fmt).lu().to(FP64)
        seconds[fmt.name] = median_seconds(partial(factors.solve, b), SECONDS, clock) / n**2
    return seconds


def measure_cholesky(clock: Clock) -> dict[str, float]:
    """Time it against LU, at a size from which it is tried."""
    backend, n = NativeBackend(), 2000
    A = np.full((n, n), 1.0 / n) + np.eye(n)
    matrices = {fmt: backend.matrix(A, fmt) for fmt in FORMATS}
    # LU first: its threads then meet none of BLAS's.
    lu = {fmt: median_seconds(matrices[fmt].lu, SECONDS, clock) for fmt in FORMATS}
    return {
        fmt: median_seconds(matrices[fmt].cholesky, SECONDS, clock) / lu[fmt] for fmt in FORMATS
    }


def measure_sparse(clock: Clock) -> SparsePrices:
    """Time SuperLU in both formats, and what refinement does with its factors."""
    names = ["analysis", *((part, method) for part in PARTS for method in METHODS)]
    rows, found = [], dict[str, list[float]]()
    for method, A in sparse_matrices():
        for fmt in FORMATS:
            filled, seconds = time_sparse(A, fmt, clock)
            amounts = {"analysis": A.nnz, "factor": filled, "update": filled**2 / A.shape[0]}
            # FP64 takes what FP32 takes, and more: else the fit might say that it takes less.
            parts = [part for part in PARTS if fmt == FP64.name or not part.startswith("more ")]
            row = np.zeros(len(names))
            row[0] = amounts["analysis"]
            for part in parts:
                row[names.index((part, method))] = amounts[part.removeprefix("more ")]
            rows.append(row / seconds.pop("factor"))
            for name, value in seconds.items():
                entries = A.nnz if name == "matvec" else filled
                found.setdefault(name, []).append(value / entries)
    fit = nnls(np.array(rows), np.ones(len(rows)))[0].tolist()
    fitted = dict(zip(names, fit, strict=True))
    by_method = {
        part: {
            method: {
                FP32.name: fitted[part, method],
                FP64.name: fitted[part, method] + fitted[f"more {part}", method],
            }
            for method in METHODS
        }
        for part in ("factor", "update")
    }
    per_entry = {name: median(values) for name, values in found.items()}
    return SparsePrices(
        analysis=fitted["analysis"],
        matvec=per_entry["matvec"],
        factor=by_method["factor"],
        update=by_method["update"],
        solve={fmt: per_entry[f"solve in {fmt}"] for fmt in FORMATS},
        conversion=per_entry["conversion"],
        iteration=per_entry["iteration"],
    )


def time_sparse(A: Any, fmt: str, clock: Clock) -> tuple[int, dict[str, float]]:
    """Entries of the factors, and median seconds of what is done with A and with them."""
    backend, b = NativeBackend(), np.ones((A.shape[0], 1))
    factors = backend.matrix(A, fmt).lu()
    calls: dict[str, Callable[[], object]] = {
        "factor": lambda: backend.matrix(A, fmt).lu(),
        f"solve in {fmt}": lambda: factors.solve(b),
        "matvec": lambda: A @ b,
    }
    if fmt == FP32.name:
        widened = factors.to(FP64)
        calls["conversion"] = lambda: factors.to(FP64)
        calls["iteration"] = lambda: widened.solve(b)
    seconds = {name: median_seconds(call, SECONDS, clock) for name, call in calls.items()}
    return factors.entries, seconds


def main() -> None:
    machine = Machine.this()
    one_thread = machine.threads == machine.blas_threads == 1
    clock, counted = (thread_time, "processor") if one_thread else (perf_counter, "wall-clock")
    prices = Prices(
        calibrate(progress=progress_bar("calibrate"), clock=clock).profile(),
        measure_applied(clock),
        measure_cholesky(clock),
        measure_sparse(clock),
        f"python -m roundwise.experiments.default_policy.prices ({counted} time) on {machine}",
    )
    SHIPPED.write_text(json.dumps(prices.to_dict(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
