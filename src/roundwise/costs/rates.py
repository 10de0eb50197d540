"""Rates as they are stored: those of sparse work, how dense ones change with threads, and the file
that keeps what was measured on a machine.

A profile is measured with some number of threads. Its rates with another number are these times
what the same change did on one machine (``threads`` of `roundwise.machine.rates`, measured by
``python -m roundwise_studies.default_policy.threads``): the rate of flops grows with threads, the
more the larger n; that of memory levels off; overheads of calls stay.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from roundwise._files import one_line, read_json, replace_file
from roundwise.costs.machines import LARGEST, MachineProfile, Rate, is_number
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP32, FP64
from roundwise.machine.identity import GpuMachine, Machine
from roundwise.machine.rates import shipped_rates
from roundwise.methods.sparse import AMOUNTS

if TYPE_CHECKING:
    from roundwise.costs.calibration import Calibration

T = TypeVar("T")
SCHEMA = "roundwise-machine-profile"
VERSION = 4  # 2: LU is our own; 3: sparse prices; 4: passes over A use all threads
THREADS = {"cores", "threads", "blas_threads"}
"""Fields in which two settings of one machine may differ."""


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
        """The prices in a JSON object; a `ValueError` says what is wrong with it."""
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
        """Factors for the rates of flops and of memory; 1 for unknown formats.

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


class ProfileError(RoundwiseError):
    """There is no usable profile of this machine; the message says why and what to do."""


class ProfileMissingError(ProfileError):
    """This machine was never calibrated with its present settings."""


class ProfileWarning(UserWarning):
    """There is a profile of this machine, but it cannot be used: generic prices decide."""


def cache_folder() -> Path:
    """``$ROUNDWISE_CACHE``, else ``$XDG_CACHE_HOME/roundwise``, else ``~/.cache/roundwise``."""
    if ours := os.environ.get("ROUNDWISE_CACHE"):
        return Path(ours)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roundwise"
    except RuntimeError as error:  # some containers run as a user without a home
        raise ProfileMissingError(
            f"there is no cache folder ({error}); set ROUNDWISE_CACHE to one, and run "
            "`roundwise calibrate`"
        ) from error


def profile_path(machine: Machine) -> Path:
    """Where the profile of a machine is stored."""
    return cache_folder() / f"{_kind(machine)}-{machine.key}.json"


def _kind(machine: Machine) -> str:
    return "prices" if isinstance(machine, GpuMachine) else "profile"


def _remedy(machine: Machine) -> str:
    on_gpu = " --device cuda" if isinstance(machine, GpuMachine) else ""
    return f"run `roundwise calibrate{on_gpu}`"


def save_profile(calibration: Calibration, path: str | PathLike[str] | None = None) -> Path:
    """Write the profile of a calibrated machine, by default to the cache folder; return the path.

    Parameters
    ----------
    calibration : Calibration
    path : path, optional
        By default that of `profile_path` for its machine.

    Examples
    --------
    >>> import tempfile
    >>> from roundwise.costs import calibrate, save_profile
    >>> measured = calibrate([20], formats=[rw.FP64], seconds_per_kernel=1e-4, sparse={})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_profile(measured, f"{folder}/profile.json").name
    'profile.json'
    """
    measured = {
        **asdict(calibration),
        "profile": calibration.profile().to_dict(),
        "sparse_prices": asdict(calibration.sparse_prices()),
    }
    return save(calibration.machine, measured, path)


def save(
    machine: Machine, measured: Mapping[str, Any], path: str | PathLike[str] | None = None
) -> Path:
    """Write what was measured on a machine, by default to the cache folder; return the path."""
    target = profile_path(machine) if path is None else Path(path)
    content = {
        "schema": SCHEMA,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "roundwise": version("roundwise"),
        "machine": machine.to_dict(),
        **measured,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, json.dumps(content, indent=1, allow_nan=False).encode() + b"\n")
    return target


def load_profile(path: str | PathLike[str] | None = None) -> MachineProfile:
    """The measured profile of this machine with its present number of threads.

    It is read from a file that `save_profile` wrote, by default that in the cache folder. If it is
    unreadable, damaged, or made for another machine, BLAS, number of threads or version of the
    file, a `ProfileError` names the remedy; if there is no file, its child `ProfileMissingError`.

    Parameters
    ----------
    path : path, optional
        By default that of `profile_path` for this machine.

    Examples
    --------
    >>> import tempfile
    >>> from roundwise.costs import calibrate, load_profile, save_profile
    >>> measured = calibrate([20], formats=[rw.FP64], seconds_per_kernel=1e-4, sparse={})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     profile = load_profile(save_profile(measured, f"{folder}/profile.json"))
    >>> list(profile.rates)
    ['fp64']
    """
    return load_measured(path)[0]


def load_measured(path: str | PathLike[str] | None = None) -> tuple[MachineProfile, SparsePrices]:
    """The profile as `load_profile` reads it, and the prices of sparse work measured with it."""
    return load_part(Machine.this(), _processor_part, path)


SURE_FROM = 500
"""A taste: the least n whose LU takes so long that overheads and the clock do not matter."""


def impossible(profile: MachineProfile) -> str:
    """The first contradiction in measured rates, in words; empty if there is none.

    LU in FP32 does the same operations as in FP64, on half of the bytes; and a larger system takes
    longer than a smaller one. Where times say otherwise, another program had the processor.
    """
    seconds = {
        fmt: {
            n: 2 / 3 * n**3 / rates[fmt].flops_per_second
            for n, rates in profile.sizes.items()
            if n >= SURE_FROM
        }
        for fmt in profile.rates
    }
    if FP32.name in seconds:
        for n, single in seconds[FP32.name].items():
            if single > seconds[FP64.name][n]:
                return f"FP32 is slower than FP64 at n = {n}"
    for fmt, times in seconds.items():
        for small, large in pairwise(times):
            if times[large] < times[small]:
                return f"{fmt.upper()} is faster at n = {large} than at n = {small}"
    return ""


def _processor_part(saved: Mapping[str, Any]) -> tuple[MachineProfile, SparsePrices]:
    profile = MachineProfile.from_dict(saved.get("profile"))
    if FP64.name not in profile.rates:
        raise ValueError("it has no rate of fp64, which every solve may end in")
    if wrong := impossible(profile):
        raise ValueError(f"{wrong}, which cannot be")
    return profile, SparsePrices.from_dict(saved.get("sparse_prices"))


def load_part(
    here: Machine, part: Callable[[Mapping[str, Any]], T], path: str | PathLike[str] | None = None
) -> T:
    """Read a machine's file and return ``part(content)``; a `ProfileError` if it cannot be used."""
    source = profile_path(here) if path is None else Path(path)
    try:
        saved = _content(source, here)
    except FileNotFoundError as error:
        told = _missing(here, source, asked=path is not None)
        raise ProfileMissingError(told) from error
    except OSError as error:
        reason = one_line(error.strerror or error)
        raise ProfileError(
            f"{source}: cannot be read ({reason}); mend it or its folder, or set ROUNDWISE_CACHE "
            f"to another, and {_remedy(here)}"
        ) from error
    if saved["version"] != VERSION:
        raise ProfileError(
            f"{source}: stale, its version is {one_line(repr(saved['version']), 40)} and this "
            f"Roundwise reads {VERSION}; {_remedy(here)}"
        )
    try:
        machine, found = type(here).from_dict(saved.get("machine")), part(saved)
    except ValueError as error:
        raise ProfileError(f"{source}: damaged ({one_line(error)}); {_remedy(here)}") from error
    if machine.differences(here):
        raise ProfileError(f"{source}: stale, {_differences(machine, here)}; {_remedy(here)}")
    return found


def load_with_other_threads(here: Machine) -> tuple[Machine, MachineProfile, SparsePrices] | None:
    """A profile of this machine with another number of threads, the nearest; None if there is none.

    One that is damaged or of another version is not looked at.
    """
    try:
        folder = cache_folder()
    except ProfileMissingError:
        return None
    found: list[tuple[float, str, Machine, dict[str, Any]]] = []
    for path in sorted(folder.glob("profile-*.json")):
        with suppress(OSError, ProfileError, ValueError):
            saved = _content(path, here)
            machine = Machine.from_dict(saved.get("machine"))
            if saved["version"] == VERSION and set(machine.differences(here)) <= THREADS:
                far = abs(math.log(machine.threads / here.threads))
                found.append((far, path.name, machine, saved))
    for _, _, machine, saved in sorted(found, key=lambda one: one[:2]):
        with suppress(ValueError):
            return machine, *_processor_part(saved)
    return None


def remove_profiles(here: Machine) -> list[Path]:
    """Remove what was measured on this machine, with any number of threads; return the paths."""
    removed = []
    for path in sorted(cache_folder().glob(f"{_kind(here)}-*.json")):
        ours = path == profile_path(here)
        # One that cannot be read is left, unless its name is that of this machine.
        with suppress(OSError, ProfileError, ValueError):
            machine = type(here).from_dict(_content(path, here).get("machine"))
            ours = ours or set(machine.differences(here)) <= THREADS
        if ours:
            path.unlink()
            removed.append(path)
    return removed


def _content(source: Path, here: Machine) -> dict[str, Any]:
    try:
        saved = read_json(source)
    except ValueError as error:
        raise ProfileError(f"{source}: no JSON ({one_line(error)}); {_remedy(here)}") from error
    if not isinstance(saved, dict) or saved.get("schema") != SCHEMA or "version" not in saved:
        raise ProfileError(f"{source}: no machine profile; {_remedy(here)}")
    return saved


def _missing(here: Machine, source: Path, asked: bool) -> str:
    """Why there is no profile: the nearest one that is there tells what has changed."""
    if asked:
        return f"{source}: no such file; check the path, or {_remedy(here)} --out {source}"
    machines: dict[Path, Machine] = {}
    for path in sorted(source.parent.glob(f"{_kind(here)}-*.json")):
        # Unreadable or damaged: it does not tell what has changed.
        with suppress(OSError, ProfileError, ValueError):
            saved = _content(path, here)
            machines[path] = type(here).from_dict(saved.get("machine"))
    if not machines:
        return f"this machine has not been measured; {_remedy(here)}"
    nearest = min(machines, key=lambda path: len(machines[path].differences(here)))
    return f"{nearest}: stale, {_differences(machines[nearest], here)}; {_remedy(here)}"


def _differences(machine: Machine, here: Machine) -> str:
    changes = machine.differences(here).items()
    told = (f"{name} {one_line(repr(old), 150)} (now {new!r})" for name, (old, new) in changes)
    return "made with " + ", ".join(told)
