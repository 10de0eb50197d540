"""Locks that neither a signal nor a fork leaves held.

`threading.RLock` is written in C, its ``__enter__`` and ``__exit__`` too: a signal's handler runs
before or after them, so that an exception that it raises finds the lock free or inside ``with``. A
handler that wants the same lock gets it, as it runs in the thread that holds it: what a lock
protects is consistent after every statement.

A fork copies the memory, but of all threads only the one that forks. A lock that another thread
holds at that moment would stay held in the child for ever; that of `fork_safe_lock` does not.

Python 3.11's `functools.cached_property` has a lock, too, one for all objects of a class;
`cached_property` here has none.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any, TypeVar
from weakref import ref

T = TypeVar("T")

_locks: set[ref[Any]] = set()


def fork_safe_lock() -> AbstractContextManager[bool]:
    """A lock for ``with`` that its thread may take again, and that a forked child finds free."""
    lock = RLock()
    _locks.add(ref(lock, _locks.discard))
    return lock


def _free_locks_of_other_threads() -> None:
    for reference in _locks.copy():
        lock = reference()
        if lock is None:
            continue
        if lock.acquire(blocking=False):  # free, or held by the thread that forked: it goes on
            lock.release()
        else:
            lock._at_fork_reinit()  # as the standard library does with its locks


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_free_locks_of_other_threads)


class cached_property(functools.cached_property[T]):
    """`functools.cached_property` without a lock: two threads at once compute the same twice."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()  # Python 3.12 and later look for none
