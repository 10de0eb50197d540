"""Deflation: corrections that also reach the directions which factors have lost to rounding errors.

Let M be factors of A in a format with unit roundoff u_f. Singular values of A below about
``u_f ||A||`` drown in M's rounding errors. Substitution, ``z = M^-1 r``, removes all errors e of x
but those along the right singular vectors V of such values, which stay and hardly show in z. The
residual ``r = A e`` tells them by the left singular vectors U, which A' maps to nearly nothing:
``U' r = (A' U)' e``, and what is outside of V adds little to that. So z is changed along V until it
explains U' r:

    z = M^-1 r,    z = z + V ((A' U)' V)^-1 (U' r - (A' U)' z).

The factors themselves give V and U: M^-1 and M^-T stretch random vectors most in these directions.
What else is in them is shrunk by ``V - M^-1 A V`` and ``U - M^-T A' U``, which leave the lost
directions as they are.

A correction leaves about ``sqrt(n) u_f ||A' U ((A' U)' V)^-1||`` of e. With FP32 factors and one
tiny singular value that is small up to condition numbers of 1e15.

Directions that are weak, but not lost, slow refinement down: substitution leaves a part of their
errors in every step. A few are corrected along in the same way, which takes fewer steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms.accuracy import default_tolerance, lost_pivots
from roundwise.algorithms.conditioning import LOST, orthonormal, sharpened
from roundwise.algorithms.refinement import (
    Correction,
    Corrector,
    Substitution,
    by_columns,
    with_unit_columns,
)
from roundwise.algorithms.scaling import ScaledMatrix
from roundwise.algorithms.stage import Stage, Vector
from roundwise.backends import ArithmeticFailure, Backend, Factors
from roundwise.backends.arrays import on_host
from roundwise.backends.permuted import TransposedFactors
from roundwise.formats import FP64, FloatFormat

Array = NDArray[np.float64]

FEW_LOST = 4
"""More directions than that are not searched for: better factors are the better deal."""

ENOUGH = 1 / 16
"""The share of an error that a correction may leave. It is far more if ``(A' U)' V``, which
should be tiny singular values, comes from other directions that are left in U and V."""

AT_ONCE = 2.0**-11
"""The share that it may leave if U and V are taken as first found. Improving them takes as
long as two corrections, and saves at least that if they leave more."""

SPAN = 400
"""Numbers that differ by more than that many powers of two leave no room for twice 53 bits."""

MOST_STEPS = 3
"""How often U and V are improved; each step gains about as many digits as the factors have."""


def keeps_bits(matrix: ScaledMatrix, factors: Factors) -> bool:
    """Whether no entry of A is so small that products with it underflow or lose bits.

    Of a dense A the pivots tell: a row of tiny numbers leaves a tiny pivot. What was scaled away
    from a column is only seen by FP64 factors, and by nobody if columns differ by more than that.
    """
    if matrix.columns is not None and (factors.fmt != FP64 or np.ptp(matrix.columns) > SPAN):
        return False
    if matrix.is_sparse:
        sizes = np.abs(matrix.A.data)
        return bool(sizes.min(initial=1.0, where=sizes > 0) >= 2.0**-SPAN)
    pivots = factors.pivots
    return pivots is None or bool(pivots.min() >= 2.0**-SPAN * pivots.max())


def deflated_corrector(
    matrix: ScaledMatrix, factors: Factors, factor: Stage, residual: Stage
) -> Corrector | None:
    """A corrector of errors in all directions; None if too many are lost to these factors.

    Pivots only tell how many to look for: a lost direction need not show in them, nor an error
    along it in corrections.
    """
    pivots = lost_pivots(factors, LOST)
    if pivots > FEW_LOST:
        return None
    # The norm is that of A as it was given: it must be computed again only if rows were scaled.
    norm = matrix.norm if matrix.rows is None else residual.backend.sizes(matrix.A)[0]
    directions = Deflation.of(matrix.A, norm, factors, factor, residual, max(pivots, 1))
    if directions is None:
        return None
    return directions.placed(residual.backend).corrector(Substitution(factor, factors))


@dataclass(frozen=True, eq=False)
class Deflation:
    """The directions that factors of A have lost: n x k arrays with ``(A' U)' V = I``.

    They are searched for with NumPy's arrays, wherever A and its factors are.
    """

    V: Array
    U: Array
    images: Array  # A' U

    @classmethod
    def of(
        cls, A: Any, norm: float, factors: Factors, factor: Stage, residual: Stage, most: int
    ) -> Deflation | None:
        """At most so many; None if there are more, or if they are not found well enough.

        `norm` is A's infinity norm. If few directions are weak, they are among those found.
        """
        search = _Search(A, factors, factor, residual)
        try:
            random = np.random.default_rng(0).standard_normal((A.shape[0], most + 1))
            U = orthonormal(on_host(search.solve_transposed(random).Z))
            images = search.image_transposed(U)
            sizes = np.linalg.svd(images, compute_uv=False)
            # Images are rounded by u_f ||A||; weak are those below sqrt(n) times more.
            noise = LOST * norm
            lost = np.count_nonzero(sizes < noise * factor.fmt.unit_roundoff)
            weak = np.count_nonzero(sizes < noise * default_tolerance(len(U), factor.fmt))
            # What else is in U may hide a lost direction: its image is large, its error stays.
            stays = np.linalg.svd(U - search.with_transposed(images), compute_uv=False)
            lost = max(lost, np.count_nonzero(stays > ENOUGH))
            if lost > most:
                return None
            if lost < weak <= most:
                found = cls._found(search, random[:, :weak], U[:, :weak], images[:, :weak])
                if found is not None and found.is_resolved(norm, residual.fmt):
                    return found
            if lost == 0:
                return cls(U[:, :0], U[:, :0], images[:, :0])
            found = cls._found(search, random[:, :lost], U[:, :lost], images[:, :lost])
            return found if found is not None and found.is_resolved(norm, residual.fmt) else None
        except (ArithmeticFailure, np.linalg.LinAlgError):  # something overflowed
            return None

    @classmethod
    def _found(cls, search: _Search, random: Array, U: Array, images: Array) -> Deflation | None:
        """Directions, as many as U has columns; None if U and V cannot be cleaned of others."""
        fmt = search.factor.fmt
        V = orthonormal(on_host(search.solve(random).Z))
        found, enough = cls._scaled(V, U, images), AT_ONCE
        for _ in range(MOST_STEPS):
            if found.left_over(fmt) <= enough:
                return found
            U = sharpened(U, images, search.with_transposed)
            V = sharpened(V, search.image(V), search.with_factors)
            images = search.image_transposed(U)
            found, enough = cls._scaled(V, U, images), ENOUGH
        return found if found.left_over(fmt) <= enough else None

    @classmethod
    def _scaled(cls, V: Array, U: Array, images: Array) -> Deflation:
        inverse = np.linalg.inv(V.T @ images)
        return cls(V, U @ inverse, images @ inverse)

    def placed(self, backend: Backend) -> Deflation:
        """These directions as arrays of the backend that computes corrections."""
        return Deflation(*(backend.array(Y) for Y in (self.V, self.U, self.images)))

    def left_over(self, fmt: FloatFormat) -> float:
        """About what a correction with factors in a format leaves of an error."""
        return default_tolerance(len(self.V), fmt) * float(np.linalg.norm(self.images))

    def is_resolved(self, norm: float, residual: FloatFormat) -> bool:
        """Whether residuals in a format tell errors of x of u/2 along these directions.

        Residuals are off by some ``u_r ||A|| ||x||``, which U turns into errors of x.
        """
        unseen = float(np.linalg.norm(self.U)) * norm * residual.unit_roundoff
        return unseen <= FP64.unit_roundoff / 2

    def corrector(self, substitute: Corrector) -> Corrector:
        """Substitution that is corrected in these directions."""
        if not self.V.shape[1]:
            return substitute

        def correct(R: Vector) -> Correction:
            Z = substitute(R).Z
            return Correction(Z + self.V @ (self.U.T @ R - self.images.T @ Z))

        return correct


class _Search:
    """The tools of the search: substitutions, and products that are exact enough."""

    def __init__(self, A: Any, factors: Factors, factor: Stage, residual: Stage) -> None:
        # Blocks of so few columns would wake the threads of BLAS, which takes longer.
        self.solve, self.solve_transposed = (
            by_columns(Substitution(factor, M)) for M in (factors, TransposedFactors(factors))
        )
        self._A, self.factor, self._residual = A, factor, residual

    def with_factors(self, B: Array) -> Array:
        """``M^-1 B``."""
        return on_host(with_unit_columns(self.solve, B).Z)

    def with_transposed(self, B: Array) -> Array:
        """``M^-T B``."""
        return on_host(with_unit_columns(self.solve_transposed, B).Z)

    def image(self, Y: Array) -> Array:
        """``A Y``."""
        return self._product(self._A, Y)

    def image_transposed(self, Y: Array) -> Array:
        """``A' Y``."""
        return self._product(self._A.T, Y)

    def _product(self, A: Any, Y: Array) -> Array:
        matrix = self._residual.matrix(A)
        return np.asarray(-on_host(self._residual.residual(matrix, Y, np.zeros_like(Y))))
