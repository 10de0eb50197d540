"""Complex LU factors whose real and imaginary parts are matrices of their own.

So the products of substitution are real ones, and factors in float32 can be applied in float64
without a copy of them.
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

    def __init__(
        self, fmt: FloatFormat, re: NDArray[Any], im: NDArray[Any], rows: NDArray[np.int32]
    ) -> None:
        n = len(re)
        super().__init__(fmt, n)
        self._re, self._im, self._rows = re, im, rows
        self.entries, self.flops = 2 * n * n, 8 / 3 * n**3

    @property
    def pivots(self) -> Vector:
        """Each twice: a lost one makes two directions of the real form vanish."""
        parts = (np.diagonal(part).astype(np.float64) for part in (self._re, self._im))
        return np.repeat(np.hypot(*parts), 2)

    def to(self, fmt: FloatFormat) -> PlanarLU:
        return self if fmt == self.fmt else PlanarLU(fmt, self._re, self._im, self._rows)

    def _solve_block(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        B = np.empty((len(Z), 2 * Z.shape[1]), dtype=Z.real.dtype, order="F")
        source = Z[self._rows] if adjoint else Z
        B[:, 0::2], B[:, 1::2] = source.real, source.imag
        if adjoint:  # A* x = b says that A' conj(x) = conj(b)
            B[:, 1::2] *= -1
        _kernels.native_complex_getrs(self._re, self._im, B, not adjoint, solve_threads(self._re))
        X = np.empty_like(Z)
        if adjoint:
            X.real, X.imag = B[:, 0::2], -B[:, 1::2]
        else:
            X.real[self._rows], X.imag[self._rows] = B[:, 0::2], B[:, 1::2]
        return X
