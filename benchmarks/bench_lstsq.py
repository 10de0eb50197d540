"""`roundwise.lstsq` against SciPy's gelsy and NumPy, in one run: ratios of times, alternating.

    python benchmarks/bench_lstsq.py [--shapes 4000x1000 ...] [--repeats 3]
    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_lstsq.py --processor-time

Each line is the best of some repeats of each. The peers' answers are of the same kind: theirs is
backward stable by theory, ours is verified.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import scipy.linalg
from timing import add_clock, least_seconds

import roundwise
from roundwise.machine.identity import Machine
from roundwise.problems import random_least_squares

PEERS = {
    "roundwise": lambda A, b: roundwise.lstsq(A, b),
    "gelsy": lambda A, b: scipy.linalg.lstsq(A, b, lapack_driver="gelsy"),
    "numpy": lambda A, b: np.linalg.lstsq(A, b, rcond=None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["1000x200", "4000x1000", "1000x4000"])
    parser.add_argument("--kappas", nargs="+", type=float, default=[1e2, 1e5, 1e9])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    add_clock(parser)
    given = parser.parse_args()
    print(f"| m x n | kappa | action | {' | '.join(PEERS)} | of gelsy | of numpy |")
    print("| --: | --: | :-- | --: | --: | --: | --: | --: |")
    for shape in given.shapes:
        rows, columns = map(int, shape.split("x"))
        for kappa in given.kappas:
            tall = max(rows, columns), min(rows, columns)
            problem = random_least_squares(*tall, kappa=kappa, residual=1.0, rng=given.seed)
            A, b = problem.A, problem.b
            if rows < columns:
                A, b = A.T.copy(), b[:rows]
            calls = [partial(solve, A, b) for solve in PEERS.values()]
            taken = least_seconds(given.repeats, *calls, clock=given.clock)
            best = dict(zip(PEERS, taken, strict=True))
            action = roundwise.lstsq(A, b, full_output=True).action.partition("-")[0]
            times = " | ".join(f"{1e3 * best[name]:.3g} ms" for name in PEERS)
            ratios = " | ".join(f"{best[n] / best['roundwise']:.2f}" for n in ("gelsy", "numpy"))
            print(f"| {shape} | {kappa:.0e} | {action} | {times} | {ratios} |", flush=True)
    print(f"\n{Machine.this()}")


if __name__ == "__main__":
    main()
