"""Our LU against LAPACK's, and kernels on stored matrices against BLAS.

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
from pathlib import Path

import numpy as np
import scipy
from scipy.linalg import blas, lapack
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
DTYPES = {"bf16": np.uint16, "fp16": np.uint16, "fp32": np.float32, "fp64": np.float64}


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


def stored(A: np.ndarray, fmt: str, threads: int) -> np.ndarray:
    out = np.empty(A.shape, DTYPES[fmt], order="F")
    if fmt == "fp64":
        return A
    _kernels.native_convert(A, out, fmt, threads)
    return out


def compare_stored(n: int, threads: int) -> None:
    """Products and solves; BLAS stores and computes in the type of the arithmetic."""
    rng = np.random.default_rng(0)
    F = np.asfortranarray(rng.uniform(-1, 1, (n, n)) / n + 2 * np.eye(n))
    print(f"\nStored matrices, n = {n}: BLAS with the same arithmetic / ours, GB/s of the matrix")
    print(f"{'operation':<34} {'ours/ms':>8} {'BLAS/ms':>8} {'ratio':>7} {'GB/s':>6}")
    for arithmetic in ("fp32", "fp64"):
        dtype = DTYPES[arithmetic]
        D, x = F.astype(dtype, order="F"), rng.standard_normal(n).astype(dtype)
        letter = "s" if arithmetic == "fp32" else "d"
        gemv, trsv = getattr(blas, letter + "gemv"), getattr(blas, letter + "trsv")

        def blas_solve(D: np.ndarray = D, x: np.ndarray = x, trsv: Callable = trsv) -> None:
            trsv(D, trsv(D, x, lower=1, diag=1))

        def blas_solve_t(D: np.ndarray = D, x: np.ndarray = x, trsv: Callable = trsv) -> None:
            trsv(D, trsv(D, x, trans=1), lower=1, diag=1, trans=1)

        peers = {
            "matvec": lambda D=D, x=x, gemv=gemv: gemv(1, D, x),
            "matvec'": lambda D=D, x=x, gemv=gemv: gemv(1, D, x, trans=1),
            "LU solve": blas_solve,
            "LU solve'": blas_solve_t,
        }
        for fmt in ("bf16", "fp16", "fp32", "fp64"):
            if (fmt, arithmetic) == ("fp64", "fp32"):
                continue
            A, y, b = stored(F, fmt, threads), np.empty_like(x), x.reshape(n, 1).copy(order="F")
            for name, peer in peers.items():
                transpose = name.endswith("'")

                def ours(A=A, fmt=fmt, y=y, b=b, x=x, name=name, transpose=transpose) -> None:
                    if name.startswith("matvec"):
                        _kernels.native_matvec(A, fmt, x, y, transpose, threads)
                    else:
                        b[:, 0] = x
                        _kernels.native_getrs(A, fmt, b, transpose, threads)

                calls = {"ours": ours, "peer": peer}
                seconds = medians(5, {who: partial(timed, calls[who], calls=5) for who in calls})
                print(
                    f"{f'{name}, {fmt} in {arithmetic}':<34} {1e3 * seconds['ours']:>8.2f} "
                    f"{1e3 * seconds['peer']:>8.2f} {seconds['peer'] / seconds['ours']:>6.2f}x "
                    f"{A.nbytes / seconds['ours'] / 1e9:>6.1f}",
                    flush=True,
                )


def compare_passes(n: int, threads: int) -> None:
    """Conversions against astype, norms against temporaries."""
    A = np.asfortranarray(np.random.default_rng(0).standard_normal((n, n)))
    A32, out = A.astype(np.float32), np.empty((n, n), np.float32, order="F")
    half, wide = np.empty((n, n), np.uint16, order="F"), np.empty((n, n), order="F")

    def norms() -> tuple[float, float, float]:
        absolute = np.abs(A)
        return absolute.sum(axis=0).max(), absolute.sum(axis=1).max(), absolute.max()

    def copy_to(target: np.ndarray, source: np.ndarray) -> Callable[[], None]:
        return lambda: np.copyto(target, source, casting="same_kind")

    rows = {
        "fp64 to fp32 / numpy": (
            lambda: _kernels.native_convert(A, out, "fp32", threads),
            copy_to(out, A),
        ),
        "fp64 to bf16 / numpy to fp32": (
            lambda: _kernels.native_convert(A, half, "bf16", threads),
            copy_to(out, A),
        ),
        "fp32 to bf16 / numpy fp32 copy": (
            lambda: _kernels.native_convert(A32, half, "bf16", threads),
            copy_to(out, A32),
        ),
        "bf16 to fp64 / numpy fp32 to fp64": (
            lambda: _kernels.native_convert(half, wide, "bf16", threads),
            copy_to(wide, A32),
        ),
        "norms of fp64 / numpy": (lambda: _kernels.native_norms(A, threads), norms),
    }
    print(f"\nPasses over an n x n matrix, n = {n}")
    print(f"{'ours / peer':<34} {'ours/ms':>8} {'peer/ms':>8} {'ratio':>7}")
    for name, (ours, peer) in rows.items():
        seconds = medians(5, {"ours": partial(timed, ours), "peer": partial(timed, peer)})
        print(
            f"{name:<34} {1e3 * seconds['ours']:>8.2f} {1e3 * seconds['peer']:>8.2f} "
            f"{seconds['peer'] / seconds['ours']:>6.2f}x",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="also n = 8000")
    parser.add_argument("--lu-only", action="store_true", help="nothing but LU")
    asked = parser.parse_args()
    threads = rw.get_num_threads()
    versions = f"NumPy {np.__version__}, SciPy {scipy.__version__}"
    print(f"{platform.machine()}, {versions}, {threads} threads")
    with threadpool_limits(threads):
        table = compare_factorizations(
            [100, 250, 500, 1000, 1500, 2000, 4000] + [8000] * asked.large, threads
        )
        print(f"\n{format_text(table)}")
        OUT.mkdir(exist_ok=True)
        write_csv(table, OUT / "lu.csv")
        if asked.lu_only:
            return
        compare_stored(4000, threads)
        compare_passes(4000, threads)


if __name__ == "__main__":
    main()
