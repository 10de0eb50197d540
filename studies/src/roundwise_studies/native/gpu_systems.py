"""The systems of the study on a GPU: recipes, and what is drawn by them on the device."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from roundwise._forking import cached_property
from roundwise.backends import Backend
from roundwise.backends.arrays import on_host
from roundwise.formats import FP64
from roundwise.problems import Problem, Vector
from roundwise.problems.generators import singular_values
from roundwise.problems.linear_system import Norms
from roundwise_studies.native.drawn import gaussian, heavy_diagonal, with_singular_values

MODES = (1, 2, 3, 4, 5)
"""Of the singular values, as `randsvd` has them."""

FAMILIES = (*(f"mode {mode}" for mode in MODES), "gaussian", "heavy diagonal")
WEIGHTS = (1.5, 4.0)
"""Of a heavy diagonal: it has 0.83 to 0.97 of its rows' lengths."""


@dataclass(frozen=True)
class Recipe:
    """What decides a system but for the machine that draws it.

    `kappa` is the condition number of a system with given singular values, NaN for others.
    """

    family: str
    n: int
    kappa: float
    seed: tuple[int, ...]

    @property
    def name(self) -> str:
        kappa = "" if math.isnan(self.kappa) else f"-kappa{self.kappa:.0e}"
        return f"{self.family.replace(' ', '-')}-n{self.n}{kappa}"

    def fingerprint(self, machine: str) -> str:
        """128 bits as 32 hexadecimal digits, of the recipe and the machine that draws.

        Machines draw the same matrix up to rounding only.
        """
        text = f"roundwise.native_gpu/1 {astuple(self)!r} {machine}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def drawn(self, backend: Backend) -> DeviceSystem:
        """The system in the memory of the backend's device; b = fl(A x_true)."""
        rng, xp = np.random.default_rng(self.seed), backend.xp
        if self.family == "gaussian":
            A = gaussian(self.n, rng=rng, xp=xp)
        elif self.family == "heavy diagonal":
            A = heavy_diagonal(self.n, float(rng.uniform(*WEIGHTS)), rng=rng, xp=xp)
        else:
            s = singular_values(self.n, self.kappa, int(self.family[-1]), rng=rng)
            A = with_singular_values(s, rng=rng, xp=xp)
        x_true = rng.standard_normal(self.n)
        assert backend.machine is not None
        key = self.fingerprint(backend.machine.key)
        meta = {"generator": "native_gpu", "family": self.family, "kappa": self.kappa}
        return DeviceSystem(A, A @ backend.array(x_true), x_true, key, backend, self.name, meta)


@dataclass(frozen=True, eq=False, repr=False)
class DeviceSystem(Problem):
    """A dense system with A and b on a device; the true solution is the processor's."""

    A: Any
    b: Any
    x_true: Vector
    key: str
    backend: Backend
    name: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    is_sparse = False

    @property
    def fingerprint(self) -> str:
        """That of the recipe: reading A back to hash it would take longer than solving."""
        return self.key

    @cached_property
    def norms(self) -> Norms:
        norm_b = math.hypot(*on_host(self.b).tolist())
        return Norms(self.backend.sizes(self.A)[0], float(np.abs(self.x_true).max()), norm_b)


class DeviceErrors:
    """As `ErrorMeasure`, for a system on a device: all passes over A are made there."""

    def __init__(self, problem: DeviceSystem) -> None:
        self._problem, self._norm_A = problem, problem.norms.A
        self._matrix = problem.backend.matrix(problem.A, FP64)

    def forward(self, x: Vector) -> float:
        """``||x - x_true|| / ||x_true||`` in the max norm."""
        x_true = self._problem.x_true
        return float(np.abs(x - x_true).max() / np.abs(x_true).max())

    def backward(self, x: Vector) -> float:
        """``||b - A x|| / (||A|| ||x|| + ||b||)`` in the max norm."""
        residual, b = self._residual(x)
        return float(residual.max() / (self._norm_A * np.abs(x).max() + np.abs(b).max()))

    def componentwise(self, x: Vector) -> float:
        """``max_i |b - A x|_i / (|A| |x| + |b|)_i``, 0/0 being 0."""
        residual, b = self._residual(x)
        size = on_host(abs(self._problem.A) @ self._problem.backend.array(np.abs(x))) + np.abs(b)
        return float(np.divide(residual, size, out=np.zeros_like(size), where=size > 0).max())

    def _residual(self, x: Vector) -> tuple[Vector, Vector]:
        problem = self._problem
        X, B = problem.backend.array(x)[:, None], problem.b[:, None]
        residual = on_host(problem.backend.residual(self._matrix, X, B))[:, 0]
        return np.abs(residual), on_host(problem.b)
