"""Progress for terminals, notebooks and logs; the library only calls ``progress(done, total)``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from roundwise._lazy import require

ProgressCallback = Callable[[int, int], None]
"""Called with what is done and what there is in all."""

FIRST_LINE, NEXT_LINE = 10.0, 30.0
"""Seconds until the first line on a stderr that is no terminal, and between two lines."""


def progress_bar(
    description: str = "", clock: Callable[[], float] = time.monotonic
) -> ProgressCallback:
    """A callback ``progress(done, total)`` that tells how far the work is.

    On a terminal it draws a bar with the remaining time on stderr, in a notebook a widget (with
    ipywidgets; else tqdm says what to install, and draws text). Elsewhere, in logs, it prints a
    line now and then, and one at the end; nothing if all is done within `FIRST_LINE` seconds. The
    first call says what was done before, which takes no part in the estimate of the remaining
    time.

    Parameters
    ----------
    description : str
        Stands before the bar.
    clock : callable
        Seconds from any origin.

    Examples
    --------
    >>> from roundwise.outcomes import progress_bar
    >>> progress = progress_bar("solving")
    >>> progress(0, 10)
    """
    drawn = sys.stderr.isatty() or in_notebook()
    return _bar(description) if drawn else _lines(description, clock)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook: its stderr is no terminal, but drawn on."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def _bar(description: str) -> ProgressCallback:
    tqdm = require("tqdm.auto", "tune").tqdm
    bar: Any = None

    def progress(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = tqdm(desc=description, initial=done, total=total, dynamic_ncols=True)
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    return progress


def _lines(description: str, clock: Callable[[], float]) -> ProgressCallback:
    start = due = 0.0
    before: int | None = None

    def progress(done: int, total: int) -> None:
        nonlocal start, due, before
        now = clock()
        if before is None:
            start, due, before = now, now + FIRST_LINE, done
        if now < due and not (done >= total and due > start + FIRST_LINE):
            return
        due, elapsed, ending = now + NEXT_LINE, now - start, ""
        if done >= total:
            ending = f" in {_duration(elapsed)}"
        elif done > before:
            ending = f", about {_duration(elapsed * (total - done) / (done - before))} left"
        name = f"{description}: " if description else ""
        print(f"{name}{done} of {total} done{ending}", file=sys.stderr, flush=True)

    return progress


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
