"""Scaling by powers of two, which changes no digit.

``A x = b`` becomes ``(R A C) Y = R B F`` with diagonal powers of two R, C and F, and the solution
is ``X = C Y F^-1``. Norms of residuals and solutions are undone to the given scale, so backward
errors are still those of the system as it was given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.backends import Backend
from roundwise.backends.arrays import (
    array_module,
    column_norms,
    is_real_form,
    is_sparse,
    norms_of_blocks,
)
from roundwise.machine.threads import pass_threads

Array = NDArray[np.float64]

MODERATE = 40
"""`moderate` leaves A alone if its largest entry is between 2**-40 and 2**40."""

LARGEST_SUM = 900
"""`scaled_down` leaves A alone if its largest entry is below 2**900: sums cannot overflow then."""

DEVICE_PART = 2**24
"""Entries of a GPU's matrix that are scaled at a time: they keep it busy."""

ZERO_EXPONENT = -(2**28)
"""Stands for the exponent of a zero entry; sums of a few do not leave int32."""

TINY = 2.0**-900
"""A solution of a system whose rows were scaled is far larger."""

NOT_FINITE = "has NaN or infinite entries; replace or remove them (numpy.isfinite finds them)"

SMALLEST_NORMAL = 2.0**-1022
"""Smaller numbers may have lost digits when they were scaled."""


@dataclass(frozen=True, eq=False)
class ScaledMatrix:
    """A square, finite, real matrix, ``2**-(e_i + f_j)`` times the given one."""

    A: Any  # float64 array (C or Fortran contiguous), or canonical csr_array
    norm: float  # infinity norm of the matrix as it was given, over 2**(max(e) + max(f))
    rows: NDArray[np.int32] | None = None  # e, if A had to be scaled
    columns: NDArray[np.int32] | None = None  # f, if columns had to be scaled, too
    is_exact: bool = True  # no entry became subnormal or zero

    @cached_property  # asked for again and again
    def n(self) -> int:
        return int(self.A.shape[0])

    @cached_property
    def is_sparse(self) -> bool:
        return is_sparse(self.A)

    @cached_property
    def is_complex(self) -> bool:
        """Whether A stands for a complex matrix."""
        return is_real_form(self.A)

    @property
    def kind(self) -> tuple[bool, bool]:
        """The kind of matrix that backends ask for: sparse or not, complex or not."""
        return self.is_sparse, self.is_complex

    @cached_property
    def _row_weights(self) -> Array | None:
        """Weights that undo the scaling of rows, relative to the largest.

        Weights below 2**-1000 are raised to that: a residual must not vanish because its row is
        tiny. That can make the norm of b too large, but by nothing beside that of A times that of
        x, as `solution_norms` tells.
        """
        if self.rows is None or int(self.rows.max()) == int(self.rows.min()):
            return None
        weights: Array = np.maximum(_powers_of_two(self.rows - self.rows.max()), 2.0**-1000)
        return weights

    @cached_property
    def _column_weights(self) -> Array | None:
        """Weights that undo the scaling of columns, relative to max(f), as `norm` is: at least 1.

        Weights above 2**900 are lowered to that: the norm of a solution is rather too small, which
        makes the gate stricter, than infinite.
        """
        if self.columns is None:
            return None
        weights: Array = _powers_of_two(np.minimum(self.columns.max() - self.columns, 900))
        return weights

    def transposed(self, backend: Backend) -> Self:
        """The transpose, scaled as this one is; a dense one refers to the same numbers."""
        A = self.A.T.tocsr() if self.is_sparse else self.A.T
        if self.columns is None:  # rows are all scaled alike, or not at all
            return replace(self, A=A, norm=backend.sizes(A)[0])
        matrix = replace(self, A=A, rows=self.columns, columns=self.rows)
        return replace(matrix, norm=given_norm(matrix))

    @property
    def weighs_rows(self) -> bool:
        """Whether `residual_norms` differ from the plain norms of the columns."""
        return self._row_weights is not None

    @property
    def weighs_columns(self) -> bool:
        """Whether `solution_norms` differ from the plain norms of the columns."""
        return self._column_weights is not None

    @property
    def has_plain_norms(self) -> bool:
        """Whether all norms are plain max norms of columns, as kernels compute them."""
        return not (self.weighs_rows or self.weighs_columns)

    def residual_norms(self, R: Array) -> Array:
        """The max norm of each column of residuals or right-hand sides, over 2**max(e)."""
        return column_norms(R, self._row_weights)

    def solution_norms(self, X: Array) -> Array:
        """The max norm of each column of solutions in the given scale, times 2**max(f).

        Zero where X is below `TINY` and rows differ: the scaled A and B have entries of about 1, so
        that such an X is no solution, and the gate need not be exact where it refuses.
        """
        norms = column_norms(X, self._column_weights)
        if self._row_weights is None:
            return norms
        return np.where(column_norms(X) < TINY, 0.0, norms)

    def norms_of_solutions(self, *blocks: Array) -> list[Array]:
        """Norms of the solutions in several blocks."""
        if self._row_weights is not None:
            return [self.solution_norms(X) for X in blocks]
        return norms_of_blocks(blocks, self._column_weights)


@dataclass(frozen=True, eq=False)
class ScaledColumns:
    """Right-hand sides ``2**-(e_i + g_j)`` times the given ones."""

    B: Array  # (n, k), Fortran-ordered
    exponents: NDArray[np.int32] | None = None
    """``x[i, j] = 2**exponents[i, j] X[i, j]``; one row if all rows agree, None if nothing was
    scaled."""
    known_norms: NDArray[np.float64] | None = None

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """The max norm of each column of B."""
        return column_norms(self.B) if self.known_norms is None else self.known_norms

    def solution(self, X: Array) -> Array:
        """X in the given scale; infinite where float64 cannot hold it."""
        return X if self.exponents is None else shifted(X, self.exponents)

    def scaled_solution(self, x: Array) -> Array:
        """The scaled unknowns from which `solution` makes x."""
        return x if self.exponents is None else shifted(x, -self.exponents)


def shifted(X: Any, exponents: Any) -> Any:
    """``2**exponents X``, entry by entry; of a complex X both parts are shifted.

    Multiplying by ``2.0**exponents`` instead would fail where that power is out of range, though
    the product is not.
    """
    if isinstance(exponents, np.ndarray):
        if not isinstance(X, np.ndarray):
            if exponents.size == 1 and abs(power := int(exponents.item())) < LARGEST_SUM:
                return X * math.ldexp(1.0, power)  # one launch, and no copy to the device
            exponents = array_module(X).asarray(exponents)
        elif X.shape[1:] == exponents.shape[-1:] == (exponents.size,) and X.dtype == np.float64:
            return _shifted_columns(X, exponents)[0]
    if X.dtype.kind == "c":
        result = np.empty_like(X)
        result.real, result.imag = np.ldexp(X.real, exponents), np.ldexp(X.imag, exponents)
    else:
        result = np.ldexp(X, exponents)
    return result


def _shifted_columns(X: Array, exponents: NDArray[np.int32]) -> tuple[Array, bool]:
    """Columns shifted by one exponent each, in one pass, and whether all is finite."""
    result = np.empty(X.shape, order="F")
    powers = np.ascontiguousarray(exponents, np.int32).reshape(-1)
    return result, _kernels.native_shift(np.asfortranarray(X), powers, result)


def unit_columns(B: Any, sizes: Array | None) -> tuple[Any, NDArray[np.int32]]:
    """Columns over powers of two, with max norms in [1, 2), and the exponents of these powers.

    Zeros stay zeros. `sizes` are the max norms of the columns, where they are known.
    """
    if not isinstance(B, np.ndarray):
        exponents = np.frexp(column_norms(B) if sizes is None else sizes)[1] - 1
        return shifted(B, -exponents), exponents
    unit, exponents = np.empty(B.shape, order="F"), np.empty(B.shape[1], np.int32)
    _kernels.native_unit_columns(np.asfortranarray(B), sizes, unit, exponents)
    return unit, exponents


def scaled_back(Z: Any, exponents: NDArray[np.int32]) -> tuple[Any, bool]:
    """Columns times powers of two, and whether these keep them finite.

    Of what stays on a device the norms tell that, which are computed anyway.
    """
    if isinstance(Z, np.ndarray):
        X, is_finite = _shifted_columns(Z, exponents)
        return X, is_finite or not exponents.max() > 0
    return shifted(Z, exponents), True


def norms_of(scaled: ScaledMatrix, X: Any, R: Any) -> tuple[Array, Array]:
    """The norms of solutions, and of residuals or right-hand sides; a GPU's come back together."""
    if isinstance(X, np.ndarray) or scaled.weighs_rows or scaled.weighs_columns:
        return scaled.solution_norms(X), scaled.residual_norms(R)
    solutions, residuals = norms_of_blocks((X, R))
    return solutions, residuals


def _powers_of_two(exponents: Any) -> Any:
    return np.ldexp(array_module(exponents).ones(exponents.shape), exponents)


def moderate(A: Any, norm: float, largest: float, own: bool = False) -> ScaledMatrix:
    """A with entries of moderate size: as it is, scaled as a whole, or by rows and columns.

    `norm` and `largest` are A's infinity norm and largest entry. Rows and columns are scaled if
    their sizes differ by more than 2**`MODERATE`. With `own`, A is overwritten, not copied.
    """
    if is_moderate(largest):
        return ScaledMatrix(A, norm)
    return _scaled(A, by_rows_and_columns=None, own=own)


def is_moderate(largest: float) -> bool:
    """Whether `moderate` leaves a matrix with this largest entry alone."""
    return largest == 0 or abs(math.frexp(largest)[1]) <= MODERATE


def scaled_down(A: Any, norm: float, largest: float) -> ScaledMatrix:
    """A as it is, unless sums of its entries could overflow: then scaled as a whole."""
    if math.frexp(largest)[1] <= LARGEST_SUM:
        return ScaledMatrix(A, norm)
    return _scaled(A, by_rows_and_columns=False)


def equilibrated(A: Any) -> ScaledMatrix:
    """Rows, then columns, scaled so that their largest entries are in [1/2, 1); zeros stay."""
    return _scaled(A, by_rows_and_columns=True)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some rows or columns of a GPU's matrix, or all entries of a sparse one."""

    entries: NDArray[Any]
    rows: Any  # index of the entries' rows: a slice, or the row of each
    columns: Any

    def of_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """The value of each entry's row, to be broadcast where entries are dense."""
        picked: NDArray[Any] = values[self.rows]
        return picked if self.entries.ndim == 1 else picked[:, None]


def _parts(A: Any, entries: NDArray[Any]) -> Iterator[_Part]:
    """A matrix like A with these entries, in parts."""
    n, whole = A.shape[0], slice(None)
    if sparse.issparse(A):
        yield _Part(entries, np.repeat(np.arange(n), np.diff(A.indptr)), A.indices)
        return
    for first in range(0, n, step := max(1, DEVICE_PART // n)):
        lines = slice(first, first + step)
        if A.flags.c_contiguous:
            yield _Part(entries[lines], lines, whole)
        else:
            yield _Part(entries[:, lines], whole, lines)


def _by_columns(A: Array) -> tuple[Array, bool]:
    """A, or its transpose if rows are contiguous, as kernels take it, and whether it is that."""
    return (A, False) if A.flags.f_contiguous else (A.T, True)


@np.errstate(under="ignore")  # what vanishes is nothing beside the rest of its row and column
def _scaled(A: Any, by_rows_and_columns: bool | None, own: bool = False) -> ScaledMatrix:
    given = A.data if sparse.issparse(A) else A
    rows, columns = _largest_exponents(A, given)
    if by_rows_and_columns is None:
        spreads = (int(lines.max()) - int(lines.min()) for lines in (rows, columns))
        by_rows_and_columns = max(spreads) > MODERATE
    if by_rows_and_columns:
        _, columns = _largest_exponents(A, given, rows)
    else:  # a symmetric matrix stays symmetric
        rows[:], columns[:] = rows.max(), 0
    entries = given if own else np.empty_like(given, dtype=np.float64)
    is_exact = _scale(A, given, rows, columns, entries)
    if sparse.issparse(A):
        entries = sparse.csr_array((entries, A.indices, A.indptr), shape=A.shape)
    matrix = ScaledMatrix(entries, 0.0, rows, columns if by_rows_and_columns else None, is_exact)
    return replace(matrix, norm=given_norm(matrix))


def _scale(
    A: Any,
    given: NDArray[Any],
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    entries: NDArray[Any],
) -> bool:
    """Scaled entries from the given ones; whether no entry became subnormal or zero."""
    if isinstance(A, np.ndarray):
        by_columns, is_transposed = _by_columns(A)
        scales, target = (rows, columns), entries
        if is_transposed:
            scales, target = (columns, rows), entries.T
        return _kernels.native_scale(by_columns, *scales, target, pass_threads(A.size))
    is_exact = True
    for old, new in zip(_parts(A, given), _parts(A, entries), strict=True):
        wide = old.entries.astype(np.float64, copy=False)
        nonzeros = np.count_nonzero(wide)
        new.entries[...] = np.ldexp(wide, -(old.of_rows(rows) + columns[old.columns]))
        is_exact &= bool(np.count_nonzero(np.abs(new.entries) >= SMALLEST_NORMAL) == nonzeros)
    return is_exact


def given_norm(matrix: ScaledMatrix) -> float:
    """The infinity norm of the matrix as it was given, over 2**(max(e) + max(f))."""
    A, n, columns = matrix.A, matrix.n, matrix.columns
    weights = None if columns is None else _powers_of_two(columns - columns.max())
    if matrix.is_sparse or isinstance(A, np.ndarray):
        sizes = np.ones(n) if weights is None else weights
        row_sums = abs(A) @ sizes if matrix.is_sparse else magnitude_product(A, sizes)
        return float(matrix.residual_norms(row_sums[:, None])[0])
    sums, step = array_module(A).empty((n, 1)), max(1, DEVICE_PART // n)
    for first in range(0, n, step):
        rows = abs(A[first : first + step])
        rows = rows if weights is None else rows * weights
        sums[first : first + step, 0] = rows.sum(axis=1)
    return float(matrix.residual_norms(sums)[0])


def magnitude_product(A: Array, weights: Array) -> Array:
    """``|A| weights`` for a float64 array."""
    by_columns, is_transposed = _by_columns(A)
    sums = np.empty(len(A))
    threads = pass_threads(A.size)
    _kernels.native_magnitude_sums(by_columns, is_transposed, weights, sums, threads)
    return sums


def _largest_exponents(
    A: Any, entries: NDArray[Any], scale: NDArray[np.int32] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The largest exponent of each row and of each column, 0 if it has only zeros.

    If `scale` is given, those of ``2**-scale[i]`` times row i.
    """
    if isinstance(A, np.ndarray):
        return _dense_exponents(A, scale)
    xp = array_module(entries)
    rows, columns = (xp.full(A.shape[0], ZERO_EXPONENT, dtype=np.int32) for _ in range(2))
    for part in _parts(A, entries):
        fractions, exponents = np.frexp(part.entries)
        exponents[fractions == 0] = ZERO_EXPONENT
        if scale is not None:
            exponents -= part.of_rows(scale)
        if sparse.issparse(A):
            filled = np.flatnonzero(
                np.diff(A.indptr)
            )  # rows are contiguous: no need of their index
            rows[filled] = np.maximum.reduceat(exponents, A.indptr[filled])
            np.maximum.at(columns, part.columns, exponents)
        else:
            rows[part.rows] = np.maximum(rows[part.rows], exponents.max(axis=1))
            columns[part.columns] = np.maximum(columns[part.columns], exponents.max(axis=0))
    for lines in (rows, columns):
        lines[lines < ZERO_EXPONENT // 2] = 0
    return rows, columns


def _dense_exponents(
    A: Array, scale: NDArray[np.int32] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The exponents of NumPy's arrays, by one compiled pass."""
    by_columns, is_transposed = _by_columns(A)
    rows, columns = (np.empty(len(A), np.int32) for _ in range(2))
    zeros = np.zeros_like(rows)
    scales, largest = (zeros if scale is None else scale, zeros), (rows, columns)
    if is_transposed:
        scales, largest = scales[::-1], largest[::-1]
    _kernels.native_largest_exponents(by_columns, *scales, *largest, pass_threads(A.size))
    return rows, columns


def plain_columns(b: Array) -> ScaledColumns:
    """Right-hand sides as they are, for a matrix that is not scaled."""
    return ScaledColumns(array_module(b).asfortranarray(b[:, None] if b.ndim == 1 else b))


def are_moderate(norms: Array) -> bool:
    """Whether columns with these finite norms need not be scaled, where A was not."""
    return bool(abs(np.frexp(norms)[1]).max(initial=0) <= MODERATE)


def scaled_columns(b: Array, matrix: ScaledMatrix) -> ScaledColumns:
    """Right-hand sides of a scaled matrix, each column scaled to a max norm in [1/2, 1).

    If A was not scaled and the columns are of moderate size, they are left as they are. Columns
    with NaN or infinite entries are a `ValueError`.
    """
    B = b[:, None] if b.ndim == 1 else b
    norms = column_norms(B)
    if not np.isfinite(norms).all():
        raise ValueError(f"b {NOT_FINITE}")
    if matrix.rows is None and matrix.columns is None:  # one number for each column tells all
        if are_moderate(norms):
            return ScaledColumns(array_module(B).asfortranarray(B), None, norms)
        powers = np.frexp(norms)[1]
        norms, powers = np.ldexp(norms, -powers), powers[None, :]
        return ScaledColumns(array_module(B).asfortranarray(shifted(B, -powers)), powers, norms)
    fractions, powers = np.frexp(B)
    powers[fractions == 0] = ZERO_EXPONENT
    if matrix.rows is not None:
        powers -= matrix.rows[:, None]
    # CuPy knows no maximum of nothing, not even for no columns.
    largest = powers.max(axis=0) if powers.size else powers[0]
    exponents = np.maximum(largest, -5000)[None, :]
    with np.errstate(under="ignore"):
        B = np.ldexp(fractions, powers - exponents)
    if matrix.columns is not None:
        exponents = exponents - matrix.columns[:, None]
    return ScaledColumns(array_module(B).asfortranarray(B), exponents)


def scaled_system(
    A: Any, b: Array, backend: Backend, equilibrate: bool
) -> tuple[ScaledMatrix, ScaledColumns]:
    """The system that research algorithms refine: as it is, scaled down, or equilibrated."""
    matrix = equilibrated(A) if equilibrate else scaled_down(A, *backend.sizes(A))
    return matrix, plain_columns(b) if matrix.rows is None else scaled_columns(b, matrix)
