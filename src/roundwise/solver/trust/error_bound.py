"""A bound of the error of x that is proved: all roundings on the way to it are counted.

With an approximate inverse R of A, ``E = I - R A`` and the residual ``r = b - A x``, the error
``e = A^-1 b - x`` satisfies ``e = R r + E e``. If ``||E|| < 1`` in the infinity norm, A is proved
to be nonsingular, and

    |e| <= d + ||E|| / (1 - ||E||) max(d),    d = |R r|,

entry by entry; putting a bound into ``|e| <= d + |E| |e|`` gives a better one (after Rump,
Verification methods, Acta Numerica 19, 2010, section 10).

Products are computed in float64 by BLAS, in any order and with or without fused multiply-adds:
``|fl(P Q) - P Q| <= gamma_n |P| |Q| + n eta``, ``gamma_n = n u / (1 - n u)``, eta the smallest
subnormal number. Whatever is computed from such bounds is made a little larger than its own
rounding errors could make it smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.algorithms.scaling import ScaledMatrix
from roundwise.backends import ArithmeticFailure, Backend
from roundwise.backends.arrays import array_module, on_host
from roundwise.backends.native import exact
from roundwise.formats import FP64

Array = NDArray[np.float64]

PROVED_UP_TO = 256
"""The largest n for which a proof is tried: three products of matrices, some milliseconds."""

ENOUGH = 0.99
"""With a norm of E below that, something is proved."""

IMPROVEMENTS = 4
"""How often the bound is put into its own inequality."""

_U, _ETA = 2.0**-53, 2.0**-1074
_UP = 1 + 16 * _U  # more than the rounding errors of a handful of operations


@dataclass(frozen=True, eq=False)
class ApproximateInverse:
    """An approximate inverse of a matrix, and how good it is proved to be."""

    R: Array
    E: Array  # at least |I - R A|, entry by entry
    alpha: float  # at least ||E|| in the infinity norm

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, A: Array, R: Array) -> ApproximateInverse:
        """R is any approximation; the products are computed exactly if that decides."""
        E = distances_from_identity(R, A, exactly=False)
        if not _largest_row_sum(E) < ENOUGH and np.isfinite(R).all():
            E = distances_from_identity(R, A, exactly=True)
        return cls(R, E, _largest_row_sum(E))

    @property
    def proves_something(self) -> bool:
        """Whether A is proved to be nonsingular."""
        return self.alpha < ENOUGH

    @np.errstate(all="ignore")
    def errors(self, X: Array, residual: Array, uncertainty: Array) -> Array:
        """Bounds of ``|A^-1 B - X|``, entry by entry; infinite where nothing is proved.

        ``|B - A X - residual| <= uncertainty`` if no product underflowed; X has one or more
        columns. Products that did underflow are counted here, 8 eta for each. So are entries of A
        and B that differ from the given ones by eta, as they do where scaling by powers of two
        made them subnormal.
        """
        if not self.proves_something:
            return np.full(X.shape, np.inf)
        used = X.any(axis=0) | residual.any(axis=0) | uncertainty.any(axis=0)
        lost = 8 * _ETA * (1 + len(X) + np.abs(X).sum(axis=0))
        d = _product_bound(self.R, residual, np.where(used, uncertainty + lost, 0.0))
        share = self.alpha / (1 - self.alpha) * _UP
        bounds = (d + share * d.max(axis=0, initial=0.0)) * _UP
        for _ in range(IMPROVEMENTS):
            bounds = np.minimum(bounds, (d + _nonnegative_product(self.E, bounds)) * _UP)
        return np.where(used & ~np.isfinite(bounds), np.inf, bounds)


def distances_from_identity(R: Array, A: Array, exactly: bool) -> Array:
    """An upper bound of each ``|I - R A|_ij``, for any A that differs from this one by eta.

    ``R A`` is computed by BLAS, or exactly: in twice the precision.
    """
    n, magnitudes = len(A), np.abs(R)
    size = magnitudes @ np.abs(A)
    if exactly:
        product = np.abs(exact.residual(np.ascontiguousarray(R), A, np.eye(n)))
        product += 2 * exact.error_of(n) * (size + 1) + 2 * _U * product
    else:
        product = R @ A
        product[np.diag_indices(n)] -= 1.0
        np.abs(product, out=product)
        product += (n + 2) * _U * size
    product += 8 * _ETA * (n + 1 + magnitudes.sum(axis=1, keepdims=True))
    return np.asarray(product * _UP)


def relative_errors(errors: Array, X: Array, exponents: Any = None) -> Array:
    """``||e|| / ||x_true||`` in the max norm, at most, for each column; infinite if unknown.

    `errors` bounds the entries of ``X - X_true``. With `exponents`, X is a scaled solution, and
    the norms are those of ``2**exponents X``.
    """
    if not X.size:
        return np.zeros(X.shape[1])
    xp = array_module(X)
    shifts = xp.zeros((1, 1), dtype=np.int64) if exponents is None else xp.asarray(exponents)
    powers = np.where(X == 0, -(2**30), np.frexp(X)[1] + shifts)
    shifts = shifts - powers.max(axis=0)
    with np.errstate(all="ignore"):
        shifts = np.clip(shifts, -(2**20), 2**20)  # of columns of zeros
        sizes = np.ldexp(np.abs(X), shifts).max(axis=0)
        scaled = np.ldexp(errors, shifts).max(axis=0)
        scaled = np.where(errors.any(axis=0), scaled + _ETA, 0.0)
        ratios = scaled / ((sizes - scaled) * (1 - 2 * _U)) * _UP
    known = (sizes > scaled) & np.isfinite(scaled)
    return on_host(np.where(scaled == 0, 0.0, np.where(known, ratios, np.inf)))


def _product_bound(R: Array, values: Array, uncertainty: Array) -> Array:
    """An upper bound of ``|R v|`` for all v with ``|v - values| <= uncertainty``."""
    n, magnitudes = len(R), np.abs(R)
    spread = (n + 2) * _U * np.abs(values) + uncertainty
    bound = (np.abs(R @ values) + _nonnegative_product(magnitudes, spread)) * _UP
    return np.where((values != 0).any(axis=0) | uncertainty.any(axis=0), bound + 4 * n * _ETA, 0.0)


def _nonnegative_product(P: Array, Q: Array) -> Array:
    """An upper bound of ``P Q`` for nonnegative P and Q."""
    n = P.shape[1]
    product = (P @ Q) * (1 + (n + 2) * _U) * _UP
    return np.where(Q.any(axis=0), product + 4 * n * _ETA, 0.0)


def _largest_row_sum(E: Array) -> float:
    return float(E.sum(axis=1).max() * (1 + (len(E) + 2) * _U) * _UP)


class Prover:
    """Proves bounds of errors for one small matrix, and keeps what that takes of the matrix.

    Sparse matrices are made dense, and columns scaled to be of one size.
    With ``A' = A D``, D a diagonal of powers of two, ``A' y = b`` has the solution ``D^-1 x``.
    """

    def __init__(self, matrix: ScaledMatrix, backend: Backend) -> None:
        self._matrix, self._backend = matrix, backend

    @cached_property
    def _A(self) -> Array:
        A = self._matrix.A
        return np.asarray(A.toarray() if self._matrix.is_sparse else A)

    @cached_property
    def _shifts(self) -> NDArray[np.int32]:
        """``D = 2**-shifts``; none if A has been scaled already."""
        if self._matrix.columns is not None or not self._matrix.is_exact:
            return np.zeros((self._matrix.n, 1), dtype=np.int32)
        return np.asarray(np.frexp(np.abs(self._A).max(axis=0))[1])[:, None]

    @cached_property
    def _inverse(self) -> ApproximateInverse | None:
        """Of A'; None if it cannot be computed in FP64."""
        scaled = np.ldexp(self._A, -self._shifts[:, 0])
        try:
            factors = self._backend.matrix(scaled, FP64).lu()
            R = np.asarray(factors.solve(np.eye(len(scaled))))
        except ArithmeticFailure:
            return None
        return ApproximateInverse.of(scaled, R)

    @property
    def longest(self) -> Array:
        """The column that makes the norm of ``A^-1``."""
        assert self._inverse is not None
        R = np.ldexp(self._inverse.R, -self._shifts)
        return np.asarray(R[:, np.abs(R).sum(axis=0).argmax()])

    @np.errstate(all="ignore")
    def errors(self, X: Array, B: Array, residual: Array) -> Array:
        """Bounds of ``|A^-1 B - X|`` that hold in exact arithmetic; infinite if there are none.

        The residual is that of `exact.residual`.
        """
        if self._inverse is None or not self._inverse.proves_something:
            return np.full(X.shape, np.inf)
        n = len(X)
        size = (np.abs(self._A) @ np.abs(X) + np.abs(B)) * (1 + (n + 4) * _U)
        # What underflows here and in the residual is counted by `ApproximateInverse.errors`.
        uncertainty = 1.01 * (_U * np.abs(residual) + exact.error_of(n) * size)
        errors = self._inverse.errors(X, residual, uncertainty)
        return np.where(errors > 0, np.nextafter(np.ldexp(errors, -self._shifts), np.inf), 0.0)
