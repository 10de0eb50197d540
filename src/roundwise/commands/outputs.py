"""What commands leave: files, checked before any work and written whole or not at all; lines, JSON,
errors about the data, and word of an interruption."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from roundwise.outcomes import OutcomeTable


def writable_file(path: Path) -> Path:
    """Refuse a file that could not be written; whether it is a folder, click has checked."""
    if path.exists():
        if not os.access(path, os.W_OK):
            raise ValueError(f"{path} is write-protected; choose another name")
        if not path.is_file():
            return path  # a pipe or a device: nothing is made in its folder
    if not path.parent.is_dir():
        raise ValueError(f"folder {path.parent} does not exist; make it first")
    _try_folder(path.resolve().parent)
    return path


def writable_table(path: Path) -> Path:
    """Refuse a table that could not be made; one that exists may be read-only and complete."""
    return path if path.exists() else writable_file(path)


def writable_folder(path: Path) -> Path:
    """Refuse a folder that could neither be made nor written to."""
    nearest = path.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is no folder; choose another path")
    _try_folder(nearest)
    return path


def _try_folder(folder: Path) -> None:
    """Make a file and remove it: permissions alone do not tell of a read-only file system."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(
            f"nothing can be written to folder {folder} ({error.strerror}); choose another one, or "
            "change its permissions"
        ) from error


def keep(inputs: Iterable[Path | None], **outputs: Path | None) -> None:
    """Refuse to write onto a file that the command reads, by whatever path or link it is named.

    The outputs are named as the options that give them.
    """
    sources = [path for path in inputs if path is not None and path.exists()]
    for option, path in outputs.items():
        if path is None or not path.exists():
            continue
        for source in sources:
            if path.samefile(source):
                raise click.UsageError(
                    f"--{option} {path} would overwrite {source}, which is read; "
                    "choose another file"
                )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to in the block; afterwards that file takes the place of `path`.

    If the block fails, `path` is as it was. The name ends as that of `path` does. A link stays,
    and its target is replaced; pipes and devices are written to directly.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".roundwise-") as folder:
        written = Path(folder, target.name)
        yield written
        written.replace(target)


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
