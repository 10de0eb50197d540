"""The paper's three data sets: dense, random sparse, and PDE systems.

Carson and Chen, Precision autotuning for linear solvers via contextual bandit-based RL,
section "Experiments". Each system has a random stream of its own, made from the seed, the
half (training or test) and its position: asking for fewer systems gives the first ones of
the same set. Systems are made with one BLAS thread (set by threadpoolctl, of the `tune` extra):
LAPACK's last bits, and with them the fingerprints, depend on the number of threads. They also
depend on the machine, through LAPACK and NumPy's vectorised sine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundwise.problems.generators import integer_at_least, random_sparse_spd, randsvd
from roundwise.problems.linear_system import LinearSystem
from roundwise.problems.pde import (
    anisotropic_2d,
    convection_diffusion_2d,
    high_contrast_2d,
    poisson_2d,
)


@dataclass(frozen=True)
class Dataset:
    """Training and test problems, and the seed they were made from."""

    name: str
    seed: int
    train: tuple[LinearSystem, ...]
    test: tuple[LinearSystem, ...]


def dense_set(
    n_train: int = 100,
    n_test: int = 100,
    *,
    seed: int,
    sizes: tuple[int, int] = (100, 500),
    exponents: tuple[int, int] = (1, 8),
) -> Dataset:
    """The paper's dense systems: `randsvd`, mode 2.

    ``kappa = 10**j``, j uniform over the integers of `exponents`; n uniform over the
    integers of `sizes` (both ends included).

    Parameters
    ----------
    n_train, n_test : int
        How many systems.
    seed : int
    sizes : (int, int)
        Smallest and largest n.
    exponents : (int, int)
        Smallest and largest log10 of the condition number.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> data = dense_set(3, 2, seed=0, sizes=(10, 20))
    >>> all(10 <= system.n <= 20 for system in data.train + data.test)
    True
    """

    def draw(rng: np.random.Generator, index: int) -> LinearSystem:
        n = _between(sizes, rng)
        return randsvd(n, 10.0 ** _between(exponents, rng), mode=2, rng=rng)

    return _build("dense", draw, n_train, n_test, seed)


def sparse_set(
    n_train: int = 100,
    n_test: int = 100,
    *,
    seed: int,
    sizes: tuple[int, int] = (100, 500),
    density: float = 0.01,
    beta: tuple[float, float] = (1e-9, 1e-7),
) -> Dataset:
    """The paper's random sparse systems: `random_sparse_spd`, n uniform over `sizes`.

    The text gives no beta. At density 0.01 and n in 100..500, A0 is singular to working
    precision, hence ``kappa = 1 + norm(A0)**2 / beta``, and ``norm(A0)**2`` measures about
    8 (n = 100) to 45 (n = 500). The paper's condition numbers, 9.9e7 to 1.6e10, span a
    factor 160: no single beta does that. Their lower end, the same in both halves, is
    10 / 1e-7; the upper ends, 1.6e10 and 7.9e9, ask for smallest betas of 2e-9 to 4e-9,
    which is what the smallest of 100 draws *uniform* in 1e-9..1e-7 gives. (Log-uniform
    draws over the same interval would put the upper end at 3e10 and half of the set above
    2e9.) So beta is uniform in `beta`, one draw per system; the authors' released
    generator uses the same interval.
    """

    def draw(rng: np.random.Generator, index: int) -> LinearSystem:
        n = _between(sizes, rng)
        return random_sparse_spd(n, density, rng.uniform(*beta), rng=rng)

    return _build("sparse", draw, n_train, n_test, seed)


def pde_set(
    n_train: int = 100, n_test: int = 100, *, seed: int, sizes: tuple[int, int] = (100, 500)
) -> Dataset:
    """The paper's PDE systems: four families in turn, so equally represented.

    The target n is uniform over `sizes` and rounded up to a square. Poisson; anisotropic
    with eps log-uniform in 1e-8..1e-3; high contrast with the contrast log-uniform in
    1e6..1e13; convection-diffusion with eps log-uniform in 1e-3..1 and beta uniform in
    [-10, 10]**2. (The text leaves open how that eps is drawn; its condition numbers agree
    with uniform and log-uniform draws alike, and the released generator is log-uniform.)
    """

    def draw(rng: np.random.Generator, index: int) -> LinearSystem:
        m = math.isqrt(_between(sizes, rng) - 1) + 1  # ceil(sqrt(n))
        match index % 4:
            case 0:
                return poisson_2d(m)
            case 1:
                return anisotropic_2d(m, 10.0 ** rng.uniform(-8, -3))
            case 2:
                return high_contrast_2d(m, 10.0 ** rng.uniform(6, 13), rng=rng)
            case _:
                eps = 10.0 ** rng.uniform(-3, 0)
                return convection_diffusion_2d(m, eps, (rng.uniform(-10, 10), rng.uniform(-10, 10)))

    return _build("pde", draw, n_train, n_test, seed)


def _between(ends: tuple[int, int], rng: np.random.Generator) -> int:
    return int(rng.integers(ends[0], ends[1], endpoint=True))


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context manager that limits BLAS to one thread."""
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        raise ImportError(
            "data sets are made with one BLAS thread; install roundwise[tune] for threadpoolctl"
        ) from None
    return threadpool_limits(1)  # type: ignore[no-any-return]


def _build(
    name: str,
    draw: Callable[[np.random.Generator, int], LinearSystem],
    n_train: int,
    n_test: int,
    seed: int,
) -> Dataset:
    seed = integer_at_least(0, "seed", seed)
    counts = integer_at_least(0, "n_train", n_train), integer_at_least(0, "n_test", n_test)

    def system(half: int, index: int) -> LinearSystem:
        stream = np.random.SeedSequence(seed, spawn_key=(half, index))
        return draw(np.random.default_rng(stream), index)

    with one_blas_thread():
        halves = [tuple(system(half, i) for i in range(counts[half])) for half in (0, 1)]
    return Dataset(name, seed, *halves)


DATA_SETS: dict[str, Callable[..., Dataset]] = {
    "dense": dense_set,
    "sparse": sparse_set,
    "pde": pde_set,
}
"""The paper's data sets by name."""


def mixed_dense(
    count: int, sizes: tuple[int, int], seed: int, kinds: Sequence[int] = range(10)
) -> Iterator[tuple[str, LinearSystem]]:
    """Dense systems of every kind, with their names: what speed is measured on, not the paper's.

    Condition numbers 10 to 1e9 in all modes of `randsvd`, Gaussian, diagonally heavy, positive
    definite; `kinds` names some of the ten.
    """
    rng = np.random.default_rng(seed)
    for i in range(count):
        n = int(rng.integers(sizes[0], sizes[1] + 1))
        kind = kinds[i % len(kinds)]
        if kind < 7:
            kappa = 10.0 ** rng.uniform(1, 9)
            mode = (2, 3, 2, 4, 5, 1, 3)[kind]
            yield f"randsvd mode {mode}", randsvd(n, kappa, mode, rng=rng)
            continue
        A = rng.standard_normal((n, n))
        if kind == 8:
            A = A / np.sqrt(n) + 2 * np.eye(n)
        elif kind == 9:
            A = A @ A.T / n + 1e-3 * np.eye(n)
        name = {7: "Gaussian", 8: "diagonally heavy", 9: "positive definite"}[kind]
        yield name, LinearSystem.from_solution(A, rng.standard_normal(n))
