"""The gallery: named families of systems, dense to 3-D PDE, that the default policy learns from.

`FAMILIES` lists them; `policy_systems` draws over a thousand systems from all of them, and reads a
folder of Matrix Market files where there is one. `matrices` has their constructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from roundwise.problems import (
    LinearSystem,
    Vector,
    anisotropic_2d,
    convection_diffusion_2d,
    high_contrast_2d,
    poisson_2d,
    random_sparse_spd,
    randsvd,
    read_matrix_market,
)
from roundwise_studies.default_policy import matrices as made

Range = tuple[int, int, int]
"""Sizes from, to, and the number of systems whose size is drawn between them."""

DENSE_SIZES = ((200, 600), (600, 1000), (1000, 1500), (1500, 2500))
GRIDS_2D: tuple[Range, ...] = ((20, 32, 4), (32, 70, 10), (70, 140, 8), (142, 200, 3))
GRIDS_3D: tuple[Range, ...] = ((10, 17, 10), (17, 24, 6))

EXPONENTS = (0, 1, 2, 3, 4, 5, 6, 6.5, 6.75, 7, 7.25, 7.5, 7.75, 8, 8.5, 9, 10, 12, 14, 16)
"""Condition numbers are 10 to these powers; closest together where FP32 ceases to suffice."""


@dataclass(frozen=True)
class Family:
    """Matrices ``make(size, rng)`` of one construction, and the sizes for `policy_systems`.

    A size is n for dense and random sparse matrices, and the number of grid points per direction
    for PDEs.
    """

    name: str
    kind: str
    make: Callable[[int, np.random.Generator], Any]
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class System:
    """A system that is made when it is needed, always the same one, from its own seed."""

    name: str
    family: str
    make: Callable[[np.random.Generator], Any]
    seed: tuple[int, int]

    def matrix(self) -> Any:
        return self.make(np.random.default_rng(self.seed))

    def right_hand_side(self, n: int) -> Vector:
        """N(0, 1) entries."""
        return np.random.default_rng((*self.seed, 1)).standard_normal(n)

    def problem(self) -> LinearSystem:
        """`matrix` and `right_hand_side` together; its solution is not known."""
        A = self.matrix()
        meta = {"generator": "gallery", "family": self.family, "seed": list(self.seed)}
        return LinearSystem(A, self.right_hand_side(A.shape[0]), name=self.name, meta=meta)


def _dense() -> Iterator[Family]:
    def each(count: int) -> tuple[Range, ...]:
        return tuple((low, high, count) for low, high in DENSE_SIZES)

    for exponent in EXPONENTS:
        kappa = 10.0**exponent
        for mode in (1, 2, 3, 4, 5):
            make = partial(_randsvd, kappa, mode)
            yield Family(f"randsvd-mode{mode}-1e{exponent}", "dense", make, each(1))
        for mode in (2, 3):
            make = partial(made.positive_definite, kappa, mode)
            yield Family(f"spd-mode{mode}-1e{exponent}", "dense", make, each(1))
    yield Family("gaussian", "dense", lambda n, rng: rng.standard_normal((n, n)), each(12))
    yield Family("uniform", "dense", lambda n, rng: rng.random((n, n)), each(10))
    yield Family("signs", "dense", lambda n, rng: rng.choice([-1.0, 1.0], (n, n)), each(5))
    yield Family("heavy-diagonal", "structured", made.heavy_diagonal, each(24))
    yield Family("badly-scaled", "structured", made.badly_scaled, each(10))
    yield Family("wishart", "structured", made.wishart, each(6))
    yield Family("kernel", "structured", made.gaussian_kernel, each(10))
    yield Family("integral-equation", "structured", made.integral_equation, each(8))
    yield Family("toeplitz", "structured", made.toeplitz, each(10))
    yield Family("cauchy", "structured", made.cauchy, each(4))


def _randsvd(kappa: float, mode: int, n: int, rng: np.random.Generator) -> Any:
    return randsvd(n, kappa, mode, rng=rng).A


_PDES: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "poisson": lambda m, rng: poisson_2d(m).A,
    "anisotropic": lambda m, rng: anisotropic_2d(m, 10 ** rng.uniform(-8, -1)).A,
    "contrast": lambda m, rng: high_contrast_2d(m, 10 ** rng.uniform(0, 13), rng=rng).A,
    "convection": lambda m, rng: (
        convection_diffusion_2d(m, 10 ** rng.uniform(-3, 0), tuple(rng.uniform(-10, 10, 2))).A
    ),
}


def _random_spd(n: int, rng: np.random.Generator) -> Any:
    return random_sparse_spd(n, 5 / n, 10 ** rng.uniform(-10, 0), rng=rng).A


# The families of a group take turns, one range of sizes after another. A system's position is
# its seed: changing the order would change every matrix.
_GROUPS: tuple[tuple[Family, ...], ...] = (
    tuple(_dense()),
    *((Family(name, "PDE", make, GRIDS_2D),) for name, make in _PDES.items()),
    (Family("laplace-3d", "3-D PDE", made.shifted_laplace_3d, GRIDS_3D),),
    (
        Family("random-sparse", "sparse", made.random_sparse, ((1000, 2000, 1),) * 24),
        Family("random-banded", "sparse", made.random_banded, ((1000, 20000, 1),) * 24),
    ),
    (Family("random-spd", "sparse", _random_spd, ((500, 1500, 24),)),),
)

FAMILIES: dict[str, Family] = {family.name: family for group in _GROUPS for family in group}
"""All families by name; their kinds are dense, structured, PDE, 3-D PDE and sparse."""


def policy_systems(seed: int, matrices: Path | None = None, scale: float = 1.0) -> list[System]:
    """Return the systems of the default policy, always the same for a seed.

    `matrices` is a folder of Matrix Market files (.mtx, .mtx.gz) to append. `scale` multiplies
    all sizes but those of the files: 0.1 makes a set to try things out.
    """
    named: list[tuple[str, str, Callable[[np.random.Generator], Any]]] = [
        (family.name, family.name, partial(_sized, family, low, high, scale))
        for group in _GROUPS
        for ranges in zip(*(family.ranges for family in group), strict=True)
        for family, (low, high, count) in zip(group, ranges, strict=True)
        for _ in range(count)
    ]
    if matrices is not None:
        paths = sorted(p for p in matrices.iterdir() if p.name.endswith((".mtx", ".mtx.gz")))
        named += [(path.name.split(".")[0], "file", partial(_read, path)) for path in paths]
    return [
        System(f"{i}-{name}", family, make, (seed, i))
        for i, (name, family, make) in enumerate(named)
    ]


def _sized(family: Family, low: int, high: int, scale: float, rng: np.random.Generator) -> Any:
    """A matrix of the family, its size drawn evenly in log(size)."""
    size = scale * math.exp(rng.uniform(math.log(low), math.log(high)))
    return family.make(max(2, round(size)), rng)


def _read(path: Path, rng: np.random.Generator) -> Any:
    return read_matrix_market(path).A
