"""Factors that a library keeps to itself: one can solve with them, but not look at them."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.checks import Float64Array, checked_block
from roundwise.backends.contract import Factors, Vector
from roundwise.backends.native.storage import finished, loaded, require_native_sparse
from roundwise.formats import FloatFormat


class HiddenFactors(Factors):
    """Factors without `L` and `U`."""

    perm = order = None
    flops = math.nan

    def __init__(self, fmt: FloatFormat, n: int, method: str) -> None:
        self.fmt, self.shape, self.method = fmt, (n, n), method

    @abstractmethod
    def _solve_columns(self, b: Float64Array, transpose: bool) -> Float64Array:
        """``A X = B`` or ``A' X = B``."""

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        x = self._solve_columns(checked_block(b, self.shape[0]), transpose)
        return x if np.ndim(b) == 2 else x[:, 0]

    def _hidden(self) -> NoReturn:
        raise NotImplementedError(
            f"{self.method} does not show its factors; factorize by superlu/colamd to see them, or "
            "a complex matrix by SciPy"
        )

    @property
    def L(self) -> Any:
        self._hidden()

    @property
    def U(self) -> Any:
        self._hidden()


class OpaqueFactors(HiddenFactors):
    """Hidden factors that a subclass solves with for a block of columns in the format's type."""

    is_sparse = True

    @abstractmethod
    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        """``A X = B`` or ``A' X = B`` for a Fortran-ordered block in the type of the format.

        The block has at least one column and may be overwritten.
        """

    def _solve_columns(self, b: Float64Array, transpose: bool) -> Float64Array:
        block = np.asfortranarray(loaded(b, self.fmt))
        x = self._solve_block(block, transpose) if block.shape[1] else block
        return finished(x, f"{self.method} solve", self.fmt, b)

    def to(self, fmt: FloatFormat) -> Factors:
        """The same factors for operands and results in another format.

        They cannot be rounded, so the arithmetic in between stays that of their own format.
        """
        require_native_sparse(fmt)
        return self if fmt == self.fmt else _Converting(self, fmt)


class _Converting(OpaqueFactors):
    """Opaque factors between operands and results in another format."""

    def __init__(self, factors: OpaqueFactors, fmt: FloatFormat) -> None:
        super().__init__(fmt, factors.shape[0], factors.method)
        self.entries, self.flops = factors.entries, factors.flops
        self.replaced_pivots = factors.replaced_pivots
        self._factors = factors

    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        with np.errstate(over="ignore"):  # `solve` finds what is not finite
            return np.asarray(self._factors.solve(b, transpose).astype(b.dtype))

    def to(self, fmt: FloatFormat) -> Factors:
        return self._factors.to(fmt)
