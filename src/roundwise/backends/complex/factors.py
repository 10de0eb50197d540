"""What all factors of complex matrices share: they solve with real vectors of twice the length."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.checks import checked_block
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
    def _solve_block(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        """``A X = Z``, or ``A* X = Z``, for complex columns in the format.

        Z is Fortran-ordered and may be overwritten. It has at least one column.
        """

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        block = np.asfortranarray(loaded(checked_block(b, self.shape[0]), self.fmt))
        if block.shape[1]:
            with np.errstate(all="ignore"):  # `finished` finds what is not finite
                found = real_columns(self._solve_block(complex_columns(block), transpose))
            x = finished(found, f"{self.method} solve", self.fmt, b)
        else:
            x = block.astype(np.float64)
        return x if np.ndim(b) == 2 else x[:, 0]

    def _hidden(self) -> NoReturn:
        raise NotImplementedError("factors of a complex matrix are for solving only")

    @property
    def L(self) -> Any:
        self._hidden()

    @property
    def U(self) -> Any:
        self._hidden()
