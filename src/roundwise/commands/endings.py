"""How commands end: they print JSON, report an error about the data, or were interrupted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from roundwise.outcomes import OutcomeTable

T = TypeVar("T")


class Interrupted(click.ClickException):
    exit_code = 130


def interruptible(work: Callable[[], T], kept_in: OutcomeTable | Path) -> T:
    """Return ``work()``; after Ctrl-C exit with 130 and name the table that keeps the outcomes.

    `kept_in` is that table, or a folder of tables. `work` must make its progress bars itself:
    leaving the `except` block frees and so closes them, and the message starts on a new line.
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
    """Turn a ValueError or TypeError of the library into the command's one-line error."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise click.ClickException(str(error)) from error


def echo(facts: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> None:
    """Print `facts` as JSON, or the lines that tell them to people."""
    if as_json:
        echo_json(facts)
    else:
        click.echo("\n".join(lines))


def echo_json(facts: Mapping[str, Any]) -> None:
    """Print `facts` as JSON; NaN and infinity, which JSON lacks, become null."""
    click.echo(json.dumps(_plain(facts), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
