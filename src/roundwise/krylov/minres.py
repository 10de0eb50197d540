"""MINRES: for symmetric A, definite or not, with a positive definite preconditioner.

Lanczos vectors v_j and z_j = M v_j with ``z_i'v_j = 0`` for i != j, and x_j such that
``r_j'M r_j`` is least: Givens rotations (c, s) make the tridiagonal matrix triangular, whose
columns become directions d_j. Their images A d_j are kept, too, so that r is at hand.

    v = A z_j / gamma_j - (delta / gamma_j) v_j - (gamma_j / gamma_{j-1}) v_{j-1},
    delta = z_j'A z_j / gamma_j^2,  gamma_{j+1} = sqrt(v'M v)
    d = (z_j / gamma_j - alpha_3 d_{j-2} - alpha_2 d_{j-1}) / alpha_1
    x = x + c eta d,  r = r - c eta A d,  eta = -s eta

Paige & Saunders, SIAM J. Numer. Anal. 12 (1975); notation of Elman, Silvester & Wathen, "Finite
Elements and Fast Iterative Solvers" (2014), algorithm 4.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from roundwise.krylov.run import Run, kept
from roundwise.krylov.stopping import Array, KrylovResult, KrylovStatus, Residual, Stop, Watch
from roundwise.krylov.vectors import BLOCKS, Operator, Vectors

DRIFTED = 1e-3
"""Where eta, which should be the norm of the residual (in M's norm, which differs by a factor), has
fallen so much further than that norm, rounding errors have spoiled the recurrence. A taste."""


class _Lanczos(NamedTuple):
    """The last two of everything."""

    V: Any
    Z: Any
    V_before: Any
    D: Any
    D_before: Any
    AD: Any
    AD_before: Any
    gamma: Array
    gamma_before: Array
    eta: Array
    c: Array
    c_before: Array
    s: Array
    s_before: Array


def minres(
    A: Operator,
    B: Any,
    M: Operator | None = None,
    *,
    stop: Stop = Residual(),  # noqa: B008 (it is frozen)
    most: int | None = None,
    start: Any = None,
    watch: Watch | None = None,
    replaces: bool = True,
    vectors: Vectors = BLOCKS,
) -> KrylovResult:
    """Solve ``A X = B`` for symmetric A; the parameters are those of `cg`.

    Where the rule seems to be met, ``b - A x`` is computed. If that does not meet it, the method
    starts again from x.

    Examples
    --------
    >>> from roundwise.krylov import Residual, minres
    >>> A = np.diag([1.0, -1.0, 2.0, 2.0])
    >>> found = minres(A.__matmul__, np.ones((4, 1)), stop=Residual(1e-12))
    >>> found.iterations, found.converged  # as many as there are eigenvalues
    (3, True)
    """
    B = vectors.copy(B)
    limit = 10 * len(B) if most is None else most
    run = Run(A, B, start, stop, limit, vectors, None, watch, replaces)
    replacements = -1
    while run.goes_on():
        if run.replacements > replacements:
            replacements, state = run.replacements, _started(run.R, M, vectors)
            indefinite = ~(state.gamma > 0)
            ratios = vectors.sizes(run.R, run.Z).two / np.where(indefinite, 1.0, state.gamma)
            if indefinite.any():
                stay = run.end({KrylovStatus.INDEFINITE_PRECONDITIONER: indefinite})
                state, (ratios,) = (
                    _Lanczos(*kept(vectors, stay, *state)),
                    kept(vectors, stay, ratios),
                )
                continue
        state, phi, alpha = _advanced(A, M, state, vectors)
        stay = run.end(
            {
                KrylovStatus.NONFINITE: ~np.isfinite(alpha),
                KrylovStatus.INDEFINITE_PRECONDITIONER: np.isnan(state.gamma),
                KrylovStatus.STAGNATED: alpha == 0,  # A is singular on what M r spans
            }
        )
        if not run.goes_on():
            break
        state = _Lanczos(*kept(vectors, stay, *state))
        phi, ratios = kept(vectors, stay, phi, ratios)
        run.Z, run.R, sizes = vectors.step(phi, state.D, state.AD, run.Z, run.R)
        drifted = np.abs(state.eta) * ratios < DRIFTED * sizes.two
        stay = run.after(sizes, exhausted=(state.gamma == 0) | drifted)
        if run.goes_on():
            state, (ratios,) = _Lanczos(*kept(vectors, stay, *state)), kept(vectors, stay, ratios)
    return run.result()


def _started(R: Any, M: Operator | None, vectors: Vectors) -> _Lanczos:
    V = vectors.copy(R)
    Z = V if M is None else M(V)
    squares = vectors.dots(Z, V)
    gamma = np.sqrt(np.where(squares < 0, np.nan, squares))
    one, zero = np.ones_like(gamma), np.zeros_like(gamma)
    blocks = tuple(vectors.zeros_like(R) for _ in range(5))
    return _Lanczos._make((V, Z, *blocks, gamma, one, gamma, one, one, zero, zero))


def _advanced(
    A: Operator, M: Operator | None, old: _Lanczos, vectors: Vectors
) -> tuple[_Lanczos, Array, Array]:
    """The next state, the step along its direction D, and what D was divided by."""
    scale = 1 / old.gamma
    Z = vectors.combine(scale, old.Z, 0.0, vectors.zeros_like(old.Z))
    AZ = A(Z)
    delta = vectors.dots(AZ, Z)
    V = vectors.combine(-old.gamma / old.gamma_before, old.V_before, 1.0, vectors.copy(AZ))
    V = vectors.combine(-delta * scale, old.V, 1.0, V)
    new_Z = V if M is None else M(V)
    squares = vectors.dots(new_Z, V)
    # What is left of v when the Krylov space is exhausted are rounding errors.
    size = np.abs(delta) + old.gamma
    squares = np.where(np.abs(squares) <= (len(V) * 2.0**-53 * size) ** 2, 0.0, squares)
    gamma = np.sqrt(np.where(squares < 0, np.nan, squares))
    rest = old.c * delta - old.c_before * old.s * old.gamma
    alpha = np.hypot(rest, gamma)
    safe = np.where(alpha == 0, 1.0, alpha)
    second = old.s * delta + old.c_before * old.c * old.gamma
    third = old.s_before * old.gamma
    c, s = rest / safe, gamma / safe
    D = vectors.combine(-third / safe, old.D_before, 1 / safe, Z)
    D = vectors.combine(-second / safe, old.D, 1.0, D)
    AD = vectors.combine(-third / safe, old.AD_before, 1 / safe, vectors.copy(AZ))
    AD = vectors.combine(-second / safe, old.AD, 1.0, AD)
    made = _Lanczos(
        *(V, new_Z, old.V, D, old.D, AD, old.AD),
        *(gamma, old.gamma, -s * old.eta, c, old.c, s, old.s),
    )
    return made, c * old.eta, alpha
