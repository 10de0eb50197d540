"""A progress bar for the command line; the library itself only calls ``progress(done, total)``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from roundwise.outcomes.optional import require


def progress_bar(description: str = "") -> Callable[[int, int], None]:
    """A callback ``progress(done, total)`` that draws a bar with the remaining time on stderr.

    It does nothing if stderr is no terminal. The first call says what was done before, which
    takes no part in the estimate of the remaining time.
    """
    if not sys.stderr.isatty():
        return _silent
    tqdm = require("tqdm", "tune").tqdm
    bar: Any = None

    def progress(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = tqdm(desc=description, initial=done, total=total, dynamic_ncols=True)
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    return progress


def _silent(done: int, total: int) -> None:
    """No terminal, no bar."""
