"""The cores for a large solve: threads of other libraries that spin there are moved to one of them.

Just after a product, OpenBLAS's threads spin for a tenth of a second, those of OpenMP (torch, MKL)
for some milliseconds. Linux shares every core between such a thread and one of ours, and whenever
one of ours has lost its core, the others wait for it. So a solve that finds at least half as many
threads spinning as there are cores moves them to one core, uses the other cores, and moves them
back at its end. ``make stages`` compares a solve just after a product with one at rest.

Such threads may also do useful work, which waits meanwhile. So nothing is moved unless all other
threads of Python wait, nor for a solve that takes longer than some tenths of a second. Where this
process has few cores, nothing is moved, as too few would be left. ``ROUNDWISE_MOVE_SPINNING=0`` in
the environment leaves all threads where they are.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import roundwise._kernels as _kernels
from roundwise.machine.threads import usable_cores

FEW_CORES = 4

ORDERS = range(500, 8001)
"""Of matrices: below, moving threads takes as long as what is gained; above, a solve takes so long
that they sleep for most of it."""

WATCHED, SHARE = 20_000, 0.5
"""A thread is taken for spinning if it runs for such a share of so many nanoseconds."""

_WAITING = {
    ("threading", "wait"),
    ("selectors", "select"),
    ("concurrent.futures.thread", "_worker"),
    ("ipykernel.heartbeat", "run"),
    ("ipykernel.parentpoller", "run"),
}
"""Functions, with their modules, that do nothing but wait while they are on top of a stack."""


class _Here(threading.local):
    """What the calling thread does."""

    solves = False


_here = _Here()
_AS_THEY_ARE = nullcontext()


def spinning_threads_aside(order: int) -> AbstractContextManager[None]:
    """For a dense solve of this order: threads of other libraries do not spin on its cores."""
    if order not in ORDERS or _here.solves or usable_cores() <= FEW_CORES or not _is_wanted():
        return _AS_THEY_ARE
    return _others_aside() if _others_wait() else _AS_THEY_ARE


@contextmanager
def _others_aside() -> Iterator[None]:
    _here.solves = True
    try:
        # Those of Python may have begun to work since they were seen to wait.
        spared = [thread.native_id or 0 for thread in threading.enumerate()]
        _kernels.move_others_aside(WATCHED, SHARE, spared)
        yield
    finally:
        _here.solves = False
        _kernels.move_others_back()


def _is_wanted() -> bool:
    return os.environ.get("ROUNDWISE_MOVE_SPINNING") != "0"


def _others_wait() -> bool:
    """Whether every thread of Python but the calling one does nothing but wait."""
    me = threading.get_ident()
    return all(
        thread == me or (frame.f_globals.get("__name__"), frame.f_code.co_name) in _WAITING
        for thread, frame in sys._current_frames().items()
    )
