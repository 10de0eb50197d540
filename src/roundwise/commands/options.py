"""What the commands share: options, complaints about data, interruptions, and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from roundwise.backends import BACKENDS
from roundwise.exceptions import UnknownNameError
from roundwise.experiments.command import Interrupted
from roundwise.formats import FloatFormat, get_format
from roundwise.outcomes import OutcomeTable

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def parsed_formats(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> list[FloatFormat] | None:
    if text is None:
        return None
    try:
        return [get_format(name.strip()) for name in text.split(",")]
    except UnknownNameError as error:
        raise click.BadParameter(str(error)) from error


def checked_jobs(ctx: click.Context, param: click.Parameter, count: int | None) -> int | None:
    if count is not None and count != -1 and count < 1:
        raise click.BadParameter(f"{count}; pass at least 1, or -1 for all cores")
    return count


def checked_output(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """A file that can be written when the work is done."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"folder {path.parent} does not exist; make it first")
    return path


formats_option = click.option(
    "--formats",
    metavar="F,F,...",
    callback=parsed_formats,
    help="Actions are all choices whose bits do not decrease from stage to stage.  "
    "[default: bf16,tf32,fp32,fp64; native: fp32,fp64]",
)


def default_formats(arithmetic: str) -> list[FloatFormat]:
    """The paper's; of native arithmetic, those that dense and sparse systems can run."""
    native = arithmetic == "native"
    return [get_format(name) for name in ("bf16", "tf32", "fp32", "fp64")[2 if native else 0 :]]


jobs_option = click.option(
    "--jobs",
    type=int,
    metavar="N",
    callback=checked_jobs,
    help="Processes; -1 for all cores.  [default: 1]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


def tau_option(help_text: str) -> Callable[[F], F]:
    return click.option("--tau", default=1e-6, show_default=True, metavar="T", help=help_text)


def seed_option(help_text: str) -> Callable[[F], F]:
    return click.option(
        "--seed",
        default=0,
        show_default=True,
        metavar="S",
        type=click.IntRange(min=0),
        help=help_text,
    )


def arithmetic_option(default: str | None, help_text: str) -> Callable[[F], F]:
    return click.option(
        "--arithmetic",
        default=default,
        show_default=default is not None,
        type=click.Choice(list(BACKENDS)),
        help=help_text,
    )


@contextmanager
def data_errors() -> Iterator[None]:
    """What the library has to say about the user's data becomes the command's one line."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise click.ClickException(str(error)) from error


def interrupted(table: OutcomeTable) -> Interrupted:
    return Interrupted(
        f"interrupted; {table.path} keeps what is finished ({len(table)} outcomes), "
        "run the same command to go on"
    )


def echo_json(facts: Mapping[str, Any]) -> None:
    """Print for programs; NaN and infinity, which JSON lacks, become null."""
    click.echo(json.dumps(_plain(facts), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
