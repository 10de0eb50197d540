"""How problems, algorithms and outcomes become text and numbers in a file, and back.

JSON here is strict and canonical: sorted keys, no spaces, floats in their shortest form that reads
back to the same bits, and the texts ``"inf"``, ``"-inf"``, ``"nan"`` for what JSON has no number.
"""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from roundwise._files import parsed_json
from roundwise.algorithms import Outcome, Tally
from roundwise.formats import FloatFormat
from roundwise.machine.identity import Machine
from roundwise.machine.threads import get_simd_level
from roundwise.outcomes.schema import DamagedText
from roundwise.problems import Problem


@dataclass(frozen=True)
class StoredProblem:
    """What a table keeps of a problem: enough for every reward, and for people.

    The norms are those of `Problem.norms`.

    Parameters
    ----------
    fingerprint : str
    n : int
    norm_A, norm_x_true, norm_b : float
    name : str
    meta : mapping

    Examples
    --------
    >>> from roundwise.outcomes import StoredProblem
    >>> StoredProblem("00ff", 10, 1.0, 1.0, 1.0, name="mine").name
    'mine'
    """

    fingerprint: str
    n: int
    norm_A: float
    norm_x_true: float
    norm_b: float
    name: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem) -> StoredProblem:
        return cls(problem.fingerprint, problem.n, *problem.norms, problem.name, problem.meta)


def to_json(value: Any) -> str:
    """Canonical JSON of numbers, text, sequences, mappings and dataclasses."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> Any:
    """What a text in a table says; a `DamagedText` if it is no JSON."""
    try:
        return parsed_json(text)
    except ValueError as error:
        raise DamagedText(f"a text in it is no JSON: {error}") from error


def format_json(fmt: FloatFormat) -> str:
    """Canonical JSON of a format's definition; its name is the key it is stored under."""
    definition = dataclasses.asdict(fmt)
    del definition["name"]
    return to_json(definition)


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """The columns of an outcome but its key; x is not stored."""
    operations = {
        stage: {"format": fmt, "flops": tally.flops, "bytes": tally.bytes}
        for (stage, fmt), tally in outcome.operations.items()
    }
    return {
        "status": outcome.status.name,
        "ferr": float(outcome.ferr),
        "nbe": float(outcome.nbe),
        "cbe": float(outcome.cbe),
        "outer_iterations": int(outcome.outer_iterations),
        "inner_iterations": int(outcome.inner_iterations),
        "reason": outcome.reason,
        "operations": to_json(operations),
        "history": to_json(outcome.history),
    }


def operations_from_json(text: str) -> dict[tuple[str, str], Tally]:
    try:
        return {
            (str(stage), str(tally["format"])): Tally(
                _number(tally["flops"]), _number(tally["bytes"])
            )
            for stage, tally in from_json(text).items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedText(f"operations are not counted as they should be: {error!r}") from error


def history_from_json(text: str) -> tuple[dict[str, float], ...]:
    steps = from_json(text)
    return tuple(numbers_of(step) for step in steps)


def numbers_of(saved: Any) -> dict[str, float]:
    """A JSON object of numbers."""
    if not isinstance(saved, Mapping):
        raise DamagedText(f"{saved!r} stands where numbers by name should be")
    return {name: _number(value) for name, value in saved.items()}


def measurement_facts(outcome: Outcome, peak_bytes: int | None = None) -> dict[str, Any]:
    """The columns of a measured run but its key."""
    timings = {name: float(seconds) for name, seconds in outcome.timings.items()}
    return {"seconds": outcome.seconds, "timings": to_json(timings), "peak_bytes": peak_bytes}


@cache
def origin_json(machine: Machine | None = None) -> str:
    """Where this process computes: versions, machine, instruction set of the kernels."""
    packages = {name: version(name) for name in ("roundwise", "numpy", "scipy")}
    facts: dict[str, Any] = packages | {
        "node": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "simd": get_simd_level(),
    }
    return to_json(facts if machine is None else facts | {"machine": machine.to_dict()})


def is_of_library(cls: type) -> bool:
    """Whether Roundwise defines the class."""
    return cls.__module__.split(".")[0] == "roundwise"


_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        if not isinstance(value, str) or value not in _WORDS:
            raise DamagedText(f"{value!r} stands where a number should be")
        return _WORDS[value]
    return value


def _plain(value: Any) -> Any:
    """The same in terms of JSON; a dataclass gets its class beside its fields."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        kind = type(value)
        # A class of the library is known by its name; yours by where it is defined.
        own = f"{kind.__module__}.{kind.__qualname__}"
        name = kind.__name__ if is_of_library(kind) else own
        return {"class": name} | fields
    raise TypeError(
        f"{type(value).__name__} cannot be stored; use numbers, text, lists, or frozen dataclasses "
        "of these"
    )
