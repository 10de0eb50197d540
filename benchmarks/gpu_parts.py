"""What a solve on a GPU is made of, and calls that once were cliffs: for those who work on it.

    python benchmarks/gpu_parts.py new-sizes     # each once: CuPy and ours
    python benchmarks/gpu_parts.py sizes         # ours against CuPy and torch, n = 500 to 4096
    python benchmarks/gpu_parts.py definite      # told and untold, against cuSOLVER's Cholesky
    python benchmarks/gpu_parts.py columns       # 16 and 256 right-hand sides
    python benchmarks/gpu_parts.py plans         # first run, direct run, graph; recording; memory
    python benchmarks/gpu_parts.py parts         # norms, factors, substitution, ... alone
    python benchmarks/gpu_parts.py python        # where Python spends its time (cProfile)

Both sides are called with A and b on the device, in turns; times end when the device is done.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

import roundwise as rw
from roundwise.backends.arrays import column_norms
from roundwise.backends.cuda import plan
from roundwise.backends.cuda.substitution import DeviceSubstitution

SMALL = (500, 1000, 1024, 1536, 2048, 3000, 4096)


def drawn(n: int, columns: int | None = None, seed: int = 0) -> tuple[Any, Any]:
    rng = cupy.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    return A, rng.standard_normal(n if columns is None else (n, columns))


def once(call: Callable[[], Any]) -> float:
    cupy.cuda.runtime.deviceSynchronize()
    start = time.perf_counter()
    call()
    cupy.cuda.runtime.deviceSynchronize()
    return time.perf_counter() - start


def medians(calls: dict[str, Callable[[], Any]], runs: int = 11) -> dict[str, float]:
    """In turns, in milliseconds; three runs of each before are not counted."""
    for call in calls.values():
        for _ in range(4):
            once(call)
    times = {name: [] for name in calls}  # type: dict[str, list[float]]
    for _ in range(runs):
        for name, call in calls.items():
            times[name].append(once(call))
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def told(label: str, times: dict[str, float], ours: str = "ours") -> None:
    peers = [name for name in times if name in ("CuPy", "torch", "posv", "lu_solve")]
    best = min(times[name] for name in peers)
    text = ", ".join(f"{name} {value:.3f}" for name, value in times.items())
    print(f"{label}: {best / times[ours]:.2f} times the best peer's speed ({text} ms)", flush=True)


def torch_solve(A: Any, b: Any) -> Callable[[], Any] | None:
    try:
        import torch
    except ImportError:
        return None
    A, b = torch.from_dlpack(A), torch.from_dlpack(b)
    return lambda: torch.linalg.solve(A, b)


def with_peers(A: Any, b: Any, **options: Any) -> dict[str, Callable[[], Any]]:
    calls = {"ours": lambda: rw.solve(A, b, **options), "CuPy": lambda: cupy.linalg.solve(A, b)}
    peer = torch_solve(A, b)
    return calls if peer is None else calls | {"torch": peer}


def new_sizes() -> None:
    """Twelve sizes between 1000 and 4000, each once; kernels are compiled before."""
    sizes = [int(n) for n in np.random.default_rng(0).integers(1000, 4000, 24)]
    for n in (800, 3500):
        A, b = drawn(n)
        for solve in (rw.solve, cupy.linalg.solve):
            solve(A, b)
    for part in (sizes[:12], sizes[12:]):
        systems = [drawn(n, seed=n) for n in part]
        theirs = [once(lambda A=A, b=b: cupy.linalg.solve(A, b)) for A, b in systems]
        ours = [[once(lambda A=A, b=b: rw.solve(A, b)) for _ in range(4)] for A, b in systems]
        print(f"12 new sizes: CuPy {1e3 * sum(theirs):.0f} ms", end="")
        print(*(f", ours {1e3 * sum(one[i] for one in ours):.0f}" for i in range(4)), sep="")


def sizes() -> None:
    for n in SMALL:
        A, b = drawn(n)
        told(f"Gaussian {n}", medians(with_peers(A, b)))


def definite() -> None:
    from cupyx.lapack import posv

    for n in (500, 1024, 2048, 4096, 8192, 16384, 32768):
        A, b = drawn(n)
        A = A @ A.T
        A /= n
        A += cupy.eye(n)
        calls = {
            "untold": lambda A=A, b=b: rw.solve(A, b),
            "ours": lambda A=A, b=b: rw.solve(A, b, assume_a="positive definite"),
            "posv": lambda A=A, b=b: posv(A, b),
        }
        for method in ("cholesky:fp64", "cholesky:fp16x2", "lu/diagonal:fp16x2"):
            policy = f"{method}-fp64-fp64-fp64"
            calls[method] = lambda A=A, b=b, policy=policy: rw.solve(A, b, policy=policy)
        told(f"positive definite {n}", medians(calls, 11 if n < 16384 else 3))
        x = rw.solve(A, b, assume_a="positive definite", full_output=True)
        print("   ", [(a.action, a.outer_iterations) for a in x.attempts])
        A = None
        cupy.get_default_memory_pool().free_all_blocks()


def columns() -> None:
    for n in (1000, 4096, 16384):
        for k in (16, 256):
            A, b = drawn(n, k)
            calls = with_peers(A, b)
            told(f"n = {n}, {k} columns", medians(calls, 11 if n < 16384 else 3))
            solution = rw.solve(A, b, full_output=True)
            print("   ", [(a.action, a.outer_iterations) for a in solution.attempts])
            F, lu = rw.factor(A, columns=k), _lu(A)
            F.solve(b)
            again = {"ours": lambda F=F, b=b: F.solve(b), "lu_solve": lambda lu=lu, b=b: lu(b)}
            told(f"   F.solve, n = {n}, {k} columns", medians(again, 5))


def _lu(A: Any) -> Callable[[Any], Any]:
    from cupyx.scipy.linalg import lu_factor, lu_solve

    factors = lu_factor(A)
    return lambda b: lu_solve(factors, b)


def plans() -> None:
    backend = rw.backends.get_backend("cuda")
    for n in (1000, 2048, 4096, 8192):
        A, b = drawn(n)
        plan._PLANS.clear()
        parts = []
        for _ in range(plan.DIRECT_RUNS + 3):
            factors: Any = None
            made = []

            def factorize(A: Any = A, made: list[Any] = made) -> None:
                made.append(backend.analyse(A, "lu/local").factorize(A, "fp64"))

            parts.append(f"{1e3 * once(factorize):.2f}")
            factors = made.pop()
        runs = range(plan.DIRECT_RUNS + 3)
        steps = [f"{1e3 * once(lambda f=factors, b=b: f.solve(b)):.2f}" for _ in runs]
        print(f"n = {n}: LU by runs {' '.join(parts)}; substitution {' '.join(steps)} ms", end="")
        print(f"; {plan.held()}")
    free, _ = cupy.cuda.runtime.memGetInfo()
    before, graphs = plan.held(), []
    A, b = drawn(2048)
    for _ in range(12):  # factors that are kept: each has a place, and graphs, of its own
        for _ in range(plan.DIRECT_RUNS + 2):
            F = backend.analyse(A, "lu/local").factorize(A, "fp64")
        graphs.append(F)
    after, (left, _) = plan.held(), cupy.cuda.runtime.memGetInfo()
    print(f"items {after[2] - before[2]}, bytes of the device {free - left} (factors included)")


def python() -> None:
    for n in (500, 1024, 2048):
        A, b = drawn(n)
        definite_A = A @ A.T / n + cupy.eye(n)
        for M, options in ((A, {}), (definite_A, {"assume_a": "positive definite"})):
            for _ in range(5):
                rw.solve(M, b, **options)
            profile = cProfile.Profile()
            profile.enable()
            for _ in range(50):
                rw.solve(M, b, **options)
            profile.disable()
            print(f"--- n = {n} {options}: 50 solves")
            pstats.Stats(profile).sort_stats("tottime").print_stats(28)


def parts() -> None:
    """Single parts, in microseconds: until the device is done, and of the host in a row."""
    for n in (500, 1024, 2048, 4096):
        for name, call in _parts_of(n).items():
            median = medians({name: call})[name]
            start = time.perf_counter()
            for _ in range(20):
                call()
            host = (time.perf_counter() - start) / 20
            cupy.cuda.runtime.deviceSynchronize()
            print(f"n = {n:5d} {name:14s} {1e3 * median:8.0f} {1e6 * host:8.0f}")


def _parts_of(n: int) -> dict[str, Callable[[], Any]]:
    backend = rw.backends.get_backend("cuda")
    A, b = drawn(n)
    M = A @ A.T / n + cupy.eye(n)
    B, matrix = b[:, None].copy(), backend.matrix(A, "fp64")
    F = backend.analyse(A, "lu/local").factorize(A, "fp64")
    C = backend.analyse(M, "cholesky").factorize(M, "fp64")
    return {
        "sizes": lambda: backend.sizes(A),
        "LU": lambda: backend.analyse(A, "lu/local").factorize(A, "fp64"),
        "LU fp16x2": lambda: backend.analyse(A, "lu/local").factorize(A, "fp16x2"),
        "Cholesky": lambda: backend.analyse(M, "cholesky").factorize(M, "fp64"),
        "by panels": lambda: backend.analyse(M, "cholesky").factorize(M, "fp16x2"),
        "potrf": lambda: cupy.linalg.cholesky(M),
        "substitution": lambda: F.solve(b),
        "of Cholesky": lambda: C.solve(b),
        "plan alone": lambda: DeviceSubstitution(F._packed.triangles, np.float64, False)(b),
        "residual": lambda: backend.residual(matrix, B, B),
        "norm": lambda: column_norms(B),
        "copy": lambda: A.copy(),
    }


COMMANDS = {
    "new-sizes": new_sizes, "sizes": sizes, "definite": definite, "columns": columns,
    "plans": plans, "python": python, "parts": parts,
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or list(COMMANDS):
        print(f"== {name}", flush=True)
        COMMANDS[name]()
