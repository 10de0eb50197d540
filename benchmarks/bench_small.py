"""`roundwise.solve` against `numpy.linalg.solve` on stacks of small systems, and on single ones.

Run on an idle machine: ``python benchmarks/bench_small.py``. Medians of contenders that take turns.
Stacks are told as times as fast; single systems, where calling costs more than solving, as what a
call takes in microseconds, the mean over many.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from timing import median_seconds

import roundwise as rw
from roundwise.machine.identity import Machine
from roundwise_studies.report import Table, format_text

STACKS = ((10_000, 4), (1000, 32), (100, 200))
SINGLE = (1, 2, 5, 10, 20, 50, 100, 200)
TYPES = ("float64", "float32", "complex128", "complex64")
COLUMNS = (1, 10)
CALLS = 500


def repeated(solve: Callable[[Any, Any], Any], A: Any, b: Any) -> Callable[[], None]:
    """Many calls in a row: one alone would be timed with caches that the pause has left cold."""

    def calls() -> None:
        for _ in range(CALLS):
            solve(A, b)

    return calls


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def compared(repeats: int, A: Any, b: Any) -> tuple[str, str, str]:
    """Microseconds of a call of NumPy's, of ours, and the difference."""
    contenders = repeated(np.linalg.solve, A, b), repeated(rw.solve, A, b)
    numpy, ours = (1e6 * seconds / CALLS for seconds in median_seconds(repeats, *contenders))
    return f"{numpy:.1f}", f"{ours:.1f}", f"{ours - numpy:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    rng = np.random.default_rng(0)
    rows = []
    for count, n in STACKS:
        A, b = rng.standard_normal((count, n, n)), rng.standard_normal((count, n, 1))
        numpy, ours = median_seconds(
            repeats, lambda A=A, b=b: np.linalg.solve(A, b), lambda A=A, b=b: rw.solve(A, b)
        )
        times = f"{1e3 * numpy:.2f}", f"{1e3 * ours:.2f}", f"{numpy / ours:.2f}"
        rows.append((f"{count} of {n} x {n}", *times))
    columns = ("stack", "numpy, ms", "ours, ms", "times as fast")
    print(format_text(Table("Stacks", columns, rows)))

    rows = []
    for name, k, n in product(TYPES, COLUMNS, SINGLE):
        A, b = drawn(rng, (n, n), name), drawn(rng, (n,) if k == 1 else (n, k), name)
        rows.append((name, str(k), str(n), *compared(repeats, A, b)))
    for n in SINGLE:  # pivots alone do not tell that it is well-conditioned: it is scaled
        units = 10.0 ** rng.integers(-100, 101, (2, n))
        A = drawn(rng, (n, n), "float64") * units[0][:, None] * units[1]
        rows.append(("badly scaled", "1", str(n), *compared(repeats, A, units[0])))
    columns = ("numbers", "columns", "n", "numpy, us", "ours, us", "difference")
    print(format_text(Table("One system", columns, rows)))
    print(Machine.this())


if __name__ == "__main__":
    main()
