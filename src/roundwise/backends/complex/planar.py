"""Complex LU factors in which real and imaginary parts lie apart.

Each column has its n real parts first, then its n imaginary ones. So the products of substitution
are real ones, and factors in float32 can be applied in float64 without a copy of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.backends.complex.factors import ComplexFactors
from roundwise.backends.contract import Vector
from roundwise.backends.native.dense import solve_threads
from roundwise.formats import FloatFormat


class PlanarLU(ComplexFactors):
    """LU factors of A' (not conjugated), with rows interchanged: ``A'[rows] = L U``."""

    method = "lu"
    is_sparse = False

    def __init__(self, fmt: FloatFormat, packed: NDArray[Any], rows: NDArray[np.int32]) -> None:
        n = len(rows)
        super().__init__(fmt, n)
        self._packed, self._rows = packed, rows
        self.entries, self.flops = 2 * n * n, 8 / 3 * n**3

    @property
    def pivots(self) -> Vector:
        """Each twice: a lost one makes two directions of the real form vanish."""
        n = len(self._rows)
        parts = self._packed[:n].diagonal(), self._packed[n:].diagonal()
        return np.repeat(np.hypot(*parts, dtype=np.float64), 2)

    def to(self, fmt: FloatFormat) -> PlanarLU:
        return self if fmt == self.fmt else PlanarLU(fmt, self._packed, self._rows)

    def _solve_block(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        B = np.empty((len(Z), 2 * Z.shape[1]), dtype=Z.real.dtype, order="F")
        source = Z[self._rows] if adjoint else Z
        B[:, 0::2], B[:, 1::2] = source.real, source.imag
        if adjoint:  # A* x = b says that A' conj(x) = conj(b)
            B[:, 1::2] *= -1
        _kernels.native_complex_getrs(self._packed, B, not adjoint, solve_threads(self._packed))
        X = np.empty_like(Z)
        if adjoint:
            X.real, X.imag = B[:, 0::2], -B[:, 1::2]
        else:
            X.real[self._rows], X.imag[self._rows] = B[:, 0::2], B[:, 1::2]
        return X
