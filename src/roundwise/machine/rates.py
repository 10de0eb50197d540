"""The rates that come with the package: one file, ``rates.json``, with one schema.

Prices are formulas (`roundwise.methods`) in these numbers, which were measured on the machines that
each part names:

cpu
    Dense and sparse work on a processor (`roundwise.costs.prices`).
cuda
    Dense work on a GPU (`roundwise.costs.prices`).
threads
    How rates of dense work change with threads (`roundwise.costs.rates`).
lu_threads
    Milliseconds of small LU factorizations by threads (`lu_threads`).

The file is read when a part is first asked for. `roundwise calibrate` replaces rates by those of
your machine, never formulas.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from roundwise._files import parsed_json, read_json, replace_file
from roundwise.exceptions import RoundwiseError

FILE = Path(__file__).with_name("rates.json")
SCHEMA, VERSION = "roundwise-rates", 1
PARTS = ("cpu", "cuda", "threads", "lu_threads")


def shipped_rates(part: str) -> Any:
    """One of the `PARTS`, as JSON has it."""
    return _shipped()[part]


@cache
def _shipped() -> dict[str, Any]:
    text = files("roundwise.machine").joinpath(FILE.name).read_text(encoding="utf-8")
    return checked(parsed_json(text))


def checked(saved: Any) -> dict[str, Any]:
    """The content of a file of rates, if this version reads it."""
    known = {"schema": SCHEMA, "version": VERSION}
    if not isinstance(saved, dict) or {name: saved.get(name) for name in known} != known:
        raise RoundwiseError("no rates that this Roundwise reads; install it again")
    if missing := [part for part in PARTS if part not in saved]:
        raise RoundwiseError(f"the rates lack {', '.join(missing)}; install Roundwise again")
    return saved


def write_rates(part: str, content: Any, file: Path = FILE) -> Path:
    """Replace one part of the file by what was measured; lists of numbers take one line."""
    saved = (checked(read_json(file)) if file.exists() else _shipped()) | {part: content}
    text = json.dumps(saved, indent=1, allow_nan=False)
    text = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda found: re.sub(r"\n\s*", " ", found[0]), text)
    replace_file(file, text.encode() + b"\n")
    return file
