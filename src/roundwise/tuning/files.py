"""Saved tuners: one JSON file, and the learned arrays in an npz file beside it. No pickle.

The JSON names its schema and version and holds the SHA-256 of the npz, so that a foreign, newer,
damaged or mismatched file is refused with a line that says so.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.exceptions import RoundwiseError

SCHEMA = "roundwise-tuner"
VERSION = 1
Arrays = dict[str, NDArray[Any]]


class TunerFileError(RoundwiseError, ValueError):
    """A file that holds no tuner this version can read."""


def write_tuner(path: Path, content: Mapping[str, Any], arrays: Arrays) -> None:
    """Write both files; each replaces its predecessor in one step."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    packed = buffer.getvalue()
    header = {
        "schema": SCHEMA,
        "version": VERSION,
        "arrays": _arrays_path(path).name,
        "sha256": hashlib.sha256(packed).hexdigest(),
    }
    _replace(_arrays_path(path), packed)
    text = json.dumps(header | dict(content), indent=1, allow_nan=False)
    _replace(path, text.encode() + b"\n")


def read_tuner(path: Path) -> tuple[dict[str, Any], Arrays]:
    """The content and the arrays, or a `TunerFileError`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TunerFileError(f"{path} is no JSON ({error}); save the tuner again") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise TunerFileError(f"{path} is no saved tuner; pass a file that Tuner.save wrote")
    version = content.get("version")
    if version != VERSION:
        raise TunerFileError(
            f"{path} has version {version!r}, this Roundwise reads {VERSION}; "
            "use the version of Roundwise that saved it, or train again"
        )
    beside = _arrays_path(path)
    if not beside.is_file():
        raise TunerFileError(f"{beside} is missing; keep it beside {path.name}")
    packed = beside.read_bytes()
    if hashlib.sha256(packed).hexdigest() != content.get("sha256"):
        raise TunerFileError(f"{beside} does not belong to {path.name}; save the tuner again")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise TunerFileError(f"{beside} is damaged ({error}); save the tuner again") from error
    return content, arrays


def _arrays_path(path: Path) -> Path:
    return path.with_suffix(".npz")


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    os.replace(temporary, path)
