"""Tables that commands fill: checked before any work, and what to say after Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from roundwise.commands.outputs import Interrupted, writable_file
from roundwise.outcomes import OutcomeTable

T = TypeVar("T")


def writable_table(path: Path) -> Path:
    """Refuse a table that could not be made; one that exists may be read-only and complete."""
    return path if path.exists() else writable_file(path)


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
