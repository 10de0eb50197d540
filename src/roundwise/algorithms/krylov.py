"""Krylov methods in one format: left-preconditioned GMRES, and conjugate gradients.

GMRES is MGS-Arnoldi with Givens rotations. Both start from z = 0.
"""

from __future__ import annotations

import numpy as np

from roundwise.algorithms.refinement import Correction
from roundwise.algorithms.stage import Stage, Vector
from roundwise.backends import Factors, Matrix


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
    for cycle in range(cycles):
        if cycle > 0:
            w = stage.solve(M, stage.axpy(-1.0, stage.matvec(A, z), r))
            beta = stage.norm2(w)
        if beta <= tolerance * first:
            break
        step, taken, beta = _cycle(stage, A, M, w, beta, tolerance * first, restart, checkpoint)
        z = step if cycle == 0 else stage.axpy(1.0, step, z)
        iterations += taken
    return Correction(z, iterations, beta / first if first > 0 else 0.0)


def _cycle(
    stage: Stage,
    A: Matrix,
    M: Factors,
    w: Vector,
    beta: float,
    target: float,
    restart: int,
    checkpoint: tuple[int, float] | None,
) -> tuple[Vector, int, float]:
    """At most `restart` Arnoldi steps from w with norm beta: the step, their number, residual."""
    n = len(w)
    V = stage.backend.xp.empty((min(restart, n) + 1, n), dtype=w.dtype)  # one basis vector per row
    R = np.zeros((len(V) - 1, len(V) - 1))
    cosines, sines, g = np.zeros(len(R)), np.zeros(len(R)), np.zeros(len(V))
    g[0] = beta
    last_step, wanted = (len(R), 0.0) if checkpoint is None else checkpoint
    wanted *= beta
    for j in range(len(R)):
        V[j] = stage.scale(1.0 / beta, w)
        w = stage.solve(M, stage.matvec(A, V[j]))
        h, w, beta = stage.orthogonalize_and_norm(V[: j + 1], w)
        column = np.empty(j + 2)
        column[:-1], column[-1] = h, beta
        stage.givens(j, cosines, sines, column, g)
        R[: j + 1, j] = column[:-1]
        if abs(g[j + 1]) <= target or beta == 0:
            break
        if j + 1 == last_step and abs(g[j + 1]) > wanted:
            break
    k = j + 1
    y = stage.solve_upper(R[:k, :k], g[:k])
    return stage.combine(V[:k], y), k, abs(float(g[k]))


def conjugate_gradients(
    stage: Stage, A: Matrix, M: Factors, r: Vector, tolerance: float, most: int
) -> Correction:
    """Solve ``A z = r`` from z = 0 with the preconditioner M, in the stage's format.

    Stops when the recurrence's residual is at most ``tolerance ||r||_2``, after `most` steps,
    or when rounding errors have made a direction's curvature nonpositive.
    """
    z = stage.backend.xp.zeros_like(r)
    first = size = stage.norm2(r)
    y = stage.solve(M, r)
    p, rho = y, stage.dot(r, y)
    steps = 0
    while size > tolerance * first and steps < most:
        q = stage.matvec(A, p)
        curvature = stage.dot(p, q)
        if curvature <= 0 or rho <= 0:
            break
        alpha = rho / curvature
        z, r = stage.axpy(alpha, p, z), stage.axpy(-alpha, q, r)
        y = stage.solve(M, r)
        previous, rho = rho, stage.dot(r, y)
        p = stage.axpy(rho / previous, p, y)
        size = stage.norm2(r)
        steps += 1
    return Correction(z, steps, size / first if first > 0 else 0.0)
