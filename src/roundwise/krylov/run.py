"""What methods with short recurrences share: columns that finish, and residuals that drift.

A recurrence's residual drifts away from ``b - A x``, by about ``u ||A|| max |x|`` over a run, and
the method would stop there. So x is kept in two parts, ``x = x_0 + z``: while the residual is still
large beside that drift, ``b - A x`` is computed afresh, z is added to x_0, and the method goes on
with z = 0 and the directions that it has. The drift is then that of the smaller z. After van der
Vorst & Ye, SIAM J. Sci. Comput. 22 (2000), whose rule for the time of replacement is: as soon as
the residual is no larger than ``sqrt(u) ||A|| max |z|``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.krylov.stopping import KrylovResult, KrylovStatus, Sizes, Stop, Watch
from roundwise.krylov.vectors import Operator, Vectors

SQRT_U = 2.0**-26
"""About the square root of float64's unit roundoff."""

LEAST_GAP = 10
"""Iterations from one replacement to the next. A taste: the products that replacements take are
then at most a tenth of all."""

Mask = NDArray[np.bool_]


def kept(vectors: Vectors, stay: NDArray[np.int64] | None, *parts: Any) -> tuple[Any, ...]:
    """Those columns of blocks, and those entries of arrays with one number for each column."""
    if stay is None:
        return parts
    return tuple(x[stay] if x.ndim == 1 else vectors.take(x, stay) for x in parts)


class Run:
    """Iterates and residuals of the columns that are not finished.

    A method updates `Z` and `R` and calls `after` with their sizes. Columns that are finished leave
    both; `after` returns those that stay, by which the method shortens its own blocks.
    """

    def __init__(
        self,
        A: Operator,
        B: Any,
        start: Any,
        stop: Stop,
        most: int,
        vectors: Vectors,
        norm: float | None,
        watch: Watch | None,
        replaces: bool,
    ) -> None:
        self._A, self._B, self._vectors, self._most = A, B, vectors, most
        self._norm, self._watch, self._replaces = norm or 0.0, watch, replaces
        self.Z = vectors.zeros_like(B)
        self._X = None if start is None else vectors.copy(start)  # None: zero
        self.R = vectors.copy(B) if start is None else vectors.residual(A, self._X, B)
        self.products, self.iterations, self.replacements = int(start is not None), 0, 0
        self._gap = 0  # iterations since b - A x was computed
        sizes = vectors.sizes(self.R, self.Z if start is None else self._X)
        self._base = sizes.x_largest  # max norms of X
        self._total = len(sizes.two)
        b_norms = sizes.two if start is None else vectors.sizes(vectors.copy(B), self.Z).two
        self._stop = stop.on(b_norms)
        self.columns = np.arange(self._total)
        self._claimed = np.full(self._total, math.inf)  # ||b - A x|| when it should have sufficed
        self._statuses: dict[int, KrylovStatus] = {}
        self.history = [sizes.two.copy()]
        converged = self._stop.met(sizes, self.columns)
        nonfinite = ~np.isfinite(sizes.two)
        self.end({KrylovStatus.CONVERGED: converged, KrylovStatus.NONFINITE: nonfinite})

    def goes_on(self) -> bool:
        """Whether a column is left."""
        return len(self.columns) > 0

    def after(self, sizes: Sizes, exhausted: Mask | bool = False) -> NDArray[np.int64] | None:
        """Record an iteration; the places of the columns that go on, or None for all of them.

        Where a method is `exhausted`, its residual should be zero: the column goes on only if
        ``b - A x`` still gets smaller by starting again.
        """
        self.iterations, self.products = self.iterations + 1, self.products + 1
        self._gap += 1
        finite = np.isfinite(sizes.two)
        whole = Sizes(sizes.two, sizes.largest, np.abs(self._base - sizes.x_largest))
        converged = self._stop.met(whole, self.columns) & finite
        claimed = converged | exhausted
        stuck = claimed & ~converged
        if self._replaces:
            limits = SQRT_U * self._norm * sizes.x_largest
            drifts = self._gap >= LEAST_GAP and (finite & (sizes.largest <= limits)).any()
            if claimed.any() or drifts:  # one product serves all columns
                whole = self._replaced()
                converged = self._stop.met(whole, self.columns)
                stuck = claimed & ~converged & ~(whole.two <= self._claimed / 2)
                self._claimed[claimed] = whole.two[claimed]
        norms = self.history[-1].copy()
        norms[self.columns] = whole.two
        self.history.append(norms)
        stopped = self._watch is not None and self._watch(self.iterations, whole)
        return self.end(
            {
                KrylovStatus.CONVERGED: converged,
                KrylovStatus.STAGNATED: stuck,
                KrylovStatus.NONFINITE: ~finite,
                KrylovStatus.STOPPED: np.full(len(finite), stopped),
                KrylovStatus.ITERATION_LIMIT: np.full(len(finite), self.iterations >= self._most),
            }
        )

    def end(self, ended: Mapping[KrylovStatus, Mask]) -> NDArray[np.int64] | None:
        """Take the columns out for which one of the masks is True; the first of them counts.

        Returns the places of those that stay, or None for all of them.
        """
        left = np.full(len(self.columns), True)
        for status, mask in ended.items():
            for column in self.columns[left & mask].tolist():
                self._statuses[column] = status
            left &= ~mask
        if left.all():
            return None
        if self._gap:
            self._add(np.flatnonzero(~left))
        stay = np.flatnonzero(left)
        self.columns, self._base = self.columns[stay], self._base[stay]
        self._claimed = self._claimed[stay]
        if len(stay):
            self.Z, self.R = self._vectors.take(self.Z, stay), self._vectors.take(self.R, stay)
        return stay

    def result(self) -> KrylovResult:
        """What the run arrived at."""
        X = self._vectors.zeros_like(self._B) if self._X is None else self._X
        statuses = tuple(self._statuses[column] for column in range(self._total))
        return KrylovResult(
            X, statuses, self.iterations, self.products, self.history, self.replacements
        )

    def _replaced(self) -> Sizes:
        """Add Z to X, compute ``B - A X``, and return the sizes of both."""
        vectors, everything = self._vectors, len(self.columns) == self._total
        if self._X is None and everything:
            X = self._X = self.Z
        else:
            if self._X is None:
                self._X = vectors.zeros_like(self._B)
            X = self._X if everything else vectors.take(self._X, self.columns)
            X = vectors.combine(1.0, self.Z, 1.0, X)
            if everything:
                self._X = X
            else:
                self._X[:, self.columns] = X
        B = self._B if everything else vectors.take(self._B, self.columns)
        self.R, self.Z = vectors.residual(self._A, X, B), vectors.zeros_like(self.Z)
        self.products, self.replacements, self._gap = self.products + 1, self.replacements + 1, 0
        sizes = vectors.sizes(self.R, X)
        self._base = sizes.x_largest
        return sizes

    def _add(self, places: NDArray[np.int64]) -> None:
        """Add Z to X for the columns at these places, unless it is not finite."""
        vectors = self._vectors
        if self._total == 1:
            if self._X is None:
                X = self.Z
            else:
                X = vectors.combine(1.0, self.Z, 1.0, vectors.copy(self._X))
            if self._statuses[0] is not KrylovStatus.NONFINITE:
                self._X = X
            return
        if self._X is None:
            self._X = vectors.zeros_like(self._B)
        for place in places.tolist():
            column = self.columns[place]
            if self._statuses[int(column)] is not KrylovStatus.NONFINITE:
                self._X[:, column] += self.Z[:, place]
