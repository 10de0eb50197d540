"""Sparse systems on a GPU: `device="cuda"` beside cuDSS alone and our own engines.

``--prices`` fits the rates of cuDSS's methods in ``machine/rates.json`` instead, to the times that
`costs/sparse_calibration.py` takes on systems that are worth a GPU.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np
from timing import median_seconds

import roundwise as rw
from roundwise.backends import ENGINES, NativeBackend
from roundwise.costs.calibration import least_seconds
from roundwise.costs.sparse_calibration import fitted_prices, timed_methods
from roundwise.machine.rates import shipped_rates, write_rates
from roundwise.methods import METHODS
from roundwise.problems.pde import convection_diffusion_3d, laplace_3d, poisson_2d

SYSTEMS = {
    "2-D Laplacian 100^2": lambda: poisson_2d(100).A,
    "2-D Laplacian 300^2": lambda: poisson_2d(300).A,
    "2-D Laplacian 700^2": lambda: poisson_2d(700).A,
    "3-D Laplacian 15^3": lambda: laplace_3d(15),
    "3-D Laplacian 30^3": lambda: laplace_3d(30),
    "3-D Laplacian 50^3": lambda: laplace_3d(50),
    "3-D convection 15^3": lambda: convection_diffusion_3d(15, 10.0),
    "3-D convection 30^3": lambda: convection_diffusion_3d(30, 10.0),
    "3-D convection 40^3": lambda: convection_diffusion_3d(40, 10.0),
}
LARGE = {
    "3-D Laplacian 64^3": lambda: laplace_3d(64),
    "3-D Laplacian 100^3": lambda: laplace_3d(100),
}
RUNS = 3


def alone(A: Any, b: Any, engine: str) -> dict[str, float]:
    """The seconds of cuDSS's phases in FP64, copies to and from the GPU included, unverified."""
    start = time.perf_counter()
    symbolic = ENGINES[engine].analyse(A, "nd")
    factors = [symbolic.factorize(A.data, rw.FP64)]
    first = time.perf_counter() - start
    (solve,) = median_seconds(RUNS, lambda: factors[0].solve(b), pause=0.0)
    factors.clear()
    (again,) = median_seconds(RUNS, lambda: symbolic.factorize(A.data, rw.FP64), pause=0.0)
    return {"analyse and factorize": first, "factorize again": again, "solve": solve}


def ours(A: Any, b: Any, device: str | None) -> tuple[float, str]:
    start = time.perf_counter()
    solution = rw.solve(A, b, device=device, full_output=True)
    return time.perf_counter() - start, solution.action


def table(names: list[str]) -> None:
    print("seconds: verified by device='cuda', the same again after refactor; cuDSS alone; here")
    for name in names:
        A = (SYSTEMS | LARGE)[name]()
        b = np.random.default_rng(0).standard_normal(A.shape[0])
        engine = "cudss" if "convection" in name else "cudss-cholesky"
        ours(A, b, "cuda")  # kernels are compiled, memory is there
        on_gpu, action = ours(A, b, "cuda")
        F = rw.factor(A, device="cuda")
        F.solve(b)
        columns = np.random.default_rng(1).standard_normal((A.shape[0], 32))
        again, many = median_seconds(
            RUNS,
            lambda F=F, A=A, b=b: F.refactor(A).solve(b),
            lambda F=F, columns=columns: F.solve(columns),
            pause=0.0,
        )
        peer = alone(A, b, engine)
        here, chosen = ours(A, b, None) if name not in LARGE else (float("nan"), "-")
        told = ", ".join(f"{what} {seconds:.4g}" for what, seconds in peer.items())
        print(f"{name}: {on_gpu:.4g} ({action}), again {again:.4g}, 32 columns {many:.4g}")
        print(f"    cuDSS alone: {told}; on the processor {here:.4g} ({chosen})", flush=True)


def prices() -> None:
    backend = NativeBackend(sparse_on="cuda")
    timer = partial(least_seconds, budget=0.5)
    known = {name: method for name, method in METHODS.items() if name.startswith("cudss")}
    measured = {}
    for name, make in SYSTEMS.items():
        measured[name] = timed_methods(make(), backend, timer, known)
        print(name, measured[name].methods, flush=True)
    cpu = shipped_rates("cpu")
    for method, formats in fitted_prices(measured, known.__contains__).items():
        for fmt, (factor, solve) in formats.items():
            cpu["sparse"]["factor"].setdefault(method, {})[fmt] = factor
            cpu["sparse"]["solve"].setdefault(method, {})[fmt] = solve
    print(write_rates("cpu", cpu))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("systems", nargs="*", help=f"of {', '.join([*SYSTEMS, *LARGE])}")
    parser.add_argument("--prices", action="store_true", help="fit the rates that ship")
    options = parser.parse_args()
    if options.prices:
        prices()
    else:
        table(options.systems or [*SYSTEMS, *LARGE])


if __name__ == "__main__":
    main()
