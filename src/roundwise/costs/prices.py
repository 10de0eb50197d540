"""What the work of a solve costs on this machine, in seconds, before it is done."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from roundwise.costs.machines import MachineProfile
from roundwise.costs.rates import SparsePrices, check_numbers, shipped_scaling
from roundwise.costs.stored import (
    ProfileError,
    ProfileMissingError,
    ProfileWarning,
    load_measured,
    load_with_other_threads,
)
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.machine import Machine
from roundwise.machine.rates import shipped_rates
from roundwise.methods import METHODS, Seconds, Shape, Work

MEASURED_WITH = 2
"""Threads of the machine that generic prices were measured on."""

SMALLEST = Shape(1, 1)

MOST_KNOWN = 1000
"""Prices of methods, for matrices of some shape, that are kept."""


@dataclass(frozen=True)
class Prices:
    """The rates of a processor, and the prices of methods by them.

    The formulas are those of `roundwise.methods`.

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
    structured : mapping of str to float
        Seconds for an entry and for a flop of a band, and for an entry of a triangle.

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
    structured: Mapping[str, float] = field(default_factory=dict)  # see `methods.structured`

    def __post_init__(self) -> None:
        object.__setattr__(self, "_priced", {})
        object.__setattr__(self, "_known", {})  # a choice asks for the same few again and again

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, one.name) for one in fields(self))

    def prices(self, method: str, fmt: str) -> bool:
        """Whether work by this method in this format has a price."""
        by = METHODS.get(method)
        if by is None or by.price is None:
            return False
        known: dict[Any, bool] = self._priced  # type: ignore[attr-defined]
        if (found := known.get((by.price, fmt))) is None:
            found = known[by.price, fmt] = by.price(self, SMALLEST, fmt) is not None
        return found

    def seconds(self, shape: Shape, method: str, fmt: str, work: Work) -> float:
        """The seconds that this work takes."""
        known: dict[Any, Seconds] = self._known  # type: ignore[attr-defined]
        by = METHODS[method]
        size = shape if by.sparse else (shape.n, shape.columns, shape.diagonals)
        if (seconds := known.get((size, by.price, fmt))) is None:
            found = None if by.price is None else by.price(self, shape, fmt)
            if found is None:
                raise ValueError(f"{method} has no price in {fmt}; ask `prices` before")
            if len(known) > MOST_KNOWN:
                known.clear()
            seconds = known[size, by.price, fmt] = found
        return seconds.of(work, shape.columns)

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


def generic_prices(threads: int = MEASURED_WITH) -> Prices:
    """The prices that come with the package, measured on the machine that they name.

    Rates of dense work are scaled to this number of threads (`thread_scaling`).
    """
    return _generic_prices(threads)


@lru_cache(maxsize=16)
def _generic_prices(threads: int) -> Prices:
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
