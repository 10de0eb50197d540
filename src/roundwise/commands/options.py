"""The options that commands share, each declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from roundwise.algorithms.base import PAPER_FORMATS
from roundwise.backends import get_backend, known_backends
from roundwise.commands.outputs import writable_file, writable_table
from roundwise.exceptions import UnknownNameError
from roundwise.formats import FloatFormat, get_format

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


@contextmanager
def bad_value(option: str | None = None) -> Iterator[None]:
    """Turn an error of the library about an option's value into a usage error.

    A callback of an option need not name it: click does.
    """
    try:
        yield
    except (UnknownNameError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint=option) from error


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


def output(
    help_text: str,
    metavar: str,
    *,
    required: bool = False,
    check: Callable[[Path], Path] = writable_file,
) -> Callable[[F], F]:
    return valued("-o --out", FILE, help_text, metavar=metavar, check=check, required=required)


def sizes(help_text: str, *, least: int) -> Callable[[F], F]:
    kind = (click.IntRange(min=least), click.IntRange(min=least))
    return valued("--sizes", kind, help_text, metavar="MIN MAX", check=checked_sizes)


def count(
    name: str, help_text: str, *, least: int = 1, default: int | None = None, metavar: str = "N"
) -> Callable[[F], F]:
    return valued(name, click.IntRange(min=least), help_text, default, metavar)


def choice(
    name: str, choices: Iterable[str], help_text: str, *, default: str | None = None
) -> Callable[[F], F]:
    return valued(name, click.Choice(list(choices)), help_text, default)


def seed(help_text: str) -> Callable[[F], F]:
    return count("--seed", help_text, least=0, default=0, metavar="S")


def arithmetic(help_text: str, *, default: str | None = None) -> Callable[[F], F]:
    return choice("--arithmetic", known_backends(), help_text, default=default)


def tau(help_text: str, *, default: float | None = None) -> Callable[[F], F]:
    return valued("--tau", click.FLOAT, help_text, default, "T")


def valued(
    names: str,
    kind: Any,
    help_text: str,
    default: object = None,
    metavar: str | None = None,
    check: Callable[[Any], Any] | None = None,
    required: bool = False,
    multiple: bool = False,
) -> Callable[[F], F]:
    """An option whose help shows its default, if it has one.

    `names` are separated by a blank. The value goes through `check`, if there is one; a
    ValueError of it is a usage error.
    """

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        with bad_value():
            return value if value is None or check is None else check(value)

    shown: dict[str, Any] = {} if default is None else {"default": default, "show_default": True}
    return click.option(
        *names.split(),
        type=kind,
        metavar=metavar,
        callback=callback,
        required=required,
        multiple=multiple,
        help=help_text,
        **shown,
    )


def as_json(help_text: str = "Print JSON, for programs.") -> Callable[[F], F]:
    return click.option("--json", "as_json", is_flag=True, help=help_text)


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


def default_formats(arithmetic: str) -> list[FloatFormat]:
    """Those of the paper's formats that the arithmetic runs for dense and for sparse systems.

    A device may have none for sparse ones.
    """
    backend = get_backend(arithmetic)
    kinds = [False, True] if backend.formats(sparse=True) else [False]
    formats = [get_format(name) for name in PAPER_FORMATS]
    return [fmt for fmt in formats if all(backend.supports(fmt, kind) for kind in kinds)]


def refuse_given(names: Iterable[str], remedy: str) -> None:
    """Refuse options of the present command that were given, if only with their default value."""
    ctx = click.get_current_context()
    for name in names:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is {remedy}")
