"""`roundwise.solve` on a GPU against `cupy.linalg.solve` in FP64.

Run on a GPU that nobody else uses: ``make gpu-docs``, minutes on an H200. Both are called as users
call them, with A and b on the device, in turns; times end when the device has done its work. Ours
has all costs: looking, choosing, what is tried in vain, and the gate. Writes out/gpu.md, which
`docs/refresh.py gpu` puts into docs/gpu.md.

    python benchmarks/bench_gpu.py                       # everything
    python benchmarks/bench_gpu.py --sizes 4096 --only solve
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from timing import medians, timed

import roundwise as rw
from roundwise.algorithms import VerifiedSolve
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.backends import ArithmeticFailure
from roundwise.backends.arrays import column_norms, on_host
from roundwise.features.probe import device_row_features
from roundwise.formats import FP64
from roundwise.methods import METHODS
from roundwise.problems.generators import singular_values
from roundwise.solver import places
from roundwise_studies.native.drawn import with_singular_values
from roundwise_studies.native.gpu_systems import DeviceErrors, DeviceSystem, Recipe
from roundwise_studies.report import Table, format_markdown, format_text

OUT = Path("out")
SIZES = (4096, 8192, 16384, 32768)
LU_SIZES = (2048, 4096, 8192)
PROFILED = (4096, 16384)
LARGE = 16384
"""From this n on there are fewer systems and runs."""

Cell = str | int | float | None


@dataclass(frozen=True)
class Case:
    """A kind of system, and how many times faster `solve` is to be at each size."""

    name: str
    family: str
    kappa: float = float("nan")
    wanted: tuple[float, ...] = ()  # for `SIZES`; where there are fewer, the last one counts on
    definite: bool = False

    def drawn(self, n: int, seed: int, backend: Any) -> DeviceSystem:
        if not self.definite:
            return Recipe(self.family, n, self.kappa, (n, seed)).drawn(backend)
        rng = np.random.default_rng((n, seed))
        s = singular_values(n, self.kappa, 3, rng=rng)
        A = with_singular_values(s, rng=rng, xp=backend.xp, symmetric=True)
        x_true = rng.standard_normal(n)
        return DeviceSystem(A, A @ backend.array(x_true), x_true, "", backend)

    def target(self, n: int) -> float | None:
        """What was asked for at the largest of `SIZES` that is not above n."""
        reached = [i for i, size in enumerate(SIZES) if size <= n]
        if not self.wanted or not reached:
            return None
        return self.wanted[min(reached[-1], len(self.wanted) - 1)]


LOW, ENOUGH, HARD = (1.3, 2.0, 2.5, 3.0), (2.0, 2.5, 3.5, 5.0), (0.8,)
CASES = (
    Case("Gaussian", "gaussian", wanted=LOW),
    Case("geometric, kappa 1e3", "mode 3", 1e3, LOW),
    Case("geometric, kappa 1e6", "mode 3", 1e6, LOW),
    Case("heavy diagonal", "heavy diagonal", wanted=ENOUGH),
    Case("geometric, kappa 1e2", "mode 3", 1e2, ENOUGH),
    Case("geometric, kappa 1e9", "mode 3", 1e9, HARD),
    Case("positive definite, kappa 1e3", "mode 3", 1e3, definite=True),
)


def said(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def seconds(backend: Any, runs: int, *calls: Callable[[], Any]) -> list[float]:
    """Medians of each call until the device is done; each runs once before, untimed."""

    def until_done(call: Callable[[], Any]) -> float:
        backend.device.synchronize()
        return timed(lambda: (call(), backend.device.synchronize()))

    named = {i: partial(until_done, call) for i, call in enumerate(calls)}
    return list(medians(runs, named, pause=0.0).values())


def solve_row(case: Case, n: int, systems: int, runs: int, backend: Any) -> dict[str, Cell]:
    """The medians over systems of the medians over runs."""
    ours, theirs, tried, worst = [], [], [], 0.0
    for seed in range(systems):
        system = case.drawn(n, seed, backend)
        A, b, xp = system.A, system.b, backend.xp
        peer, own = seconds(
            backend, runs, lambda: xp.linalg.solve(A, b), lambda: rw.solve(A, b)  # noqa: B023
        )  # fmt: skip
        theirs.append(peer)
        ours.append(own)
        solution = rw.solve(A, b, full_output=True)
        tried.append(" > ".join(short(outcome.action) for outcome in solution.attempts))
        error = DeviceErrors(system).backward(on_host(solution.x)) / default_tolerance(n)
        worst = max(worst, error)
        system = A = b = solution = None
        backend.xp.get_default_memory_pool().free_all_blocks()
    ratios = [t / o for t, o in zip(theirs, ours, strict=True)]
    wanted, ratio = case.target(n), statistics.median(ratios)
    return {
        "systems of": case.name,
        "n": n,
        "cupy.linalg.solve, ms": 1e3 * statistics.median(theirs),
        "roundwise.solve, ms": 1e3 * statistics.median(ours),
        "times faster": ratio,
        "worst": min(ratios),
        "wanted": wanted,
        "reached": "" if wanted is None else "yes" if ratio >= wanted else "no",
        "backward error / gate": worst,
        "tried": ", ".join(dict.fromkeys(tried)),
    }


def short(action: str) -> str:
    """Method and format of the factors; all else is FP64 here."""
    return action.partition("-")[0]


def lu_rows(n: int, runs: int, backend: Any) -> list[dict[str, Cell]]:
    """Every LU alone on a Gaussian matrix, against cuSOLVER's in FP64."""
    A = Recipe("gaussian", n, float("nan"), (n, 99)).drawn(backend).A
    by_columns = backend.xp.asfortranarray(A)  # so that cuSOLVER need not transpose
    calls: dict[str, Callable[[], Any]] = {
        "cuSOLVER fp64": lambda: backend.device.lu_factor(by_columns)
    }
    for method in METHODS.values():
        for fmt in method.formats if method.name.partition("/")[0] == "lu" else ():
            if not method.sparse and backend.runs(method.name, fmt):

                def call(name: str = method.name, fmt: Any = fmt) -> Any:
                    return backend.analyse(A, name).factorize(A, fmt)

                calls[f"{method.name} {fmt}"] = call
    found = {}
    for name, call in calls.items():
        try:
            (found[name],) = seconds(backend, runs, call)
        except ArithmeticFailure as failure:
            said(f"{name}, n = {n}: {failure}")
    base = found["cuSOLVER fp64"]
    return [
        {
            "LU": name,
            "n": n,
            "ms": 1e3 * taken,
            "Tflop/s": 2 / 3 * n**3 / taken / 1e12,
            "times faster": base / taken,
        }
        for name, taken in found.items()
    ]


def profile_rows(n: int, runs: int, backend: Any) -> list[dict[str, Cell]]:
    """Where the time of `solve` goes on a Gaussian system: each part alone, times its count."""
    system = CASES[0].drawn(n, 0, backend)
    A, b, B = system.A, system.b, system.b[:, None]
    solution = rw.solve(A, b, full_output=True)
    last = solution.attempts[-1]
    action = VerifiedSolve().formats(last.action)
    factors = backend.analyse(A, action.method).factorize(A, action[0])
    matrix = backend.matrix(A, FP64)
    X = factors.solve(B)
    steps, inner = last.outer_iterations, last.inner_iterations
    parts: dict[str, tuple[int, Callable[[], Any]]] = {
        "norms of A": (1, lambda: backend.sizes(A)),
        "look": (1, lambda: device_row_features(A)),
        "factors": (1, lambda: backend.analyse(A, action.method).factorize(A, action[0])),
        "substitution": (1 + steps + inner, lambda: factors.solve(B)),
        "residual": (1 + steps, lambda: backend.residual(matrix, X, B)),
        "product of GMRES": (inner, lambda: matrix.matvec(b)),
        "norm, read back": (3 + 2 * steps + inner, lambda: column_norms(X)),
    }
    (total,) = seconds(backend, runs, lambda: rw.solve(A, b))
    rows: list[dict[str, Cell]] = []
    left = total
    for name, (count, call) in parts.items():
        (each,) = seconds(backend, runs, call)
        left -= count * each
        rows.append(
            {"n": n, "part": name, "ms": 1e3 * each, "count": count, "share": count * each / total}
        )
    label = f"rest, and failed attempts: {len(solution.attempts) - 1}"
    rows.append({"n": n, "part": label, "ms": 1e3 * left, "count": 1, "share": left / total})
    label = f"solve by {short(last.action)}, {steps} steps, {inner} GMRES iterations"
    rows.append({"n": n, "part": label, "ms": 1e3 * total, "count": 1, "share": 1.0})
    return rows


FORMATS = {
    "cupy.linalg.solve, ms": ".2f", "roundwise.solve, ms": ".2f", "times faster": ".2f",
    "worst": ".2f", "backward error / gate": ".2f", "ms": ".3f", "Tflop/s": ".1f", "share": ".0%",
}  # fmt: skip


def table_of(rows: Sequence[dict[str, Cell]], caption: str) -> Table:
    head = list(rows[0])
    formats = {name: text for name, text in FORMATS.items() if name in head}
    return Table(caption, head, [list(row.values()) for row in rows], formats=formats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--lu-sizes", type=int, nargs="+", default=list(LU_SIZES))
    parser.add_argument("--profiled", type=int, nargs="+", default=list(PROFILED))
    parser.add_argument("--systems", type=int, default=3, help="of each case below n = 16384")
    parser.add_argument("--runs", type=int, default=7, help="of each system below n = 16384")
    parser.add_argument("--only", choices=["solve", "lu", "profile"], help="one part")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    backend: Any = places.backend_of(0)
    tables, started = [], time.perf_counter()

    def wanted(part: str) -> bool:
        return arguments.only in (None, part)

    if wanted("solve"):
        rows = []
        for n in arguments.sizes:
            large, huge = n >= LARGE, n > LARGE
            systems = min(arguments.systems, 1 if huge else 2) if large else arguments.systems
            runs = min(arguments.runs, 3) if large else arguments.runs
            for case in CASES:
                if huge and case.definite:
                    continue  # drawing a symmetric one takes too much memory
                rows.append(solve_row(case, n, systems, runs, backend))
                passed = time.perf_counter() - started
                said(f"{passed:4.0f} s  {case.name}, n = {n}: {rows[-1]['times faster']:.2f} times")
        caption = "Times to an answer: medians over systems of medians over runs"
        tables.append(table_of(rows, caption))
    if wanted("lu"):
        rows = [row for n in arguments.lu_sizes for row in lu_rows(n, arguments.runs, backend)]
        tables.append(table_of(rows, "LU alone, on a Gaussian matrix; against cuSOLVER's in FP64"))
    if wanted("profile"):
        rows = [row for n in arguments.profiled for row in profile_rows(n, 5, backend)]
        tables.append(table_of(rows, "Where the time of a solve goes, on a Gaussian system"))
    for table in tables:
        print(format_text(table), end="\n\n")
    machine = backend.machine
    said(f"{time.perf_counter() - started:.0f} s in all")
    note = f"Measured by `benchmarks/bench_gpu.py` on {machine.gpu} ({machine.versions})."
    arguments.out.mkdir(exist_ok=True, parents=True)
    page = "\n\n".join([*(format_markdown(table).strip() for table in tables), note]) + "\n"
    (arguments.out / "gpu.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
