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
from roundwise.costs.calibration import Clock, median_seconds, structured_rates
from roundwise.costs.prices import Prices, generic_prices
from roundwise.formats import FP64
from roundwise.machine.identity import Machine
from roundwise.machine.rates import write_rates
from roundwise.outcomes import progress_bar

SECONDS = 0.2
FORMATS = ("fp32", "fp64")


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
        structured_rates(SECONDS, clock),
    )
    write_rates("cpu", prices.to_dict())


if __name__ == "__main__":
    main()
