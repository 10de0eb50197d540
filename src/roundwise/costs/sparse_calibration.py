"""Times every sparse method that is installed on a few systems, and scales the prices by it.

Prices that ship were fitted to many systems on another machine, where these few were timed as well.
What a machine changes is how fast it computes (flops) and how fast it moves data and finds its way
through a pattern (all other amounts), for each engine with its threads. So each method in each
format gets two multipliers, from how long it takes here and how long it took there: some systems
have few flops for each entry, some have many.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from roundwise.backends import Analysis, ArithmeticFailure, Backend
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native.sparse import EngineAnalysis, engine_methods
from roundwise.costs.rates import SparsePrices
from roundwise.features import compute_features
from roundwise.formats import FP64, FloatFormat
from roundwise.methods import FLOPS, METHODS, SAME_PRICE, Method, Shape, amounts
from roundwise.problems import LinearSystem
from roundwise.problems.pde import convection_diffusion_3d, laplace_3d, poisson_2d

Array = NDArray[np.float64]
Timer = Callable[[Callable[[], Any]], tuple[float, Any]]
"""The seconds of a call, repeated as often as it takes, and what it returns."""

STIFFNESS = 0.5
"""How strongly the two multipliers of a method are held together: few systems were measured."""

FEWEST = 4
"""Systems that a method must have been timed on for a price of its own: a taste."""

STEPS, LONGEST = 30, 1.0
FEATURES = (
    *("symmetric_pattern", "looks_positive_definite", "symmetric", "strong_diagonal"),
    "row_squares",
)


def arrow(n: int) -> Any:
    """A dense first row and column: no fill and few flops if they are eliminated last."""
    edge, zeros = np.arange(1, n), np.zeros(n - 1, dtype=int)
    rows, columns = np.concatenate([zeros, edge]), np.concatenate([edge, zeros])
    corner = sparse.csr_array((np.full(2 * n - 2, -1.0), (rows, columns)), shape=(n, n))
    return sparse.csr_array(corner + 2.0 * n * sparse.eye_array(n))


def scattered(n: int) -> Any:
    """Three entries a row anywhere and a heavy diagonal, unsymmetric: factors fill in."""
    rng = np.random.default_rng(n)
    rows, columns = np.repeat(np.arange(n), 3), rng.integers(0, n, 3 * n)
    A = sparse.csr_array((rng.uniform(-1, 1, 3 * n), (rows, columns)), shape=(n, n))
    return sparse.csr_array(A + 4.0 * sparse.eye_array(n))


Systems = Mapping[str, Callable[[], Any]]
SYSTEMS: Systems = {
    "2-D Laplacian, n = 2500": lambda: poisson_2d(50).A,
    "3-D Laplacian, n = 1000": lambda: laplace_3d(10),
    "3-D convection, n = 1000": lambda: convection_diffusion_3d(10, 10.0),
    "arrow, n = 4000": lambda: arrow(4000),
    "2-D Laplacian, n = 12100": lambda: poisson_2d(110).A,
    "3-D Laplacian, n = 4913": lambda: laplace_3d(17),
    "3-D convection, n = 3375": lambda: convection_diffusion_3d(15, 10.0),
    "random, n = 2000": lambda: scattered(2000),
}
"""The systems that are timed. The prices that ship contain their times: change both together."""

QUICK_SYSTEMS: Systems = dict(islice(SYSTEMS.items(), 4))


@dataclass(frozen=True)
class SparseTimes:
    """Times of sparse work on one system."""

    shape: Shape
    matvec: float  # seconds
    methods: Mapping[str, Mapping[str, tuple[float, float]]]
    """By method and format, the seconds of analysis with factorization, and of a solve."""


def timed_methods(
    A: Any, backend: Backend, timer: Timer, known: Mapping[str, Method] = METHODS
) -> SparseTimes:
    """Time each of the known methods that fits A and runs here.

    As in a solve, the order that was found to count the fill serves our own engines.
    """
    problem = LinearSystem(A, np.ones(A.shape[0]))
    found = {name: f.value for name, f in compute_features(problem, FEATURES).items()}
    orders = Orders(problem.A, not found["symmetric"], bool(found["strong_diagonal"]))
    found |= orders.counts
    methods: dict[str, dict[str, tuple[float, float]]] = {}
    for method in known.values():
        if not (method.sparse and method.fits(found)) or method.name in SAME_PRICE:
            continue
        for fmt in method.formats:
            if not backend.runs(method.name, fmt, sparse=True):
                continue
            seconds = _timed(problem, method.name, fmt, backend, timer, orders)
            if seconds is not None:
                methods.setdefault(method.name, {})[fmt.name] = seconds
    filled, flops = found["factor_entries"], found["factor_flops"]
    counts = filled, flops, found["nd_flops"], found["row_squares"]
    shape = Shape(problem.n, problem.A.size, 1, *counts)
    return SparseTimes(shape, timer(lambda: problem.A @ problem.b)[0], methods)


def _timed(
    problem: LinearSystem,
    method: str,
    fmt: FloatFormat,
    backend: Backend,
    timer: Timer,
    orders: Orders,
) -> tuple[float, float] | None:
    """The seconds of a method on a system; None if it refuses the matrix.

    Its prices are then scaled as those of the other methods.
    """
    A = problem.A

    def analyse() -> Analysis:
        if method in engine_methods():
            return EngineAnalysis(backend, A, method, orders)
        return backend.analyse(A, method)

    try:
        factor, factors = timer(lambda: analyse().factorize(A, fmt))
    except ArithmeticFailure:
        return None
    return factor, timer(lambda: factors.solve(problem.b))[0]


def scaled(generic: SparsePrices, measured: Mapping[str, SparseTimes]) -> SparsePrices:
    """The generic prices for the machine where these times were measured.

    Methods that were not measured here, as they are not installed, are scaled by the medians of
    the others. Methods that have no generic price are priced by their own times (`fitted_prices`).
    """
    found: dict[tuple[str, str], tuple[float, float, float]] = {}
    for method, formats in generic.factor.items():
        for fmt in formats:
            if ratios := _against_reference(generic, measured, method, fmt):
                found[method, fmt] = ratios
    own = fitted_prices(measured, lambda method: method not in generic.factor)
    if not found:
        return generic
    usual = tuple(map(statistics.median, zip(*found.values(), strict=True)))
    factor: dict[str, dict[str, list[float]]] = {}
    solve: dict[str, dict[str, float]] = {}
    for method, formats in generic.factor.items():
        like = SAME_PRICE.get(method, method)
        for fmt, numbers in formats.items():
            others, flops, solving = found.get((like, fmt), usual)
            each = [p * (flops if i == FLOPS else others) for i, p in enumerate(numbers)]
            factor.setdefault(method, {})[fmt] = each
            solve.setdefault(method, {})[fmt] = solving * generic.solve[method][fmt]
    for method, by_format in own.items():
        factor[method] = {fmt: numbers for fmt, (numbers, _) in by_format.items()}
        solve[method] = {fmt: seconds for fmt, (_, seconds) in by_format.items()}
    matvec = statistics.median(s.matvec / s.shape.entries for s in measured.values())
    return replace(
        generic,
        factor=factor,
        solve=solve,
        matvec=matvec,
        conversion=generic.conversion * matvec / generic.matvec,  # both are bound by memory
        source=f"scaled by the times of {'; '.join(measured)}. Before: {generic.source}",
    )


def fitted_prices(
    measured: Mapping[str, SparseTimes], wanted: Callable[[str], bool]
) -> dict[str, dict[str, tuple[list[float], float]]]:
    """Prices of the methods that are wanted by their own times: factorization, and a solve.

    By method and format: the nonnegative combination of `AMOUNTS` with the least relative errors,
    if at least `FEWEST` systems were timed; and the median seconds of a solve per entry of L.
    """
    times: dict[tuple[str, str], list[tuple[Shape, float, float]]] = {}
    for system in measured.values():
        for method, formats in system.methods.items():
            for fmt, (factor, solve) in formats.items():
                if wanted(method):
                    times.setdefault((method, fmt), []).append((system.shape, factor, solve))
    found: dict[str, dict[str, tuple[list[float], float]]] = {}
    for (method, fmt), cases in times.items():
        if len(cases) >= FEWEST:
            terms = [amounts(shape, method) for shape, *_ in cases]
            numbers = nonnegative_fit(terms, [s for _, s, _ in cases])
            solving = statistics.median(s / max(shape.filled, 1.0) for shape, _, s in cases)
            found.setdefault(method, {})[fmt] = numbers, solving
    return {method: formats for method, formats in found.items() if FP64.name in formats}


def nonnegative_fit(terms: ArrayLike, seconds: ArrayLike) -> list[float]:
    """The nonnegative prices of the columns of `terms` with the least relative errors of sums."""
    from scipy.optimize import nnls  # takes 0.2 s to import, and a solve needs none of it

    weighted = np.asarray(terms) / np.asarray(seconds)[:, None]
    found: list[float] = nnls(weighted, np.ones(len(weighted)))[0].tolist()
    return found


def _against_reference(
    generic: SparsePrices, measured: Mapping[str, SparseTimes], method: str, fmt: str
) -> tuple[float, float, float] | None:
    """Multipliers of a method's prices but those of flops, of flops, and of solves."""
    parts, seconds, solves = [], [], []
    for name, times in measured.items():
        here = times.methods.get(method, {}).get(fmt)
        there = generic.reference.get(name, {}).get(method, {}).get(fmt)
        if here is None or there is None:
            continue
        terms = np.array(generic.factor[method][fmt]) * amounts(times.shape, method)
        share = terms[FLOPS] / terms.sum()
        parts.append([there[0] * (1 - share), there[0] * share])
        seconds.append(here[0])
        solves.append(here[1] / there[1])
    if not parts:
        return None
    return (*multipliers(np.array(parts), np.array(seconds)), statistics.geometric_mean(solves))


def multipliers(parts: Array, seconds: Array) -> tuple[float, float]:
    """Factors for the columns of `parts` whose sum is about `seconds`, in logarithms.

    Least squares of the logarithms of measured over priced seconds by Gauss-Newton, and of
    `STIFFNESS` times the distance of each multiplier from the common one.
    """
    common = float(np.log(seconds / parts.sum(axis=1)).mean())
    logs = np.full(2, common)
    for _ in range(STEPS):
        terms = parts * np.exp(logs)
        totals = terms.sum(axis=1)
        slopes = np.vstack([terms / totals[:, None], STIFFNESS * np.eye(2)])
        misses = np.concatenate([np.log(seconds / totals), STIFFNESS * (common - logs)])
        step = np.linalg.lstsq(slopes, misses, rcond=None)[0]
        logs += np.clip(step, -LONGEST, LONGEST)
    others, flops = np.exp(logs).tolist()
    return others, flops
