"""Files that others may have written or damaged: reading them strictly, writing them whole."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, NoReturn

LONGEST_INTEGER = 300
"""Digits of an integer in JSON: one that is longer exceeds float64, and Python may refuse it."""


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in one step: whoever reads sees the old or the new one.

    If it cannot be written (no permission, no space), the old one stays as it is, and an `OSError`
    names it. What is no file, like ``/dev/stdout``, cannot be replaced and is written to.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        try:
            temporary.write_bytes(data)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)  # what is left of it, if something went wrong
    except OSError as error:  # names the temporary file, or none: writing knows no names
        raise type(error)(error.errno, error.strerror, str(path)) from error


def read_json(path: Path) -> Any:
    """The content of a JSON file; an `OSError`, or a `ValueError` in one line, if there is none."""
    return parsed_json(path.read_text(encoding="utf-8"))


def parsed_json(text: str) -> Any:
    """The value of a JSON text whose numbers are finite in float64; else a `ValueError`."""
    try:
        return json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("lists or objects are nested too deeply") from error


def one_line(text: object, most: int = 400) -> str:
    """The text without line breaks, shortened if a file smuggled a long one into it."""
    line = " ".join(str(text).split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if len(line) <= most else f"{line[: most - 4]} ..."


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer has {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    return number if abs(number) < float("inf") else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{one_line(text, 40)} is no finite number")
