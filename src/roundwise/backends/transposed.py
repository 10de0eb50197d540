"""The factors of a matrix, as factors of its transpose."""

from __future__ import annotations

from typing import Any

from roundwise.backends.contract import Factors, Vector
from roundwise.formats import FloatFormat


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
