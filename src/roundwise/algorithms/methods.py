"""The methods of `VerifiedSolve`: how to factorize, and what to turn to if that fails.

A new method is a line in `METHODS`, and a factorization of that name in a backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from roundwise.backends.native.dense import symmetric_dense
from roundwise.formats import BF16, FP16, FP16X2, FP32, FP64, FloatFormat

DEVICE_BLOCK = 2048
"""Rows that are compared with columns at a time, to keep a GPU busy."""


@dataclass(frozen=True)
class Method:
    """A way to factorize; each failure leads to the next format, then to FP64 by another method."""

    name: str  # as `Backend.analyse` knows it
    sparse: bool  # whether it is for sparse matrices
    formats: tuple[FloatFormat, ...]  # that it is tried in, lowest first
    then: tuple[str, ...] = ()  # the first of these that fits A is the next method
    chosen: bool = True  # by policies; if not, it is a last resort, or is seen to fit
    needs: tuple[str, ...] = ()  # the features that a matrix must have

    def fits(self, features: Mapping[str, float]) -> bool:
        """Whether a matrix with these features can be factorized this way."""
        return all(features[name] for name in self.needs)


def _sparse(
    name: str, then: str, needs: tuple[str, ...] = (), low: FloatFormat | None = FP32
) -> Method:
    return Method(name, True, (FP64,) if low is None else (low, FP64), (then,), needs=needs)


SAFE = "superlu/colamd"
DEFINITE, SYMMETRIC = ("looks_positive_definite",), ("symmetric",)


METHODS = {
    method.name: method
    for method in (
        Method("cholesky", False, (FP32, FP64), ("lu",), needs=DEFINITE),
        # On a GPU: bolder ways to pivot, whose failures cuSOLVER's LU in FP64 mends.
        Method("lu/diagonal", False, (FP16, FP16X2, FP64), ("lu",)),
        Method("lu/butterfly", False, (FP16, FP16X2, FP64), ("lu",)),
        Method("lu/local", False, (FP16, FP16X2, FP64), ("lu",)),
        Method("lu/tournament", False, (FP16, FP16X2, FP64), ("lu",)),
        Method("lu", False, (BF16, FP32, FP64), then=("qr", SAFE)),
        Method("qr", False, (FP64,), chosen=False),  # backward stable where LU's entries grow
        # Chosen where A is seen to be so (solver/structures.py), not by policies.
        Method("banded", False, (FP64,), ("lu",), chosen=False),
        Method("triangular", False, (FP64,), ("lu",), chosen=False),
        _sparse("amg/rs", "cholesky/amd", DEFINITE, low=None),
        _sparse("cholmod/metis", "ldl/amd", DEFINITE, low=None),
        _sparse("cholmod/amd", "ldl/amd", DEFINITE, low=None),
        _sparse("pardiso-cholesky/metis", "ldl/amd", DEFINITE),
        _sparse("pardiso-cholesky/mmd", "ldl/amd", DEFINITE),
        _sparse("cholesky/nd", "ldl/amd", DEFINITE),
        _sparse("cholesky/amd", "ldl/amd", DEFINITE),
        # Symmetric indefinite: in FP32 too many pivots are too small.
        _sparse("pardiso-ldl/metis", SAFE, SYMMETRIC, low=None),
        _sparse("pardiso-ldl/mmd", SAFE, SYMMETRIC, low=None),
        _sparse("ldl/amd", SAFE, SYMMETRIC, low=None),
        _sparse("lu/nd", SAFE, ("static_pivots",)),
        _sparse("lu/amd", SAFE, ("static_pivots",)),
        _sparse("klu/amd", SAFE, low=None),
        _sparse("umfpack/amd", SAFE, low=None),
        _sparse("pardiso/metis", SAFE),
        _sparse("pardiso/mmd", SAFE),
        # From a weak diagonal pivots leave, and fill in where nobody counted on it.
        _sparse("superlu/mmd", SAFE, ("symmetric_pattern", "strong_diagonal")),
        Method(SAFE, True, (FP32, FP64)),
    )
}
"""The methods by name; of those that policies choose, the safest of each kind last."""


DEFAULT_METHOD = "lu"
"""Of an action that names none: every backend has it, for dense and for sparse matrices."""


def is_symmetric(A: Any) -> bool:
    """Whether A equals its transpose; most that do not show it in a few rows, at no cost."""
    if sparse.issparse(A):
        return bool((A != A.T).nnz == 0)
    if isinstance(A, np.ndarray):
        return symmetric_dense(A)
    probes = {0, len(A) // 2, len(A) - 1}
    if not all(np.array_equal(A[i], A[:, i]) for i in probes):
        return False
    blocks, step = range(0, len(A), DEVICE_BLOCK), DEVICE_BLOCK
    return all(np.array_equal(A[i : i + step, i:], A[i:, i : i + step].T) for i in blocks)
