"""The last resort for dense matrices: QR, backward stable where LU's entries grow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from roundwise.backends import ArithmeticFailure, Status
from roundwise.formats import FP64, FloatFormat

Array = NDArray[np.float64]


class QRFactors:
    """``A = Q R`` by Householder reflections in float64."""

    is_sparse = False

    def __init__(self, A: Array) -> None:
        self.entries = A.size
        self._packed, self._tau, _, _ = lapack.dgeqrf(A)
        zeros = np.flatnonzero(np.diagonal(self._packed) == 0)
        if zeros.size:
            raise ArithmeticFailure(Status.ZERO_PIVOT, "QR factorization", FP64, int(zeros[0]))

    def to(self, fmt: FloatFormat) -> QRFactors:
        return self  # refinement asks for FP64 only

    def solve(self, b: Array, transpose: bool = False) -> Array:
        block = np.asfortranarray(b if b.ndim == 2 else b[:, None])
        if transpose:  # A' = R' Q'
            x = self._reflected("N", lapack.dtrtrs(self._packed, block, trans=1)[0])
        else:
            x, _ = lapack.dtrtrs(self._packed, self._reflected("T", block))
        if not np.isfinite(x).all():
            raise ArithmeticFailure(Status.OVERFLOW, "triangular solve", FP64)
        return np.asarray(x if b.ndim == 2 else x[:, 0])

    def _reflected(self, trans: str, block: Array) -> Array:
        """``Q B`` or ``Q' B``."""
        _, work, _ = lapack.dormqr("L", trans, self._packed, self._tau, block, -1)
        return np.asarray(
            lapack.dormqr("L", trans, self._packed, self._tau, block, int(work[0]))[0]
        )
