"""Residuals whose error is known: ``R = B - A X`` of float64 data in twice float64's precision.

Each entry is rounded once, at the end. It is off by at most

    u |r_ij| + error (|A| |X| + |B|)_ij,      u = 2**-53,

with the `error` that `error_of` gives (docs/accuracy.md has the proof). That is what makes the gate
of a solve a theorem, and what refinement to full accuracy needs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise.backends.contract import Backend, Factors, Matrix, UnsupportedFormat, Vector
from roundwise.backends.real_form import ROOT_2, RealForm
from roundwise.formats import FP32, FP64, FP64X2
from roundwise.machine.threads import pass_threads

Array = NDArray[np.float64]

EXACT = 0
"""The block size that stands for twice the precision in every product."""

EXACT_UP_TO = 100
"""Dense FP64 residuals of larger systems sum blocks of products in float64 before they go on in
twice the precision, which takes hardly longer than plain float64."""

SHARE = 0.4999
"""What these sums may add to a backward error, as a share of the gate's tolerance. A taste: larger
blocks take less time, but FP64 factors leave up to 0.43 of it for Gaussian A, n = 300 to 2000."""


COMPLEX_SHARE, LEAST_BLOCK = 0.18, 4
"""The same for complex A, and the smallest block of the kernel. A taste, too: our FP64 factors, of
three real products for a complex one, leave up to 0.9 of the tolerance for Gaussian A, n = 300 to
1600, and a correction takes longer than smaller blocks do."""


@lru_cache
def block_for(n: int, is_complex: bool = False) -> int:
    """The block size of FP64 residuals of dense systems; n is that of the real form, if complex.

    The error of a block, ``(block + 1) u``, is at most `SHARE` of what the gate accepts,
    ``sqrt(n) u``, with room for what twice the precision leaves. For complex numbers these are
    ``sqrt(2) (block + 1) u`` and ``sqrt(n / 2) u``.
    """
    n, share = (n // 4, COMPLEX_SHARE) if is_complex else (n, SHARE)
    if n <= EXACT_UP_TO:
        return EXACT
    return max(LEAST_BLOCK, math.floor(share * math.sqrt(n)) - 1)


class Sums(NamedTuple):
    """How `native_refine` sums residuals: its arguments after the target."""

    block: int
    shorts: int = 0
    """The block size of first residuals in single precision; 0 if there are none."""
    error_of_shorts: float = 0.0
    """What these add to a backward error beside what others do."""


SINGLE_SHARE, COMPLEX_SINGLE_SHARE = 0.5, 0.36
"""What short sums in single precision may add to a backward error, as a share of ``sqrt(n) u``, u
being that of single precision. Tastes: larger blocks take less time, but the factors need the rest
(`SHARE`), and columns whose rest does not suffice have another residual."""


@lru_cache(maxsize=1024)
def sums_for(n: int, is_complex: bool, is_single: bool, has_single: bool) -> Sums:
    """How to sum the residuals of answers in double, or in single precision (docs/accuracy.md).

    n is that of the real form, if complex. Beside what answers in single precision may be off by,
    the ``(n + 2) u`` of a whole row in one block is nothing. If A `has_single` precision, too, many
    columns are multiplied in single precision first: each product is exact or rounded as the first
    term of a sum of `shorts` + 1 roundings.
    """
    if not is_single:
        return Sums(block_for(n, is_complex))
    share, root = (COMPLEX_SINGLE_SHARE, ROOT_2) if is_complex else (SINGLE_SHARE, 1.0)
    shorts = math.floor(share * math.sqrt(n / 2 if is_complex else n) / root) - 1
    if not has_single or shorts < LEAST_BLOCK:
        return Sums(n + 1)
    return Sums(n + 1, shorts, root * (shorts + 1) * FP32.unit_roundoff * (1 + 2.0**-10))


@lru_cache(maxsize=1024)
def error_of(n: int, block: int = EXACT, is_complex: bool = False) -> float:
    """The `error` above, for rows of at most n entries.

    For complex numbers r_ij is one, magnitudes are moduli, and n is that of the real form: both
    parts are off by what a real one is. There is room for the square root of 2 where nothing is
    summed in blocks (docs/accuracy.md).
    """
    u, root = FP64.unit_roundoff, ROOT_2 if is_complex else 1.0
    return 4 * (n + 8) ** 2 * u * u + (0.0 if block == EXACT else root * (block + 1) * u)


def residual(A: Any, X: Vector, B: Vector, block: int = EXACT) -> Array:
    """``B - A X`` for a contiguous float64 array or a canonical `csr_array`, and blocks X and B.

    Of a dense complex A, in its real form, each row of real and imaginary parts is multiplied with
    two real vectors: ``Re r_i`` and ``Im r_i`` are real inner products.
    """
    if isinstance(A, RealForm):
        return _complex_residual(A.rows, X, B, block)
    X, B = np.asfortranarray(X), np.asfortranarray(B)
    R: Array = np.empty_like(B)
    if isinstance(A, np.ndarray):
        # A C-ordered matrix is the transpose of one whose columns are contiguous.
        columns, transpose = (A.T, True) if A.flags.c_contiguous else (A, False)
        threads = pass_threads(A.size)
        _kernels.native_exact_residual(columns, transpose, X, B, R, block, threads)
    else:
        starts, places, entries = map(np.ascontiguousarray, (A.indptr, A.indices, A.data))
        columns, threads = A.shape[1], pass_threads(A.nnz)
        _kernels.native_exact_sparse_residual(starts, places, entries, columns, X, B, R, threads)
    return R


def doubled_residual(backend: Backend, A: Any, X: Vector, B: Vector) -> Vector:
    """``B - A X`` in twice the precision, where the backend's arrays are; `error_of` bounds it.

    Emulated models have no such kernel: theirs is the processor's own.
    """
    if backend.on_host:
        return residual(A, X, B)
    return backend.residual(backend.matrix(A, FP64X2), X, B)


def _complex_residual(rows: Array, X: Vector, B: Vector, block: int) -> Array:
    """The same for an (n, 2 n) array of the real and imaginary parts of A."""
    pairs, parts = (np.empty((len(M), 2 * X.shape[1]), order="F") for M in (X, rows))
    _kernels.native_turn_pairs(np.asfortranarray(X), pairs)
    _kernels.native_gather_pairs(None, False, np.asfortranarray(B), parts)
    R: Array = np.empty(X.shape, order="F")
    _kernels.native_scatter_pairs(None, False, residual(rows, pairs, parts, block), R)
    return R


LEAST, MOST = 1e-264, 1e300
"""Between these, products of the numbers of a system neither overflow nor vanish."""


def backward_error(A: Array, x: Array, b: Array) -> float:
    """The largest ``||b - A x|| / (||A|| ||x|| + ||b||)`` over the columns.

    For small dense systems: all norms in one call, with residuals in blocks of `block_for`.
    Infinite where the divisor is so large or small that A and b should be scaled first.
    """
    columns, transpose = (A.T, True) if A.flags.c_contiguous else (A, False)
    block, threads = block_for(len(A)), pass_threads(A.size)
    return _kernels.native_backward_error(columns, transpose, x, b, block, LEAST, MOST, threads)


def sparse_backward_errors(
    A: Any, x: Array, b: Array, sums: Array, residuals: Array
) -> tuple[float, float]:
    """The same for a small sparse A, and the largest ``|r_i| / (sums_i ||x|| + |b_i|)``.

    A is in compressed rows or columns, with indices of 32 bits; residuals are in twice the
    precision, and go to `residuals`. ``sums_i``, the 1-norms of A's rows, go to `sums`.
    """
    return _kernels.native_sparse_backward_errors(
        A.indptr, A.indices, A.data, A.format == "csc", x, b, sums, residuals, LEAST, MOST
    )


class ExactMatrix(Matrix):
    """A float64 matrix for residuals in fp64x2, which is all that it can do."""

    fmt = FP64X2

    def __init__(self, A: Any) -> None:
        self.array, self.shape = A, A.shape
        self.is_sparse = sparse.issparse(A)
        self.entries = A.nnz if self.is_sparse else A.size

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        raise _for_residuals_only()

    def lu(self) -> Factors:
        raise _for_residuals_only()

    def cholesky(self) -> Factors:
        raise _for_residuals_only()


def _for_residuals_only() -> UnsupportedFormat:
    return UnsupportedFormat(
        f"{FP64X2} is a format of the residual stage alone; choose fp64 or lower for the others"
    )
