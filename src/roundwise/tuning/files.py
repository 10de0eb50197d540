"""Saved tuners: one JSON file, and the learned arrays in an npz file beside it. No pickle.

The JSON names its schema and version, the npz file and its SHA-256, so that a foreign, newer,
damaged or mismatched file is refused with a line that says so.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from roundwise._files import one_line, read_json, replace_file
from roundwise.exceptions import RoundwiseError
from roundwise.policies.base import Arrays

SCHEMA = "roundwise-tuner"
VERSION = 1


# What NumPy and zipfile raise on damaged archives; the last two on flags of a zip that they lack.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, KeyError, MemoryError),
    *(NotImplementedError, RuntimeError),
)


class TunerFileError(RoundwiseError, ValueError):
    """A file that holds no tuner this version can read."""


def write_tuner(path: Path, content: Mapping[str, Any], arrays: Arrays) -> None:
    """Write both files; each replaces its predecessor in one step.

    The arrays that the replaced JSON names are removed, and no other file.
    """
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    packed = buffer.getvalue()
    digest = hashlib.sha256(packed).hexdigest()
    beside = _arrays_beside(path, digest)
    header = {"schema": SCHEMA, "version": VERSION, "arrays": beside.name, "sha256": digest}
    text = json.dumps(header | dict(content), indent=1, allow_nan=False)
    old = _own_arrays(path)
    # The JSON is replaced last and names its arrays: the old pair or the new is always whole.
    replace_file(beside, packed)
    replace_file(path, text.encode() + b"\n")
    if old is not None and old != beside:
        old.unlink(missing_ok=True)


def _arrays_beside(path: Path, digest: str) -> Path:
    """The npz file of a tuner that is saved at `path`."""
    return path.with_name(f"{path.stem}.{digest[:12]}.npz")


def _own_arrays(path: Path) -> Path | None:
    """The arrays that were saved with the tuner at `path`, if there is one.

    A copy or a link of another tuner's JSON names the arrays of that one: these are not its own.
    """
    try:
        saved = _content(path)
    except (TunerFileError, OSError):
        return None  # there is none
    digest = saved.get("sha256")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        return None
    own = _arrays_beside(path, digest)
    return own if own.name == saved.get("arrays") else None


def _content(path: Path) -> dict[str, Any]:
    """What the JSON says, of whatever version."""
    try:
        content = read_json(path)
    except ValueError as error:
        raise TunerFileError(
            f"{path} is no JSON ({one_line(error)}); save the tuner again"
        ) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise TunerFileError(f"{path} is no saved tuner; pass a file that Tuner.save wrote")
    return content


def read_tuner(path: Path) -> tuple[dict[str, Any], Arrays]:
    """The content and the arrays, or a `TunerFileError`."""
    content = _content(path)
    version = content.get("version")
    if type(version) is not int or version != VERSION:
        raise TunerFileError(
            f"{path} has version {one_line(repr(version), 40)}, this Roundwise reads {VERSION}; "
            "use the version of Roundwise that saved it, or train again"
        )
    name = content.get("arrays")
    if not isinstance(name, str) or Path(name).name != name or not name.endswith(".npz"):
        raise TunerFileError(f"{path} names no arrays beside it; save the tuner again")
    beside = path.with_name(name)
    try:
        packed = beside.read_bytes()
    except FileNotFoundError as error:
        raise TunerFileError(
            f"{one_line(beside)} is missing; keep it beside {path.name}"
        ) from error
    except (OSError, ValueError) as error:  # a folder, a name that no file can have
        raise TunerFileError(
            f"{path}: its arrays cannot be read ({one_line(error)}); save the tuner again"
        ) from error
    if hashlib.sha256(packed).hexdigest() != content.get("sha256"):
        raise TunerFileError(
            f"{one_line(beside)} does not belong to {path.name}; save the tuner again"
        )
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if odd := [name for name, array in arrays.items() if array.dtype.kind not in "biufU"]:
            raise ValueError(f"{odd[0]} holds neither real numbers nor text")
    except _DAMAGED as error:
        raise TunerFileError(
            f"{one_line(beside)} is damaged ({one_line(error)}); save the tuner again"
        ) from error
    return content, arrays
