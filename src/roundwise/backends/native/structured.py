"""Dense matrices with many zeros in known places: bands, triangles, and triangles in disorder.

A band is factorized in a part of the time of an LU of the whole matrix (LAPACK's gbtrf), and a
triangle needs no factorization at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import bandwidth, lapack

from roundwise.backends.checks import require_nonzero_diagonal
from roundwise.backends.contract import ArithmeticFailure, Status, UnsupportedFormat, Vector
from roundwise.backends.native.storage import finished, nonfinite
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FP64, FloatFormat

Array = NDArray[np.float64]
RowsAndColumns = tuple[NDArray[np.int32], NDArray[np.int32]]

STRUCTURED = ("banded", "triangular")
"""The methods of this file. Every matrix is a band, if a wide one; not every one is a triangle."""

NARROW = 16
"""A band counts as such if it has less than this share of n diagonals beside the main one. A taste:
wider bands may be factorized as bands, too, if `methods.structured` priced their copy, which takes
another n diagonals numbers of memory."""

SAMPLES, ZEROS = 16, 0.25
"""Half of a triangle in disorder is zero: nearly always, at least this share of a grid of 16 x 16
samples. Entries of others are not counted. A taste."""


def structured_method(A: Array) -> str | None:
    """``"banded"`` or ``"triangular"`` if A is so; of most other matrices few entries are read."""
    return structured_method_and_diagonals(A)[0]


def structured_method_and_diagonals(A: Array) -> tuple[str | None, int]:
    """The same and, for a band, the number of diagonals that it has; else 0."""
    if A[-1, 0] == 0 or A[0, -1] == 0:  # else it is neither, as it stands
        below, above = bandwidth(A)
        if below == above == 0 or NARROW * (below + above) < len(A):
            return "banded", below + above + 1
        if below == 0 or above == 0:
            return "triangular", 0
    return None if triangular_orders(A) is None else "triangular", 0


def triangular_orders(A: Array) -> RowsAndColumns | None:
    """Orders of rows and columns that make A lower triangular, if counting entries finds them.

    Where all entries of the triangle are nonzero, as they are in most, their numbers tell.
    """
    step = max(1, len(A) // SAMPLES)
    if np.count_nonzero(A[::step, ::step]) > (1 - ZEROS) * A[::step, ::step].size:
        return None
    nonzero = A != 0
    counts = np.count_nonzero(nonzero, axis=1)
    rows = np.argsort(counts, kind="stable").astype(np.int32)
    if (counts[rows] > np.arange(1, len(A) + 1)).any():  # no triangle: nothing is put in order
        return None
    columns = np.argsort(-np.count_nonzero(nonzero, axis=0), kind="stable").astype(np.int32)
    ordered = nonzero[rows][:, columns]
    return (rows, columns) if bandwidth(ordered.astype(np.int8))[1] == 0 else None


def _require_fp64(method: str, fmt: FloatFormat) -> None:
    if fmt != FP64:
        raise UnsupportedFormat(f"{method} factors have no format {fmt}; use fp64")


class BandedFactors(PermutedFactors):
    """LU of a band with partial pivoting, as LAPACK packs it."""

    method = "banded"
    is_sparse = False
    perm = order = None
    fmt = FP64

    def __init__(self, A: Array, fmt: FloatFormat) -> None:
        _require_fp64(self.method, fmt)
        below, above = bandwidth(A)
        n = len(A)
        band = np.zeros((2 * below + above + 1, n), order="F")
        for offset in range(-below, above + 1):
            start = max(0, offset)
            diagonal = np.diagonal(A, offset)
            band[below + above - offset, start : start + len(diagonal)] = diagonal
        self._band, self._swaps, info = lapack.dgbtrf(band, below, above, overwrite_ab=True)
        if not np.isfinite(self._band).all():
            raise nonfinite("banded LU factorization", fmt, A)
        if info > 0:
            raise ArithmeticFailure(Status.ZERO_PIVOT, "banded LU factorization", fmt, info - 1)
        self._given, self._below, self._above = A, below, above
        self.shape, self.entries = A.shape, self._band.size
        self.flops = 2.0 * n * (below + 1) * (below + above + 1)

    @property
    def pivots(self) -> Vector:
        return np.abs(self._band[self._below + self._above])

    @property
    def L(self) -> Vector:
        """Not triangular: the interchanges of rows are in it."""
        return np.asarray(lapack.dtrtrs(self.U, self._given.T, trans=1)[0].T)

    @property
    def U(self) -> Vector:
        n, last = self.shape[0], self._below + self._above
        U = np.zeros((n, n))
        for offset in range(min(last, n - 1) + 1):
            U[np.arange(n - offset), np.arange(offset, n)] = self._band[last - offset, offset:]
        return U

    def to(self, fmt: FloatFormat) -> BandedFactors:
        _require_fp64(self.method, fmt)
        return self

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        factors = self._band, self._below, self._above
        swaps = self._swaps.copy()  # SciPy changes them meanwhile, without the GIL
        x, _ = lapack.dgbtrs(*factors, b, swaps, trans=int(transpose), overwrite_b=True)
        return finished(x, "banded solve", self.fmt, b)


class TriangularFactors(PermutedFactors):
    """A triangle, perhaps after its rows and columns were put in order: L U with one of them I."""

    method = "triangular"
    is_sparse = False
    fmt = FP64
    flops = 0.0

    def __init__(self, A: Array, fmt: FloatFormat) -> None:
        _require_fp64(self.method, fmt)
        below, above = bandwidth(A)
        self.perm = self.order = None
        if below and above:
            orders = triangular_orders(A)
            if orders is None:
                raise ArithmeticFailure(Status.UNSUITED, "substitution", fmt)
            self.perm, self.order = orders
            A, above = A[np.ix_(*orders)], 0
        self._lower = above == 0
        self._triangle = A
        # A C-ordered matrix is the transpose of one whose columns are contiguous.
        self._flip = bool(A.flags.c_contiguous)
        self._columns = A.T if self._flip else np.asfortranarray(A)
        require_nonzero_diagonal(np.diagonal(A), fmt)
        self.shape, self.entries = A.shape, A.size // 2

    @property
    def pivots(self) -> Vector:
        return np.abs(np.diagonal(self._triangle))

    @property
    def L(self) -> Vector:
        diagonal = np.diagonal(self._triangle)
        return self._triangle / diagonal if self._lower else np.eye(self.shape[0])

    @property
    def U(self) -> Vector:
        return np.diag(np.diagonal(self._triangle)) if self._lower else self._triangle

    def to(self, fmt: FloatFormat) -> TriangularFactors:
        _require_fp64(self.method, fmt)
        return self

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        options: dict[str, Any] = {
            "lower": self._lower != self._flip,
            "trans": int(transpose != self._flip),
        }
        x, _ = lapack.dtrtrs(self._columns, b, overwrite_b=True, **options)
        return finished(x, "triangular solve", self.fmt, b)
