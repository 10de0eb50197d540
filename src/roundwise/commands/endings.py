"""How commands end: with facts for programs, a complaint about data, or an interruption."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from roundwise.outcomes import OutcomeTable

T = TypeVar("T")


class Interrupted(click.ClickException):
    exit_code = 130


def interruptible(work: Callable[[], T], kept_in: OutcomeTable | Path) -> T:
    """Do the work; if interrupted, tell what is kept, in a table or in a folder of tables.

    The work makes its own progress bars. The end of the `except` block closes them, as nothing
    else holds them any more, so that what follows gets its own line.
    """
    try:
        return work()
    except KeyboardInterrupt:
        pass
    if isinstance(kept_in, OutcomeTable):
        kept = f"{kept_in.path} keeps what is finished ({len(kept_in)} outcomes)"
    else:
        kept = f"the tables in {kept_in} keep what is finished"
    raise Interrupted(f"interrupted; {kept}, run the same command to go on")


@contextmanager
def data_errors() -> Iterator[None]:
    """What the library has to say about the user's data becomes the command's one line."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise click.ClickException(str(error)) from error


def echo_json(facts: Mapping[str, Any]) -> None:
    """Print for programs; NaN and infinity, which JSON lacks, become null."""
    click.echo(json.dumps(_plain(facts), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
