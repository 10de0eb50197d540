"""Saved tuners: one JSON file, and the learned arrays in an npz file beside it. No pickle.

The JSON names its schema and version, the npz file and its SHA-256, so that a foreign, newer,
damaged or mismatched file is refused with a line that says so.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise import algorithms
from roundwise._files import one_line, read_json, replace_file
from roundwise.algorithms import Algorithm, StoppingRule
from roundwise.exceptions import RoundwiseError, UnknownNameError
from roundwise.outcomes.records import algorithm_json
from roundwise.policies.base import Arrays

SCHEMA = "roundwise-tuner"
VERSION = 1

# What zipfile raises on damaged archives; the last two on offsets and versions that it cannot take.
_DAMAGED = (
    *(zipfile.BadZipFile, ValueError, OSError, EOFError, struct.error),
    *(OverflowError, NotImplementedError),
)

_HEADER = re.compile(
    r"\{'descr': '(?P<type>[<>|](?:b1|[iu][1248]|f[248]|U[1-9][0-9]{0,5}))', "
    r"'fortran_order': (?P<fortran>True|False), "
    r"'shape': \((?P<shape>[0-9]{1,15},|[0-9]{1,15}(?:, [0-9]{1,15}){1,7})?\), \} *\n"
)


class TunerFileError(RoundwiseError, ValueError):
    """A file that holds no tuner this version can read."""


def write_tuner(path: Path, content: Mapping[str, Any], arrays: Arrays) -> None:
    """Write both files; each replaces its predecessor in one step.

    The arrays that the replaced JSON names are removed, and no other file.
    """
    buffer = io.BytesIO()
    # Without allow_pickle=False, which NumPy 2.0 takes for an array; reading refuses pickles.
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
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
    """The content of the JSON file, of any version."""
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
        arrays = _unpacked(packed)
    except _DAMAGED as error:
        raise TunerFileError(
            f"{one_line(beside)} is damaged ({one_line(error)}); save the tuner again"
        ) from error
    return content, arrays


def _unpacked(packed: bytes) -> Arrays:
    """The arrays of real numbers and text that `numpy.savez` has packed; else one of `_DAMAGED`.

    `numpy.load` reads much more than that, and fails on what it cannot read in too many ways.
    """
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for member in archive.infolist():
            name, plain = member.filename, not member.flag_bits & 0x61  # encrypted, or patches
            if not (plain and name.endswith(".npy") and member.compress_type == zipfile.ZIP_STORED):
                raise ValueError(f"{name} is no array that Tuner.save wrote")
            arrays[name.removesuffix(".npy")] = _array(name, archive.read(member))
    return arrays


def _array(name: str, data: bytes) -> NDArray[Any]:
    """The array in a .npy file."""
    start = 10 if data[6:7] == b"\1" else 12  # version 1 has a length of two bytes, later ones four
    end = start + int.from_bytes(data[8:start], "little")
    header = _HEADER.fullmatch(data[start:end].decode("latin-1"))
    if data[:6] != b"\x93NUMPY" or header is None:
        raise ValueError(f"{name} holds neither real numbers nor text")
    dtype, dimensions = np.dtype(header["type"]), re.findall("[0-9]+", header["shape"] or "")
    shape = tuple(map(int, dimensions))
    if len(data) - end != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {len(data) - end} bytes, which do not make {shape} numbers")
    values = np.frombuffer(data, dtype, offset=end) if len(data) > end else np.empty(0, dtype)
    if dtype.kind == "U" and values.size:
        codes = np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.byteorder), offset=end)
        if codes.max() > sys.maxunicode:
            raise ValueError(f"{name} has numbers that are no characters")
    return values.reshape(shape, order="F" if header["fortran"] == "True" else "C").copy()


_CLASSES: dict[str, type] = {
    name: member
    for name, member in vars(algorithms).items()
    if isinstance(member, type) and issubclass(member, Algorithm | StoppingRule)
}
"""The algorithms and stopping rules that `roundwise.algorithms` lists, by name."""


def saved_algorithm(saved: Mapping[str, Any], given: Algorithm | None = None) -> Algorithm:
    """The algorithm whose class, stages and settings were saved.

    One that is given must have these settings. Its code may have changed since: that can make its
    policy slow, not wrong.
    """
    if given is None:
        made = _made(saved["algorithm"])
        if not isinstance(made, Algorithm):
            raise TypeError(f"{saved['algorithm']!r} is no algorithm")
        return made
    here = json.loads(algorithm_json(given))
    if any(here[part] != saved[part] for part in ("algorithm", "stages")):
        raise TunerFileError(f"the tuner was trained for other settings: {saved}; pass these")
    return given


def _made(saved: Any) -> Any:
    """A value from its JSON; mappings that name a class become instances of it."""
    if isinstance(saved, list):
        return tuple(_made(item) for item in saved)
    if not isinstance(saved, Mapping):
        return saved
    settings = {name: _made(value) for name, value in saved.items()}
    kind = settings.pop("class")
    if kind not in _CLASSES:
        raise UnknownNameError("algorithm or stopping rule", kind, list(_CLASSES))
    return _CLASSES[kind](**settings)
