"""Packages that only some calls need, imported when they are."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(module: str, extra: str) -> Any:
    """Import a module, or say which extra of roundwise brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f'{module} is needed here; pip install "roundwise[{extra}]"') from error
