"""Rates as they are stored, checked: those of sparse work, and how dense ones change with threads.

A profile is measured with some number of threads. Its rates with another number are these times
what the same change did on one machine (``threads`` of `roundwise.machine.rates`, measured by
``python -m roundwise_studies.default_policy.threads``): the rate of flops grows with threads, the
more the larger n; that of memory levels off; overheads of calls stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from roundwise.costs.machines import LARGEST, MachineProfile, Rate, is_number
from roundwise.exceptions import RoundwiseError
from roundwise.machine.rates import shipped_rates
from roundwise.methods.sparse import AMOUNTS


@dataclass(frozen=True)
class SparsePrices:
    """Rates of sparse work, which `roundwise.methods.sparse` prices methods by."""

    factor: dict[str, dict[str, list[float]]]  # by method and format, for each of `AMOUNTS`
    solve: dict[str, dict[str, float]]  # by method and format: per entry of L
    matvec: float  # per entry of A
    conversion: float  # per entry of L: of the factors, to apply them in FP64
    spread: dict[str, float] = field(default_factory=dict)
    """By method: measured seconds are within this factor of the fit for nine systems of ten."""
    source: str = ""
    reference: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    """Of the systems of `sparse_calibration`, by name, method and format: the seconds of analysis
    with factorization, and of a solve, on the machine of these prices."""

    @classmethod
    def from_dict(cls, saved: Any) -> SparsePrices:
        """From JSON; a `ValueError` says what is wrong with it."""
        try:
            prices = cls(**saved)
            for method, formats in prices.factor.items():
                for fmt, numbers in formats.items():
                    if len(numbers) != len(AMOUNTS):
                        raise ValueError(f"{method} in {fmt} has no price for each of {AMOUNTS}")
                    check_numbers(f"prices of {method} in {fmt}", *numbers)
                    check_numbers(
                        f"the price of a solve by {method} in {fmt}", prices.solve[method][fmt]
                    )
            check_numbers("matvec and conversion", prices.matvec, prices.conversion)
            check_numbers("spread", *prices.spread.values())
            for methods in prices.reference.values():
                for formats in methods.values():
                    for factor, solve in formats.values():
                        check_numbers("reference", factor, solve)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no prices of sparse work ({error!r})") from error
        return prices


def check_numbers(name: str, *numbers: Any) -> None:
    """Raise a `ValueError` unless these are finite numbers >= 0."""
    for number in numbers:
        if not (is_number(number) and math.isfinite(number) and 0 <= number <= LARGEST):
            raise ValueError(f"{name}: {number!r} is no finite number >= 0")


@cache
def generic_sparse_prices() -> SparsePrices:
    """The prices of sparse work that come with the package."""
    return SparsePrices.from_dict(shipped_rates("cpu")["sparse"])


@dataclass(frozen=True)
class ThreadScaling:
    """Rates by number of threads, all of one machine."""

    profiles: Mapping[int, MachineProfile] = field(hash=False)
    source: str = ""

    def factors(self, fmt: str, n: int, before: int, after: int) -> tuple[float, float]:
        """What the rates of flops and of memory are multiplied by; 1 for unknown formats.

        Between two numbers of threads logarithms are linear in the logarithm; beyond the largest
        rates stay.
        """
        counts = sorted(self.profiles)
        if fmt not in self.profiles[counts[0]].rates:
            return 1.0, 1.0
        rates = [self.profiles[count].rate(fmt, n) for count in counts]
        at = np.log([before, after])
        changes = []
        for values in (
            [rate.flops_per_second for rate in rates],
            [rate.bytes_per_second or 1.0 for rate in rates],
        ):
            low, high = np.interp(at, np.log(counts), np.log(values))
            changes.append(math.exp(high - low))
        return changes[0], changes[1]

    def applied(self, profile: MachineProfile, before: int, after: int) -> MachineProfile:
        """A profile measured with `before` threads, as it is expected to be with `after`."""
        if before == after:
            return profile
        sizes = {
            n: {fmt: self._scaled(rate, fmt, n, before, after) for fmt, rate in rates.items()}
            for n, rates in profile.sizes.items()
        }
        rates = sizes[max(sizes)] if sizes else profile.rates
        source = f"{profile.source}; from {before} to {after} threads by {self.source}"
        return replace(profile, rates=rates, sizes=sizes, source=source)

    def _scaled(self, rate: Rate, fmt: str, n: int, before: int, after: int) -> Rate:
        flops, traffic = self.factors(fmt, n, before, after)
        known = rate.bytes_per_second
        return Rate(rate.flops_per_second * flops, None if known is None else known * traffic)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it. Rates have three digits."""
        rates = {
            str(count): {
                str(n): {
                    fmt: [
                        float(f"{value:.3g}") for value in (r.flops_per_second, r.bytes_per_second)
                    ]
                    for fmt, r in by_format.items()
                }
                for n, by_format in profile.sizes.items()
            }
            for count, profile in self.profiles.items()
        }
        return {"source": self.source, "rates": rates}

    @classmethod
    def from_dict(cls, saved: Any) -> ThreadScaling:
        try:
            profiles = {}
            for count, by_size in saved["rates"].items():
                sizes = {
                    int(n): {fmt: Rate(*rate) for fmt, rate in by_format.items()}
                    for n, by_format in by_size.items()
                }
                profiles[int(count)] = MachineProfile(
                    f"{count} threads", sizes[max(sizes)], sizes=sizes
                )
            return cls(profiles, saved["source"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RoundwiseError(
                f"no rates by threads ({error!r}); install Roundwise again"
            ) from error


@cache
def shipped_scaling() -> ThreadScaling:
    """The scaling that comes with the package."""
    return ThreadScaling.from_dict(shipped_rates("threads"))
