"""Where commands write: checked before any work, never onto their input, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click


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
