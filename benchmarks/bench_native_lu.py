"""Our LU against LAPACK's, real or complex.

Ours and the peers use the same number of threads (``rw.get_num_threads()``). All medians come
from one run, contenders in turn. BLAS libraries leave their threads spinning for a while after a
call, beside which ours would be measured on a busy machine: every contender therefore starts after
a pause. Run with ``make bench`` on an idle machine; ``--large`` adds n = 8000. Writes out/lu.csv,
which ``make native-docs`` puts into docs/native.md.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import scipy
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits
from timing import medians, timed

import roundwise as rw
from roundwise import _kernels
from roundwise.machine.lu_threads import lu_threads
from roundwise_studies.report import Table, format_text, write_csv

OUT = Path("out")
LEVEL = _kernels.native_bf16_levels()[0]
HEADER = (
    "n", "dgetrf/ms", "sgetrf/ms", "fp64/ms", "fp32/ms", "bf16/ms", "dgetrf/fp64", "sgetrf/fp32",
    "dgetrf/bf16", "sgetrf/bf16", "dpotrf/fp64", "spotrf/fp32", "fp64 GF/s", "fp32 GF/s",
    "bf16 GF/s", "of gemm",
)  # fmt: skip


def factorization(A: np.ndarray, call: Callable[[np.ndarray], object]) -> Callable[[], float]:
    """Times call on a fresh copy of A, without the copy; a first call wakes the threads."""
    work = A.copy(order="F")

    def run() -> float:
        work[...] = A
        call(work)
        work[...] = A
        return timed(lambda: call(work))

    return run


def own_lu(n: int, threads: int) -> Callable[[np.ndarray], object]:
    pivots = np.zeros(n, np.int32)
    return lambda a: _kernels.native_lu(a, pivots, lu_threads(n, a.itemsize, threads))


def compare_factorizations(sizes: list[int], threads: int) -> Table:
    """Ours in three formats against LAPACK's in two."""
    rng = np.random.default_rng(0)
    rows = []
    for n in sizes:
        A64 = np.asfortranarray(rng.standard_normal((n, n)))
        A32, pivots = A64.astype(np.float32), np.zeros(n, np.int32)
        S64 = np.full((n, n), 1 / n, order="F") + np.eye(n)
        S32 = S64.astype(np.float32)
        B = np.asfortranarray(rng.standard_normal((256, n)), np.float32)
        C, L = np.zeros((n, n), np.float32, order="F"), np.asfortranarray(B.T)

        ours = own_lu(n, threads)

        def bf16(a: np.ndarray, pivots: np.ndarray = pivots) -> None:
            taken = lu_threads(len(a), a.itemsize, threads)
            _kernels.native_bf16_lu(a, pivots, LEVEL, taken)

        def gemm(C: np.ndarray = C, L: np.ndarray = L, B: np.ndarray = B) -> None:
            _kernels.native_bf16_gemm(C, L, B, LEVEL, threads)

        seconds = medians(
            5 if n >= 4000 else 11,
            {
                "dgetrf": factorization(A64, lambda a: lapack.dgetrf(a, overwrite_a=True)),
                "sgetrf": factorization(A32, lambda a: lapack.sgetrf(a, overwrite_a=True)),
                "dpotrf": factorization(S64, lambda a: lapack.dpotrf(a, overwrite_a=True)),
                "spotrf": factorization(S32, lambda a: lapack.spotrf(a, overwrite_a=True)),
                "fp64": factorization(A64, ours),
                "fp32": factorization(A32, ours),
                "bf16": factorization(A32, bf16),
                "gemm": partial(timed, gemm, calls=3),
            },
        )
        rates = {fmt: 2 / 3 * n**3 / seconds[fmt] / 1e9 for fmt in ("fp64", "fp32", "bf16")}
        rows.append(
            [
                n,
                *(1e3 * seconds[name] for name in ("dgetrf", "sgetrf", "fp64", "fp32", "bf16")),
                seconds["dgetrf"] / seconds["fp64"],
                seconds["sgetrf"] / seconds["fp32"],
                seconds["dgetrf"] / seconds["bf16"],
                seconds["sgetrf"] / seconds["bf16"],
                seconds["dpotrf"] / seconds["fp64"],
                seconds["spotrf"] / seconds["fp32"],
                *rates.values(),
                f"{rates['bf16'] * seconds['gemm'] / (2 * n * n * 256 / 1e9):.0%}",
            ]
        )
    return Table(
        f"LU with partial pivoting, BF16 level {LEVEL}",
        HEADER,
        rows,
        note="Of gemm: the rate of the BF16 LU over that of our BF16 product.",
        formats=dict.fromkeys(HEADER[1:12], ".2f") | dict.fromkeys(HEADER[12:15], ".0f"),
    )


def compare_complex(sizes: list[int], threads: int) -> Table:
    """LU in complex64 and complex128, both from the complex128 matrix on."""
    rng, rows = np.random.default_rng(18), []
    types = (lapack.cgetrf, np.complex64), (lapack.zgetrf, np.complex128)
    for n, (getrf, dtype) in product(sizes, types):
        A = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
        packed = np.empty((2 * n, n), dtype(0).real.dtype, order="F")
        swaps = np.empty(n, np.int32)
        taken = lu_threads(n, packed.itemsize, threads)
        calls = {
            "LAPACK": lambda A=A, f=getrf, t=dtype: f(A.T.astype(t, order="K"), overwrite_a=True),
            "ours": partial(_kernels.native_complex_lu, A.T, packed, swaps, taken),
        }
        theirs, own = medians(5, {who: partial(timed, calls[who]) for who in calls}).values()
        rate = 8 / 3 * n**3 / own / 1e9
        rows.append([n, dtype.__name__, 1e3 * theirs, 1e3 * own, rate, theirs / own])
    columns = ("n", "type", "LAPACK, ms", "ours, ms", "ours, Gflop/s", "times as fast")
    return Table("Complex LU", columns, rows, formats=dict.fromkeys(columns[2:], ".2f"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="also n = 8000")
    parser.add_argument("--complex", action="store_true", help="complex LU alone")
    asked = parser.parse_args()
    threads = rw.get_num_threads()
    versions = f"NumPy {np.__version__}, SciPy {scipy.__version__}"
    print(f"{platform.machine()}, {versions}, {threads} threads")
    with threadpool_limits(threads):
        sizes = [100, 250, 500, 1000, 1500, 2000, 4000] + [8000] * asked.large
        if asked.complex:
            print(format_text(compare_complex(sizes[2:], threads)))
            return
        table = compare_factorizations(sizes, threads)
        print(f"\n{format_text(table)}")
        OUT.mkdir(exist_ok=True)
        write_csv(table, OUT / "lu.csv")


if __name__ == "__main__":
    main()
