"""What the angles between sampled rows of a matrix tell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

ROWS = 64
"""How many rows, evenly spaced, stand for all."""

SMALLEST_REMAINDER = 1e-8


def angles_from(gram: NDArray[Any], n: int) -> tuple[float, float]:
    """Coherence and remainder from the inner products of rows, which are overwritten."""
    count = len(gram)
    sizes = np.sqrt(np.diagonal(gram).real)
    present = sizes > 0
    sizes[~present] = 1.0
    gram /= sizes[:, None] * sizes
    # Exactly: else rounding errors would decide which row is the first pivot.
    np.fill_diagonal(gram, present)
    below = np.abs(np.tril(gram, -1))
    coherence = n * float(np.einsum("ij,ij->", below, below)) / max(1, count * (count - 1) // 2)
    pstrf = lapack.zpstrf if gram.dtype.kind == "c" else lapack.dpstrf
    factor, _, rank, _ = pstrf(gram, lower=1)
    half = count // 2
    remainder = float(factor[half, half].real) if half < rank else 0.0
    return coherence, max(remainder, SMALLEST_REMAINDER)
