"""One kind of dense problem against the routines of NumPy and SciPy that are meant for it.

    python benchmarks/bench_kinds.py definite|complex|tall [--sizes 1000 2000] [--repeats 5]

definite
    Positive definite systems against ``scipy.linalg.solve(assume_a="pos")``. Roundwise is not told
    that they are: it finds out.
complex
    Systems of all condition numbers, Gaussian and Hermitian ones, against ``numpy.linalg.solve``.
tall
    Least squares problems against SciPy's gelsy and NumPy; sizes are shapes, 4000x1000 or wide.
    The peers' answers are of the same kind: theirs is backward stable by theory, ours is verified.

Run on an idle machine, on all its cores; on a busy one add ``--processor-time`` and set
OPENBLAS_NUM_THREADS=1 and ROUNDWISE_NUM_THREADS=1. Contenders alternate: medians, the least for
least squares. Ratios are the peers' times over ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from timing import add_clock, least_seconds, median_seconds

import roundwise as rw
from roundwise.machine.identity import Machine
from roundwise.problems import random_least_squares
from roundwise.problems.generators import haar_orthogonal
from roundwise_studies.report import Table, format_markdown

RNG = np.random.Generator
Problem = tuple[str, Any, Any]  # a name, A and b


def definite(size: str, rng: RNG) -> Iterator[Problem]:
    n = int(size)
    Q = haar_orthogonal(n, rng=rng)
    for kappa in (1e1, 1e3, 1e5):
        A = (Q * np.logspace(0, -np.log10(kappa), n)) @ Q.T
        yield f"kappa {kappa:.0e}", (A + A.T) / 2, rng.standard_normal(n)


def reflected(A: Any, rng: RNG) -> Any:
    """A times a random unitary matrix of a few Householder reflections."""
    for _ in range(3):
        v = rng.standard_normal(len(A)) + 1j * rng.standard_normal(len(A))
        v /= np.linalg.norm(v)
        A = A - 2 * np.outer(A @ v, v.conj())
    return A


def complex_systems(size: str, rng: RNG) -> Iterator[Problem]:
    n = int(size)
    G = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    Q = np.linalg.qr(G)[0]
    matrices = {"Gaussian": G, "heavy diagonal": G / np.sqrt(n) + 3 * np.eye(n)}
    for kappa in (1e1, 1e3, 1e5):
        matrices[f"geometric, kappa {kappa:.0e}"] = reflected(
            Q * np.logspace(0, -np.log10(kappa), n), rng
        )
    matrices["one small, kappa 1e+05"] = reflected(Q * np.append(np.ones(n - 1), 1e-5), rng)
    H = (Q * np.logspace(0, -3, n)) @ Q.conj().T
    matrices["Hermitian definite, kappa 1e+03"] = (H + H.conj().T) / 2
    for name, A in matrices.items():
        yield name, A, A @ (rng.standard_normal(n) + 1j * rng.standard_normal(n))


def tall(size: str, rng: RNG) -> Iterator[Problem]:
    m, n = map(int, size.split("x"))
    for kappa in (1e2, 1e5, 1e9):
        problem = random_least_squares(max(m, n), min(m, n), kappa=kappa, residual=1.0, rng=rng)
        A, b = (problem.A, problem.b) if m > n else (problem.A.T.copy(), problem.b[:m])
        yield f"kappa {kappa:.0e}", A, b


class Kind(NamedTuple):
    problems: Callable[[str, RNG], Iterator[Problem]]
    sizes: list[str]
    solve: Callable[..., Any]
    peers: dict[str, Callable[[Any, Any], object]]
    seconds: Callable[..., list[float]] = median_seconds


KINDS = {
    "definite": Kind(
        definite,
        ["1000", "2000", "4000"],
        rw.solve,
        {"scipy": partial(scipy.linalg.solve, assume_a="pos")},
    ),
    "complex": Kind(
        complex_systems, ["500", "1000", "2000", "4000"], rw.solve, {"numpy": np.linalg.solve}
    ),
    "tall": Kind(
        tall,
        ["1000x200", "4000x1000", "1000x4000"],
        rw.lstsq,
        {
            "gelsy": partial(scipy.linalg.lstsq, lapack_driver="gelsy"),
            "numpy": partial(np.linalg.lstsq, rcond=None),
        },
        least_seconds,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--sizes", nargs="+")
    parser.add_argument("--repeats", type=int, default=3)
    add_clock(parser)
    asked = parser.parse_args()
    kind, rng, rows = KINDS[asked.kind], np.random.default_rng(17), []
    for size in asked.sizes or kind.sizes:
        for name, A, b in kind.problems(size, rng):
            calls = [partial(call, A, b) for call in (kind.solve, *kind.peers.values())]
            ours, *theirs = kind.seconds(asked.repeats, *calls, clock=asked.clock)
            action = kind.solve(A, b, full_output=True).action.partition("-")[0]
            times = [f"{1e3 * seconds:.3g} ms" for seconds in (ours, *theirs)]
            rows.append([size, name, action, *times, *(f"{peer / ours:.2f}" for peer in theirs)])
            print("  ".join(rows[-1]), flush=True)
    columns = ("size", "problem", "action", "ours", *kind.peers, *(f"of {p}" for p in kind.peers))
    print(format_markdown(Table(f"{asked.kind}, on {Machine.this()}", columns, rows)))


if __name__ == "__main__":
    main()
