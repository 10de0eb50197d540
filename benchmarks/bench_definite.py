"""`roundwise.solve` against `scipy.linalg.solve(assume_a="pos")` on positive definite systems.

Run on an idle machine, on all its cores: ``python benchmarks/bench_definite.py [--sizes 1000 2000
4000] [--repeats 5]``. Roundwise is not told that A is positive definite: it finds out. Contenders
alternate; the median of several counts.
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.linalg
from timing import median_seconds

import roundwise as rw
from roundwise.machine.identity import Machine
from roundwise.problems.generators import haar_orthogonal
from roundwise_studies.report import Table, format_text

CONDITION_NUMBERS = 1e1, 1e3, 1e5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 4000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(17)
    columns = "n", "kappa", "scipy, ms", "ours, ms", "times as fast", "action"
    rows = []
    for n in options.sizes:
        Q = haar_orthogonal(n, rng=rng)
        for kappa in CONDITION_NUMBERS:
            A = (Q * np.logspace(0, -np.log10(kappa), n)) @ Q.T
            A, b = (A + A.T) / 2, rng.standard_normal(n)
            scipys, ours = median_seconds(
                options.repeats,
                lambda A=A, b=b: scipy.linalg.solve(A, b, assume_a="pos"),
                lambda A=A, b=b: rw.solve(A, b),
            )
            times = f"{1e3 * scipys:.1f}", f"{1e3 * ours:.1f}", f"{scipys / ours:.2f}"
            rows.append((str(n), f"{kappa:.0e}", *times, str(rw.factor(A).action)))
            print("  ".join(rows[-1]), flush=True)
    print(format_text(Table(f"Positive definite systems on {Machine.this()}", columns, rows)))


if __name__ == "__main__":
    main()
