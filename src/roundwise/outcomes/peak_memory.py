"""The peak memory of a run, as Linux counts it; other systems are not supported."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from roundwise.algorithms import Shared

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # what clear_refs takes to set VmHWM to VmRSS; see proc(5)


class PeakMemory:
    """The bytes that work needed beyond those in use when it began; pauses do not count."""

    def __init__(self) -> None:
        self.bytes = 0
        self._release()
        self._base = _resident("VmRSS")

    def pause(self) -> None:
        self.bytes = max(self.bytes, _resident("VmHWM") - self._base)
        self._before = _resident("VmRSS")

    def go_on(self) -> None:
        """Count again. Memory allocated during the pause is not charged to the work."""
        self._release()
        self._base += _resident("VmRSS") - self._before

    @staticmethod
    def _release() -> None:
        """Give freed memory back to the system, and forget the peak so far."""
        ctypes.CDLL(None).malloc_trim(0)
        _CLEAR.write_text(_RESET_PEAK)


class _Watched(Shared):
    """Pauses the count during diagnostics, which are not part of a run."""

    def __init__(self, memory: PeakMemory) -> None:
        super().__init__()
        self._memory = memory

    @contextmanager
    def diagnostics(self) -> Iterator[None]:
        self._memory.pause()
        with super().diagnostics():
            yield
        self._memory.go_on()


def can_measure() -> bool:
    """Whether this system tells a process its peak memory and lets it reset it."""
    if not _CLEAR.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return False
    try:
        PeakMemory()
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
    memory = PeakMemory()
    run(_Watched(memory))
    memory.pause()
    return memory.bytes


def _resident(name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{_STATUS} has no {name}; pass memory=False")
    return int(found[1]) * 1024
