"""Names and packages that are imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the modules of its names.

    A module of the package is found under its own name, too.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name in home_of:
            value = getattr(import_module(f"{package}.{home_of[name]}"), name)
            setattr(import_module(package), name, value)  # later look-ups find it at once
            return value
        if not name.startswith("_"):
            try:
                return import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*vars(import_module(package)), *home_of}), sorted(home_of)


def require(module: str, extra: str, package: str = "roundwise") -> Any:
    """Import a module, or say which extra of a package brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f'{module} is needed here; pip install "{package}[{extra}]"') from error
