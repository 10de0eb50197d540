"""What is known of the error of an answer: found out when somebody first asks for it, then kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundwise._forking import fork_safe_lock
from roundwise.exceptions import RoundwiseError
from roundwise.machine.threads import ieee_arithmetic


class SystemChanged(RoundwiseError, ValueError):
    """A, b or x was changed after the solve, so that the error of x cannot be found out any more.

    Read `Solution.forward_error_bound`, `condition` and `digits` before changing them, pass
    copies, or solve with ``factor(A)``, which has its own copy of A.
    """

    def __init__(self) -> None:
        super().__init__(
            "A, b or x has changed since the solve, and the error of x had not been asked for "
            "before; read forward_error_bound, condition or digits before changing them, or call "
            "factor(A).solve(b, full_output=True), which keeps a copy of A"
        )


@dataclass(frozen=True)
class ErrorEstimate:
    """A bound or an estimate of the error of an answer."""

    error: float  # ||x - x_true|| / ||x_true|| at most, or about; infinite if no digit is certain
    is_proved: bool
    source: str  # how it was obtained
    condition: float  # at least

    @property
    def kind(self) -> str:
        return "bound" if self.is_proved else "estimate"

    def times(self, factor: float) -> ErrorEstimate:
        """The same with so many times the error."""
        return replace(self, error=factor * self.error)


def worst_of(estimates: Sequence[ErrorEstimate]) -> ErrorEstimate:
    """Of several blocks of columns: the largest error (NaN is largest), and largest condition."""
    worst = estimates[int(np.argmax([one.error for one in estimates]))]
    condition = float(np.max([one.condition for one in estimates]))
    is_proved = all(one.is_proved for one in estimates)
    return replace(worst, is_proved=is_proved, condition=condition)


def right_digits(relative_error: float, most: int = 16) -> int:
    """The decimal digits that an error leaves right."""
    if not relative_error < 1:
        return 0
    return min(most, math.floor(-math.log10(relative_error))) if relative_error else most


class Knowledge:
    """An `ErrorEstimate` that is found out when it is first read.

    Until then it refers to what that takes: A, b, x and the factors. Threads may share it.

    Parameters
    ----------
    find : callable
        Finds it out; it raises `SystemChanged` if A, b or x is not what it was.
    """

    def __init__(self, find: Callable[[], ErrorEstimate]) -> None:
        self._find: Callable[[], ErrorEstimate] | None = find
        self._estimate: ErrorEstimate | None = None
        self._release: Callable[[], None] | None = None
        self._finding = fork_safe_lock()  # factors are released while nobody uses them

    @classmethod
    def known(cls, estimate: ErrorEstimate) -> Knowledge:
        """What has been found out already."""
        made = cls(_unknown)
        made._find, made._estimate = None, estimate
        return made

    @property
    def estimate(self) -> ErrorEstimate:
        if self._estimate is None:
            with self._finding, ieee_arithmetic():
                if self._find is not None:
                    self._estimate, self._find = self._find(), None
                    self._released()
        assert self._estimate is not None
        return self._estimate

    def releases(self, release: Callable[[], None]) -> None:
        """Call this once the factors are needed no more: when all is known, or nobody can ask."""
        self._release = release
        if self._estimate is not None:
            self._released()

    def _released(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()

    def __del__(self) -> None:
        self._released()

    def times(self, factor: float) -> Knowledge:
        """The same with so many times the error."""
        return Knowledge(lambda: self.estimate.times(factor))

    @classmethod
    def of_all(cls, parts: Sequence[Knowledge]) -> Knowledge:
        """That of several blocks of columns together."""
        return cls(lambda: worst_of([one.estimate for one in parts]))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is found out first: it goes where A and the factors are not."""
        try:
            return Knowledge.known, (self.estimate,)
        except SystemChanged:
            return Knowledge, (_unknown,)


def _unknown() -> ErrorEstimate:
    raise SystemChanged
