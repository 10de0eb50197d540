"""Prices: the seconds that a solve will take, on a processor and on a GPU.

The formulas are those of `roundwise.methods`. Their rates come with the package
(`roundwise.machine.rates`), or were measured here by `roundwise calibrate` (`stored`).
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

from roundwise.costs.machines import MachineProfile
from roundwise.costs.rates import (
    ProfileError,
    ProfileMissingError,
    ProfileWarning,
    SparsePrices,
    check_numbers,
    load_measured,
    load_part,
    load_with_other_threads,
    save,
    shipped_scaling,
)
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.machine import Machine
from roundwise.machine.rates import shipped_rates
from roundwise.machine.threads import thread_setting
from roundwise.methods import METHODS, Seconds, Shape, Work
from roundwise.methods.contract import Method
from roundwise.methods.gpu import correction

MEASURED_WITH = 2
"""Threads of the machine that generic prices were measured on."""

SMALLEST = Shape(1, 1)

MOST_KNOWN = 1000
"""Prices of methods, for matrices of some shape, that are kept."""


class PricedMethods:
    """Prices of methods by the rates of one machine; each is computed once."""

    _of: Callable[[Method], Callable[[Any, Shape, str], Seconds | None] | None]
    """The formula of a method for this kind of machine."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_priced", {})
        object.__setattr__(self, "_known", {})  # a choice asks for the same few again and again

    def __reduce__(self) -> tuple[Any, ...]:
        this: Any = self
        return type(self), tuple(getattr(self, one.name) for one in fields(this))

    def prices(self, method: str, fmt: str) -> bool:
        """Whether work by this method in this format has a price."""
        by = METHODS.get(method)
        price = None if by is None else type(self)._of(by)
        if price is None:
            return False
        known: dict[Any, bool] = self._priced  # type: ignore[attr-defined]
        if (found := known.get((price, fmt))) is None:
            found = known[price, fmt] = price(self, SMALLEST, fmt) is not None
        return found

    def seconds(self, shape: Shape, method: str, fmt: str, work: Work) -> float:
        """The seconds that this work takes."""
        return self._parts(shape, method, fmt).of(work, shape.columns)

    def _parts(self, shape: Shape, method: str, fmt: str) -> Seconds:
        known: dict[Any, Seconds] = self._known  # type: ignore[attr-defined]
        by = METHODS[method]
        price = type(self)._of(by)
        size = shape if by.sparse else (shape.n, shape.columns, shape.diagonals)
        if (seconds := known.get((size, price, fmt))) is None:
            found = None if price is None else price(self, shape, fmt)
            if found is None:
                raise ValueError(f"{method} has no price in {fmt}; ask `prices` before")
            if len(known) > MOST_KNOWN:
                known.clear()
            seconds = known[size, price, fmt] = found
        return seconds


@dataclass(frozen=True)
class Prices(PricedMethods):
    """The rates of a processor, and the prices of methods by them."""

    profile: MachineProfile
    applied: Mapping[str, float]  # seconds per entry of applying dense factors in FP64, by format
    cholesky: Mapping[str, float]  # seconds of Cholesky over those of LU, by format
    sparse: SparsePrices
    source: str = field(default="", repr=False)
    structured: Mapping[str, float] = field(default_factory=dict)  # see `methods.structured`

    _of = staticmethod(lambda method: method.price)

    @property
    def of_one_thread(self) -> Prices:
        """Those that come with the package, for work that one thread does."""
        return generic_prices(1)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        return asdict(self) | {"profile": self.profile.to_dict()}

    @classmethod
    def from_dict(cls, saved: Any) -> Prices:
        try:
            profile = MachineProfile.from_dict(saved["profile"])
            sparse = SparsePrices.from_dict(saved["sparse"])
            rest = {name: saved[name] for name in ("applied", "cholesky", "structured", "source")}
            for name in ("applied", "cholesky", "structured"):
                check_numbers(name, *rest[name].values())
            return cls(profile, sparse=sparse, **rest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RoundwiseError(
                f"no rates of a processor ({error!r}); install Roundwise again"
            ) from error


@lru_cache(maxsize=16)
def generic_prices(threads: int = MEASURED_WITH) -> Prices:
    """The prices that come with the package, measured on the machine that they name.

    Rates of dense work are scaled to this number of threads (`ThreadScaling`).
    """
    return scaled_to(Prices.from_dict(shipped_rates("cpu")), MEASURED_WITH, threads)


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

    Examples
    --------
    >>> from roundwise.costs import current_prices
    >>> prices = current_prices()
    """
    return _prices_of(thread_setting())


@lru_cache(maxsize=16)
def _prices_of(setting: tuple[Any, ...]) -> Prices:
    """The prices of this machine with its present threads, `setting`."""
    machine = Machine.this()
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


@dataclass(frozen=True)
class FactorPrice:
    """The rates of a factorization by one method in one format on a GPU."""

    flops_per_second: float
    column: float  # seconds
    launch: float = 0.0  # seconds


@dataclass(frozen=True)
class DevicePrices(PricedMethods):
    """The rates of one GPU, the prices of methods by them, and where they come from."""

    device: str
    factors: Mapping[str, Mapping[str, FactorPrice]]  # by method and format
    bytes_per_second: float  # of passes over a matrix
    step: float  # seconds of a correction that do not depend on n
    step_column: float  # seconds of a correction per unknown: substitution is a chain of blocks
    source: str = field(default="", repr=False)

    _of = staticmethod(lambda method: method.device_price)

    def factor_seconds(self, method: str, fmt: str, n: int) -> float:
        return self._parts(Shape(n, n * n), method, fmt).factor

    def step_seconds(self, fmt: str, n: int, columns: int = 1) -> float:
        """Seconds of a substitution with the factors, and of a residual, for each column."""
        return correction(self, fmt, n, columns)

    @classmethod
    def from_dict(cls, saved: Any) -> DevicePrices:
        """The prices in a JSON object; a `ValueError` says what is wrong with it."""
        try:
            factors = {
                method: {fmt: FactorPrice(**price) for fmt, price in by_format.items()}
                for method, by_format in saved["factors"].items()
            }
            made = cls(**saved | {"factors": factors})
            for method, by_format in factors.items():
                for fmt in by_format:
                    if not 0 < made.factor_seconds(method, fmt, 1000) < math.inf:
                        raise ValueError(f"{method} in {fmt} has no price")
            return made
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no prices of a GPU: {error!r}") from error


@cache
def generic_device_prices() -> DevicePrices:
    """The prices that come with the package, measured on the device that they name."""
    return DevicePrices.from_dict(shipped_rates("cuda"))


def save_device_prices(
    prices: DevicePrices, machine: Machine, path: str | PathLike[str] | None = None
) -> Path:
    """Write what was measured on a GPU, by default to the cache folder; return the path."""
    return save(machine, {"device_prices": asdict(prices)}, path)


def load_device_prices(machine: Machine, path: str | PathLike[str] | None = None) -> DevicePrices:
    """The prices that were measured on a GPU; a `ProfileError` if there are none."""
    return load_part(
        machine, lambda saved: DevicePrices.from_dict(saved.get("device_prices")), path
    )


@cache
def device_prices(machine: Machine) -> DevicePrices:
    """The prices that `roundwise calibrate --device cuda` measured here; else the generic ones.

    They are looked up once in a process. A file that cannot be used is a `ProfileWarning`: prices
    cost time, no digits.
    """
    try:
        return load_device_prices(machine)
    except ProfileMissingError:  # there is no cache folder, or nobody has measured
        return generic_device_prices()
    except ProfileError as error:
        warnings.warn(f"generic prices decide: {error}", ProfileWarning, stacklevel=2)
        return generic_device_prices()
