"""What commands leave: files, checked before any work and written whole or not at all; lines,
tables, JSON, errors about the data."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from roundwise.machine.identity import Machine


class Interrupted(click.ClickException):
    """Ctrl-C in a command that says what it has kept."""

    exit_code = 130


def system_load() -> float:
    """Programs that ran or waited for a core in the last minute, on average."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0  # Windows has none


def told_of_load(load: float) -> str:
    """A sentence if other programs use the machine; empty if they do not."""
    cores = Machine.this().cores
    if load <= cores:
        return ""
    return f"Other programs were running (load {load:.0f} on {cores} cores)"


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


def format_table(rows: Sequence[Mapping[str, str | int | float]], digits: int = 3) -> str:
    """Rows as aligned text: text to the left, numbers to the right, NaN as ``-``.

    Columns come in the order in which they first appear; floats have `digits` significant
    digits. Without rows the text is empty.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = [not any(isinstance(row.get(c), str) for row in rows) for c in columns]
    cells = [[_text(row.get(c, ""), digits) for c in columns] for row in rows]
    return "\n".join(aligned(columns, cells, numeric)) if rows else ""


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> list[str]:
    """Lines of text: the header, a rule, the rows; numeric columns stand to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(texts, widths, numeric, strict=True)
        ).rstrip()
        for texts in (header, ["-" * width for width in widths], *rows)
    ]


def _text(value: str | int | float, digits: int) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.{digits}g}"
    return str(value)
