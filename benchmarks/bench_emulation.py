"""Ratios of emulated arithmetic to the nearest thing NumPy, LAPACK or pychop can do.

Every row is one ratio of medians, measured alternately in one run; ours and the peer use one
thread each. Run with ``make bench`` on an idle machine.
"""

from __future__ import annotations

import platform
from collections.abc import Callable

import numpy as np
import scipy
from pychop import Chop
from scipy.linalg import blas, lapack
from threadpoolctl import threadpool_limits
from timing import median_seconds

import roundwise as rw

operation = rw.backends.get_backend("operation")


def report(
    name: str, ours: Callable[[], object], peer: Callable[[], object], repeats: int, wanted: str
) -> None:
    for warm_up in (ours, peer):
        warm_up()
    mine, theirs = median_seconds(repeats, ours, peer, pause=0.0)
    faster = f"{theirs / mine:.0f}x faster" if theirs > 10 * mine else f"{mine / theirs:.2f}x"
    print(
        f"{name:<46} {1e3 * mine:>10.3f} {1e3 * theirs:>10.3f} {faster:>13}   {wanted}", flush=True
    )


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{platform.machine()}, NumPy {np.__version__}, SciPy {scipy.__version__}, one thread")
    print(f"\n{'ours against peer':<46} {'ours/ms':>10} {'peer/ms':>10} {'ratio':>13}   wanted")

    x = rng.standard_normal(10_000_000)
    out = np.empty_like(x)
    peer_out = np.empty_like(x)
    chop = Chop(exp_bits=8, sig_bits=7, rmode=1)
    for level in reversed(rw.machine.threads.simd_levels()):
        rw.machine.threads.set_simd_level(level)
        note = "<= 4x" if level == rw.machine.threads.simd_levels()[-1] else ""
        report(
            f"round_to bf16, 10M ({level}) / numpy.copyto",
            lambda: rw.round_to(x, "bf16", out=out),
            lambda: np.copyto(peer_out, x),
            9,
            note,
        )
    rw.machine.threads.set_simd_level(rw.machine.threads.simd_levels()[-1])
    for mode in ("up", "stochastic"):
        report(
            f"round_to bf16, 10M, {mode} / numpy.copyto",
            lambda mode=mode: rw.round_to(x, "bf16", mode, rng=0, out=out),
            lambda: np.copyto(peer_out, x),
            9,
            "",
        )
    report(
        "round_to bf16, 10M / pychop Chop",
        lambda: rw.round_to(x, "bf16", out=out),
        lambda: chop(x),
        3,
        ">= 50x faster",
    )

    A = np.asfortranarray(rng.standard_normal((500, 500)))
    B = np.asfortranarray(rng.standard_normal((1000, 1000)))
    v = rng.standard_normal(1000)
    for fmt in rw.formats.NAMED_FORMATS.values():
        M = operation.matrix(A / 16 if fmt.emax < 16 else A, fmt)
        report(
            f"emulated {fmt} LU, n = 500 / dgetrf",
            M.lu,
            lambda: lapack.dgetrf(A),
            15,
            "<= 12x" if fmt == rw.BF16 else "",
        )
    for fmt in rw.formats.NAMED_FORMATS.values():
        scaled = v / 512 if fmt.emax < 16 else v
        M = operation.matrix(B, fmt)
        report(
            f"emulated {fmt} matvec, n = 1000 / dgemv",
            lambda M=M, scaled=scaled: M.matvec(scaled),
            lambda: blas.dgemv(1.0, B, v),
            101,
            "<= 12x" if fmt == rw.BF16 else "",
        )


if __name__ == "__main__":
    rw.set_num_threads(1)
    with threadpool_limits(1):
        main()
