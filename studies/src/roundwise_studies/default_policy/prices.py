"""Measures the prices that come with the package, for machines that were not calibrated.

``python -m roundwise_studies.default_policy.prices`` on an idle machine; with one thread
(``ROUNDWISE_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1``) it counts processor time, and the machine may
be busy. These are the dense prices, as `roundwise calibrate` measures them; the sparse ones are
left as `sparse_methods` fitted them.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter, thread_time

import numpy as np

from roundwise.backends import NativeBackend, native_formats
from roundwise.costs import calibrate
from roundwise.costs.calibration import Clock, least_seconds, median_seconds
from roundwise.costs.prices import Prices, generic_prices
from roundwise.costs.sparse_calibration import nonnegative_fit
from roundwise.formats import FP64
from roundwise.machine.identity import Machine
from roundwise.machine.rates import write_rates
from roundwise.outcomes import progress_bar

SECONDS = 0.2
FORMATS = ("fp32", "fp64")
BAND_SIZES, BANDS = (400, 800), (1, 3, 11, 41, 161)


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


def structured_rates(clock: Clock) -> dict[str, float]:
    """Seconds for an entry and a flop of a band, and for an entry of a triangle.

    `roundwise.methods.structured` has the formulas; its pass over A, which the profile prices, is
    fitted with them and left out.
    """
    backend = NativeBackend()
    terms, seconds, triangle = [], [], []
    for n in BAND_SIZES:
        full = np.random.default_rng(n).uniform(0.5, 1.0, (n, n)) + n * np.eye(n)
        for diagonals in BANDS:
            A = np.triu(np.tril(full, diagonals // 2), -(diagonals // 2))
            factorize = partial(backend.analyse(A, "banded").factorize, A, FP64)
            terms.append([n**2, n * diagonals, n * diagonals**2 / 2])
            seconds.append(least_seconds(factorize, SECONDS, clock)[0])
        A = np.tril(full)
        factors = backend.analyse(A, "triangular").factorize(A, FP64)
        substitute = partial(factors.solve, np.ones((n, 1)))
        triangle.append(least_seconds(substitute, SECONDS, clock)[0] / n**2)
    _, entry, flop = nonnegative_fit(terms, seconds)
    rates = {"band_entry": entry, "band_flop": flop, "triangle_entry": max(triangle)}
    return {name: float(f"{rate:.3g}") for name, rate in rates.items()}


def main() -> None:
    machine = Machine.this()
    one_thread = machine.threads == machine.blas_threads == 1
    clock, counted = (thread_time, "processor") if one_thread else (perf_counter, "wall-clock")
    prices = Prices(
        calibrate(progress=progress_bar("calibrate"), clock=clock).profile(),
        measure_applied(clock),
        measure_cholesky(clock),
        generic_prices().sparse,
        f"python -m roundwise_studies.default_policy.prices ({counted} time) on {machine}",
        structured_rates(clock),
    )
    write_rates("cpu", prices.to_dict())


if __name__ == "__main__":
    main()
