"""Dense QR: the last resort, backward stable where LU's entries grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from roundwise.backends.checks import require_nonzero_diagonal
from roundwise.backends.contract import UnsupportedFormat, Vector
from roundwise.backends.native.storage import DTYPES, finished, loaded, nonfinite
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FP32, FP64, FloatFormat

_ROUTINES = {
    FP32: (lapack.sgeqrf, lapack.sormqr, lapack.strtrs),
    FP64: (lapack.dgeqrf, lapack.dormqr, lapack.dtrtrs),
}
"""Householder QR, products with Q, and triangular solves, by format."""


def require_qr(fmt: FloatFormat) -> None:
    """Refuse a format that LAPACK has no QR for."""
    if fmt not in _ROUTINES:
        raise UnsupportedFormat(f"QR runs natively in fp32 and fp64 alone, not in {fmt}; use these")


class QRFactors(PermutedFactors):
    """``A = Q R``: R above the Householder vectors of Q, as LAPACK packs them."""

    method = "qr"
    is_sparse = False
    perm = order = None

    def __init__(self, fmt: FloatFormat, packed: NDArray[Any], tau: NDArray[Any]) -> None:
        self.fmt, self.shape, self.entries = fmt, packed.shape, packed.size
        self.flops = 4 / 3 * len(packed) ** 3
        self._packed, self._tau = packed, tau
        _, self._multiply, self._solve_triangle = _ROUTINES[fmt]
        require_nonzero_diagonal(np.diagonal(packed), fmt)

    @classmethod
    def of(cls, A: NDArray[Any], fmt: FloatFormat, given: NDArray[Any]) -> QRFactors:
        """Factorize a matrix that was given in another type and converted to the format's."""
        packed, tau, _, _ = _ROUTINES[fmt][0](A)
        if not np.isfinite(packed).all():
            raise nonfinite("QR factorization", fmt, given)
        return cls(fmt, packed, tau)

    @property
    def L(self) -> Vector:
        """Q, which is orthogonal to working precision."""
        return self._reflected("N", np.eye(self.shape[0], dtype=self._tau.dtype)).astype(np.float64)

    @property
    def U(self) -> Vector:
        return np.triu(self._packed).astype(np.float64)

    def to(self, fmt: FloatFormat) -> QRFactors:
        require_qr(fmt)
        if fmt == self.fmt:
            return self
        packed, tau = (x.astype(DTYPES[fmt]) for x in (self._packed, self._tau))
        return QRFactors(fmt, packed, tau)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        y = loaded(b, self.fmt)
        if transpose:  # A' = R' Q'
            x = self._reflected("N", self._solve_triangle(self._packed, y, trans=1)[0])
        else:
            x, _ = self._solve_triangle(self._packed, self._reflected("T", y))
        return finished(x, "triangular solve", self.fmt, b)

    def _reflected(self, trans: str, block: NDArray[Any]) -> NDArray[Any]:
        """``Q B`` or ``Q' B``."""
        operands = "L", trans, self._packed, self._tau, block
        _, work, _ = self._multiply(*operands, -1)
        return np.asarray(self._multiply(*operands, int(work[0]))[0])
