"""From which sizes on Roundwise is faster than the functions that `rw.replacing_numpy` replaces.

Run on an idle machine: ``python benchmarks/bench_replacing.py`` (a minute; ``--only sparse`` for a
part). Calls in a row, as programs make them; contenders take turns. The prices in
`roundwise/integrations/replaced.py` are read off.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import scipy.linalg
from scipy import sparse
from scipy.sparse import linalg
from timing import median_seconds

import roundwise as rw
from roundwise.machine.identity import Machine
from roundwise_studies.report import Table, format_text

Contenders = tuple[str, str, Callable[[], Any], Callable[[], Any]]

SIZES = (5, 20, 50, 100, 200, 500, 1000, 1500)
SIDES = (10, 30, 70, 150)
TALL = ((10, 3), (50, 5), (100, 20), (500, 50), (1000, 100), (5000, 100))


def dense(n: int, rng: np.random.Generator) -> Iterator[Contenders]:
    """Solves, and factorizations that serve one."""
    A, B = rng.standard_normal((2, n, n))
    b, P, Z = B[:, 0].copy(), A @ A.T + n * np.eye(n), A + 1j * B
    z, theirs, scipys, size = b.astype(complex), np.linalg, scipy.linalg, str(n)
    yield "numpy.linalg.solve", size, lambda: theirs.solve(A, b), lambda: rw.solve(A, b)
    yield "the same, complex", size, lambda: theirs.solve(Z, z), lambda: rw.solve(Z, z)
    yield "scipy.linalg.solve", size, lambda: scipys.solve(A, b), lambda: rw.solve(A, b)
    yield "numpy.linalg.inv", size, lambda: theirs.inv(A), lambda: rw.factor(A).inv()
    yield (
        *("lu_factor, lu_solve", size),
        lambda: scipys.lu_solve(scipys.lu_factor(A), b),
        lambda: rw.factor(A, assume_a="general").solve(b),
    )
    yield from kept(A, b, size)
    yield (
        *("cho_factor, cho_solve", size),
        lambda: scipys.cho_solve(scipys.cho_factor(P), b),
        lambda: rw.factor(P, assume_a="positive definite").solve(b),
    )


def kept(A: Any, b: Any, size: str) -> Iterator[Contenders]:
    """One more solve with the factors."""
    factors, F = scipy.linalg.lu_factor(A), rw.factor(A, assume_a="general")
    F.solve(b)
    yield "lu_solve", size, lambda: scipy.linalg.lu_solve(factors, b), lambda: F.solve(b)


def tall(shape: tuple[int, int], rng: np.random.Generator) -> Iterator[Contenders]:
    """Least squares."""
    A, b = rng.standard_normal(shape), rng.standard_normal(shape[0])
    theirs, ours = lambda: np.linalg.lstsq(A, b), lambda: rw.lstsq(A, b, full_output=True)
    yield "numpy.linalg.lstsq", f"{shape[0]} x {shape[1]}", theirs, ours


def stored(m: int, rng: np.random.Generator) -> Iterator[Contenders]:
    """Sparse systems: a chain, and a grid."""
    eye, b = sparse.eye_array(m), rng.standard_normal(m * m)
    T = tridiagonal(m, 2.0)
    for A in (tridiagonal(m * m, 2.1), sparse.kron(T, eye) + sparse.kron(eye, T)):
        yield from sparse_contenders(sparse.csc_array(A), b)


def tridiagonal(n: int, diagonal: float) -> Any:
    off = -np.ones(n - 1)
    return sparse.diags_array([off, diagonal * np.ones(n), off], offsets=[-1, 0, 1])


def sparse_contenders(A: Any, b: Any) -> Iterator[Contenders]:
    size = f"{A.nnz} entries"
    yield "spsolve", size, lambda: linalg.spsolve(A, b), lambda: rw.solve(A, b)
    yield "splu", size, lambda: linalg.splu(A).solve(b), lambda: rw.factor(A).solve(b)


PARTS: dict[str, Any] = {"dense": (dense, SIZES), "tall": (tall, TALL), "sparse": (stored, SIDES)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", choices=PARTS, default=None)
    arguments = parser.parse_args()
    repeats = arguments.repeats
    print(Machine.this())
    rows = []
    for part, (draw, sizes) in PARTS.items():
        if arguments.only not in (None, part):
            continue
        rng = np.random.default_rng(0)
        for name, size, theirs, ours in chain.from_iterable(draw(one, rng) for one in sizes):
            seconds = median_seconds(repeats, theirs, ours, pause=0.0)
            told = [f"{1e6 * one:.4g}" for one in seconds]
            rows.append((name, size, *told, f"{seconds[0] / seconds[1]:.2f}"))
    columns = ("function", "size", "original", "ours", "original / ours")
    print(format_text(Table("Microseconds", columns, rows)))


if __name__ == "__main__":
    main()
