"""The methods of `VerifiedSolve`: how to factorize, and what to turn to if that fails.

A new method is a line in `METHODS`, and a factorization of that name in a backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from roundwise.formats import BF16, FP32, FP64, FloatFormat

BLOCK = 128
"""Rows that are compared with columns at a time: they stay in the cache."""


@dataclass(frozen=True)
class Method:
    """A way to factorize; each failure leads to the next format, then to FP64 by another method."""

    name: str  # as `Backend.analyse` knows it
    sparse: bool  # whether it is for sparse matrices
    formats: tuple[FloatFormat, ...]  # that it is tried in, lowest first
    then: tuple[str, ...] = ()  # the first of these that fits A is the next method
    chosen: bool = True  # by policies; if not, it is a last resort
    needs: str = ""  # the feature that a matrix must have; any will do if empty


METHODS = {
    method.name: method
    for method in (
        Method("cholesky", False, (FP32, FP64), ("lu",), needs="looks_positive_definite"),
        Method("lu", False, (BF16, FP32, FP64), then=("qr", "superlu/colamd")),
        Method("qr", False, (FP64,), chosen=False),  # backward stable where LU's entries grow
        Method("superlu/mmd", True, (FP32, FP64), ("superlu/colamd",), needs="symmetric_pattern"),
        Method("superlu/colamd", True, (FP32, FP64)),
    )
}
"""The methods by name; of those that policies choose, the safest of each kind last."""


DEFAULT_METHOD = "lu"
"""Of an action that names none: every backend has it, for dense and for sparse matrices."""


def is_symmetric(A: Any) -> bool:
    """Whether A equals its transpose; most that do not show it in a few rows, at no cost."""
    if not isinstance(A, np.ndarray):
        return bool((A != A.T).nnz == 0)
    probes = {0, len(A) // 2, len(A) - 1}
    if not all(np.array_equal(A[i], A[:, i]) for i in probes):
        return False
    blocks = range(0, len(A), BLOCK)
    return all(np.array_equal(A[i : i + BLOCK, i:], A[i:, i : i + BLOCK].T) for i in blocks)
