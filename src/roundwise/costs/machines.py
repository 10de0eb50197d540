"""The cost of a run: machine profiles, which price counted operations, and measured time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

from roundwise.algorithms.base import Outcome
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64, NAMED_FORMATS, get_format

OutcomeRow = Sequence[Outcome | None]
"""The outcomes of one problem, in the order of an action space; None where not computed."""


LARGEST = 1e30
"""Rates lie between 1 / LARGEST and LARGEST, and overheads below: no price overflows."""


@dataclass(frozen=True)
class Rate:
    """Speed of a machine in one format; without `bytes_per_second` memory traffic is free.

    Parameters
    ----------
    flops_per_second : float
    bytes_per_second : float, optional

    Examples
    --------
    >>> from roundwise.costs import Rate
    >>> Rate(2e9).bytes_per_second is None
    True
    """

    flops_per_second: float
    bytes_per_second: float | None = None

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            free = value is None and name == "bytes_per_second"
            if not free and not (is_number(value) and 1 / LARGEST <= value <= LARGEST):
                raise ValueError(
                    f"{name} = {value!r}; choose a finite number > 0, {1 / LARGEST:g} to "
                    f"{LARGEST:g}"
                )


@dataclass(frozen=True)
class MachineProfile:
    """A machine as a table of rates, which prices what an outcome counted.

    A roofline for each stage (Williams, Waterman & Patterson, Commun. ACM 52(4), 2009)::

        cost = sum_stages max(flops / flops_per_second, bytes / bytes_per_second) + run_overhead
               + outer_overhead * outer iterations + inner_overhead * inner iterations

    Parameters
    ----------
    rates : mapping of format name to Rate
        The formats that the machine can run.
    outer_overhead, inner_overhead : float
        Seconds of each iteration that do not depend on the size: launches, synchronisation.
    source : str
        Where the numbers come from.
    run_overhead : float
        Seconds of each run that do not depend on the size.
    sizes : mapping of n to mapping of format name to Rate
        Rates that depend on the size of the system: between two sizes their logarithms are linear
        in log n, beyond the smallest and the largest they are constant. `rates` then only serves
        runs whose size is not known.
    bit_rate : float, optional
        Where it is given, a format without a `Rate` does ``bit_rate / p`` flops a second, p its
        significand bits, and its traffic is free. Without it, such a format is refused.
    name : str

    Examples
    --------
    >>> from roundwise.costs import MachineProfile, Rate
    >>> machine = MachineProfile("toy", {"fp32": Rate(2e9), "fp64": Rate(1e9)})
    >>> outcome = rw.GmresIR().run(rw.problems.randsvd(20, 10.0, rng=0), "fp64-fp64-fp64-fp64")
    >>> flops = sum(tally.flops for tally in outcome.operations.values())
    >>> bool(np.isclose(machine.cost(outcome), flops / 1e9))
    True

    A machine that also runs a format of your own:

    >>> from dataclasses import replace
    >>> fp24 = rw.FloatFormat("fp24", p=17, emin=-62, emax=63)
    >>> replace(machine, rates={**machine.rates, fp24.name: Rate(3e9)}).rate("fp24")
    Rate(flops_per_second=3000000000.0, bytes_per_second=None)
    """

    name: str
    rates: Mapping[str, Rate] = field(hash=False)
    outer_overhead: float = 0.0
    inner_overhead: float = 0.0
    source: str = field(default="", repr=False)
    run_overhead: float = 0.0
    sizes: Mapping[int, Mapping[str, Rate]] = field(default_factory=dict, hash=False, repr=False)
    bit_rate: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.source, str):
            raise ValueError(f"name = {self.name!r}, source = {self.source!r}; pass text")
        if not self.rates:
            raise ValueError("rates are empty; pass a Rate for each format of the machine")
        object.__setattr__(self, "rates", dict(self.rates))
        object.__setattr__(self, "sizes", {n: dict(self.sizes[n]) for n in sorted(self.sizes)})
        for n, rates in self.sizes.items():
            if not 1 <= n <= 2**53 or set(rates) != set(self.rates):
                raise ValueError(
                    f"the rates of size {n} are for {', '.join(rates)}; pass sizes of at least 1, "
                    f"each with rates for {', '.join(self.rates)}"
                )
        for name in ("outer_overhead", "inner_overhead", "run_overhead"):
            seconds = getattr(self, name)
            if not (is_number(seconds) and 0 <= seconds <= LARGEST):
                raise ValueError(f"{name} = {seconds!r}; choose a finite number >= 0")
        if self.bit_rate is not None:
            Rate(self.bit_rate)  # checks it

    def rate(self, fmt: str, n: float | None = None) -> Rate:
        """The rate of a format on systems of size n; an error names the formats there are."""
        try:
            known = self.rates[fmt]
        except KeyError:
            if self.bit_rate is not None:
                return Rate(self.bit_rate / get_format(fmt).p)
            raise RoundwiseError(
                f"the machine profile {self.name!r} cannot run {fmt}, only "
                f"{', '.join(self.rates)}; leave {fmt} out of the action space or add its Rate: "
                f"dataclasses.replace(profile, rates={{**profile.rates, {fmt!r}: Rate(...)}})"
            ) from None
        return known if n is None or not self.sizes else _interpolated_rate(self, fmt, n)

    def cost(self, outcome: Outcome, n: int | None = None) -> float:
        """Seconds (or the profile's own unit) of a run, from its counted operations.

        Where rates depend on the size and n is not given, it is that of a dense LU factorization
        with as many flops as the stage ``factor`` has; without one, `rates` are taken.
        """
        cost = self.run_overhead if outcome.operations else 0.0
        cost += self.outer_overhead * outcome.outer_iterations
        cost += self.inner_overhead * outcome.inner_iterations
        size = n if n is not None or not self.sizes else _size_of(outcome)
        for (stage, fmt), tally in outcome.operations.items():
            if math.isnan(tally.flops):
                raise RoundwiseError(
                    f"the flops of {stage} were not counted (SuperLU does not tell); take "
                    "MeasuredTime as the cost, or count them with the operation model"
                )
            rate = self.rate(fmt, size)
            compute = tally.flops / rate.flops_per_second
            traffic = tally.bytes / rate.bytes_per_second if rate.bytes_per_second else 0.0
            cost += max(compute, traffic)
        return cost

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        saved = dataclasses.asdict(self)
        return saved | {"sizes": {str(n): rates for n, rates in saved["sizes"].items()}}

    @classmethod
    def from_dict(cls, saved: Any) -> MachineProfile:
        """The profile that `to_dict` wrote, or one written by hand."""
        try:
            sizes = {int(n): _rates(rates) for n, rates in saved.get("sizes", {}).items()}
            return cls(**dict(saved) | {"rates": _rates(saved["rates"]), "sizes": sizes})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a saved machine profile ({error!r}); save it again") from error


def is_number(value: object) -> bool:
    """Whether it is a real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


@lru_cache(maxsize=1000)  # a solver asks for the same few again and again
def _interpolated_rate(profile: MachineProfile, fmt: str, n: float) -> Rate:
    rates = [dataclasses.astuple(by_format[fmt]) for by_format in profile.sizes.values()]
    at, sizes = math.log(n), np.log(list(profile.sizes))
    interpolated: Any = (
        None if None in column else math.exp(np.interp(at, sizes, np.log(column)))
        for column in zip(*rates, strict=True)
    )
    return Rate(*interpolated)


def _rates(saved: Mapping[str, Mapping[str, Any]]) -> dict[str, Rate]:
    return {name: Rate(**rate) for name, rate in saved.items()}


def _size_of(outcome: Outcome) -> float | None:
    """The n with ``2/3 n^3`` flops in the factor stage."""
    flops = [tally.flops for (stage, _), tally in outcome.operations.items() if stage == "factor"]
    return float(np.cbrt(1.5 * flops[0])) if flops and flops[0] > 0 else None


@dataclass(frozen=True)
class MeasuredTime:
    """The cost of a run is the time it took, where its outcome has ``seconds``.

    Examples
    --------
    >>> from roundwise.costs import MeasuredTime
    >>> system = rw.problems.randsvd(20, 10.0, rng=0)
    >>> outcome = rw.VerifiedSolve().run(system, "lu:fp64-fp64-fp64-fp64", "native")
    >>> MeasuredTime().cost(outcome) == outcome.seconds
    True
    """

    def cost(self, outcome: Outcome, n: int | None = None) -> float:
        seconds = outcome.seconds
        if seconds is None or not 0 <= seconds < math.inf:
            raise ValueError(
                f"the outcome of {outcome.action!r} has no measured time; price it with a "
                "MachineProfile, or run it in native arithmetic, whose times are stored"
            )
        return seconds

    def to_dict(self) -> dict[str, Any]:
        return {"name": "measured time"}


BITS_PROPORTIONAL = MachineProfile(
    "bits-proportional",
    {fmt.name: Rate(FP64.p / fmt.p) for fmt in NAMED_FORMATS.values()},
    source="the paper's proxy applied to the work done: a flop costs p/53 for p significand bits "
    "(unit: one FP64 flop); memory traffic is free",
    bit_rate=FP64.p,
)

GENERIC_AVX512_CPU = MachineProfile(
    "generic-avx512-cpu",
    {
        "bf16": Rate(320e9, 80e9),
        "fp16": Rate(320e9, 80e9),
        "tf32": Rate(160e9, 80e9),
        "fp32": Rate(160e9, 80e9),
        "fp64": Rate(80e9, 80e9),
    },
    source="one core at 2.5 GHz with two 512-bit FMA units: 32 FP64 flops per cycle, twice as many "
    "in FP32 and four times in BF16 and FP16 (AVX512-BF16, AVX512-FP16, no AMX); 32 bytes per "
    "cycle from its L2 cache, which holds dense systems up to about n = 500; tf32 is stored and "
    "computed as fp32; peak rates",
)

H200_EFFICIENCY = 0.6
"""Share of peak that `H200_LIKE` grants compute and memory alike: ratios of costs are at peak."""

H200_LIKE = MachineProfile(
    "h200-like",
    {
        name: Rate(H200_EFFICIENCY * flops, H200_EFFICIENCY * 4.8e12)
        for name, flops in {
            "e4m3": 1979e12,
            "e5m2": 1979e12,
            "bf16": 989e12,
            "fp16": 989e12,
            "tf32": 494e12,
            "fp32": 67e12,
            "fp64": 67e12,
        }.items()
    },
    source="NVIDIA H200 SXM data sheet, dense (half of the figures quoted with sparsity): FP8 "
    "1979, BF16 and FP16 989, TF32 494, FP64 67 Tflop/s on tensor cores, FP32 67 Tflop/s on "
    "vector units; HBM3e 4.8 TB/s; kernels do not reach peak: all times 0.6; no launch latency, "
    "so small systems are priced as part of a large batch",
)
"""Launch latency is left out (see `source`): add ``outer_overhead`` and ``inner_overhead`` with
`dataclasses.replace` to study single systems."""

PROFILES: dict[str, MachineProfile] = {
    profile.name: profile for profile in (BITS_PROPORTIONAL, GENERIC_AVX512_CPU, H200_LIKE)
}
