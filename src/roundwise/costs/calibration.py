"""Measures how long work takes here: native kernels, factorizations on a GPU.

`sparse_calibration` has the part of sparse methods.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from roundwise.algorithms.refinement import Substitution, refine
from roundwise.algorithms.scaling import ScaledColumns, ScaledMatrix
from roundwise.algorithms.stage import Stage
from roundwise.algorithms.stopping import HalvingRule
from roundwise.backends import ArithmeticFailure, Backend, Factors, NativeBackend
from roundwise.costs.machines import MachineProfile, Rate
from roundwise.costs.prices import DevicePrices, FactorPrice
from roundwise.costs.rates import SparsePrices, generic_sparse_prices
from roundwise.costs.sparse_calibration import (
    SYSTEMS,
    SparseTimes,
    Systems,
    nonnegative_fit,
    scaled,
    timed_methods,
)
from roundwise.formats import FP64, FloatFormat, get_format
from roundwise.machine.identity import Machine
from roundwise.methods import METHODS

SIZES, QUICK_SIZES = (100, 250, 500, 1000, 2000), (100, 250, 500)
DEVICE_SIZES, QUICK_DEVICE_SIZES = (1024, 2048, 4096, 8192, 12288), (512, 1024, 2048)
TINY = 2
"""A size at which the time of a call is its overhead."""

MOST_RUNS, FEWEST_RUNS = 101, 3
SECONDS_PER_KERNEL = 0.15
DEVICE_RUNS, WARM_UPS, CORRECTIONS = 5, 2, 3
FASTEST = 1e16
"""Flops a second where a fit finds that they cost nothing."""

Clock = Callable[[], float]
Times = Mapping[str, float]  # seconds by kernel


@dataclass(frozen=True)
class Calibration:
    """Median seconds of a machine's kernels."""

    machine: Machine
    times: Mapping[str, Mapping[int, Times]]
    """By format name and size: ``lu`` (from a float64 matrix, so with the conversion), ``solve``
    (both triangles) and ``matvec``."""
    overheads: Mapping[str, Times]
    """By format name, the seconds of a call that do not depend on the size: of those kernels, and
    of ``axpy, scale, norm2, orthogonalize, givens, solve_upper``."""
    sparse: Mapping[str, SparseTimes] = field(default_factory=dict)
    """By system: the times of each sparse method."""

    def sparse_prices(self) -> SparsePrices:
        """The prices that ship, scaled to the measured times; unscaled if nothing was measured."""
        return scaled(generic_sparse_prices(), self.sparse)

    def profile(self) -> MachineProfile:
        """The machine profile whose rates reproduce these times.

        For each size, flops are priced by the factorization and traffic by matvec and triangular
        solve together, which alternate in GMRES, with `Stage`'s counts of flops and bytes. The
        overheads of calls are priced by counts: those of a factorization and the first solve for
        a run, of a residual, an update and the frame of a GMRES cycle for an outer step, of an
        Arnoldi step for an inner one. They are those of the highest format; what a lower one
        takes beyond them is in its rates.
        """
        overheads = self.overheads[max(self.overheads, key=lambda name: get_format(name).p)]
        sizes: dict[int, dict[str, Rate]] = {}
        for fmt, by_size in self.times.items():
            for n, times in by_size.items():
                # At least a tenth of the time is work: both were measured and may be off.
                work = {name: max(t - overheads[name], t / 10) for name, t in times.items()}
                traffic = 2 * (n * n + 2 * n) * get_format(fmt).storage_bytes
                sizes.setdefault(n, {})[fmt] = Rate(
                    2 / 3 * n**3 / work["lu"], traffic / (work["matvec"] + work["solve"])
                )
        of_run, of_outer, of_inner = (
            sum(overheads[kernel] for kernel in kernels.split())
            for kernels in (
                "lu solve",
                "matvec axpy axpy solve norm2 solve_upper matvec",
                "scale matvec solve orthogonalize norm2 givens",
            )
        )
        return MachineProfile(
            self.machine.key,
            sizes[max(sizes)],
            of_outer,
            of_inner,
            source=f"measured by `roundwise calibrate` on {self.machine}",
            run_overhead=of_run,
            sizes=sizes,
        )


def calibrate(
    sizes: Sequence[int] = SIZES,
    backend: Backend | None = None,
    formats: Sequence[FloatFormat] | None = None,
    seconds_per_kernel: float = SECONDS_PER_KERNEL,
    progress: Callable[[int, int], None] = lambda done, total: None,
    clock: Clock = perf_counter,
    sparse: Systems = SYSTEMS,
) -> Calibration:
    """Measure the kernels and the sparse methods of this machine, with its present threads.

    Parameters
    ----------
    backend : Backend, optional
        A `NativeBackend` unless given.
    formats : sequence of FloatFormat, optional
        All that the backend runs unless given.
    seconds_per_kernel : float
        Each kernel is run for about this long, at least three times.
    progress : callable, optional
        ``progress(done, total)``.
    clock : callable
        Seconds from any origin.
    sparse : mapping of names to functions
        The sparse systems to time every method on; none if it is empty.
    sizes : sequence of int
        The n of the dense systems.

    Examples
    --------
    >>> from roundwise.costs import calibrate
    >>> calibration = calibrate([20], formats=[rw.FP64], seconds_per_kernel=1e-4, sparse={})
    >>> list(calibration.times)
    ['fp64']
    """
    if not sizes or min(sizes) <= TINY:
        raise ValueError(f"sizes = {sizes}; pass some, all greater than {TINY}")
    backend = NativeBackend() if backend is None else backend
    steps = list(product((TINY, *sizes), backend.formats() if formats is None else formats))
    total = len(steps) + len(sparse)
    times: dict[str, dict[int, Times]] = {fmt.name: {} for _, fmt in steps}
    for done, (n, fmt) in enumerate(steps):
        progress(done, total)
        kernels = matrix_kernels(backend, fmt, n)
        if n == TINY:
            kernels |= vector_kernels(backend, fmt, n)
        times[fmt.name][n] = {
            name: median_seconds(call, seconds_per_kernel, clock) for name, call in kernels.items()
        }
    methods = {}
    for done, (name, make) in enumerate(sparse.items()):
        progress(len(steps) + done, total)
        timer = partial(least_seconds, budget=seconds_per_kernel, clock=clock)
        methods[name] = timed_methods(make(), backend, timer)
    progress(total, total)
    overheads = {name: by_size.pop(TINY) for name, by_size in times.items()}
    return Calibration(Machine.this(), times, overheads, methods)


def median_seconds(call: Callable[[], object], budget: float, clock: Clock = perf_counter) -> float:
    """The median time of a call, after one to warm up, within about the budget of seconds."""
    call()
    seconds: list[float] = []
    while len(seconds) < FEWEST_RUNS or (sum(seconds) < budget and len(seconds) < MOST_RUNS):
        start = clock()
        call()
        seconds.append(clock() - start)
    return statistics.median(seconds)


def least_seconds(
    call: Callable[[], Any], budget: float, clock: Clock = perf_counter
) -> tuple[float, Any]:
    """The least time of at least two calls, within about the budget, and the last result.

    For calls that may take long: the first warms up, and counts if it is the fastest.
    """
    seconds: list[float] = []
    result = None
    while len(seconds) < 2 or (sum(seconds) < budget and len(seconds) < MOST_RUNS):
        start = clock()
        result = call()
        seconds.append(clock() - start)
    return min(seconds), result


def matrix_kernels(backend: Backend, fmt: FloatFormat, n: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(n)
    # Of moderate size and well conditioned, so that no format overflows or breaks down.
    A = rng.uniform(-1.0, 1.0, (n, n)) + np.diag(np.full(n, np.sqrt(n)))
    b = rng.uniform(-1.0, 1.0, n)
    matrix = backend.matrix(A, fmt)
    factors = matrix.lu()
    return {
        "lu": lambda: backend.matrix(A, fmt).lu(),
        "solve": lambda: factors.solve(b),
        "matvec": lambda: matrix.matvec(b),
    }


def vector_kernels(backend: Backend, fmt: FloatFormat, n: int) -> dict[str, Callable[[], object]]:
    x, y = np.full(n, 0.5), np.full(n, 0.25)
    V, R = np.eye(1, n), np.eye(1)
    cosines, sines = np.zeros(1), np.zeros(1)
    return {
        "axpy": lambda: backend.axpy(-1.0, x, y, fmt),
        "scale": lambda: backend.scale(0.5, x, fmt),
        "norm2": lambda: backend.norm2(x, fmt),
        "orthogonalize": lambda: backend.orthogonalize(V, x, fmt),
        "givens": lambda: backend.givens(
            0, cosines, sines, np.array([1.0, 0.5]), np.array([1.0, 0.0]), fmt
        ),
        "solve_upper": lambda: backend.solve_upper(R, x[:1], fmt),
    }


def calibrate_device(
    backend: Backend,
    sizes: Sequence[int] = DEVICE_SIZES,
    runs: int = DEVICE_RUNS,
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
        A, b = _device_system(backend, n)
        for method, fmt in tasks:
            progress(done, total)
            done += 1

            def run(method: str = method, fmt: FloatFormat = fmt, A: Any = A) -> Any:
                return backend.analyse(A, method).factorize(A, fmt)

            try:
                seconds, factors = _device_seconds(backend, run, runs, clock)
            except ArithmeticFailure:
                seconds, factors = math.nan, None
            times[method, fmt].append(seconds)
            if factors is not None and method == "lu/local":
                refining = _refining(backend, A, b, factors)
                seconds = _device_seconds(backend, refining, runs, clock)[0] / CORRECTIONS
                steps.setdefault(fmt, []).append(seconds)
    progress(total, total)
    seconds, _ = _device_seconds(backend, lambda: A.copy(), runs, clock)
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
        terms = np.stack([np.ones_like(n), n, share * 2 / 3 * n**3], axis=1)
        launch, column, flop = nonnegative_fit(terms[known], np.array(measured)[known])
        price = FactorPrice(1 / max(flop, 1 / FASTEST), column, launch)
        factors.setdefault(method, {})[fmt.name] = price
    rows, seconds = [], []
    for fmt, measured in steps.items():
        for size, one in zip(sizes, measured, strict=False):
            passes = size**2 * (8 + (8 if fmt == FP64 else 4)) / bytes_per_second
            rows.append([1.0, size])
            seconds.append(max(one - passes, 0.05 * one))
    step, step_column = nonnegative_fit(rows, seconds)
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


def _device_seconds(
    backend: Backend, run: Callable[[], Any], runs: int, clock: Clock
) -> tuple[float, Any]:
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


def _device_system(backend: Backend, n: int) -> tuple[Any, Any]:
    """Symmetric positive definite, of moderate size: every method and format factorizes it."""
    rng = np.random.default_rng(n)
    A = rng.uniform(-1.0, 1.0, (n, n))
    A += A.T
    A[np.diag_indices(n)] = 4 * math.sqrt(n)
    return backend.array(A), backend.array(rng.uniform(-1.0, 1.0, (n, 1)))
