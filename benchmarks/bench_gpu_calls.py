"""Other calls on a GPU than one large real system: stacks, complex systems, least squares.

Each against the best of what CuPy and torch have for it, in turns, all with operands on the device;
times end when the device has done its work. Ours are verified, theirs are not.

    python benchmarks/bench_gpu_calls.py                     # everything
    python benchmarks/bench_gpu_calls.py --only stacks
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import roundwise as rw
from roundwise.solver import places

Call = Callable[[], Any]
Case = tuple[str, dict[str, Call]]

STACKS = (
    ("float64", 10_000, 4, 1),
    ("float64", 10_000, 8, 1),
    ("float64", 10_000, 16, 1),
    ("float64", 10_000, 32, 1),
    ("float64", 4000, 64, 1),
    ("float64", 2000, 128, 1),
    ("float64", 500, 256, 1),
    ("float64", 100, 400, 1),
    ("float64", 10, 512, 1),
    ("float64", 10_000, 8, 8),
    ("float64", 2000, 128, 128),
    ("float32", 10_000, 8, 1),
    ("float32", 10_000, 32, 1),
    ("float32", 2000, 128, 1),
    ("complex128", 10_000, 8, 1),
    ("complex128", 10_000, 32, 1),
    ("complex128", 2000, 128, 1),
    ("float64", 1, 8, 1),
    ("float64", 1, 128, 1),
)
COMPLEX = (("complex128", 1024), ("complex128", 4096), ("complex128", 16384), ("complex64", 8192))
TALL = ((20_000, 2000), (200_000, 200), (4000, 1000), (100_000, 50))


class Peers:
    """What others have, on the same memory."""

    def __init__(self, xp: Any) -> None:
        import torch

        self.xp, self.torch = xp, torch

    def drawn(self, dtype: str, *shape: int) -> Any:
        real = {"complex128": "float64", "complex64": "float32"}.get(dtype, dtype)
        x = self.xp.random.standard_normal(shape, dtype=real)
        if real != dtype:
            x = x + 1j * self.xp.random.standard_normal(shape, dtype=real)
        return x.astype(dtype, copy=False)

    def stacks(self) -> Iterator[Case]:
        for dtype, count, n, columns in STACKS:
            A, B = self.drawn(dtype, count, n, n), self.drawn(dtype, count, n, columns)
            yield f"stack of {count}, n = {n}, k = {columns}, {dtype}", self.solves(A, B)

    def complex(self) -> Iterator[Case]:
        for dtype, n in COMPLEX:
            A, b = self.drawn(dtype, n, n), self.drawn(dtype, n)
            yield f"{dtype}, n = {n}", self.solves(A, b)

    def solves(self, A: Any, B: Any) -> dict[str, Call]:
        a, b = (self.torch.from_dlpack(x) for x in (A, B))
        return {
            "cupy": lambda: self.xp.linalg.solve(A, B),
            "torch": lambda: self.torch.linalg.solve(a, b),
            "ours": lambda: rw.solve(A, B),
        }

    def tall(self) -> Iterator[Case]:
        for rows, columns in TALL:
            A, b = self.drawn("float64", rows, columns), self.drawn("float64", rows, 1)
            yield f"least squares, {rows} x {columns}", self.fits(A, b)

    def fits(self, A: Any, b: Any) -> dict[str, Call]:
        given = [self.torch.from_dlpack(x) for x in (A, b)]
        return {
            "torch": lambda: self.torch.linalg.lstsq(*given, driver="gels"),
            "ours": lambda: rw.lstsq(A, b),
        }


def race(calls: dict[str, Call], xp: Any, seconds: float) -> dict[str, float]:
    """The median of each, in turns, after one untimed call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while len(times["ours"]) < 5 or (time.perf_counter() < end and len(times["ours"]) < 101):
        for name, call in calls.items():
            xp.cuda.runtime.deviceSynchronize()
            start = time.perf_counter()
            call()
            xp.cuda.runtime.deviceSynchronize()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(of) for name, of in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=["stacks", "complex", "tall"], help="one part")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    arguments = parser.parse_args()
    backend: Any = places.backend_of(0)
    peers = Peers(backend.xp)
    for part in ("stacks", "complex", "tall"):
        if arguments.only not in (None, part):
            continue
        for name, calls in getattr(peers, part)():
            found = race(calls, backend.xp, arguments.seconds)
            ours = found.pop("ours")
            said = ", ".join(f"{peer} {1e3 * each:.3f}" for peer, each in found.items())
            ratio = min(found.values()) / ours
            print(f"{name}: {said}, ours {1e3 * ours:.3f} ms: {ratio:.2f} times faster", flush=True)


if __name__ == "__main__":
    main()
