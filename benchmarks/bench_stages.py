"""Where the time of a dense solve goes, by compiled kernel, and how it gets along with others.

Three tables: the stages of `roundwise.solve` at rest; the same solve just after a product of NumPy,
SciPy or torch, whose threads go on spinning; and solves in k threads, several each, against as many
in turn. (To wake a thread takes as long as a small solve, so that one each would tell little.)
Run on an idle machine: ``make stages``. Writes out/stages-MACHINE.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import scipy.linalg.blas
from timing import PAUSE, median_seconds, medians, timed

import roundwise as rw
from roundwise import _kernels
from roundwise.backends.native import dense
from roundwise.machine.identity import Machine
from roundwise_studies.report import Table, format_text

OUT = Path("out")
STAGES = {
    "native_lu": "factorize",
    "native_bf16_lu": "factorize",
    "native_cholesky": "factorize",
    "native_bf16_cholesky": "factorize",
    "potrf": "factorize",
    "native_convert": "convert",
    "native_copy": "convert",
    "native_norms": "norms",
    "native_column_norms": "norms",
    "native_norms_and_rounded": "norms",
    "native_symmetric": "symmetry",
    "native_look": "look",
    "native_exact_residual": "residuals",
    "native_backward_error": "residuals",
    "native_matvec": "products",
    "native_correct": "substitute",
    "native_getrs": "substitute",
    "native_potrs": "substitute",
    "getrs": "substitute",
    "potrs": "substitute",
}
"""What each kernel is for. The rest of a solve is Python, and vectors."""
NAMES = tuple(dict.fromkeys(STAGES.values()))
TABLES = {"getrs": "GETRS", "potrs": "POTRS", "potrf": "POTRF"}
"""LAPACK's routines, where dense.py keeps them."""


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """The seconds in each stage of what runs in here."""
    seconds = dict.fromkeys(NAMES, 0.0)

    def timed(call: Callable[..., object], stage: str) -> Callable[..., object]:
        def timing(*arguments: object, **options: object) -> object:
            start = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                seconds[stage] += time.perf_counter() - start

        return timing

    kernels = {name: getattr(_kernels, name) for name in STAGES if hasattr(_kernels, name)}
    tables = {name: getattr(dense, table, {}) for name, table in TABLES.items()}
    kept = {name: dict(table) for name, table in tables.items()}
    for name, call in kernels.items():
        setattr(_kernels, name, timed(call, STAGES[name]))
    for name, table in tables.items():
        table.update({kind: timed(call, STAGES[name]) for kind, call in table.items()})
    try:
        yield seconds
    finally:
        for name, call in kernels.items():
            setattr(_kernels, name, call)
        for name, table in tables.items():
            table.update(kept[name])


def system(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, n)), rng.standard_normal(n)


def stages(sizes: list[int], repeats: int) -> list[dict[str, object]]:
    """Of the run that is the median of its repeats."""
    rows: list[dict[str, object]] = []
    for n in sizes:
        A, b = system(n)
        for fmt in ("default", "fp64"):
            runs = []
            for _ in range(repeats + 1):
                time.sleep(PAUSE)
                with watched() as seconds:
                    start = time.perf_counter()
                    rw.solve(A, b, policy=fmt)
                    taken = time.perf_counter() - start
                runs.append((taken, seconds))
            taken, seconds = sorted(runs[1:], key=lambda run: run[0])[repeats // 2]
            row = {name: 1e3 * value for name, value in seconds.items()}
            row |= {"rest": 1e3 * (taken - sum(seconds.values()))}
            share = seconds["factorize"] / taken
            rows.append({"n": n, "policy": fmt, "ms": 1e3 * taken, "LU share": share, **row})
    return rows


def products() -> dict[str, Callable[[np.ndarray], object]]:
    found = {"numpy": lambda A: A @ A, "scipy": lambda A: scipy.linalg.blas.dgemm(1.0, A, A)}
    if find_spec("torch") is not None:
        import torch  # it takes seconds, and is seldom there

        found["torch"] = lambda A: torch.from_numpy(A) @ torch.from_numpy(A)
    return found


def beside(n: int, repeats: int) -> list[dict[str, object]]:
    """Medians at rest and just after a product, in turns."""
    A, b = system(n)
    rows: list[dict[str, object]] = []
    for name, product in products().items():

        def solved(first: Callable[[np.ndarray], object] | None = None) -> float:
            if first is not None:
                first(A)
            return 1e3 * timed(lambda: rw.solve(A, b))

        calls = {"rest": solved, "after": partial(solved, product)}
        rest, after = medians(repeats, calls).values()
        line = {"n": n, "product": name, "at rest/ms": rest, "after/ms": after}
        rows.append(line | {"after/rest": after / rest})
    return rows


EACH = {300: 20, 1250: 4}
"""Solves of a thread, by order."""


def together(n: int, count: int, repeats: int) -> dict[str, object]:
    """Solves in `count` threads, against as many in turn."""
    A, b = system(n)
    each = EACH[n]

    def several(_: int) -> None:
        for _ in range(each):
            rw.solve(A, b)

    with ThreadPoolExecutor(count) as pool:
        found = median_seconds(
            repeats,
            lambda: list(map(several, range(count))),
            lambda: list(pool.map(several, range(count))),
        )
    turn, threads = (1e3 * seconds for seconds in found)
    row = {
        "n": n,
        "solves": count * each,
        "threads": count,
        "in turn/ms": turn,
        "in threads/ms": threads,
    }
    return row | {"threads/turn": threads / turn}


def shown(title: str, rows: list[dict[str, object]]) -> str:
    floats = [name for name, value in rows[0].items() if isinstance(value, float)]
    cells = [list(row.values()) for row in rows]
    return format_text(Table(title, tuple(rows[0]), cells, formats=dict.fromkeys(floats, ".2f")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    machine = Machine.this()
    print(machine)
    found: dict[str, object] = {"machine": str(machine), "threads": machine.threads}
    for name, title, measure in (
        ("stages", "Milliseconds of a solve, by stage", lambda: stages(asked.sizes, asked.repeats)),
        ("beside", "Just after a product", lambda: beside(1250, 2 * asked.repeats + 1)),
        ("together", "Solves in threads", lambda: [together(n, machine.threads, 5) for n in EACH]),
    ):
        rows = found[name] = measure()
        print(shown(title, rows), flush=True)
    OUT.mkdir(exist_ok=True)
    path = OUT / f"stages-{machine.key}.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
