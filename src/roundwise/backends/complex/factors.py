"""What all factors of complex matrices share: they solve with real vectors of twice the length."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.checks import Float64Array, checked_block
from roundwise.backends.contract import Factors, Vector
from roundwise.backends.native.storage import finished, loaded
from roundwise.backends.real_form import complex_columns, real_columns
from roundwise.formats import FP32, FP64, FloatFormat

COMPLEX: dict[FloatFormat, Any] = {FP32: np.complex64, FP64: np.complex128}
"""How complex numbers with parts of a format lie in memory."""


class ComplexFactors(Factors):
    """Factors of a complex n x n matrix, standing for those of its real form."""

    perm = order = None

    def __init__(self, fmt: FloatFormat, n: int) -> None:
        self.fmt, self.shape = fmt, (2 * n, 2 * n)

    @abstractmethod
    def _solve_columns(self, b: Float64Array, transpose: bool) -> Float64Array:
        """``A x = b``, or ``A* x = b``, for columns of real and imaginary parts in turn."""

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        x = self._solve_columns(checked_block(b, self.shape[0]), transpose)
        return x if np.ndim(b) == 2 else x[:, 0]

    def _hidden(self) -> NoReturn:
        raise NotImplementedError("factors of a complex matrix are for solving only")

    @property
    def L(self) -> Any:
        self._hidden()

    @property
    def U(self) -> Any:
        self._hidden()


class PairedFactors(ComplexFactors):
    """Factors whose complex numbers are pairs in memory, as those of LAPACK and SuperLU are."""

    @abstractmethod
    def _solve_block(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        """``A X = Z``, or ``A* X = Z``, for complex columns in the format.

        Z is Fortran-ordered and may be overwritten. It has at least one column.
        """

    def _solve_columns(self, b: Float64Array, transpose: bool) -> Float64Array:
        block = np.asfortranarray(loaded(b, self.fmt))
        if not block.shape[1]:
            return block.astype(np.float64)
        with np.errstate(all="ignore"):  # `finished` finds what is not finite
            found = real_columns(self._solve_block(complex_columns(block), transpose))
        return finished(found, f"{self.method} solve", self.fmt, b)
