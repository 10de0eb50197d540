"""Machine profiles in the user's cache folder: one file for each machine and number of threads."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

from roundwise._files import one_line, read_json, replace_file
from roundwise.costs.calibration import Calibration
from roundwise.costs.machines import MachineProfile
from roundwise.costs.rates import SparsePrices
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.machine.identity import Machine

SCHEMA = "roundwise-machine-profile"
VERSION = 4  # 2: LU is our own; 3: sparse prices; 4: passes over A use all threads
THREADS = {"cores", "threads", "blas_threads"}
"""What two settings of one machine may differ in."""
_REMEDY = "run `roundwise calibrate`"


class ProfileError(RoundwiseError):
    """There is no usable profile of this machine; the message says why and what to do."""


class ProfileMissingError(ProfileError):
    """This machine was never calibrated with its present settings."""


class ProfileWarning(UserWarning):
    """There is a profile of this machine, but it cannot be used: generic prices decide."""


def cache_folder() -> Path:
    """``$ROUNDWISE_CACHE``, else ``$XDG_CACHE_HOME/roundwise``, else ``~/.cache/roundwise``.

    Returns
    -------
    Path

    Examples
    --------
    >>> from roundwise.costs import cache_folder
    >>> cache_folder().is_absolute()
    True
    """
    if ours := os.environ.get("ROUNDWISE_CACHE"):
        return Path(ours)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roundwise"
    except RuntimeError as error:  # some containers run as a user without a home
        raise ProfileMissingError(
            f"there is no cache folder ({error}); set ROUNDWISE_CACHE to one, and {_REMEDY}"
        ) from error


def profile_path(machine: Machine) -> Path:
    """Where the profile of a machine is stored.

    Parameters
    ----------
    machine : Machine

    Returns
    -------
    Path

    Examples
    --------
    >>> from roundwise.costs import cache_folder, profile_path
    >>> from roundwise.machine import Machine
    >>> profile_path(Machine.this()).parent == cache_folder()
    True
    """
    return cache_folder() / f"profile-{machine.key}.json"


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
    target = profile_path(calibration.machine) if path is None else Path(path)
    content = {
        "schema": SCHEMA,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "roundwise": version("roundwise"),
        **asdict(calibration),
        "profile": calibration.profile().to_dict(),
        "sparse_prices": asdict(calibration.sparse_prices()),
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
    here = Machine.this()
    source = profile_path(here) if path is None else Path(path)
    try:
        saved = _content(source)
    except FileNotFoundError as error:
        told = _missing(here, source, asked=path is not None)
        raise ProfileMissingError(told) from error
    except OSError as error:
        reason = one_line(error.strerror or error)
        raise ProfileError(
            f"{source}: cannot be read ({reason}); mend it or its folder, or set ROUNDWISE_CACHE "
            f"to another, and {_REMEDY}"
        ) from error
    if saved["version"] != VERSION:
        raise ProfileError(
            f"{source}: stale, its version is {one_line(repr(saved['version']), 40)} and this "
            f"Roundwise reads {VERSION}; {_REMEDY}"
        )
    try:
        machine = Machine.from_dict(saved.get("machine"))
        profile = MachineProfile.from_dict(saved.get("profile"))
        sparse = SparsePrices.from_dict(saved.get("sparse_prices"))
        if FP64.name not in profile.rates:
            raise ValueError("it has no rate of fp64, which every solve may end in")
    except ValueError as error:
        raise ProfileError(f"{source}: damaged ({one_line(error)}); {_REMEDY}") from error
    if machine != here:
        raise ProfileError(f"{source}: stale, {_differences(machine, here)}; {_REMEDY}")
    return profile, sparse


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
            saved = _content(path)
            machine = Machine.from_dict(saved.get("machine"))
            if saved["version"] == VERSION and set(machine.differences(here)) <= THREADS:
                far = abs(math.log(machine.threads / here.threads))
                found.append((far, path.name, machine, saved))
    for _, _, machine, saved in sorted(found, key=lambda one: one[:2]):
        with suppress(ValueError):
            profile = MachineProfile.from_dict(saved.get("profile"))
            return machine, profile, SparsePrices.from_dict(saved.get("sparse_prices"))
    return None


def _content(source: Path) -> dict[str, Any]:
    try:
        saved = read_json(source)
    except ValueError as error:
        raise ProfileError(f"{source}: no JSON ({one_line(error)}); {_REMEDY}") from error
    if not isinstance(saved, dict) or saved.get("schema") != SCHEMA or "version" not in saved:
        raise ProfileError(f"{source}: no machine profile; {_REMEDY}")
    return saved


def _missing(here: Machine, source: Path, asked: bool) -> str:
    """Why there is no profile: the nearest one that is there tells what has changed."""
    if asked:
        return f"{source}: no such file; check the path, or {_REMEDY} --out {source}"
    machines: dict[Path, Machine] = {}
    for path in sorted(source.parent.glob("profile-*.json")):
        # Unreadable or damaged: it does not tell what has changed.
        with suppress(OSError, ProfileError, ValueError):
            machines[path] = Machine.from_dict(_content(path).get("machine"))
    if not machines:
        return f"this machine has not been measured; {_REMEDY}"
    nearest = min(machines, key=lambda path: len(machines[path].differences(here)))
    return f"{nearest}: stale, {_differences(machines[nearest], here)}; {_REMEDY}"


def _differences(machine: Machine, here: Machine) -> str:
    changes = machine.differences(here).items()
    told = (f"{name} {one_line(repr(old), 150)} (now {new!r})" for name, (old, new) in changes)
    return "made with " + ", ".join(told)
