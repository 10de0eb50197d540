"""Bands and triangles, told or found, at once: solved and verified by one call (see `express.py`).

A dense matrix is looked at in one pass, which stops early where nothing is found; where `assume_a`
tells the structure, there is none. A triangle is then read once: substitution finds x, the residual
of x and the norms (`cpp/native/triangle.hpp`). A band is copied and factorized
(`cpp/native/band.hpp`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.backends.native.structured import (
    BAND,
    LOWER,
    PERHAPS_PERMUTED,
    UPPER,
    Found,
    triangular_orders,
)
from roundwise.machine.threads import factorization_threads

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


def told(assume_a: Any, transposed: bool) -> Found | None:
    """What `assume_a` tells of A's zeros, or of its transpose's; None if it tells another thing."""
    if assume_a is None:
        return UNKNOWN
    found = TOLD.get(assume_a) if isinstance(assume_a, str) else None
    return found.transpose if found is not None and transposed else found


ACCEPTED, NO_STRUCTURE = 0, 3
"""The first status is that of an x that has passed the gate; others are refused."""


class Result(NamedTuple):
    """What `structured_solve` tells. x is of use only if it is accepted."""

    status: int
    x: Array
    error: float
    pivot_ratio: float
    corrections: int
    method: str


def structured_solve(A: Array, b: Array, dtype: Any, gate: Any, found: Found) -> Result:
    """``A^-1 b`` of a type, for an A of this structure; entries elsewhere are not read.

    A and b are of types that `express` takes; `gate` is a `Gate`.
    """
    x, threads = np.empty(b.shape, dtype), factorization_threads()
    told = _kernels.structured_solve(A, b, x, *found, threads, *gate)
    if told[0] == NO_STRUCTURE:
        orders = triangular_orders(A) if told[4] == PERHAPS_PERMUTED else None
        if orders is None:
            return Result(NO_STRUCTURE, x, *told[1:4], "lu")
        (rows, columns), given = orders, x
        x = np.empty(b.shape, dtype)
        ordered = A[rows][:, columns]
        told = _kernels.structured_solve(ordered, b[rows], given, LOWER, 0, 0, threads, *gate)
        x[columns] = given
    status, error, ratio, steps, kind = told
    return Result(status, x, error, ratio, steps, Found(kind).method)
