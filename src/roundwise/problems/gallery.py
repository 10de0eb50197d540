"""The broad set of systems that the default policy is learned from.

Dense: prescribed singular values of all modes, random and structured matrices, positive definite
ones. Sparse: the PDE families, in two and three dimensions, and random ones. Real matrices are
read from a folder of Matrix Market files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from roundwise.problems import (
    anisotropic_2d,
    convection_diffusion_2d,
    high_contrast_2d,
    poisson_2d,
    random_sparse_spd,
    randsvd,
    read_matrix_market,
)
from roundwise.problems.dense import haar_orthogonal, singular_values

Make = Callable[[np.random.Generator], Any]
Array = NDArray[np.float64]

SIZES = ((200, 600), (600, 1000), (1000, 1500), (1500, 2500))
"""Dense sizes are drawn between these, evenly in log n."""

EXPONENTS = (0, 1, 2, 3, 4, 5, 6, 6.5, 6.75, 7, 7.25, 7.5, 7.75, 8, 8.5, 9, 10, 12, 14, 16)
"""Of condition numbers; closest where FP32 ceases to suffice."""


@dataclass(frozen=True)
class System:
    """A matrix that is made when it is needed, from its own generator."""

    name: str
    make: Make
    seed: tuple[int, int]

    def matrix(self) -> Any:
        return self.make(np.random.default_rng(self.seed))

    def right_hand_side(self, n: int) -> Array:
        return np.random.default_rng((*self.seed, 1)).standard_normal(n)


def policy_systems(seed: int, matrices: Path | None = None, scale: float = 1.0) -> list[System]:
    """The systems, always the same for a seed; `scale` shrinks all sizes, to try things out."""
    named = [*_dense(scale), *_sparse(scale)]
    if matrices is not None:
        named += [(path.name.split(".")[0], _reader(path)) for path in _files(matrices)]
    return [System(f"{i}-{name}", make, (seed, i)) for i, (name, make) in enumerate(named)]


def _dense(scale: float) -> Iterator[tuple[str, Make]]:
    for low, high in SIZES:

        def sized(
            make: Callable[[int, np.random.Generator], Any], low: int = low, high: int = high
        ) -> Make:
            return lambda rng: make(
                max(2, round(scale * math.exp(rng.uniform(math.log(low), math.log(high))))), rng
            )

        for exponent in EXPONENTS:
            for mode in (1, 2, 3, 4, 5):
                yield (
                    f"randsvd-mode{mode}-1e{exponent}",
                    sized(partial(_prescribed, mode, 10.0**exponent)),
                )
            for mode in (2, 3):
                yield f"spd-mode{mode}-1e{exponent}", sized(partial(_spd, mode, 10.0**exponent))
        for name, make, count in (
            ("gaussian", lambda n, rng: rng.standard_normal((n, n)), 12),
            ("uniform", lambda n, rng: rng.random((n, n)), 10),
            ("signs", lambda n, rng: rng.choice([-1.0, 1.0], (n, n)), 5),
            ("heavy-diagonal", _heavy_diagonal, 24),
            ("badly-scaled", _badly_scaled, 10),
            ("wishart", _wishart, 6),
            ("kernel", _kernel, 10),
            ("integral-equation", _integral_equation, 8),
            ("toeplitz", _toeplitz, 10),
            ("cauchy", _cauchy, 4),
        ):
            for _ in range(count):
                yield name, sized(make)


def _prescribed(mode: int, kappa: float, n: int, rng: np.random.Generator) -> Any:
    return randsvd(n, kappa, mode, rng=rng).A


def _spd(mode: int, kappa: float, n: int, rng: np.random.Generator) -> Array:
    Q = haar_orthogonal(n, rng=rng)
    A = (Q * singular_values(n, kappa, mode, rng=rng)) @ Q.T
    return np.asarray(np.tril(A) + np.tril(A, -1).T)


def _heavy_diagonal(n: int, rng: np.random.Generator) -> Array:
    """Gaussian, its spectral radius about 1, shifted by between 1/3 and 30."""
    A = rng.standard_normal((n, n)) / math.sqrt(n)
    shifts = math.exp(rng.uniform(math.log(1 / 3), math.log(30.0)))
    return np.asarray(A + shifts * np.diag(rng.choice([-1.0, 1.0], n)))


def _badly_scaled(n: int, rng: np.random.Generator) -> Array:
    rows, columns = (10.0 ** rng.uniform(-decades, decades, n) for decades in rng.uniform(0, 6, 2))
    return np.asarray(rows[:, None] * rng.standard_normal((n, n)) * columns)


def _wishart(n: int, rng: np.random.Generator) -> Array:
    X = rng.standard_normal((n, round(n * rng.uniform(1.0, 3.0))))
    A = X @ X.T
    return np.asarray(np.tril(A) + np.tril(A, -1).T)


def _kernel(n: int, rng: np.random.Generator) -> Array:
    """Covariances of a Gaussian process at random points of the square, with noise."""
    points = rng.random((n, 2))
    squares = np.sum((points[:, None] - points) ** 2, axis=2)
    noise = 10.0 ** rng.uniform(-10, 0)
    return np.asarray(np.exp(-squares / (2 * rng.uniform(0.02, 0.5) ** 2)) + noise * np.eye(n))


def _integral_equation(n: int, rng: np.random.Generator) -> Array:
    """``x + c K x`` with a smooth or a log-singular kernel: a boundary integral equation."""
    t = (np.arange(n) + 0.5) / n
    distances = np.abs(t[:, None] - t) + 0.5 / n
    K = np.log(distances) if rng.random() < 0.5 else np.cos(3 * t[:, None] + t) / (0.1 + distances)
    return np.asarray(np.eye(n) + rng.uniform(-2, 2) * K / n)


def _toeplitz(n: int, rng: np.random.Generator) -> Array:
    decay = np.arange(1, n + 1) ** -rng.uniform(0.5, 3.0)
    column, row = decay * rng.standard_normal(n), decay * rng.standard_normal(n)
    row[0] = column[0] = rng.uniform(0.5, 3.0)
    return np.asarray(linalg.toeplitz(column, row))


def _cauchy(n: int, rng: np.random.Generator) -> Array:
    x, y = np.sort(rng.random(n)), np.sort(rng.random(n))
    return np.asarray(1.0 / (x[:, None] - y + rng.choice([-2.0, 2.0])))


def _sparse(scale: float) -> Iterator[tuple[str, Make]]:
    def grid(low: int, high: int, make: Callable[[int, np.random.Generator], Any]) -> Make:
        return lambda rng: make(
            max(2, round(scale * math.exp(rng.uniform(math.log(low), math.log(high))))), rng
        )

    families: dict[str, Callable[[int, np.random.Generator], Any]] = {
        "poisson": lambda m, rng: poisson_2d(m).A,
        "anisotropic": lambda m, rng: anisotropic_2d(m, 10 ** rng.uniform(-8, -1)).A,
        "contrast": lambda m, rng: high_contrast_2d(m, 10 ** rng.uniform(0, 13), rng=rng).A,
        "convection": lambda m, rng: (
            convection_diffusion_2d(
                m, 10 ** rng.uniform(-3, 0), (rng.uniform(-10, 10), rng.uniform(-10, 10))
            ).A
        ),
    }
    for name, family in families.items():
        for low, high, count in ((20, 32, 4), (32, 70, 10), (70, 140, 8), (142, 200, 3)):
            for _ in range(count):
                yield name, grid(low, high, family)
    for low, high, count in ((10, 17, 10), (17, 24, 6)):
        for _ in range(count):
            yield "laplace-3d", grid(low, high, _shifted_laplace_3d)
    for _ in range(24):
        yield "random-sparse", grid(1000, 2000, random_sparse)
        yield "random-banded", grid(1000, 20000, random_banded)
    for _ in range(24):
        yield (
            "random-spd",
            grid(
                500,
                1500,
                lambda n, rng: random_sparse_spd(n, 5 / n, 10 ** rng.uniform(-10, 0), rng=rng).A,
            ),
        )


def _shifted_laplace_3d(m: int, rng: np.random.Generator) -> Any:
    """An implicit time step of diffusion, or a wave problem."""
    shift = rng.choice([0.0, rng.uniform(0, 4), -rng.uniform(0, 1)])
    return sparse.csr_array(laplace_3d(m) + shift * sparse.identity(m**3))


def laplace_3d(m: int) -> Any:
    """The seven-point stencil on the m x m x m grid."""
    T = sparse.diags_array([-np.ones(m - 1), np.full(m, 2.0), -np.ones(m - 1)], offsets=[-1, 0, 1])
    return sparse.csr_array(sparse.kronsum(sparse.kronsum(T, T), T))


def random_sparse(n: int, rng: np.random.Generator) -> Any:
    """Entries anywhere, about three per row, and a diagonal from light to heavy."""
    A = sparse.random(n, n, 3 / n, random_state=rng, data_rvs=rng.standard_normal)
    return sparse.csr_array(A + 10 ** rng.uniform(-3, 1) * sparse.identity(n))


def random_banded(n: int, rng: np.random.Generator) -> Any:
    offsets = range(-int(rng.integers(1, 5)), int(rng.integers(2, 6)))
    bands = [rng.standard_normal(n - abs(k)) for k in offsets]
    A = sparse.diags_array(bands, offsets=list(offsets))
    return sparse.csr_array(A + 10 ** rng.uniform(-3, 1) * sparse.identity(n))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith((".mtx", ".mtx.gz")))


def _reader(path: Path) -> Make:
    return lambda rng: read_matrix_market(path).A
