"""GMRES by modified Gram-Schmidt and Givens rotations, preconditioned from the left or the right.

    r = b - A x,  v_1 = w / ||w||,  w = M r (left) or r (right)
    for j = 1, 2, ..., restart:  w = M A v_j (left) or A M v_j (right)
                                 h, w = w against v_1 ... v_j;  v_{j+1} = w / ||w||
    x = x + V y (left) or x + M V y (right),  y = the least squares solution

Saad & Schultz, SIAM J. Sci. Stat. Comput. 7 (1986). From the right, ``M v_j`` are kept: the method
is FGMRES, whose preconditioner may change from step to step (Saad, SIAM J. Sci. Comput. 14, 1993),
and its residual is that of the system itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from roundwise.krylov.stopping import (
    Array,
    KrylovResult,
    KrylovStatus,
    Residual,
    Sizes,
    Stop,
    Watch,
)
from roundwise.krylov.vectors import BLOCKS, Operator, Rows

RESTART = 30
"""Steps of a cycle, as in SciPy and PETSc: each keeps a vector, two with a preconditioner."""

LEAST_GAIN = 0.99
"""A whole cycle that leaves more than that of the residual has stagnated. A taste: at that rate, a
digit takes two hundred cycles."""


class Basis(Protocol):
    """What Arnoldi's method asks of vectors: `roundwise.algorithms.Stage` has it in its format."""

    def empty_rows(self, w: Any, rows: int) -> Any:
        """Room for so many vectors like w, one in each row."""

    def scale(self, alpha: float, x: Any) -> Any:
        """``alpha x``."""

    def norm2(self, x: Any) -> float:
        """``||x||_2``."""

    def orthogonalize_and_norm(self, V: Any, w: Any) -> tuple[Any, Any, float]:
        """Coefficients of w in the rows of V, what is left of w, and its norm."""

    def givens(self, j: int, cosines: Any, sines: Any, h: Any, g: Any) -> None:
        """Bring column j of the Hessenberg matrix to triangular form, and rotate g."""

    def solve_upper(self, R: Any, g: Any) -> Any:
        """``R y = g``."""

    def combine(self, V: Any, y: Any) -> Any:
        """``V' y``."""


def cycle(
    basis: Basis,
    expand: Callable[[int, Any], Any],
    w: Any,
    beta: float,
    target: float,
    restart: int,
    checkpoint: tuple[int, float] | None = None,
    watch: Callable[[float], bool] | None = None,
) -> tuple[Any, Array, int, float]:
    """At most `restart` Arnoldi steps from w with norm beta, until the residual is the target.

    ``expand(j, v_j)`` is the next vector. Returns the basis, the coefficients y, the number of
    steps and the norm of the residual. A checkpoint (k, c) ends a cycle that has not brought its
    residual below ``c beta`` after k steps; so does `watch`, given the residual after each step,
    that returns True.
    """
    V = basis.empty_rows(w, min(restart, len(w)) + 1)
    R = np.zeros((len(V) - 1, len(V) - 1))
    cosines, sines, g = np.zeros(len(R)), np.zeros(len(R)), np.zeros(len(V))
    g[0] = beta
    last_step, wanted = (len(R), 0.0) if checkpoint is None else checkpoint
    wanted *= beta
    for j in range(len(R)):
        V[j] = basis.scale(1.0 / beta, w)
        h, w, beta = basis.orthogonalize_and_norm(V[: j + 1], expand(j, V[j]))
        column = np.empty(j + 2)
        column[:-1], column[-1] = h, beta
        basis.givens(j, cosines, sines, column, g)
        R[: j + 1, j] = column[:-1]
        ended = watch is not None and watch(abs(float(g[j + 1])))
        if ended or abs(g[j + 1]) <= target or beta == 0:
            break
        if j + 1 == last_step and abs(g[j + 1]) > wanted:
            break
    k = j + 1
    y = basis.solve_upper(R[:k, :k], g[:k])
    return V[:k], y, k, abs(float(g[k]))


def gmres(
    A: Operator,
    B: Any,
    M: Operator | None = None,
    *,
    stop: Stop = Residual(),  # noqa: B008 (it is frozen)
    most: int | None = None,
    start: Any = None,
    restart: int = RESTART,
    watch: Watch | None = None,
) -> KrylovResult:
    """Solve ``A X = B`` by FGMRES, in cycles of `restart` steps, column after column.

    The other parameters are those of `cg`; M need not be symmetric, nor the same in every step.

    Examples
    --------
    >>> from roundwise.krylov import Residual, gmres
    >>> A = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> found = gmres(A.__matmul__, np.array([[1.0], [0.0], [0.0]]), stop=Residual(1e-12))
    >>> found.iterations, found.converged  # the shift: nothing is gained before the last step
    (3, True)
    """
    B = BLOCKS.copy(B)
    stop = stop.on(np.sqrt(BLOCKS.dots(B, B)))
    limit = 10 * len(B) if most is None else most
    X = BLOCKS.zeros_like(B) if start is None else BLOCKS.copy(start)
    columns = [
        _Column(A, B[:, [j]], M, stop, np.array([j]), X[:, [j]], start is None).solved(
            limit, restart, watch
        )
        for j in range(B.shape[1])
    ]
    for j, column in enumerate(columns):
        X[:, [j]] = column.x
    longest = max((len(column.norms) for column in columns), default=1)
    history = [
        np.array([column.norms[min(step, len(column.norms) - 1)] for column in columns])
        for step in range(longest)
    ]
    statuses = tuple(column.status for column in columns)
    products = sum(column.products for column in columns)
    cycles = sum(column.cycles for column in columns)
    return KrylovResult(X, statuses, longest - 1, products, history, cycles)


class _Column:
    """One right-hand side, its iterate x and its residual r."""

    def __init__(
        self,
        A: Operator,
        b: Any,
        M: Operator | None,
        stop: Stop,
        number: Any,
        x: Any,
        from_zero: bool,
    ) -> None:
        self._A, self._b, self._M, self._stop, self._number = A, b, M, stop, number
        self.x, self.products, self.cycles = BLOCKS.copy(x), 0, 0
        self.status = KrylovStatus.ITERATION_LIMIT
        self._r = BLOCKS.copy(b) if from_zero else self._residual()
        self._sizes = BLOCKS.sizes(self._r, self.x)
        self.norms = [float(self._sizes.two[0])]

    def solved(self, most: int, restart: int, watch: Watch | None) -> _Column:
        """This column, after as many cycles as it takes."""
        while True:
            if not np.isfinite(self._sizes.two[0]):
                self.status = KrylovStatus.NONFINITE
            elif self._stop.met(self._sizes, self._number)[0]:
                self.status = KrylovStatus.CONVERGED
            elif len(self.norms) <= most:
                steps = min(restart, most + 1 - len(self.norms))
                if self._cycled(steps, watch, len(self.norms) + steps <= most + 1):
                    continue
            return self

    def _cycled(self, steps: int, watch: Watch | None, is_whole: bool) -> bool:
        """Run one cycle; False if there is no use in another one."""
        basis, M, stopped = Rows(), self._M, False
        Z = None if M is None else np.empty((min(steps, len(self.x)), len(self.x)))

        def expand(j: int, v: Any) -> Any:
            self.products += 1
            if M is None or Z is None:
                return self._A(v[:, None])[:, 0]
            Z[j] = M(v[:, None])[:, 0]
            return self._A(Z[j][:, None])[:, 0]

        def seen(norm: float) -> bool:
            nonlocal stopped
            self.norms.append(norm)
            if watch is not None:
                sizes = Sizes(np.array([norm]), *self._sizes[1:])
                stopped = bool(watch(len(self.norms) - 1, sizes))
            return stopped or not np.isfinite(norm)

        before = float(self._sizes.two[0])
        if before == 0:  # squares vanish, r does not
            self.status = KrylovStatus.NONFINITE
            return False
        target = float(self._stop.wanted(self._sizes, self._number)[0])
        V, y, taken, left = cycle(
            *(basis, expand, self._r[:, 0], before, target, steps), watch=seen
        )
        if not np.isfinite(y).all():
            self.status = KrylovStatus.NONFINITE
            return False
        self.x[:, 0] += basis.combine(V if Z is None else Z[:taken], y)
        self._r = self._residual()
        self.cycles += 1
        self._sizes = BLOCKS.sizes(self._r, self.x)
        self.norms[-1] = after = float(self._sizes.two[0])
        if self._stop.met(self._sizes, self._number)[0]:
            return True
        if stopped:
            self.status = KrylovStatus.STOPPED
            return False
        # A cycle that ended early believed to be there.
        gain = LEAST_GAIN if taken == steps and left > target else 0.5
        if is_whole and not after <= gain * before:
            self.status = KrylovStatus.STAGNATED
            return False
        return True

    def _residual(self) -> Any:
        self.products += 1
        return BLOCKS.residual(self._A, self.x, self._b)
