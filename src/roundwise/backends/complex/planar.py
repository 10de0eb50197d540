"""Complex LU factors in which real and imaginary parts lie apart.

Each column has its n real parts first, then its n imaginary ones. So the products of substitution
are real ones, and factors in float32 can be applied in float64 without a copy of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.backends.checks import Float64Array
from roundwise.backends.complex.factors import ComplexFactors
from roundwise.backends.contract import Vector
from roundwise.backends.native.dense import solve_threads
from roundwise.backends.native.storage import nonfinite
from roundwise.formats import FP64, FloatFormat


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

    def _solve_columns(self, b: Float64Array, transpose: bool) -> Float64Array:
        # A* x = b says that A' conj(x) = conj(b).
        rows, places = (self._rows, None) if transpose else (None, self._rows)
        parts, x = (len(self._rows), 2 * b.shape[1]), np.empty(b.shape, order="F")
        B = np.empty(parts, np.float64 if self.fmt == FP64 else np.float32, order="F")
        _kernels.native_gather_pairs(rows, transpose, np.asfortranarray(b), B)
        _kernels.native_complex_getrs(self._packed, B, not transpose, solve_threads(self._packed))
        if not _kernels.native_scatter_pairs(places, transpose, B, x):
            raise nonfinite(f"{self.method} solve", self.fmt, b)
        return x
