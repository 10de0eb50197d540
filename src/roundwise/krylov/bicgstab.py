"""BiCGSTAB: for unsymmetric A, by short recurrences; two products in each iteration.

    r = b - A x,  s = r,  p = r
    repeat  v = A M p,  alpha = s'r / s'v
            q = r - alpha v,  t = A M q,  omega = t'q / t't
            x = x + alpha M p + omega M q
            r = q - omega t
            beta = (s'r / s'r before) (alpha / omega)
            p = r + beta (p - omega v)

Van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992), preconditioned from the right. Where a division
by (nearly) zero is ahead, a column starts again from its x, with s = r; a breakdown just after that
is final.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from roundwise.krylov.run import Run, kept
from roundwise.krylov.stopping import Array, KrylovResult, KrylovStatus, Residual, Stop, Watch
from roundwise.krylov.vectors import BLOCKS, Operator, Vectors

NEARLY_ZERO = 1e-14
"""An inner product of vectors closer to orthogonal than that has lost its digits: a hundred times
float64's unit roundoff, a taste."""


def bicgstab(
    A: Operator,
    B: Any,
    M: Operator | None = None,
    *,
    stop: Stop = Residual(),  # noqa: B008 (it is frozen)
    most: int | None = None,
    start: Any = None,
    norm: float | None = None,
    watch: Watch | None = None,
    replaces: bool = True,
    vectors: Vectors = BLOCKS,
) -> KrylovResult:
    """Solve ``A X = B``; the parameters are those of `cg`, and M need not be symmetric.

    Examples
    --------
    >>> from roundwise.krylov import Residual, bicgstab
    >>> A = np.array([[4.0, 1.0], [-1.0, 3.0]])
    >>> found = bicgstab(A.__matmul__, np.ones((2, 1)), stop=Residual(1e-12))
    >>> found.iterations, found.converged
    (2, True)
    """
    B = vectors.copy(B)
    limit = 10 * len(B) if most is None else most
    run = Run(A, B, start, stop, limit, vectors, norm, watch, replaces)
    if not run.goes_on():
        return run.result()
    S, P = vectors.copy(run.R), vectors.copy(run.R)
    rho, is_new = vectors.dots(S, run.R), np.full(len(run.columns), True)
    while run.goes_on():
        MP = P if M is None else M(P)
        V = A(MP)
        along = vectors.dots(S, V)
        lost = _lost(along, S, V, vectors)
        if lost.any():
            ends = {
                KrylovStatus.NONFINITE: ~np.isfinite(along),
                KrylovStatus.BREAKDOWN: lost & is_new,
            }
            stay = run.end(ends)
            if not run.goes_on():
                break
            S, P, rho, is_new, lost = kept(vectors, stay, S, P, rho, is_new, lost)
            S, P, rho = _restarted(lost, run.R, S, P, rho, vectors)
            is_new = is_new | lost
            continue
        alpha = rho / along
        run.Z = vectors.combine(alpha, MP, 1.0, run.Z)
        Q = vectors.combine(-alpha, V, 1.0, run.R)
        MQ = Q if M is None else M(Q)
        T = A(MQ)
        square = vectors.dots(T, T)
        omega = vectors.dots(T, Q) / np.where(square == 0, 1.0, square)
        run.Z, run.R, sizes = vectors.step(omega, vectors.copy(MQ), T, run.Z, Q)
        stay = run.after(sizes)
        if not run.goes_on():
            break
        run.products += 1
        S, P, V, rho, alpha, omega = kept(vectors, stay, S, P, V, rho, alpha, omega)
        previous, rho = rho, vectors.dots(S, run.R)
        lost = _lost(rho, S, run.R, vectors) | ~(np.abs(omega) > 0)
        beta = np.where(lost, 0.0, rho / previous * alpha / np.where(lost, 1.0, omega))
        P = vectors.combine(-beta * omega, V, beta, P)
        P = vectors.combine(1.0, run.R, 1.0, P)
        is_new = lost
        if lost.any():
            S, P, rho = _restarted(lost, run.R, S, P, rho, vectors)
    return run.result()


def _lost(products: Array, X: Any, Y: Any, vectors: Vectors) -> Any:
    """Whether inner products are zero but for rounding errors."""
    sizes = np.sqrt(vectors.dots(X, X)) * np.sqrt(vectors.dots(Y, Y))
    return ~(np.abs(products) > NEARLY_ZERO * sizes)


def _restarted(
    lost: Any, R: Any, S: Any, P: Any, rho: Array, vectors: Vectors
) -> tuple[Any, Any, Array]:
    """Shadow residuals and directions, those of the lost columns made afresh from R."""
    new, old = lost.astype(np.float64), (~lost).astype(np.float64)
    S = vectors.combine(new, R, old, S)
    P = vectors.combine(new, R, old, P)
    return S, P, np.where(lost, vectors.dots(R, R), rho)
