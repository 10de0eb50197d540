"""The options that commands share, each declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from roundwise.backends import known_backends
from roundwise.commands.outputs import writable_file
from roundwise.exceptions import UnknownNameError

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@contextmanager
def bad_value(option: str | None = None) -> Iterator[None]:
    """Turn an error of the library about an option's value into a usage error.

    A callback of an option need not name it: click does.
    """
    try:
        yield
    except (UnknownNameError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def output(
    help_text: str,
    metavar: str,
    *,
    required: bool = False,
    check: Callable[[Path], Path] = writable_file,
) -> Callable[[F], F]:
    return valued("-o --out", FILE, help_text, metavar=metavar, check=check, required=required)


def choice(
    name: str, choices: Iterable[str], help_text: str, *, default: str | None = None
) -> Callable[[F], F]:
    return valued(name, click.Choice(list(choices)), help_text, default)


def arithmetic(help_text: str, *, default: str | None = None) -> Callable[[F], F]:
    return choice("--arithmetic", known_backends(), help_text, default=default)


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
