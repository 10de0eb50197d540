"""What outcomes and features are filed under: the algorithm with its settings and the arithmetic.

The texts made here are keys in files: changing one hides the outcomes that are stored under it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from roundwise.algorithms import Algorithm
from roundwise.backends import Backend, backend_class, get_backend, known_backends
from roundwise.exceptions import UnknownNameError
from roundwise.formats import FP64, FloatFormat, get_format
from roundwise.outcomes.records import is_of_library, to_json
from roundwise.outcomes.schema import RESULTS_VERSION


@dataclass(frozen=True)
class Setting:
    """What outcomes depend on besides the problem and the action."""

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
        """That of a backend or a model here, or of a stored key, which may be another machine's."""
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
    """What decides what a method does; plain members are taken as they are, others left out."""
    function = getattr(member, "__func__", getattr(member, "fget", member))
    code = member if isinstance(member, CodeType) else getattr(function, "__code__", None)
    if code is not None:
        return code.co_code, code.co_names, [_code_of(constant) for constant in code.co_consts]
    return member if isinstance(member, bool | int | float | str | bytes | tuple) else None
