"""How rates of dense work change with the number of threads, as measured on one machine.

A profile is measured with some number of threads. Prices with another number are its rates times
what the same change did on one machine (``threads`` of `roundwise.machine.rates`, measured by
``python -m roundwise_studies.default_policy.threads``): the rate of flops grows with threads,
the more the larger n; that of memory levels off; overheads of calls stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from roundwise.costs.machines import MachineProfile, Rate
from roundwise.exceptions import RoundwiseError
from roundwise.machine.rates import shipped_rates


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
