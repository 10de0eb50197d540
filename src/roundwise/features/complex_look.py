"""The look at a dense complex matrix; `roundwise.features.look` says what its features mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from roundwise.features.angles import ROWS, angles_from

Complex = NDArray[np.complex128]

BLOCK = 128
"""Rows that are compared with columns at a time: they stay in the cache."""


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


@np.errstate(under="ignore")
def row_features(A: Complex) -> dict[str, float]:
    """What 64 rows of a C-ordered A tell, whose entries are of moderate size."""
    count = min(ROWS, len(A))
    rows = np.arange(count) * len(A) // count
    sampled = A[rows]
    # Where sizes differ so much that squares vanish, the look is coarse, and that is all.
    squares = sampled.real**2 + sampled.imag**2
    norms = np.sqrt(squares.sum(axis=1))
    own = np.arange(count), rows
    shares = np.divide(np.abs(sampled[own]), norms, out=np.zeros(count), where=norms > 0)
    squares[own] = 0.0
    weights = np.divide(1.0, norms, out=np.zeros(count), where=norms > 0)
    lengths = np.sqrt((weights * weights) @ squares)
    scale = np.where(lengths > 0, lengths, lengths.max(initial=0.0) or 1.0)
    gram = blas.zherk(1.0, (sampled / scale).T, trans=2, lower=1)
    coherence, remainder = angles_from(gram, len(A))
    share = float(np.sort(shares)[count // 2])
    return {"diagonal_share": share, "coherence": coherence, "remainder": remainder}
