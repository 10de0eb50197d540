"""What the work of a solve costs on this machine, in seconds, before it is done."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from roundwise.costs.machines import MachineProfile
from roundwise.costs.sparse_prices import (
    SCHEMA,
    VERSION,
    Shape,
    SparsePrices,
    readable,
    shipped,
)
from roundwise.costs.stored import (
    ProfileError,
    ProfileMissingError,
    ProfileWarning,
    load_measured,
)
from roundwise.formats import FP64, get_format
from roundwise.machine import Machine

BASIS = 15
"""Krylov vectors that an Arnoldi step orthogonalizes against, on average."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is done by one method in one format: factorizations, corrections, GMRES iterations."""

    runs: int = 0
    steps: int = 0
    iterations: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.runs + other.runs, self.steps + other.steps, self.iterations + other.iterations
        )


@dataclass(frozen=True)
class Prices:
    """A machine profile, which prices dense work, and prices of what it does not cover.

    The price of work is ``runs factor + (runs + steps) step + iterations iteration``, where a
    step is a triangular solve in the factors' format and a residual in FP64, and an iteration
    applies the factors and A in FP64. Dense steps are bound by memory, or by arithmetic if there
    are many right-hand sides.
    """

    profile: MachineProfile
    applied: Mapping[str, float]  # seconds per entry of applying dense factors in FP64, by format
    cholesky: Mapping[str, float]  # seconds of Cholesky over those of LU, by format
    sparse: SparsePrices
    source: str = field(default="", repr=False)

    def prices(self, method: str, fmt: str) -> bool:
        """Whether work by this method in this format has a price."""
        if method not in ("lu", "cholesky"):
            return fmt in self.sparse.factor.get(method, {})
        return fmt in self.profile.rates and (method == "lu" or fmt in self.cholesky)

    def seconds(self, shape: Shape, method: str, fmt: str, work: Work) -> float:
        """What this work takes."""
        if method in self.sparse.factor:
            factor, step, iteration = self._sparse(shape, method, fmt, work)
        else:
            factor, step, iteration = self._dense(shape, method, fmt)
        steps = work.runs + work.steps
        return work.runs * factor + steps * step + shape.columns * work.iterations * iteration

    def _dense(self, shape: Shape, method: str, fmt: str) -> tuple[float, float, float]:
        n, profile = shape.n, self.profile
        rate = profile.rate(fmt, n)
        share = self.cholesky[fmt] if method == "cholesky" else 1.0
        factor = share * 2 / 3 * n**3 / rate.flops_per_second + profile.run_overhead
        product = self._pass(n, FP64.name, shape.columns)
        step = self._pass(n, fmt, shape.columns) + product + profile.outer_overhead
        single = self._pass(n, FP64.name, 1)
        applied = self.applied[fmt] * n * n if fmt in self.applied else single
        iteration = applied + (1 + 2 * BASIS / n) * single + profile.inner_overhead
        return factor, step, iteration

    def _pass(self, n: int, fmt: str, columns: int) -> float:
        """A product or a triangular solve with a block of columns."""
        rate = self.profile.rate(fmt, n)
        compute = 2 * n * n * columns / rate.flops_per_second
        if rate.bytes_per_second is None:
            return compute
        return max(compute, n * n * get_format(fmt).storage_bytes / rate.bytes_per_second)

    def _sparse(
        self, shape: Shape, method: str, fmt: str, work: Work
    ) -> tuple[float, float, float]:
        prices, profile = self.sparse, self.profile
        product = prices.matvec * shape.entries
        factor = prices.factor_seconds(shape, method, fmt)
        if work.iterations and fmt != FP64.name:
            factor += prices.conversion * shape.filled
        solve = prices.solve[method]
        step = shape.columns * (solve[fmt] * shape.filled + product) + profile.outer_overhead
        iteration = solve[FP64.name] * shape.filled + product + profile.inner_overhead
        return factor + profile.run_overhead, step, iteration

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        saved = {"schema": SCHEMA, "version": VERSION, **asdict(self)}
        return saved | {"profile": self.profile.to_dict()}

    @classmethod
    def from_dict(cls, saved: Any) -> Prices:
        saved = readable(saved)
        profile = MachineProfile.from_dict(saved["profile"])
        sparse = SparsePrices.from_dict(saved["sparse"])
        return cls(profile, saved["applied"], saved["cholesky"], sparse, saved["source"])


@cache
def generic_prices() -> Prices:
    """Those that come with the package, measured on the machine that they name."""
    return Prices.from_dict(shipped())


def current_prices() -> Prices:
    """Prices as `roundwise calibrate` measured them here; the generic ones if it was not run.

    They are looked up once in a process for each number of threads. A profile that is there but
    cannot be used is a `ProfileWarning`, and generic prices decide: prices cost time, no digits.
    """
    return _prices_of(Machine.this())


@lru_cache(maxsize=16)
def _prices_of(machine: Machine) -> Prices:
    try:
        profile, sparse = load_measured()
    except ProfileMissingError as error:
        logging.getLogger(__name__).info("generic prices decide: %s", error)
        return generic_prices()
    except ProfileError as error:
        warnings.warn(f"generic prices decide: {error}", ProfileWarning, stacklevel=2)
        return generic_prices()
    measured = "measured on this machine"
    return replace(generic_prices(), profile=profile, sparse=sparse, source=measured)
