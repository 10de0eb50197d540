"""Factors in NumPy arrays that are solved with by kernels without permutations."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from roundwise.backends.checks import Float64Array, checked_block
from roundwise.backends.contract import Factors, Vector
from roundwise.formats import FloatFormat


class PermutedFactors(Factors):
    """Factors that permute around `_solve_factored`, whose kernels solve with L and U only."""

    @abstractmethod
    def to(self, fmt: FloatFormat) -> PermutedFactors: ...

    @abstractmethod
    def _solve_factored(self, b: Float64Array, transpose: bool) -> Float64Array:
        """LU X = B, or (LU)' X = B, for a Fortran-ordered block B that may be overwritten."""

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        block = checked_block(b, self.shape[0])
        # A = P' L U Q' and A' = Q U' L' P.
        rows, columns = (self.order, self.perm) if transpose else (self.perm, self.order)
        y = np.array(block if rows is None else block[rows], order="F")
        y = self._solve_factored(y, transpose)
        if columns is None:
            x = y
        else:
            x = np.empty_like(y)
            x[columns] = y
        return x if np.ndim(b) == 2 else x[:, 0]
