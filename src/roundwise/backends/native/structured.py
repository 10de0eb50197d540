"""Dense matrices with many zeros in known places: bands, triangles, and triangles in disorder.

A band is factorized in a part of the time of an LU of the whole matrix (LAPACK's gbtrf), and a
triangle needs no factorization at all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import bandwidth, lapack

import roundwise._kernels as _kernels
from roundwise.backends.checks import require_nonzero_diagonal
from roundwise.backends.contract import ArithmeticFailure, Status, UnsupportedFormat, Vector
from roundwise.backends.native.storage import finished, nonfinite
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FP64, FloatFormat

Array = NDArray[np.float64]
RowsAndColumns = tuple[NDArray[np.int32], NDArray[np.int32]]

STRUCTURED = ("banded", "triangular")
"""The methods of this file. Every matrix is a band, if a wide one; not every one is a triangle."""

NONE, BAND, LOWER, UPPER, PERHAPS_PERMUTED = range(5)
"""What is found of a matrix (`StructureKind` in cpp/native/structured.hpp)."""


class Found(NamedTuple):
    """Where a matrix has nonzero entries: a kind, and the diagonals beside the main one."""

    kind: int
    below: int = 0
    above: int = 0

    @property
    def transpose(self) -> Found:
        kind = {LOWER: UPPER, UPPER: LOWER}.get(self.kind, self.kind)
        return Found(kind, self.above, self.below)

    @property
    def method(self) -> str:
        return "banded" if self.kind == BAND else "triangular"


def look_at(A: NDArray[Any]) -> Found:
    """What one pass over a dense A finds, in float32, float64 or their complex types.

    Of a matrix without structure few entries are read. A band counts as such if its LU takes an
    eighth of the operations of a dense one at most.
    """
    return Found(*_kernels.structured_look(A))


def structured_method(A: Array) -> str | None:
    """``"banded"`` or ``"triangular"`` if A is so, perhaps with rows and columns in disorder."""
    return structured_method_and_diagonals(A)[0]


def structured_method_and_diagonals(A: Array) -> tuple[str | None, int]:
    """The same and, for a band, the number of diagonals that it has; else 0."""
    found = look_at(A)
    if found.kind == PERHAPS_PERMUTED:
        return None if triangular_orders(A) is None else "triangular", 0
    if len(A) == 1:
        return None, 0  # every method is the same
    if found.kind == BAND:
        return "banded", found.below + found.above + 1
    return None if found.kind == NONE else "triangular", 0


def triangular_orders(A: NDArray[Any]) -> RowsAndColumns | None:
    """Orders of rows and columns that make A lower triangular, if counting entries finds them.

    Where all entries of the triangle are nonzero, as they are in most, their numbers tell.
    """
    rows, columns = np.empty(len(A), np.int32), np.empty(len(A), np.int32)
    return (rows, columns) if _kernels.structured_orders(A, rows, columns) else None


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
