"""Errors and times of `solve(accuracy="forward")` beside the default and `numpy.linalg.solve`.

Run on an idle machine: ``make accuracy-docs``. The systems have prescribed singular values, entries
that are multiples of 2**-50 and solutions of small integers, so that b is exact and the error of x
is known. Writes out/accuracy.md; `make accuracy-docs` puts it into docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from timing import median_seconds
from tqdm import tqdm

import roundwise as rw
from roundwise.backends.native import exact
from roundwise.machine.identity import Machine
from roundwise.problems import randsvd
from roundwise_studies.report import Table, format_markdown, format_text

OUT = Path("out")
U = 2.0**-53
GRID = 50

Array = NDArray[np.float64]


def exact_system(n: int, kappa: float, seed: int) -> tuple[Array, Array, Array]:
    """A, x and b with ``A x = b`` exactly."""
    rng = np.random.default_rng([n, seed])
    A = np.round(randsvd(n, kappa, rng=rng).A * 2.0**GRID) / 2.0**GRID
    x = rng.integers(-2, 3, n).astype(np.float64)
    b = -exact.residual(A, x, np.zeros(n))
    # A sum of multiples of 2**-50 below 8 is a float64 number: rounding it once changed nothing.
    if not abs(b).max() < 8:
        raise ValueError(f"b is too large to be exact for n = {n}; choose a coarser GRID")
    return A, x, b


def row(n: int, kappa: float, systems: int, repeats: int) -> dict[str, object]:
    """The largest errors over some systems, and medians of the ratios of times."""
    errors: dict[str, list[float]] = {"numpy": [], "default": [], "forward": []}
    ratios, claimed = [], 0
    for seed in range(systems):
        A, x, b = exact_system(n, kappa, seed)
        solution = rw.solve(A, b, accuracy="forward", full_output=True)
        answers = (np.linalg.solve(A, b), rw.solve(A, b), solution.x)
        for taken, answer in zip(errors.values(), answers, strict=True):
            taken.append(float(abs(answer - x).max() / abs(x).max() / U))
        claimed += solution.accuracy == "forward"
        calls = (lambda: rw.solve(A, b), lambda: rw.solve(A, b, accuracy="forward"))  # noqa: B023
        plain, forward, peer = median_seconds(repeats, *calls, lambda: np.linalg.solve(A, b))  # noqa: B023
        ratios.append((forward / plain, forward / peer))
    worst = {f"error of {name}, u": float(f"{max(e):.2g}") for name, e in errors.items()}
    over = [statistics.median(pair) for pair in zip(*ratios, strict=True)]
    return {
        "n": n,
        "kappa": f"{kappa:.0e}",
        **worst,
        "claimed": f"{claimed} of {systems}",
        "time, of default": f"{over[0]:.2f}",
        "time, of numpy": f"{over[1]:.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 500, 2000])
    parser.add_argument("--systems", type=int, default=3, help="for each size and kappa")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # ill-conditioned systems are what is measured here
    kappas = [10.0**e for e in (1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)]
    cases = [(n, kappa) for n in arguments.sizes for kappa in kappas]
    rows = [row(*case, arguments.systems, arguments.repeats) for case in tqdm(cases)]
    head, texts = list(rows[0]), [list(r.values()) for r in rows]
    command = " ".join(["python benchmarks/bench_accuracy.py", *sys.argv[1:]])
    note = (
        f"Largest relative errors (max norm, in units of u) over {arguments.systems} systems, how "
        "many answers claim full accuracy, and medians of times in relation to the default's and "
        "NumPy's. The solutions are small integers, which float64 holds: an error far below u "
        "means that all their digits are right, and that zeros came out as tiny numbers. "
        f"{Machine.this()}; measured by `{command}`."
    )
    print(format_text(Table(note, head, texts)))
    OUT.mkdir(exist_ok=True)
    page = f"{format_markdown(Table('', head, texts)).strip()}\n\n{note}\n"
    (OUT / "accuracy.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
