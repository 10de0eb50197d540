"""The probe of a dense complex matrix; `roundwise.features.probe` says what its features mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.backends.native.dense import has_own_lu
from roundwise.features.angles import ROWS, angles_from
from roundwise.machine.threads import pass_threads

Complex = NDArray[np.complex128]
Real = NDArray[np.float64]

CHOLESKY_FROM = 1200
"""Below this n our LU in fp32 takes no more time than a comparison of A with its transpose and
LAPACK's Cholesky."""

TINY = 128
"""Below this n, not even LAPACK's LU takes long enough to look whether A is Hermitian."""

BLOCK = 128
"""Rows that are compared with columns at a time: they stay in the cache."""


def cholesky_from() -> int:
    """The smallest n for which a Hermitian A is looked for, as Cholesky would gain time."""
    return CHOLESKY_FROM if has_own_lu() else TINY


def has_positive_diagonal(A: Complex) -> bool:
    """Whether all entries of the diagonal are real and positive."""
    diagonal = np.diagonal(A)
    return bool((diagonal.real > 0).all()) and not diagonal.imag.any()


def is_hermitian(A: Complex) -> bool:
    """Whether A equals its conjugate transpose; most that do not show it in a few rows."""
    probes = {0, len(A) // 2, len(A) - 1}
    if not all(np.array_equal(A[i], A[:, i].conj()) for i in probes):
        return False
    blocks = range(0, len(A), BLOCK)
    return all(np.array_equal(A[i : i + BLOCK, i:], A[i:, i : i + BLOCK].conj().T) for i in blocks)


def _inner_products(parts: Real) -> Complex:
    """Those of all rows, in the lower triangle, from planes of real and imaginary parts."""
    _, count, n = parts.shape
    gram = np.empty((2 * count, 2 * count), order="F")
    _kernels.native_gram(parts.reshape(2 * count, n).T, gram, pass_threads(parts.size))
    re, im, mixed = gram[:count, :count], gram[count:, count:], gram[count:, :count]
    products = np.empty((count, count), dtype=np.complex128, order="F")
    products.real, products.imag = re + im, mixed - mixed.T
    return products


@np.errstate(under="ignore")
def row_features(A: Complex) -> dict[str, float]:
    """What 64 rows of a C-ordered A tell, whose entries are of moderate size."""
    count = min(ROWS, len(A))
    rows = np.arange(count) * len(A) // count
    sampled = A[rows]
    parts = np.empty((2, *sampled.shape))  # apart, as products are faster then
    parts[0], parts[1] = sampled.real, sampled.imag
    # Where sizes differ so much that squares vanish, the probe is coarse, and that is all.
    squares = parts[0] * parts[0]
    squares += parts[1] * parts[1]
    norms = np.sqrt(squares.sum(axis=1))
    own = np.arange(count), rows
    shares = np.divide(np.abs(sampled[own]), norms, out=np.zeros(count), where=norms > 0)
    squares[own] = 0.0
    weights = np.divide(1.0, norms, out=np.zeros(count), where=norms > 0)
    lengths = np.sqrt((weights * weights) @ squares)
    parts /= np.where(lengths > 0, lengths, lengths.max(initial=0.0) or 1.0)
    coherence, remainder = angles_from(_inner_products(parts), len(A))
    share = float(np.sort(shares)[count // 2])
    return {"diagonal_share": share, "coherence": coherence, "remainder": remainder}
