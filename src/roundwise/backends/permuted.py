"""Factors whose kernels solve for blocks of columns, without permutations."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.backends.checks import Float64Array, checked_block
from roundwise.backends.contract import Factors, Vector
from roundwise.formats import FloatFormat


class PermutedFactors(Factors):
    """Factors that permute around `_solve_factored`, whose kernels solve with L and U only."""

    @cached_property
    def _around(self) -> tuple[NDArray[np.int32] | None, NDArray[np.int32] | None]:
        """The orders of rows and columns that `_solve_factored` leaves to `solve`."""
        return self.perm, self.order

    @abstractmethod
    def to(self, fmt: FloatFormat) -> PermutedFactors: ...

    @abstractmethod
    def _solve_factored(self, b: Float64Array, transpose: bool) -> Float64Array:
        """LU X = B, or (LU)' X = B, for a Fortran-ordered block B that may be overwritten."""

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        block = checked_block(b, self.shape[0])
        # A = P' L U Q' and A' = Q U' L' P.
        rows, columns = self._around[::-1] if transpose else self._around
        x = np.array(block if rows is None else block[rows], order="F")
        x = self._solve_factored(x, transpose)
        if columns is not None:
            x[columns] = x.copy()
        return x if np.ndim(b) == 2 else x[:, 0]
