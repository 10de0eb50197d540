"""The gate of least squares: upper bounds of backward errors that hold in exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms.least_squares.augmented import AugmentedSystem, exact_difference
from roundwise.backends.arrays import is_sparse
from roundwise.backends.native import exact
from roundwise.formats import FP64, FP64X2

Array = NDArray[np.float64]


def bounds_of(system: AugmentedSystem, X: Array, R: Array, known: tuple[float, float]) -> Array:
    """Upper bounds of the backward errors of stacked solutions (docs/least-squares.md).

    R are their residuals, computed as `judged` does it, with the `known` errors of rows of T and
    of T'.
    """
    m, n = system.T.shape
    entries = system.T.nnz if is_sparse(system.T) else system.T.size
    rounding = 1 + (entries + 8 * (m + n) + 64) * FP64.unit_roundoff
    bounds = system.backward_errors(X, R, known) * rounding
    return np.where(np.isnan(bounds), np.inf, bounds)


@np.errstate(all="ignore")  # infinity and NaN never pass the gate
def judged(
    system: AugmentedSystem, X: Array, tolerance: float | None = None
) -> tuple[Array, Array]:
    """The bounds, and the residuals, which are computed in twice the precision.

    With a tolerance, sums of large problems are first taken partly in float64, whose known error is
    added; that often suffices.
    """
    m, n = system.T.shape
    (p, q), (f, g) = system.parts(X), system.parts(system.B)
    difference, rest = exact_difference(f, p)
    wanted = [exact.EXACT, exact.EXACT]
    blocks = [wanted] if tolerance is None else [[exact.block_for(n), exact.block_for(m)], wanted]
    if system.backend is not None:
        blocks = [wanted]
    for first, second in blocks:
        top = _residual(system, system.T, q, difference, first) + rest
        R = np.concatenate([top, _residual(system, system.transposed, p, g, second)])
        bounds = bounds_of(system, X, R, (exact.error_of(n, first), exact.error_of(m, second)))
        if tolerance is not None and (bounds <= tolerance).all():
            break
    return bounds, R


def _residual(system: AugmentedSystem, A: Any, X: Array, B: Array, block: int) -> Any:
    """``B - A X`` where the system is; a GPU sums in twice the precision, whatever the block."""
    if system.backend is None:
        return exact.residual(A, X, B, block)
    return system.backend.residual(system.backend.matrix(A, FP64X2), X, B)
