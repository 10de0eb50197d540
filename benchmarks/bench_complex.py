"""`roundwise.solve` against `numpy.linalg.solve` on dense complex systems, all included.

Run on an idle machine, on all its cores: ``python benchmarks/bench_complex.py [--sizes 1000 2000]
[--repeats 3]``. On a busy one, add ``--processor-time``, and set OPENBLAS_NUM_THREADS=1.
Contenders alternate; the median of several counts. Prints a table by n and
kind: how many times as fast, with the first action of ours. ``--lu`` compares LU in complex64 and
complex128 instead, ours with LAPACK's, both from the complex128 matrix on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg import lapack
from timing import Clock, add_clock, median_seconds

import roundwise as rw
from roundwise import _kernels
from roundwise.machine.lu_threads import lu_threads
from roundwise.machine.threads import factorization_threads
from roundwise_studies.report import Table, format_text


def reflected(A: Any, rng: np.random.Generator) -> Any:
    """A times a random unitary matrix of a few Householder reflections."""
    for _ in range(3):
        v = rng.standard_normal(len(A)) + 1j * rng.standard_normal(len(A))
        v /= np.linalg.norm(v)
        A = A - 2 * np.outer(A @ v, v.conj())
    return A


def systems(n: int, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Names and matrices: condition numbers 10 to 1e5 by singular values, Gaussian, Hermitian."""
    G = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    yield "Gaussian", G
    yield "heavy diagonal", G / np.sqrt(n) + 3 * np.eye(n)
    Q, tau, _, _ = lapack.zgeqrf(G)
    Q, _, _ = lapack.zungqr(Q, tau)
    for kappa in (1e1, 1e3, 1e5):
        s = np.logspace(0, -np.log10(kappa), n)
        yield f"geometric, kappa {kappa:.0e}", reflected(np.ascontiguousarray(Q * s), rng)
    one_small = np.ones(n)
    one_small[-1] = 1e-5
    yield "one small, kappa 1e+05", reflected(np.ascontiguousarray(Q * one_small), rng)
    H = (Q * np.logspace(0, -3, n)) @ Q.conj().T
    yield "Hermitian definite, kappa 1e+03", np.ascontiguousarray((H + H.conj().T) / 2)


def compare_lu(sizes: list[int], repeats: int, clock: Clock) -> None:
    rng = np.random.default_rng(18)
    rows, columns = [], ("n", "type", "LAPACK, ms", "ours, ms", "ours, Gflop/s", "times as fast")
    for n, getrf in product(sizes, (lapack.cgetrf, lapack.zgetrf)):
        A = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))

        def lapacks(A: Any = A, getrf: Any = getrf) -> None:
            getrf(A.T.astype(getrf.dtype, order="K"), overwrite_a=True)

        def ours(A: Any = A, getrf: Any = getrf) -> None:
            n, real = len(A), np.zeros(0, getrf.dtype).real.dtype
            packed, swaps = np.empty((2 * n, n), real, order="F"), np.empty(n, np.int32)
            threads = lu_threads(n, packed.itemsize, factorization_threads())
            assert _kernels.native_complex_lu(A.T, packed, swaps, threads) == 0

        theirs, own = median_seconds(repeats, lapacks, ours, clock=clock)
        rate = 8 / 3 * n**3 / own / 1e9
        times = f"{1e3 * theirs:.2f}", f"{1e3 * own:.2f}", f"{rate:.0f}", f"{theirs / own:.2f}"
        rows.append((str(n), getrf.dtype.name, *times))
    print(format_text(Table("LU", columns, rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--repeats", type=int, default=3)
    add_clock(parser)
    parser.add_argument("--lu", action="store_true")
    options = parser.parse_args()
    if options.lu:
        compare_lu(options.sizes, options.repeats, options.clock)
        return
    rng = np.random.default_rng(18)
    rows, columns = [], ("n", "system", "numpy, ms", "ours, ms", "times as fast", "action")
    for n in options.sizes:
        for name, A in systems(n, rng):
            b = A @ (rng.standard_normal(n) + 1j * rng.standard_normal(n))
            numpy, ours = median_seconds(
                options.repeats,
                lambda A=A, b=b: np.linalg.solve(A, b),
                lambda A=A, b=b: rw.solve(A, b),
                clock=options.clock,
            )
            action = rw.factor(A).action
            times = f"{1e3 * numpy:.0f}", f"{1e3 * ours:.0f}", f"{numpy / ours:.2f}"
            rows.append((str(n), name, *times, str(action)))
            print("  ".join(rows[-1]), flush=True)
    print(format_text(Table("Complex systems", columns, rows)))


if __name__ == "__main__":
    main()
