"""The peak memory of a run, as Linux counts it; other systems are not supported."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from roundwise.algorithms import Shared

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class _Watched(Shared):
    """Counts the bytes that a run needs beyond those in use when it began.

    Diagnostics are not part of a run: neither their peak nor what they leave allocated counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        _forget_peak()
        self._base = _resident("VmRSS")

    def count(self) -> None:
        self.bytes = max(self.bytes, _resident("VmHWM") - self._base)

    @contextmanager
    def diagnostics(self) -> Iterator[None]:
        self.count()
        before = _resident("VmRSS")
        with super().diagnostics():
            yield
        _forget_peak()
        self._base += _resident("VmRSS") - before


def can_measure() -> bool:
    """Whether this system tells a process its peak memory and lets it reset it."""
    if not _CLEAR.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return False
    try:
        _forget_peak()
    except PermissionError:
        return False  # some sandboxes forbid it
    return True


def peak_bytes(run: Callable[[Shared], object]) -> int | None:
    """The peak memory of ``run(shared)`` beyond that of its problem; None where not measurable.

    Linux counts pages, and sums the counts of several cores with a delay: a run that needs less
    than some megabytes cannot be told from that error.
    """
    if not can_measure():
        return None
    watched = _Watched()
    run(watched)
    watched.count()
    return watched.bytes


def _forget_peak() -> None:
    """Give freed memory back to the system, and forget the peak so far."""
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR.write_text("5")  # sets VmHWM to VmRSS; see proc(5)


def _resident(name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{_STATUS} has no {name}; pass memory=False")
    return int(found[1]) * 1024
