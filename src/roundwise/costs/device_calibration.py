"""Measures what dense work takes on a GPU, and fits `DevicePrices` to it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from roundwise.algorithms.refinement import Substitution, refine
from roundwise.algorithms.scaling import ScaledColumns, ScaledMatrix
from roundwise.algorithms.stage import Stage
from roundwise.algorithms.stopping import HalvingRule
from roundwise.backends import ArithmeticFailure, Backend, Factors
from roundwise.costs.device_prices import DevicePrices, FactorPrice
from roundwise.formats import FP64, FloatFormat
from roundwise.methods import METHODS

SIZES, QUICK_SIZES = (1024, 2048, 4096, 8192, 12288), (512, 1024, 2048)
RUNS, WARM_UPS, CORRECTIONS = 5, 2, 3
FASTEST = 1e16
"""Flops a second where a fit finds that they cost nothing."""

Clock = Callable[[], float]


def calibrate_device(
    backend: Backend,
    sizes: Sequence[int] = SIZES,
    runs: int = RUNS,
    progress: Callable[[int, int], None] = lambda done, total: None,
    clock: Clock = perf_counter,
) -> DevicePrices:
    """Measure every factorization of a GPU's methods, and corrections with their factors.

    Each figure is the median of so many runs, after two to warm up.
    """
    tasks = [
        (method.name, fmt)
        for method in METHODS.values()
        if not method.sparse and method.chosen
        for fmt in method.formats
        if backend.runs(method.name, fmt)
    ]
    times: dict[tuple[str, FloatFormat], list[float]] = {task: [] for task in tasks}
    steps: dict[FloatFormat, list[float]] = {}
    done, total = 0, len(sizes) * len(tasks)
    for n in sizes:
        A, b = _system(backend, n)
        for method, fmt in tasks:
            progress(done, total)
            done += 1

            def run(method: str = method, fmt: FloatFormat = fmt, A: Any = A) -> Any:
                return backend.analyse(A, method).factorize(A, fmt)

            try:
                seconds, factors = _median(backend, run, runs, clock)
            except ArithmeticFailure:
                seconds, factors = math.nan, None
            times[method, fmt].append(seconds)
            if factors is not None and method == "lu/local":
                refining = _refining(backend, A, b, factors)
                seconds = _median(backend, refining, runs, clock)[0] / CORRECTIONS
                steps.setdefault(fmt, []).append(seconds)
    progress(total, total)
    seconds, _ = _median(backend, lambda: A.copy(), runs, clock)
    return _fitted(backend, list(sizes), times, steps, 2 * A.size * A.itemsize / seconds)


def _refining(backend: Backend, A: Any, b: Any, factors: Factors) -> Callable[[], object]:
    """Refinement by these factors, as a solve does it, with so many corrections."""
    stage, matrix = Stage("refining", FP64, backend), backend.matrix(A, FP64)
    system = ScaledMatrix(A, backend.sizes(A)[0]), ScaledColumns(b)
    correct, rule = Substitution(stage, factors), HalvingRule(math.inf, CORRECTIONS)
    return lambda: refine(system, b, correct, stage, stage, rule, lambda _: matrix)


def _fitted(
    backend: Backend,
    sizes: list[int],
    times: dict[tuple[str, FloatFormat], list[float]],
    steps: dict[FloatFormat, list[float]],
    bytes_per_second: float,
) -> DevicePrices:
    """Prices that fit the seconds best; passes over A are at the rate of a copy of it.

    That rate is no part of the fit: the chain of launches of a substitution, which grows with n,
    would hide it.
    """
    factors: dict[str, dict[str, FactorPrice]] = {}
    n = np.array(sizes, dtype=np.float64)
    for (method, fmt), measured in times.items():
        known = np.isfinite(measured)
        if not known.any():
            continue  # it failed on every size: without a price it is never chosen
        share = 0.5 if method == "cholesky" else 1.0
        terms = np.stack([np.ones_like(n), n, share * 2 / 3 * n**3])[:, known]
        launch, column, flop = _nonnegative_fit(terms, np.array(measured)[known])
        price = FactorPrice(1 / max(flop, 1 / FASTEST), column, launch)
        factors.setdefault(method, {})[fmt.name] = price
    rows, seconds = [], []
    for fmt, measured in steps.items():
        for size, one in zip(sizes, measured, strict=False):
            passes = size**2 * (8 + (8 if fmt == FP64 else 4)) / bytes_per_second
            rows.append([1.0, size])
            seconds.append(max(one - passes, 0.05 * one))
    step, step_column = _nonnegative_fit(np.array(rows).T, np.array(seconds))
    machine = backend.machine
    assert machine is not None
    return DevicePrices(
        machine.key,
        factors,
        bytes_per_second,
        step,
        step_column,
        source=f"measured by `roundwise calibrate --device cuda` on {machine}",
    )


def _nonnegative_fit(terms: NDArray[Any], seconds: NDArray[Any]) -> list[float]:
    """The nonnegative prices whose sums are off by the smallest relative errors."""
    found, _ = nnls((terms / seconds).T, np.ones(len(seconds)))
    return [float(x) for x in found]


def _median(backend: Backend, run: Callable[[], Any], runs: int, clock: Clock) -> tuple[float, Any]:
    """The median seconds of a call until the device has done its work, and what it returned."""
    synchronize = backend.device.synchronize  # type: ignore[attr-defined]
    for _ in range(WARM_UPS):
        made = run()
    seconds = []
    for _ in range(runs):
        synchronize()
        start = clock()
        made = run()
        synchronize()
        seconds.append(clock() - start)
    return statistics.median(seconds), made


def _system(backend: Backend, n: int) -> tuple[Any, Any]:
    """Symmetric positive definite, of moderate size: every method and format factorizes it."""
    rng = np.random.default_rng(n)
    A = rng.uniform(-1.0, 1.0, (n, n))
    A += A.T
    A[np.diag_indices(n)] = 4 * math.sqrt(n)
    return backend.array(A), backend.array(rng.uniform(-1.0, 1.0, (n, 1)))
