"""What an LU of a small matrix takes by number of threads, and how many threads it takes by price.

For each order: milliseconds with 1, 2, ... threads. The last columns tell the number that
`roundwise.machine.lu_threads` takes of all cores, and its time over the best one.
``python benchmarks/lu_threads.py``, on an idle machine. With ``--write`` the times of this machine
replace those of a machine with as many cores in src/roundwise/machine/rates.json.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
from timing import medians, timed

from roundwise import _kernels
from roundwise.machine import lu_threads
from roundwise.machine.identity import Machine
from roundwise.machine.rates import FILE, write_rates
from roundwise.machine.threads import usable_cores
from roundwise_studies.report import Table, format_text

PAUSE = 0.002
"""Seconds between two factorizations, in which threads fall asleep: as between two solves. A pass
over the matrix follows, as in a solve, which wakes them from an order of 362 on."""


def milliseconds(A: np.ndarray, counts: list[int], repeats: int) -> dict[int, float]:
    """Medians by number of threads, in turns."""
    swaps = np.empty(len(A), np.int32)

    def factorized(count: int) -> float:
        work = A.copy(order="F")
        _kernels.native_column_norms(work, count)
        return 1e3 * timed(lambda: _kernels.native_lu(work, swaps, count))

    return medians(repeats, {count: partial(factorized, count) for count in counts}, pause=PAUSE)


def shown(name: str, found: dict[int, dict[int, float]]) -> str:
    """A table of the milliseconds, with the number of threads that these prices lead to."""
    counts = list(next(iter(found.values())))
    rows = []
    for n, prices in found.items():
        taken = lu_threads.cheapest(prices, counts[-1])
        rows.append([n, *prices.values(), taken, prices[taken] / min(prices.values())])
    columns = ("n", *(str(count) for count in counts), "taken", "taken/best")
    formats = dict.fromkeys((*columns[1:-2], columns[-1]), ".2f")
    title = f"Milliseconds of LU, {name}, by threads"
    return format_text(Table(title, columns, rows, formats=formats))


def written(measured: lu_threads.Measured) -> None:
    kept = [one for one in lu_threads.shipped() if one.cores != measured.cores]
    machines = sorted([*kept, measured], key=lambda one: one.cores)
    write_rates("lu_threads", lu_threads.to_json(tuple(machines)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    orders = [100, 150, 200, 250, 300, 400, 500, 700, 1000, 1500]
    parser.add_argument("--sizes", type=int, nargs="+", default=orders)
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--write", action="store_true", help=f"into {FILE.name}")
    asked = parser.parse_args()
    cores = usable_cores()
    counts = sorted({1, 2, 3, 4, 6, 8, 10, 12, 14, cores} & set(range(1, cores + 1)))
    print(Machine.this())
    prices = {}
    for dtype in (np.float64, np.float32):
        found = {}
        for n in asked.sizes:
            A = np.random.default_rng(n).standard_normal((n, n)).astype(dtype, order="F")
            found[n] = milliseconds(A, counts, asked.repeats)
        prices[np.dtype(dtype).itemsize] = found
        print(shown(np.dtype(dtype).name, found), flush=True)
    if asked.write:
        source = f"python benchmarks/lu_threads.py --write on {Machine.this()}"
        written(lu_threads.Measured(source, cores, prices))


if __name__ == "__main__":
    main()
