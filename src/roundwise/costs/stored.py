"""What was measured here, in the user's cache folder: one file for each machine and its threads.

All files have one schema: the machine, and what `roundwise calibrate` measured on it, which is for
a processor the times, the ``profile`` of dense work and the ``sparse_prices`` that follow from
them, for a GPU its ``device_prices``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from roundwise._files import one_line, read_json, replace_file
from roundwise.costs.machines import MachineProfile
from roundwise.costs.rates import SparsePrices
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.machine.identity import GpuMachine, Machine

if TYPE_CHECKING:
    from roundwise.costs.calibration import Calibration

T = TypeVar("T")
SCHEMA = "roundwise-machine-profile"
VERSION = 4  # 2: LU is our own; 3: sparse prices; 4: passes over A use all threads
THREADS = {"cores", "threads", "blas_threads"}
"""What two settings of one machine may differ in."""


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

    Returns
    -------
    Path

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

    Returns
    -------
    MachineProfile

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


def load_measured(
    path: str | PathLike[str] | None = None,
) -> tuple[MachineProfile, SparsePrices]:
    """The same, and the prices of sparse work that were measured with it."""
    return load_part(Machine.this(), _processor_part, path)


def _processor_part(saved: Mapping[str, Any]) -> tuple[MachineProfile, SparsePrices]:
    profile = MachineProfile.from_dict(saved.get("profile"))
    if FP64.name not in profile.rates:
        raise ValueError("it has no rate of fp64, which every solve may end in")
    return profile, SparsePrices.from_dict(saved.get("sparse_prices"))


def load_part(
    here: Machine,
    part: Callable[[Mapping[str, Any]], T],
    path: str | PathLike[str] | None = None,
) -> T:
    """What `part` reads from the file of a machine; a `ProfileError` if that cannot be used."""
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


def load_with_other_threads(
    here: Machine,
) -> tuple[Machine, MachineProfile, SparsePrices] | None:
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
