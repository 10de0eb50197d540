"""How the gain of native low precision grows with the system: dense and sparse, time and memory.

Run with ``make scaling`` on an idle machine (minutes), or with ``--quick`` for a taste. All methods
are run one after the other on the same systems, to FP64-level backward error, and the medians of
their times are compared. A method that misses that level has no ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import roundwise as rw
from roundwise.algorithms import Algorithm, DeploymentRule, GmresIR, LuIR, Shared
from roundwise.backends import NativeBackend, native_formats
from roundwise.formats import get_format
from roundwise.machine.identity import Machine
from roundwise.outcomes.workers import peak_bytes
from roundwise.problems import LinearSystem, convection_diffusion_2d, laplace_3d, poisson_2d
from roundwise_studies.native.direct import REST, DirectSolve, has_dsgesv
from roundwise_studies.report import (
    Figure,
    Table,
    format_markdown,
    format_text,
    write_csv,
    write_figure,
)
from roundwise_studies.report.timing import ratios_against_size

Array = NDArray[np.float64]
Systems = Iterator[tuple[str, LinearSystem]]
Curves = dict[str, dict[str, tuple[list[int], list[float]]]]
STOP = DeploymentRule(max_steps=30)
LU_IR = LuIR(stop=STOP)
GMRES_IR = GmresIR(tolerance=1e-4, restart=30, stop=STOP)
REPEATS = 3
LONG = 10.0  # seconds: what takes longer is timed once
SLOW_3D = 30_000  # unknowns: beyond, SuperLU without its symmetric mode takes minutes

DENSE_REFERENCE = "numpy.linalg.solve"
SPARSE_REFERENCE = "splu, same ordering"
HEADER = (
    "family", "n", "method", "ms", "times faster", "met", "steps", "peak MB", "factor MB", "nbe",
)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """An algorithm with an action, under the name that the tables have for it."""

    name: str
    algorithm: Algorithm
    action: str
    slow_3d: bool = False


@dataclass(frozen=True)
class Measured:
    """What a method took on a system; NaN where it is not known."""

    family: str
    n: int
    method: str
    seconds: float
    nbe: float
    steps: int
    peak: float
    factors: float

    @property
    def met(self) -> bool:
        return self.nbe <= STOP.target(self.n)


def dense_methods() -> Iterator[Method]:
    yield Method(DENSE_REFERENCE, DirectSolve(DENSE_REFERENCE), "fp64")
    yield Method("dgesv", DirectSolve("dgesv"), "fp64")
    if has_dsgesv():
        yield Method("dsgesv", DirectSolve("dsgesv"), "fp64")
    yield Method("LU-IR fp64", LU_IR, "fp64-fp64-fp64")
    for fmt in ("fp32", "bf16"):
        if get_format(fmt) in native_formats():
            yield Method(f"LU-IR {fmt}", LU_IR, f"{fmt}-fp64-fp64")
            yield Method(f"GMRES-IR {fmt}", GMRES_IR, f"{fmt}-fp64-fp64-fp64")


def sparse_methods() -> Iterator[Method]:
    yield Method(SPARSE_REFERENCE, DirectSolve(SPARSE_REFERENCE), "fp64")
    yield Method("LU-IR fp32", LU_IR, "fp32-fp64-fp64")
    for name in ("splu", "spsolve, same ordering", "spsolve"):
        yield Method(name, DirectSolve(name), "fp64", slow_3d=True)


def dense_systems(sizes: tuple[int, ...]) -> Systems:
    """Matrices that are cheap to make: Gaussian, nearly singular, and with a heavy diagonal."""
    for n in sizes:
        rng = np.random.default_rng(n)
        A = rng.standard_normal((n, n))
        x = rng.standard_normal(n)
        yield "Gaussian", LinearSystem.from_solution(A, x)
        yield "kappa = 1e7", LinearSystem.from_solution(nearly_singular(A, 1e7, rng), x)
        A /= np.sqrt(n)
        A[np.diag_indices(n)] += 4.0
        yield "heavy diagonal", LinearSystem.from_solution(A, x)


def nearly_singular(A: Array, kappa: float, rng: np.random.Generator) -> Array:
    """A Gaussian matrix, one direction of which is shrunk until the condition number is kappa."""
    n = len(A)
    w = rng.standard_normal(n)
    w /= np.linalg.norm(w)
    # ||A|| is about 2 sqrt(n), and ||w' A^-1|| is divided by how much w is shrunk.
    shrunk = 2 * np.sqrt(n) * np.linalg.norm(np.linalg.solve(A.T, w)) / kappa
    return np.asarray(A - (1 - shrunk) * np.outer(A @ w, w))


def poisson_3d(m: int) -> LinearSystem:
    return LinearSystem.from_solution(laplace_3d(m), np.random.default_rng(m).standard_normal(m**3))


def sparse_systems(planes: tuple[int, ...], cubes: tuple[int, ...]) -> Systems:
    for m in planes:
        yield "Poisson 2-D", poisson_2d(m)
        yield "convection-diffusion 2-D", convection_diffusion_2d(m, 0.01, (5.0, -3.0))
    for m in cubes:
        yield "Poisson 3-D", poisson_3d(m)


def measure(family: str, problem: LinearSystem, method: Method) -> Measured:
    """Run once for the memory, which also warms up, then a few times for the time."""
    backend, kept = NativeBackend(), []

    def run(shared: Shared) -> None:
        kept.append((method.algorithm.run(problem, method.action, backend, shared), shared))

    time.sleep(REST)  # the threads of another BLAS may still be spinning
    started = time.perf_counter()
    peak = peak_bytes(run)
    if peak is None:
        run(Shared())
    elapsed = time.perf_counter() - started
    outcome, shared = kept.pop()
    factors = factor_bytes(shared, method)
    del shared
    times = [
        method.algorithm.run(problem, method.action, backend).seconds or 0.0
        for _ in range(REPEATS if elapsed < LONG else 1)
    ]
    return Measured(
        family,
        problem.n,
        method.name,
        statistics.median(times),
        outcome.nbe,
        outcome.outer_iterations,
        float("nan") if peak is None else float(peak),
        factors,
    )


def factor_bytes(shared: Shared, method: Method) -> float:
    """The numbers of the factors, without SuperLU's indices; NaN if the method keeps none."""
    fmt = get_format(method.action.split("-")[0])
    factors = shared.get(("factors", "lu", fmt), lambda: None)
    return float("nan") if factors is None else float(factors.entries * fmt.storage_bytes)


def study(systems: Systems, methods: list[Method]) -> list[Measured]:
    found = []
    for family, problem in systems:
        for method in methods:
            if method.slow_3d and family.endswith("3-D") and problem.n > SLOW_3D:
                continue
            found.append(measure(family, problem, method))
            line = f"{family}, n = {problem.n}: {method.name} {1e3 * found[-1].seconds:.1f} ms"
            print(line, flush=True)
    return found


def ratio(measured: Measured, everything: list[Measured], reference: str) -> float:
    """How many times faster than the reference on the same system; NaN if it missed its target."""
    same = (measured.family, measured.n, reference)
    base = next(m for m in everything if (m.family, m.n, m.method) == same)
    return base.seconds / measured.seconds if measured.met else float("nan")


def table(caption: str, found: list[Measured], reference: str) -> Table:
    rows = [
        [
            m.family,
            m.n,
            m.method,
            1e3 * m.seconds,
            ratio(m, found, reference),
            "yes" if m.met else "no",
            m.steps,
            m.peak / 1e6,
            m.factors / 1e6,
            m.nbe,
        ]
        for m in sorted(found, key=lambda m: (m.family, m.n))
    ]
    places = {"ms": ".1f", "times faster": ".2f", "peak MB": ".1f", "factor MB": ".1f"}
    return Table(
        f"{caption}: times faster than {reference}",
        HEADER,
        rows,
        note="met: backward error <= sqrt(n) u. Peak: memory beyond the problem's own, as the "
        "system counts it. Factors: their numbers alone, where the method keeps them.",
        formats=places,
    )


def curves(found: list[Measured], reference: str) -> Curves:
    cases: Curves = {}
    for m in sorted(found, key=lambda m: m.n):
        if m.method != reference:
            sizes, ratios = cases.setdefault(m.family, {}).setdefault(m.method, ([], []))
            sizes.append(m.n)
            ratios.append(ratio(m, found, reference))
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description="Native low precision against the size.")
    parser.add_argument("--quick", action="store_true", help="small systems, under a minute")
    parser.add_argument("--out", type=Path, default=Path("out/scaling"), help="folder of the files")
    arguments = parser.parse_args()
    sizes = (200, 400) if arguments.quick else (500, 1000, 2000, 4000, 8000)
    planes = (30, 60) if arguments.quick else (100, 200, 450)
    cubes = (8, 12) if arguments.quick else (20, 30, 40)

    print(f"roundwise {rw.__version__} on {Machine.this()}", flush=True)
    dense = study(dense_systems(sizes), list(dense_methods()))
    large = study(sparse_systems(planes, cubes), list(sparse_methods()))
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        "dense": table("Dense systems", dense, DENSE_REFERENCE),
        "sparse": table("Sparse systems", large, SPARSE_REFERENCE),
    }
    for name, made in tables.items():
        print(f"\n{format_text(made)}")
        write_csv(made, out / f"scaling-{name}.csv")
        (out / f"scaling-{name}.md").write_text(format_markdown(made) + "\n", encoding="utf-8")
    drawn = ratios_against_size(
        curves(dense, DENSE_REFERENCE) | curves(large, SPARSE_REFERENCE), "FP64"
    )
    caption = (
        f"Times faster than FP64, by size: dense systems against {DENSE_REFERENCE}, sparse ones "
        f"against {SPARSE_REFERENCE}."
    )
    print(f"\n{write_figure(Figure(caption, 'scaling', drawn), out, 'png', dpi=100)}: {caption}")


if __name__ == "__main__":
    main()
