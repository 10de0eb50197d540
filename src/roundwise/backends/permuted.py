"""Factors that others are made of: with permutations around them, or transposed."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.backends.checks import Float64Array, checked_block
from roundwise.backends.contract import AtOnce, Factors, ToRefine, Vector
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


class TransposedFactors(Factors):
    """``A'[order][:, perm] = U' L'`` of ``A[perm][:, order] = L U``: no number is copied."""

    def __init__(self, factors: Factors) -> None:
        self._factors = factors
        self.fmt, self.method, self.shape = factors.fmt, factors.method, factors.shape
        self.is_sparse, self.entries = factors.is_sparse, factors.entries
        self.flops, self.replaced_pivots = factors.flops, factors.replaced_pivots

    @property
    def perm(self) -> Any:  # type: ignore[override]
        return self._factors.order

    @property
    def order(self) -> Any:  # type: ignore[override]
        return self._factors.perm

    @property
    def L(self) -> Any:
        return self._factors.U.T

    @property
    def U(self) -> Any:
        return self._factors.L.T

    @property
    def pivots(self) -> Vector | None:
        return self._factors.pivots

    def to(self, fmt: FloatFormat) -> Factors:
        return self if fmt == self.fmt else TransposedFactors(self._factors.to(fmt))

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        return self._factors.solve(b, not transpose)

    def refined(self, given: ToRefine, transpose: bool = False) -> AtOnce | None:
        return self._factors.refined(given, not transpose)
