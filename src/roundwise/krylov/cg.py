"""The conjugate gradient method, also flexible: for symmetric positive definite A.

    r = b - A x,  y = M r,  p = y
    repeat  alpha = r'y / p'Ap
            x = x + alpha p
            r = r - alpha A p
            y = M r
            beta = r'y / (r'y before)       flexible: (r - r before)'y / (r'y before)
            p = y + beta p

Hestenes & Stiefel, J. Res. NBS 49 (1952); Golub & Ye, SIAM J. Sci. Comput. 21 (1999) for the
flexible one, whose preconditioner may change from step to step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.krylov.run import Run, kept
from roundwise.krylov.stopping import Array, KrylovResult, KrylovStatus, Residual, Stop, Watch
from roundwise.krylov.vectors import BLOCKS, Operator, Vectors

UNIT_ROUNDOFF = 2.0**-53


def cg(
    A: Operator,
    B: Any,
    M: Operator | None = None,
    *,
    stop: Stop = Residual(),  # noqa: B008 (it is frozen)
    most: int | None = None,
    start: Any = None,
    flexible: bool = False,
    norm: float | None = None,
    watch: Watch | None = None,
    replaces: bool = True,
    vectors: Vectors = BLOCKS,
) -> KrylovResult:
    """Solve ``A X = B`` for symmetric positive definite A.

    Parameters
    ----------
    A, M : function
        Products of A with a block, and the preconditioner's application, symmetric positive
        definite like A; without it there is none.
    B : (n, k) array in Fortran order
        Or what `vectors` understands.
    stop : Stop
        When a column is good enough: judged by ``b - A x`` itself in the end.
    most : int, optional
        Iterations; ten times n if not given.
    start : block, optional
        Where to start; zero if not given.
    flexible : bool
        For a preconditioner that is not the same linear map in every step.
    norm : float, optional
        ``||A||_inf`` or a lower bound of it. With it residuals are replaced in time, so that x
        gets as accurate as by a direct method.
    watch : callable, optional
        See `Watch`.
    replaces : bool
        Judge by ``b - A x``, computed afresh where rounding errors could matter; otherwise by the
        recurrence's residual, as an inner solver may.
    vectors : Vectors
        The operations on blocks.

    Examples
    --------
    >>> from roundwise.krylov import Residual, cg, products_of
    >>> A = rw.problems.poisson_2d(10).A
    >>> found = cg(products_of(A), np.ones((100, 1)), stop=Residual(1e-10))
    >>> found.converged, bool(np.linalg.norm(1 - A @ found.X[:, 0]) <= 1e-9)
    (True, True)
    """
    B = vectors.copy(B)
    limit = 10 * len(B) if most is None else most
    run = Run(A, B, start, stop, limit, vectors, norm, watch, replaces)
    if not run.goes_on():
        return run.result()
    Y = run.R if M is None else M(run.R)
    P, rho = vectors.copy(Y), vectors.dots(run.R, Y)
    while run.goes_on():
        Q = A(P)
        curvature = vectors.dots(P, Q)
        if not ((rho > 0) & (curvature > 0)).all():
            breakdowns = {
                KrylovStatus.NONFINITE: ~np.isfinite(rho + curvature),
                KrylovStatus.INDEFINITE_PRECONDITIONER: _negative(vectors, run.R, Y, rho),
                KrylovStatus.INDEFINITE: _negative(vectors, P, Q, curvature, norm),
                KrylovStatus.BREAKDOWN: ~((rho > 0) & (curvature > 0)),
            }
            stay = run.end(breakdowns)
            if not run.goes_on():
                break
            P, Q, rho, curvature = kept(vectors, stay, P, Q, rho, curvature)
        alpha, before = rho / curvature, [vectors.copy(run.R)] if flexible else []
        run.Z, run.R, sizes = vectors.step(alpha, P, Q, run.Z, run.R)
        stay = run.after(sizes)
        if not run.goes_on():
            break
        P, rho, *before = kept(vectors, stay, P, rho, *before)
        Y = run.R if M is None else M(run.R)
        previous, rho = rho, vectors.dots(run.R, Y)
        gained = rho - vectors.dots(before[0], Y) if flexible else rho
        P = vectors.combine(1.0, Y, gained / previous, P)
    return run.result()


def _negative(
    vectors: Vectors, X: Any, Y: Any, products: Array, norm: float | None = None
) -> NDArray[np.bool_]:
    """Whether ``x'y`` is negative, and not by rounding errors alone: y is F x, ||F|| >= norm."""
    x, y = np.sqrt(vectors.dots(X, X)), np.sqrt(vectors.dots(Y, Y))
    if norm is not None:
        y = np.maximum(y, norm * x)
    return np.asarray(products < -len(X) * UNIT_ROUNDOFF * x * y)
