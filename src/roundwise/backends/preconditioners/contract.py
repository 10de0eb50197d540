"""What a preconditioner is: a name, a format of storage, and an approximate inverse to apply.

Numbers are stored in FP64, FP32 or 16 bits (BF16, FP16), and computed with in FP64 for the first,
in FP32 for the others: what it takes to apply one is the reading of its numbers.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.formats import BF16, FP16, FP32, FP64, FloatFormat

Array = NDArray[np.float64]

STORED_IN = (BF16, FP16, FP32, FP64)
"""The formats of storage, lowest precision first."""


class Preconditioner(Protocol):
    """``Z = M^-1 R`` for an M near A.

    Applying one has the same bits with any number of threads and any instructions, and raises
    nothing but an `ArithmeticFailure`.
    """

    name: str
    format: FloatFormat
    """Of storage."""

    @property
    def bytes(self) -> int:
        """Of memory that it keeps."""
        ...

    def apply(self, R: Array) -> Array:
        """``M^-1 R`` for a vector, or for a block of columns."""
        ...


def arrays_of(A: Any, kernel: str, fmt: FloatFormat) -> tuple[Any, Any, Any]:
    """Starts, indices and numbers of a square sparse matrix, in the types that the kernels take."""
    A = sparse.csr_array(A)
    require_square(A.shape)
    if A.nnz > np.iinfo(np.int32).max:
        raise ValueError(f"A has {A.nnz} entries; preconditioners are for less than 2^31")
    values = np.ascontiguousarray(A.data, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ArithmeticFailure(Status.NONFINITE_INPUT, kernel, fmt)
    starts, indices = (np.ascontiguousarray(one, dtype=np.int32) for one in (A.indptr, A.indices))
    return starts, indices, values


def as_block(R: Any, n: int) -> tuple[Array, bool]:
    """R as columns for the kernels, and whether it was a vector."""
    R = np.asarray(R, dtype=np.float64)
    if R.ndim not in (1, 2) or len(R) != n:
        raise ValueError(f"R has the shape {R.shape}; pass a vector or columns of {n} numbers")
    return np.asfortranarray(R[:, None] if R.ndim == 1 else R), R.ndim == 1
