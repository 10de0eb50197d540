"""What the angles between sampled rows of a matrix tell."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

import roundwise._kernels as _kernels

ROWS = 64
"""How many rows, evenly spaced, stand for all."""

SMALLEST_REMAINDER = 1e-8


def angles_from(gram: NDArray[Any], n: int) -> tuple[float, float]:
    """Coherence and remainder from the inner products of rows, a Fortran-ordered lower triangle.

    The products are overwritten.
    """
    count = len(gram)
    squares, remainder = _kernels.native_angles(gram)
    return n * squares / max(1, count * (count - 1) // 2), max(remainder, SMALLEST_REMAINDER)
