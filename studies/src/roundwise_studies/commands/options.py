"""The options that commands share, each declared once; those of the library, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.core import ParameterSource

from roundwise.algorithms.base import PAPER_FORMATS
from roundwise.backends import get_backend
from roundwise.commands.options import (  # noqa: F401
    EXISTING_FILE,
    FILE,
    F,
    arithmetic,
    as_json,
    bad_value,
    choice,
    output,
    valued,
)
from roundwise.formats import FloatFormat, get_format
from roundwise_studies.commands.outputs import writable_table

FOLDER = click.Path(file_okay=False, path_type=Path)


def parsed_formats(text: str) -> list[FloatFormat]:
    return [get_format(name.strip()) for name in text.split(",")]


def checked_jobs(count: int) -> int:
    if count != -1 and count < 1:
        raise ValueError(f"{count}; pass at least 1, or -1 for all cores")
    return count


def checked_sizes(sizes: tuple[int, int]) -> tuple[int, int]:
    if sizes[0] > sizes[1]:
        raise ValueError(f"{sizes[0]} > {sizes[1]}; pass the smaller size first")
    return sizes


def sizes(help_text: str, *, least: int) -> Callable[[F], F]:
    kind = (click.IntRange(min=least), click.IntRange(min=least))
    return valued("--sizes", kind, help_text, metavar="MIN MAX", check=checked_sizes)


def count(
    name: str, help_text: str, *, least: int = 1, default: int | None = None, metavar: str = "N"
) -> Callable[[F], F]:
    return valued(name, click.IntRange(min=least), help_text, default, metavar)


def seed(help_text: str) -> Callable[[F], F]:
    return count("--seed", help_text, least=0, default=0, metavar="S")


def tau(help_text: str, *, default: float | None = None) -> Callable[[F], F]:
    return valued("--tau", click.FLOAT, help_text, default, "T")


def table(help_text: str, *, required: bool = False) -> Callable[[F], F]:
    """The file of outcomes that a command fills."""
    return valued(
        "--table", FILE, help_text, metavar="PATH", check=writable_table, required=required
    )


formats = valued(
    "--formats",
    str,
    "Actions are all choices whose bits do not decrease from stage to stage.  "
    "[default: the paper's bf16,tf32,fp32,fp64, as far as the arithmetic runs them]",
    metavar="F,F,...",
    check=parsed_formats,
)
jobs = valued(
    "--jobs", int, "Processes; -1 for all cores.  [default: 1]", metavar="N", check=checked_jobs
)


def default_formats(model: str) -> list[FloatFormat]:
    """Those of the paper's formats that the arithmetic model runs for dense and for sparse systems.

    A device may have none for sparse ones.
    """
    backend = get_backend(model)
    kinds = [False, True] if backend.formats(sparse=True) else [False]
    formats = [get_format(name) for name in PAPER_FORMATS]
    return [fmt for fmt in formats if all(backend.supports(fmt, kind) for kind in kinds)]


def refuse_given(names: Iterable[str], remedy: str) -> None:
    """Refuse options of the present command that were given, if only with their default value."""
    ctx = click.get_current_context()
    for name in names:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is {remedy}")
