"""Bands and triangles, told or found, at once: solved and verified by one call (see `express.py`).

A dense matrix is looked at in one pass, which stops early where nothing is found; where `assume_a`
tells the structure, there is none. A triangle is then read once: substitution finds x, the residual
of x and the norms (`cpp/native/triangle.hpp`). A band is copied and factorized
(`cpp/native/band.hpp`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.backends.native.structured import BAND, LOWER, UPPER, Found, triangular_orders

Array = NDArray[Any]

UNKNOWN = Found(-1)
"""A structure that is to be looked for."""

TOLD = {
    "banded": UNKNOWN,
    "diagonal": Found(BAND, 0, 0),
    "tridiagonal": Found(BAND, 1, 1),
    "lower triangular": Found(LOWER),
    "upper triangular": Found(UPPER),
}
"""What `assume_a` tells: of a band, that it is worth looking how wide it is."""


ACCEPTED, NO_STRUCTURE = 0, 3
"""The first status is that of an x that has passed the gate; others are refused."""


def solve_permuted(A: Array, b: Array, x: Array, gate: Any, threads: int) -> tuple[Any, ...] | None:
    """What the compiled call tells of a triangle with rows and columns in disorder.

    x holds the answer then. None if A is no such matrix.
    """
    orders = triangular_orders(A)
    if orders is None:
        return None
    rows, columns = orders
    given, ordered = np.empty_like(x), A[rows][:, columns]
    told = _kernels.structured_solve(ordered, b[rows], given, LOWER, 0, 0, threads, *gate)
    x[columns] = given
    return told
