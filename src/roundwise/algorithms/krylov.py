"""Krylov methods in the format of a stage: GMRES, preconditioned from both sides, and CG.

The methods themselves are in `roundwise.krylov`; all start from z = 0 here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise import krylov
from roundwise.algorithms.refinement import Correction
from roundwise.algorithms.stage import Stage, Vector
from roundwise.backends import Factors, Matrix

Apply = Callable[[Vector], Vector]


def gmres(
    stage: Stage,
    A: Matrix,
    M: Factors,
    r: Vector,
    tolerance: float,
    restart: int,
    cycles: int,
    checkpoint: tuple[int, float] | None = None,
) -> Correction:
    """Solve ``M \\ A z = M \\ r`` from z = 0, all arithmetic in the stage's format.

    Stops when the preconditioned residual, as the Givens recurrence has it, is at most
    ``tolerance ||M \\ r||_2``, or after `cycles` cycles of `restart` steps (Saad & Schultz 1986).
    A checkpoint (k, c) stops a cycle that has not brought its residual below c after k steps.
    """
    z = stage.backend.xp.zeros_like(r)
    w = stage.solve(M, r)
    beta = first = stage.norm2(w)
    iterations = 0

    def expand(_: int, v: Vector) -> Vector:
        return stage.solve(M, stage.matvec(A, v))

    for number in range(cycles):
        if number > 0:
            w = stage.solve(M, stage.axpy(-1.0, stage.matvec(A, z), r))
            beta = stage.norm2(w)
        if beta <= tolerance * first:
            break
        V, y, taken, beta = krylov.cycle(
            *(stage, expand, w, beta, tolerance * first, restart, checkpoint)
        )
        step = stage.combine(V, y)
        z = step if number == 0 else stage.axpy(1.0, step, z)
        iterations += taken
    return Correction(z, iterations, beta / first if first > 0 else 0.0)


def conjugate_gradients(
    stage: Stage, A: Matrix, M: Factors, r: Vector, tolerance: float, most: int
) -> Correction:
    """`preconditioned_cg` with factors as the preconditioner."""
    return preconditioned_cg(stage, A, partial(stage.solve, M), r, tolerance, most)


def preconditioned_cg(
    stage: Stage, A: Matrix, M: Apply, r: Vector, tolerance: float, most: int
) -> Correction:
    """Solve ``A z = r`` from z = 0; M is a function that applies the preconditioner.

    Stops when the recurrence's residual is at most ``tolerance ||r||_2``, after `most` steps,
    or when rounding errors have made a direction's curvature nonpositive.
    """
    found = krylov.cg(
        *(partial(stage.matvec, A), r, M),
        stop=krylov.Residual(tolerance),
        most=most,
        replaces=False,
        vectors=StageVectors(stage),
    )
    first, last = (float(norms[0]) for norms in (found.history[0], found.history[-1]))
    return Correction(found.X, found.iterations, last / first if first > 0 else 0.0)


def fgmres(
    stage: Stage, A: Matrix, M: Apply, r: Vector, tolerance: float, restart: int, most: int
) -> Correction:
    """Solve ``A z = r`` from z = 0, M applied from the right (Saad 1993), in the stage's format.

    Stops when the residual, as the Givens recurrence has it, is at most ``tolerance ||r||_2``, or
    after `most` steps in cycles of `restart`.
    """
    z, w, taken = stage.backend.xp.zeros_like(r), r, 0
    beta = first = stage.norm2(r)
    while beta > tolerance * first and taken < most:
        steps = min(restart, most - taken)
        Z = stage.empty_rows(w, min(steps, len(w)))

        def expand(j: int, v: Vector, Z: Vector = Z) -> Vector:
            Z[j] = M(v)
            return stage.matvec(A, Z[j])

        _, y, made, left = krylov.cycle(stage, expand, w, beta, tolerance * first, steps)
        step = stage.combine(Z[:made], y)
        z = step if taken == 0 else stage.axpy(1.0, step, z)
        taken += made
        if left <= tolerance * first or taken >= most:
            beta = left
            break
        w = stage.axpy(-1.0, stage.matvec(A, z), r)
        before, beta = beta, stage.norm2(w)
        if not beta < before:
            break  # the format holds no better z
    return Correction(z, taken, beta / first if first > 0 else 0.0)


class StageVectors:
    """The operations of `roundwise.krylov.Vectors` for one vector, in the format of a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def zeros_like(self, X: Vector) -> Vector:
        return self._stage.backend.xp.zeros_like(X)

    def copy(self, X: Vector) -> Vector:
        return X  # no kernel of a stage overwrites its operands

    def take(self, X: Vector, columns: NDArray[Any]) -> Vector:
        return X

    def dots(self, X: Vector, Y: Vector) -> NDArray[np.float64]:
        return np.array([float(self._stage.dot(X, Y))])

    def step(
        self, a: NDArray[np.float64], P: Vector, Q: Vector, Z: Vector, R: Vector
    ) -> tuple[Vector, Vector, krylov.Sizes]:
        alpha = float(a[0])
        Z, R = self._stage.axpy(alpha, P, Z), self._stage.axpy(-alpha, Q, R)
        return Z, R, self.sizes(R, Z)

    def combine(self, a: Any, X: Vector, b: Any, Y: Vector) -> Vector:
        first, second = (float(np.ravel(x)[0]) for x in (a, b))
        if first == 1:
            return self._stage.axpy(second, Y, X)
        return self._stage.axpy(first, X, Y if second == 1 else self._stage.scale(second, Y))

    def residual(self, product: krylov.Operator, X: Vector, B: Vector) -> Vector:
        return self._stage.axpy(-1.0, product(X), B)

    def sizes(self, R: Vector, X: Vector) -> krylov.Sizes:
        """The 2-norm alone: rules for a stage go by nothing else."""
        unknown = np.array([np.nan])
        return krylov.Sizes(np.array([float(self._stage.norm2(R))]), unknown, unknown)
