"""What another number of threads than our LU takes for a small matrix would gain.

For each order: the seconds of LU with 1, 2, ... threads granted, and with all of them, of which the
kernel takes as many as it finds useful (`useful_threads` in cpp/native/pipeline.hpp). The last
column compares the latter with the best of all. ``python benchmarks/lu_threads.py``, on an idle
machine.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from roundwise import _kernels
from roundwise.machine.identity import Machine
from roundwise.machine.threads import usable_cores
from roundwise.report import Table, format_text

PAUSE = 0.002
"""Seconds between two factorizations, in which threads fall asleep: as between two solves. A pass
over the matrix follows, as in a solve, which wakes them from an order of 362 on."""


def seconds(A: np.ndarray, counts: list[int], repeats: int) -> dict[int, float]:
    """Medians by number of threads, in turns."""
    swaps, times = np.empty(len(A), np.int32), {count: [] for count in counts}
    for _ in range(repeats):
        for count, taken in times.items():
            work = A.copy(order="F")
            time.sleep(PAUSE)
            _kernels.native_column_norms(work, count)
            start = time.perf_counter()
            _kernels.native_lu(work, swaps, count)
            taken.append(time.perf_counter() - start)
    return {count: statistics.median(taken) for count, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    orders = [200, 300, 400, 500, 700, 1000, 1500]
    parser.add_argument("--sizes", type=int, nargs="+", default=orders)
    parser.add_argument("--repeats", type=int, default=31)
    asked = parser.parse_args()
    cores = usable_cores()
    counts = sorted({1, 2, 3, 4, 6, 8, 10, 12, 14, cores} & set(range(1, cores + 1)))
    print(Machine.this())
    for dtype in (np.float64, np.float32):
        rows = []
        for n in asked.sizes:
            A = np.random.default_rng(n).standard_normal((n, n)).astype(dtype, order="F")
            found = seconds(A, counts, asked.repeats)
            rows.append([n, *(1e3 * s for s in found.values()), found[cores] / min(found.values())])
        columns = ("n", *(str(count) for count in counts), "all/best")
        formats = dict.fromkeys(columns[1:], ".2f")
        title = f"Milliseconds of LU, {np.dtype(dtype).name}, by threads granted"
        print(format_text(Table(title, columns, rows, formats=formats)))


if __name__ == "__main__":
    main()
