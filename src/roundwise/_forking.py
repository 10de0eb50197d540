"""What a forked process must find in order: locks that are free, and what they protect.

A fork copies the memory, but of all threads only the one that forks. A lock that another thread
holds at that moment stays held in the child for ever, and what that thread was changing stays half
changed. `ForkSafeLock` is free in the child, and tells its owner that there was a fork.

Python 3.11's `functools.cached_property` has a lock, too, one for all objects of a class;
`cached_property` here has none.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import nullcontext
from threading import Lock, get_ident
from typing import Any, Protocol, TypeVar
from weakref import ref

T = TypeVar("T")


class Owner(Protocol):
    """Whose state a lock protects."""

    def before_fork(self) -> None:
        """Called before a fork, with the lock held."""

    def in_forked_child(self, whole: bool) -> None:
        """Called in the child; not `whole`: another thread may have been changing the state."""


class ForkSafeLock:
    """A lock for ``with`` that a forked child finds free.

    Parameters
    ----------
    owner : Owner, optional
        Is told about forks; referred to weakly.
    patience : float
        Seconds that a fork waits for the thread that holds the lock, so that the child finds its
        work completed. The default suits state that is consistent at any moment. What is done
        with a lock that has patience must not wait for another one that has.
    """

    def __init__(self, owner: Owner | None = None, patience: float = 0.0) -> None:
        self._lock, self._patience = Lock(), patience
        self._owner = None if owner is None else ref(owner)
        self._forking: int | None = None  # the thread that holds the lock because it forks
        _locks.add(ref(self, _locks.discard))

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    @property
    def is_held(self) -> bool:
        return self._lock.locked()

    def before_fork(self) -> None:
        if self._patience > 0 and self._lock.acquire(timeout=self._patience):
            self._forking = get_ident()
            if self._owner is not None and (owner := self._owner()) is not None:
                owner.before_fork()

    def in_parent(self) -> None:
        if self._forking == get_ident():
            self._forking = None
            self._lock.release()

    def in_child(self) -> None:
        whole, self._forking, self._lock = self._forking == get_ident(), None, Lock()
        if self._owner is not None and (owner := self._owner()) is not None:
            owner.in_forked_child(whole)


_locks: set[ref[ForkSafeLock]] = set()


def _for_all(step: Callable[[ForkSafeLock], None]) -> None:
    for reference in _locks.copy():  # in one step: other threads make locks, too
        if (lock := reference()) is not None:
            step(lock)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=lambda: _for_all(ForkSafeLock.before_fork),
        after_in_parent=lambda: _for_all(ForkSafeLock.in_parent),
        after_in_child=lambda: _for_all(ForkSafeLock.in_child),
    )


class cached_property(functools.cached_property[T]):
    """`functools.cached_property` without a lock: two threads at once compute the same twice."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()  # Python 3.12 and later look for none
