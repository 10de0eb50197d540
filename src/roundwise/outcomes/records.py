"""How problems, algorithms and outcomes become text and numbers in a file, and back.

What outcomes and features are filed under, the algorithm with its settings and the arithmetic, is
text as well: changing one of these hides the outcomes that are stored under it.

JSON here is strict and canonical: sorted keys, no spaces, floats in their shortest form that reads
back to the same bits, and the texts ``"inf"``, ``"-inf"``, ``"nan"`` for what JSON has no number.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from types import CodeType
from typing import Any

import numpy as np

from roundwise._files import parsed_json
from roundwise.algorithms import Algorithm, Outcome, Tally
from roundwise.backends import Backend, backend_class, get_backend, known_backends
from roundwise.exceptions import UnknownNameError
from roundwise.formats import FP64, FloatFormat, get_format
from roundwise.machine.identity import Machine
from roundwise.machine.threads import get_simd_level
from roundwise.outcomes.schema import RESULTS_VERSION, DamagedText
from roundwise.problems import Problem


@dataclass(frozen=True)
class StoredProblem:
    """The facts of a problem that a table keeps: enough for every reward, and for people.

    The norms are those of `Problem.norms`.
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
    """The value of a JSON text in a table; a `DamagedText` if it is none."""
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
    """A value in terms of JSON; a dataclass gets its class beside its fields."""
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


@dataclass(frozen=True)
class Setting:
    """All that outcomes depend on besides the problem and the action."""

    algorithm: str
    arithmetic: str
    results_version: int = RESULTS_VERSION

    @classmethod
    def of(cls, algorithm: Algorithm, arithmetic: str | Backend) -> Setting:
        return cls(algorithm_json(algorithm), StoredArithmetic.of(arithmetic).key)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.algorithm, self.arithmetic, self.results_version


@dataclass(frozen=True)
class StoredArithmetic:
    """The arithmetic of stored results, of this machine or of another."""

    key: str  # `Backend.description`, e.g. ``native on KEY-OF-A-MACHINE, symmetric_mode=False``
    model: str  # `Backend.arithmetic`, the first word of the key
    timed: bool  # whether times of such runs mean something, and are stored

    @classmethod
    def of(cls, arithmetic: str | Backend) -> StoredArithmetic:
        """The arithmetic of a backend or a model here, or of a stored key of any machine."""
        if isinstance(arithmetic, str) and arithmetic not in known_backends():
            return cls.parse(arithmetic)
        backend = get_backend(arithmetic)
        return cls(backend.description, backend.arithmetic, backend.timed)

    @classmethod
    def parse(cls, key: str) -> StoredArithmetic:
        """The arithmetic of a stored key; its first word must name a model."""
        model = key.replace(",", " ").partition(" ")[0]
        if model not in known_backends():
            raise UnknownNameError("arithmetic model", key, known_backends())
        return cls(key, model, backend_class(model).timed)

    @property
    def machine(self) -> str:
        """The machine that the key names, with settings of the backend; empty if it names none."""
        return self.key.removeprefix(self.model).partition(" on ")[2]


def feature_arithmetic(arithmetic: str | Backend, feature_format: str | FloatFormat = FP64) -> str:
    """The key of features beside outcomes of that arithmetic.

    All models that are not timed share the features whose factors the operation model makes.
    """
    stored = StoredArithmetic.of(arithmetic)
    model = stored.key if stored.timed else "operation"
    fmt = get_format(feature_format)
    return model if fmt == FP64 else f"{model}, factors in {fmt.name}"


def algorithm_json(algorithm: Algorithm) -> str:
    """Canonical JSON of an algorithm: its class, its stages and all settings, nested ones too.

    If some of these classes are your own, a digest of their code is in it, so that outcomes of a
    class that was changed are computed anew. (Functions that they call are not in the digest.)
    """
    described = {"algorithm": algorithm, "stages": algorithm.stages}
    own = sorted({f"{cls.__qualname__} {code_digest(cls)}" for cls in _own_classes(algorithm)})
    if own:
        described["code"] = hashlib.blake2b("\n".join(own).encode(), digest_size=8).hexdigest()
    return to_json(described)


@cache
def code_digest(cls: type) -> str:
    """A hash of a class's source text or, where that is not to be had, of its methods' bytecode."""
    try:
        text = inspect.getsource(cls)
    except (OSError, TypeError):
        text = repr([(name, _code_of(member)) for name, member in sorted(vars(cls).items())])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _own_classes(value: Any) -> Iterator[type]:
    """The classes of a dataclass and of its fields, bases too, that the library does not have."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _own_classes(item)
    elif dataclasses.is_dataclass(value):
        for cls in inspect.getmro(type(value)):
            if not is_of_library(cls) and cls.__module__ not in ("builtins", "abc", "typing"):
                yield cls
        for field in dataclasses.fields(value):
            yield from _own_classes(getattr(value, field.name))


def _code_of(member: Any) -> Any:
    """The members that decide a class's results: plain ones as they are, others left out."""
    function = getattr(member, "__func__", getattr(member, "fget", member))
    code = member if isinstance(member, CodeType) else getattr(function, "__code__", None)
    if code is not None:
        return code.co_code, code.co_names, [_code_of(constant) for constant in code.co_consts]
    return member if isinstance(member, bool | int | float | str | bytes | tuple) else None
