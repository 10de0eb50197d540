"""Least squares problems brought to moderate size by powers of two, which changes no digit.

Columns of a tall A, and rows of a wide one, may be scaled without changing what is asked for: the
unknowns of a tall A scale with its columns, and each equation of a wide A is one of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms.least_squares.augmented import AugmentedSystem
from roundwise.algorithms.scaling import shifted
from roundwise.backends import Backend

Array = NDArray[np.float64]

MODERATE = 20
"""T is left alone if the lengths of its columns are between 2**-20 and 2**20."""


@dataclass(frozen=True, eq=False)
class ScaledLeastSquares:
    """The augmented system of a scaled problem, and how its x becomes that of the given one."""

    system: AugmentedSystem
    exponents: NDArray[np.int32]  # x = 2**exponents X, of (n or 1, k)
    has_zero_column: bool = False  # of T

    def solution(self, X: Array) -> Array:
        """x in the given scale, from a stacked solution; infinite where float64 cannot hold it."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(shifted(self.system.x(X), self.exponents))

    def with_solution(self, X: Array, x: Array) -> Array:
        """The stacked X with x, in the given scale, in the place of its own."""
        stacked = X.copy()
        with np.errstate(over="ignore", under="ignore"):
            self.system.x(stacked)[:] = shifted(x.astype(np.float64), -self.exponents)
        return stacked


def scaled_least_squares(
    A: Any, b: Array, backend: Backend, always: bool = False
) -> ScaledLeastSquares:
    """The problem of a finite float64 matrix, dense or csr, and a block b of columns.

    Columns of T are divided by powers of two near their largest entries if `always`, or if they
    are not of moderate size.
    """
    wide = A.shape[0] < A.shape[1]
    T = A.T if wide else A
    T = T.tocsr() if sparse.issparse(T) else T
    largest = backend.sizes(T)[1]
    squares = _sums_of_squares(T) if largest < 2.0**MODERATE else np.zeros(1)
    columns = np.zeros(T.shape[1], dtype=np.int32)
    if always or not ((squares >= 4.0**-MODERATE) & (squares <= 4.0**MODERATE)).all():
        columns = _exponents(np.asarray(_largest(T)))
        T = _with_scaled_columns(T, columns)
        squares = _sums_of_squares(T)
    weights = np.ldexp(1.0, _exponents(np.sqrt(squares)))
    norm = float(np.sqrt((squares / np.square(weights)).sum()))
    B, shift = _stacked(b, columns[:, None] if wide else 0, wide, T.shape)
    exponents = shift if wide else shift - columns[:, None]
    system = AugmentedSystem(T, B, wide, weights, norm)
    return ScaledLeastSquares(system, exponents, bool((squares == 0).any()))


def scaled_as_a_whole(A: Array, b: Array) -> ScaledLeastSquares:
    """The same for a dense A, with one power of two for all of it: its shortest x stays that."""
    wide = A.shape[0] < A.shape[1]
    exponent = _exponents(_largest(A)).max(initial=-5000, where=_largest(A) > 0)
    exponent = 0 if exponent == -5000 else exponent
    with np.errstate(under="ignore"):
        T = np.ldexp(A.T if wide else A, -exponent)
    norm = float(np.sqrt(_sums_of_squares(T).sum()))
    B, shift = _stacked(b, 0, wide, T.shape)
    system = AugmentedSystem(T, B, wide, np.ones(T.shape[1]), norm)
    return ScaledLeastSquares(system, shift - exponent)


def _stacked(
    b: Array, rows: Any, wide: bool, shape: tuple[int, int]
) -> tuple[Array, NDArray[np.int32]]:
    """The right-hand sides, ``2**-(rows_i + shift_j) b_ij`` among zeros, and the shifts."""
    fractions, powers = np.frexp(b)
    powers = np.where(fractions == 0, -(2**20), powers) - rows
    shift = np.maximum(powers.max(axis=0, initial=-5000), -5000)[None, :]
    with np.errstate(under="ignore"):
        b = np.ldexp(fractions, np.maximum(powers - shift, -5000))
    zeros = np.zeros((shape[0 if wide else 1], b.shape[1]))
    return np.asfortranarray(np.concatenate([zeros, b] if wide else [b, zeros])), shift


def _exponents(sizes: Array) -> NDArray[np.int32]:
    """The e for which ``2**-e size`` is in [1/2, 1); 0 for zero."""
    return np.asarray(np.where(sizes > 0, np.frexp(sizes)[1], 0), dtype=np.int32)


def _largest(T: Any) -> Array:
    if sparse.issparse(T):
        return np.asarray(abs(T).max(axis=0).todense()).ravel()
    return np.asarray(np.maximum(T.max(axis=0), -T.min(axis=0)))


def _with_scaled_columns(T: Any, exponents: NDArray[np.int32]) -> Any:
    with np.errstate(under="ignore"):
        if sparse.issparse(T):
            data = np.ldexp(T.data, -exponents[T.indices])
            return sparse.csr_array((data, T.indices, T.indptr), shape=T.shape)
        return np.ldexp(T, -exponents)


def _sums_of_squares(T: Any) -> Array:
    with np.errstate(under="ignore"):
        if sparse.issparse(T):
            sums = np.bincount(T.indices, weights=np.square(T.data), minlength=T.shape[1])
            return np.asarray(sums, dtype=np.float64)
        return np.asarray(np.einsum("ij,ij->j", T, T))
