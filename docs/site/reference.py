"""What is public, and the pages of the API reference, which are made from it.

`MODULES` is the one list: the pages and `tests/test_public_api.py`, with its doctests, go by it. A
name is public if a module of the list has it in ``__all__``, or, without ``__all__``, if a package
there imports or defines it. An object is described once, in the first module that has it.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = {
    "roundwise": "What `import roundwise` brings: solving, formats, algorithms, training.",
    "roundwise.solver": "The front door, and what it returns.",
    "roundwise.formats": "Floating-point formats as data.",
    "roundwise.rounding": "Numbers rounded to a format.",
    "roundwise.actions": "Which format for which stage: actions, and sets of them.",
    "roundwise.problems": "Problems to solve: systems, generators, data sets, files.",
    "roundwise.algorithms": "Algorithms with named stages, written once for every format.",
    "roundwise.backends": "Kernels of each arithmetic model.",
    "roundwise.features": "Numbers computed from a problem, which policies decide by.",
    "roundwise.discretizer": "Bins of features, for the paper's table.",
    "roundwise.costs": "Seconds from counted work, for a machine.",
    "roundwise.rewards": "Rewards from outcomes.",
    "roundwise.outcomes": "The table of outcomes: filling and reading it.",
    "roundwise.policies": "Who chooses the action, learned or not.",
    "roundwise.tuning": "Training a policy, saving and loading it.",
    "roundwise.env": "The choice of precisions as a Gymnasium environment.",
    "roundwise.machine": "This computer: what native times belong to; its instruction sets.",
}


def public_names(module: ModuleType) -> list[str]:
    """The public names of a module of `MODULES`, in its order."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    names = [name for name in vars(module) if not name.startswith("_")]
    return [name for name in names if _is_ours(module, getattr(module, name))]


def _is_ours(package: ModuleType, value: Any) -> bool:
    if inspect.ismodule(value) or getattr(value, "__module__", "") == "__future__":
        return False
    if inspect.isclass(value) or inspect.isroutine(inspect.unwrap(value)):
        home = str(value.__module__)
        return home.startswith("roundwise") and "._" not in home
    return package.__name__.startswith("roundwise") and not _is_typing(value)


def _is_typing(value: Any) -> bool:
    return getattr(value, "__module__", "") in ("typing", "types", "numpy.typing") or hasattr(
        value, "__origin__"
    )


def described() -> dict[str, dict[str, Any]]:
    """Module name -> name -> object: every public object once, where it is described."""
    found: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    for name in MODULES:
        module = importlib.import_module(name)
        objects = {key: getattr(module, key) for key in public_names(module)}
        objects = {k: v for k, v in objects.items() if not inspect.ismodule(v)}
        found[name] = {k: v for k, v in objects.items() if id(v) not in seen}
        seen |= {id(value) for value in objects.values()}
    return found


def is_callable(value: Any) -> bool:
    """Functions and classes; not constants, though an instance may be callable."""
    return inspect.isclass(value) or inspect.isroutine(inspect.unwrap(value))


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def write_pages(folder: Path) -> None:
    """One page for each module, one for each class and function, and an index: reStructuredText."""
    folder.mkdir(parents=True, exist_ok=True)
    for module, objects in described().items():
        _write(folder / f"{module}.rst", _page(module, objects))
        for name, value in objects.items():
            if is_callable(value) and not is_error(value):
                (folder / module).mkdir(exist_ok=True)
                _write(folder / module / f"{name}.rst", _object_page(module, name, value))
    _write(folder / "index.rst", _index())


def _write(path: Path, text: str) -> None:
    """Only if the text is new, so that Sphinx reads nothing again without need."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _title(text: str, line: str) -> list[str]:
    return [text, line * len(text), ""]


def _index() -> str:
    lines = _title("API reference", "=")
    lines += [
        "Everything public. Examples presume ``import numpy as np`` and",
        "``import roundwise as rw``; tests run them.",
        "",
    ]
    lines += [".. list-table::", "   :widths: 35 65", ""]
    for module, about in MODULES.items():
        lines += [f"   * - :doc:`{module} <{module}>`", f"     - {about.replace('`', '``')}"]
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {module}" for module in MODULES)]
    return "\n".join(lines) + "\n"


def _page(module: str, objects: dict[str, Any]) -> str:
    callables = {k: v for k, v in objects.items() if is_callable(v) and not is_error(v)}
    errors = {k: v for k, v in objects.items() if is_error(v)}
    constants = {k: v for k, v in objects.items() if not is_callable(v)}
    lines = _title(module, "=")
    lines += [f".. module:: {module}", "", MODULES[module].replace("`", "``"), ""]
    if callables:
        lines += [".. autosummary::", "   :nosignatures:", ""]
        lines += [f"   {name}" for name in callables] + [""]
        lines += [".. toctree::", "   :hidden:", ""]
        lines += [f"   {name} <{module}/{name}>" for name in callables] + [""]
    if errors:
        lines += _title("Errors and warnings", "-")
    for name in errors:
        lines += [f".. autoexception:: {module}.{name}", "   :show-inheritance:", ""]
    if constants:
        lines += _title("Constants", "-")
    for name, value in constants.items():
        lines += [f".. py:data:: {module}.{name}", "", f"   {_value(value)}", ""]
    return "\n".join(lines) + "\n"


def _object_page(module: str, name: str, value: Any) -> str:
    kind = "class" if inspect.isclass(value) else "function"
    lines = [*_title(name, "="), f".. currentmodule:: {module}", ""]
    lines += [f".. auto{kind}:: {module}.{name}"]
    if kind == "class":
        lines += ["   :members:", "   :show-inheritance:"]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "Keys: " + ", ".join(f"``{key}``" for key in value) + "."
    text = repr(value)
    return f"``{text}``" if len(text) < 200 else f"A ``{type(value).__name__}``."
