"""When a Krylov method stops, why, and what it has arrived at."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class KrylovStatus(enum.Enum):
    """How a Krylov method ended for a column; the value says what to do about it.

    Examples
    --------
    >>> from roundwise.krylov import KrylovStatus
    >>> KrylovStatus.CONVERGED.value
    'the stopping rule is met by b - A x itself'
    """

    CONVERGED = "the stopping rule is met by b - A x itself"
    ITERATION_LIMIT = "the iterations were spent; allow more, or use a better preconditioner"
    STOPPED = "the caller's callback ended it"
    STAGNATED = (
        "b - A x does not get smaller any more: either the rule asks for more than the format can "
        "hold, or A is singular and b is not in its range"
    )
    BREAKDOWN = (
        "the recurrence divides by zero; start again from x with another method (GMRES cannot "
        "break down before it has solved a nonsingular system)"
    )
    INDEFINITE = (
        "some p has p'Ap <= 0: A is not positive definite; use MINRES if it is symmetric, else "
        "GMRES or BiCGSTAB"
    )
    INDEFINITE_PRECONDITIONER = (
        "some r has r'Mr <= 0: the preconditioner is not positive definite; use one that is, or "
        "GMRES"
    )
    NONFINITE = (
        "A x, the preconditioner's application or a norm is inf or NaN; look for such numbers in "
        "both, or scale the system"
    )


class Sizes(NamedTuple):
    """Norms of residuals and iterates, one for each column."""

    two: Array  # ||r||_2
    largest: Array  # max |r_i|
    x_largest: Array  # max |x_i|, or a lower bound of it


class Stop(ABC):
    """A stopping rule: which columns are good enough."""

    def on(self, b_norms: Array) -> Stop:
        """The rule for right-hand sides of these 2-norms."""
        return self

    @abstractmethod
    def met(self, sizes: Sizes, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these columns, which have these sizes, is good enough; NaN never is."""

    @abstractmethod
    def wanted(self, sizes: Sizes, columns: NDArray[np.int64]) -> Array:
        """About the ``||r||_2`` at which it will be met, for columns that have these sizes now."""


@dataclass(frozen=True)
class Residual(Stop):
    """``||b - A x||_2 <= max(rtol ||b||_2, atol)``: SciPy's rule.

    Examples
    --------
    >>> from roundwise.krylov import Residual
    >>> Residual(rtol=1e-6).on(np.array([5.0])).targets
    array([5.e-06])
    """

    rtol: float = 1e-5
    atol: float = 0.0
    targets: Array | None = field(default=None, compare=False)

    def on(self, b_norms: Array) -> Stop:
        targets = np.maximum(self.rtol * np.asarray(b_norms, dtype=np.float64), self.atol)
        return Residual(self.rtol, self.atol, targets)

    def met(self, sizes: Sizes, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(sizes.two <= self.wanted(sizes, columns))

    def wanted(self, sizes: Sizes, columns: NDArray[np.int64]) -> Array:
        assert self.targets is not None, "no right-hand side yet"
        return np.asarray(self.targets[columns])


@dataclass(frozen=True)
class BackwardError(Stop):
    """``max |b - A x| <= tol (||A||_inf max |x| + max |b|)``: the gate's rule.

    `norm` is ``||A||_inf``, or a lower bound of it, and `b_largest` are the max norms of the
    right-hand sides.
    """

    tol: float
    norm: float
    b_largest: Array = field(compare=False)

    def met(self, sizes: Sizes, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(sizes.largest <= self._allowed(sizes, columns))

    def wanted(self, sizes: Sizes, columns: NDArray[np.int64]) -> Array:
        flat = sizes.two / np.where(sizes.largest > 0, sizes.largest, 1.0)
        return self._allowed(sizes, columns) * flat

    def _allowed(self, sizes: Sizes, columns: NDArray[np.int64]) -> Array:
        return np.asarray(self.tol * (self.norm * sizes.x_largest + self.b_largest[columns]))


Watch = Callable[[int, Sizes], bool]
"""Called after each iteration with its number and the sizes of the columns that are not finished;
True ends the method with the status STOPPED."""


@dataclass(eq=False)
class KrylovResult:
    """What a Krylov method arrived at.

    Examples
    --------
    >>> from roundwise.krylov import Residual, cg
    >>> A = np.diag([1.0, 2.0, 2.0])
    >>> found = cg(A.__matmul__, np.ones((3, 1)), stop=Residual(1e-12))
    >>> found.iterations, found.converged  # as many as there are eigenvalues
    (2, True)
    """

    X: Any  # in the shape of B
    statuses: tuple[KrylovStatus, ...]  # of each column
    iterations: int  # of the column that took most
    products: int  # with A, a block of columns counting as one
    history: list[Array]
    """After each iteration, and before the first, the residual norms ``||r||_2`` of all columns."""
    replacements: int = 0  # times that b - A x was computed in place of the recurrence's residual

    @property
    def converged(self) -> bool:
        """Whether all columns have."""
        return all(status is KrylovStatus.CONVERGED for status in self.statuses)

    @property
    def status(self) -> KrylovStatus:
        """CONVERGED, or how the first column that has not ended."""
        failed = [status for status in self.statuses if status is not KrylovStatus.CONVERGED]
        return failed[0] if failed else KrylovStatus.CONVERGED
