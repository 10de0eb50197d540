"""Least squares problems brought to moderate size by powers of two, which changes no digit.

Columns of a tall A, and rows of a wide one, may be scaled without changing what is asked for: the
unknowns of a tall A scale with its columns, and each equation of a wide A is one of its rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms.least_squares.augmented import AugmentedSystem
from roundwise.algorithms.scaling import shifted
from roundwise.backends.arrays import array_module, on_host

Array = NDArray[np.float64]
Exponents = NDArray[np.int32]

MODERATE = 20
"""Columns of T and of b with lengths between 2**-20 and 2**20 are not scaled."""

_OF_ZERO = -5000
"""Stands for the exponent of zero: below those of all numbers, and far from int32's limits."""


@dataclass(frozen=True, eq=False)
class ScaledLeastSquares:
    """The augmented system of a scaled problem, and how its x becomes that of the given one."""

    system: AugmentedSystem
    exponents: Exponents | None  # x = 2**exponents X, of (n or 1, k); None if that is X
    residual_exponents: Any = 0  # those of b - A x
    has_zero_column: bool = False  # of T

    def solution(self, X: Array) -> Array:
        """x in the given scale, from a stacked solution; infinite where float64 cannot hold it."""
        x = self.system.x(X)
        if self.exponents is None:
            same: Array = x.copy(order="K")
            return same
        with np.errstate(over="ignore", under="ignore"):
            return shifted(x, self.exponents)  # type: ignore[no-any-return]

    def with_solution(self, X: Array, x: Array) -> Array:
        """The stacked X with x, in the given scale, in the place of its own."""
        stacked, x = X.copy(order="F"), x.astype(np.float64, copy=False)
        if self.exponents is not None:
            with np.errstate(over="ignore", under="ignore"):
                x = shifted(x, -self.exponents)
        self.system.x(stacked)[:] = x
        return stacked

    def residual_norms(self, X: Array, R: Array) -> Array:
        """``||b - A x||_2`` of each column in the given scale; R is the residual of the stacked X.

        That is ``g - T' p`` of a wide A, and the residual of a tall one is p but for its own error.
        """
        system = self.system
        top, bottom = system.parts(R)
        r = on_host(bottom if system.wide else system.parts(X)[0] + top)
        fractions, powers = np.frexp(r)  # squares would leave float64's range
        powers = np.where(fractions == 0, _OF_ZERO, powers + self.residual_exponents)
        largest = powers.max(axis=0, initial=_OF_ZERO)
        with np.errstate(over="ignore", under="ignore"):
            shares = np.ldexp(fractions, np.maximum(powers - largest, _OF_ZERO))
            return np.asarray(np.ldexp(np.sqrt(np.square(shares).sum(axis=0)), largest))


def scaled_least_squares(
    A: Any, b: Array, *, always: bool = False, backend: Any = None
) -> ScaledLeastSquares:
    """The problem of a finite float64 matrix, dense or csr, and a block b of columns.

    Columns of T and of b are divided by powers of two near their largest entries if `always`, which
    formats of a small range need, or if they are not of moderate size. `backend` is that of a GPU
    that has both; None for the processor.
    """
    wide = A.shape[0] < A.shape[1]
    T = A.T if wide else A
    T = T.tocsr() if sparse.issparse(T) else T
    squares, columns = _sums_of_squares(T), None
    if always or not all(4.0**-MODERATE <= size <= 4.0**MODERATE for size in squares.tolist()):
        columns = _exponents(_largest(T))
        T = _with_scaled_columns(T, columns)
        squares, columns = _sums_of_squares(T), columns[:, None]
    weights = np.ldexp(1.0, np.frexp(np.sqrt(squares))[1])  # 1 for zero
    norm = math.sqrt((squares / np.square(weights)).sum())
    B, shift = _stacked(b, columns if wide else None, wide, T.shape, always)
    exponents, of_residuals = shift, shift
    if columns is not None:
        shift = np.zeros((1, b.shape[1]), np.int32) if shift is None else shift
        exponents, of_residuals = (shift, shift + columns) if wide else (shift - columns, shift)
    return ScaledLeastSquares(
        AugmentedSystem(T, B, wide, weights, norm, backend),
        exponents,
        0 if of_residuals is None else of_residuals,
        0.0 in squares.tolist(),
    )


def scaled_as_a_whole(A: Array, b: Array) -> ScaledLeastSquares:
    """A dense A scaled by one power of two, so that the shortest x stays the shortest."""
    wide = A.shape[0] < A.shape[1]
    exponent = int(np.frexp(_largest(A).max())[1])
    with np.errstate(under="ignore"):
        T = np.ldexp(A.T if wide else A, -exponent)
    norm = math.sqrt(_sums_of_squares(T).sum())
    B, shift = _stacked(b, None, wide, T.shape)
    shift = np.zeros((1, b.shape[1]), np.int32) if shift is None else shift
    system = AugmentedSystem(T, B, wide, np.ones(T.shape[1]), norm)
    return ScaledLeastSquares(system, shift - exponent, shift)


def _stacked(
    b: Array, rows: Exponents | None, wide: bool, shape: tuple[int, int], always: bool = False
) -> tuple[Array, Exponents | None]:
    """The right-hand sides, ``2**-(rows_i + shift_j) b_ij`` among zeros, and the shifts.

    Without `rows`, and unless `always`, columns of moderate size are left alone; None stands for
    the shifts then.
    """
    xp = array_module(b)
    B = xp.zeros((sum(shape), b.shape[1]), order="F")
    place = B[shape[0] :] if wide else B[: shape[0]]
    sizes = on_host(np.abs(b).max(axis=0)).tolist()
    moderate = all(2.0**-MODERATE <= size <= 2.0**MODERATE for size in sizes)
    if moderate and rows is None and not always:
        place[:] = b
        return B, None
    fractions, powers = np.frexp(b)
    powers = xp.where(fractions == 0, -(2**20), powers) - (0 if rows is None else xp.asarray(rows))
    shift = np.maximum(powers.max(axis=0), _OF_ZERO)[None, :]
    with np.errstate(under="ignore"):
        place[:] = np.ldexp(fractions, np.maximum(powers - shift, _OF_ZERO))
    return B, on_host(shift)


def _exponents(sizes: Array) -> Exponents:
    """The e for which ``2**-e size`` is in [1/2, 1); 0 for zero."""
    return np.asarray(np.frexp(sizes)[1], dtype=np.int32)


def _largest(T: Any) -> Array:
    """The largest magnitude in each column."""
    if sparse.issparse(T):
        return np.asarray(abs(T).max(axis=0).todense()).ravel()
    return on_host(np.maximum(T.max(axis=0), -T.min(axis=0)))


def _with_scaled_columns(T: Any, exponents: Exponents) -> Any:
    with np.errstate(under="ignore"):
        if sparse.issparse(T):
            data = np.ldexp(T.data, -exponents[T.indices])
            return sparse.csr_array((data, T.indices, T.indptr), shape=T.shape)
        return np.ldexp(T, array_module(T).asarray(-exponents))


def _sums_of_squares(T: Any) -> Array:
    """The sum of squares of each column; infinite where that is beyond float64's range."""
    with np.errstate(over="ignore", under="ignore"):
        if sparse.issparse(T):
            sums = np.bincount(T.indices, weights=np.square(T.data), minlength=T.shape[1])
            return np.asarray(sums, dtype=np.float64)
        if not isinstance(T, np.ndarray):
            return on_host((T * T).sum(axis=0))
        return np.asarray(np.einsum("ij,ij->j", T, T))
