"""What the work of a solve costs on this machine, in seconds, before it is done."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
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
    load_with_other_threads,
)
from roundwise.costs.thread_scaling import shipped_scaling
from roundwise.formats import FP64, get_format
from roundwise.machine import Machine

BASIS = 15
"""Krylov vectors that an Arnoldi step orthogonalizes against, on average."""

MEASURED_WITH = 2
"""Threads of the machine that generic prices were measured on."""

MOST_KNOWN = 1000
"""Prices of methods, for matrices of some shape, that are kept."""


@dataclass(frozen=True, slots=True)
class Work:
    """Counted work by one method in one format.

    Parameters
    ----------
    runs, steps, iterations : int
        Factorizations, corrections, and GMRES iterations.

    Examples
    --------
    >>> from roundwise.costs import Work
    >>> Work(runs=1, steps=2)
    Work(runs=1, steps=2, iterations=0)
    """

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

    Parameters
    ----------
    profile : MachineProfile
    applied : mapping of str to float
        Seconds per entry of applying dense factors in FP64, by their format.
    cholesky : mapping of str to float
        Seconds of Cholesky over those of LU, by format.
    sparse : SparsePrices
    source : str
        Where the numbers come from.

    Examples
    --------
    >>> from roundwise.costs import current_prices
    >>> current_prices().prices("lu", "fp32")
    True
    """

    profile: MachineProfile
    applied: Mapping[str, float]  # seconds per entry of applying dense factors in FP64, by format
    cholesky: Mapping[str, float]  # seconds of Cholesky over those of LU, by format
    sparse: SparsePrices
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", {})  # a choice asks for the same few again and again

    def prices(self, method: str, fmt: str) -> bool:
        """Whether work by this method in this format has a price."""
        if method not in ("lu", "cholesky"):
            return fmt in self.sparse.factor.get(method, {})
        return fmt in self.profile.rates and (method == "lu" or fmt in self.cholesky)

    def seconds(self, shape: Shape, method: str, fmt: str, work: Work) -> float:
        """The seconds that this work takes."""
        known: dict[Any, tuple[float, ...]] = self._known  # type: ignore[attr-defined]
        is_sparse = method in self.sparse.factor
        key = shape if is_sparse else (shape.n, shape.columns), method, fmt
        if (rates := known.get(key)) is None:
            if len(known) > MOST_KNOWN:
                known.clear()
            priced = self._sparse if is_sparse else self._dense
            rates = known[key] = priced(shape, method, fmt)
        factor, conversion, step, iteration = rates
        if work.iterations:
            factor += conversion
        steps = work.runs + work.steps
        return work.runs * factor + steps * step + shape.columns * work.iterations * iteration

    def _dense(self, shape: Shape, method: str, fmt: str) -> tuple[float, ...]:
        """Seconds of a factorization, of its conversion to FP64, of a step and of an iteration."""
        n, profile = shape.n, self.profile
        rate = profile.rate(fmt, n)
        share = self.cholesky[fmt] if method == "cholesky" else 1.0
        factor = share * 2 / 3 * n**3 / rate.flops_per_second + profile.run_overhead
        product = self._pass(n, FP64.name, shape.columns)
        step = self._pass(n, fmt, shape.columns) + product + profile.outer_overhead
        single = self._pass(n, FP64.name, 1)
        applied = self.applied[fmt] * n * n if fmt in self.applied else single
        iteration = applied + (1 + 2 * BASIS / n) * single + profile.inner_overhead
        return factor, 0.0, step, iteration

    def _pass(self, n: int, fmt: str, columns: int) -> float:
        """A product or a triangular solve with a block of columns."""
        rate = self.profile.rate(fmt, n)
        compute = 2 * n * n * columns / rate.flops_per_second
        if rate.bytes_per_second is None:
            return compute
        return max(compute, n * n * get_format(fmt).storage_bytes / rate.bytes_per_second)

    def _sparse(self, shape: Shape, method: str, fmt: str) -> tuple[float, ...]:
        """The same."""
        prices, profile = self.sparse, self.profile
        product = prices.matvec * shape.entries
        factor = prices.factor_seconds(shape, method, fmt)
        conversion = 0.0 if fmt == FP64.name else prices.conversion * shape.filled
        solve = prices.solve[method]
        step = shape.columns * (solve[fmt] * shape.filled + product) + profile.outer_overhead
        iteration = solve[FP64.name] * shape.filled + product + profile.inner_overhead
        return factor + profile.run_overhead, conversion, step, iteration

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


def generic_prices(threads: int = MEASURED_WITH) -> Prices:
    """The prices that come with the package, measured on the machine that they name.

    Rates of dense work are scaled to this number of threads (`thread_scaling`).
    """
    return _generic_prices(threads)


@lru_cache(maxsize=16)
def _generic_prices(threads: int) -> Prices:
    return scaled_to(Prices.from_dict(shipped()), MEASURED_WITH, threads)


def scaled_to(prices: Prices, before: int, after: int) -> Prices:
    """Prices measured with `before` threads, as they are expected to be with `after`."""
    if before == after:
        return prices
    profile = shipped_scaling().applied(prices.profile, before, after)
    # Applying factors reads them from memory, whatever they are computed with.
    largest = max(prices.profile.sizes)
    traffic = shipped_scaling().factors(FP64.name, largest, before, after)[1]
    applied = {fmt: seconds / traffic for fmt, seconds in prices.applied.items()}
    return replace(prices, profile=profile, applied=applied)


def current_prices() -> Prices:
    """Prices as `roundwise calibrate` measured them here; the generic ones if it was not run.

    They are looked up once per process and number of threads. If this machine was calibrated with
    another number of threads, those rates are scaled by the effect that the same change had on a
    machine with sixteen cores. If a profile exists but cannot be used, there is a `ProfileWarning`
    and generic prices are used: wrong prices cost time, never digits.

    Returns
    -------
    Prices

    Examples
    --------
    >>> from roundwise.costs import current_prices
    >>> prices = current_prices()
    """
    return _prices_of(Machine.this())


@lru_cache(maxsize=16)
def _prices_of(machine: Machine) -> Prices:
    threads, generic = dense_threads(machine), generic_prices(dense_threads(machine))
    source, before = "measured on this machine", threads
    try:
        profile, sparse = load_measured()
    except ProfileMissingError as error:
        other = load_with_other_threads(machine)
        if other is None:
            logging.getLogger(__name__).info("generic prices decide: %s", error)
            return generic
        measured_by, profile, sparse = other
        before = dense_threads(measured_by)
        source += f" with {before} thread" + "s" * (before > 1)
    except ProfileError as error:
        warnings.warn(f"generic prices decide: {error}", ProfileWarning, stacklevel=2)
        return generic
    profile = shipped_scaling().applied(profile, before, threads)
    return replace(generic, profile=profile, sparse=sparse, source=source)


def dense_threads(machine: Machine) -> int:
    """The threads of dense work: no more than BLAS may use."""
    blas_threads = machine.blas_threads
    return machine.threads if blas_threads is None else min(machine.threads, blas_threads)
