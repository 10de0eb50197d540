"""Whether a matrix equals its transpose, wherever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from roundwise.backends.native.dense import symmetric_dense

DEVICE_BLOCK = 2048
"""Rows that are compared with columns at a time, to keep a GPU busy."""


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
