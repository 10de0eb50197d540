"""Vector kernels on the device, in FP64 or FP32.

Operands and results of lower formats are rounded; FP32 computes between. Reading a number back
takes as long as a product with a large vector, so that nobody looks whether a vector that stays on
the device is finite: `dot`, `norm2` and `orthogonalize`, whose numbers are read back, raise the
failure of the kernels before them, too.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from roundwise.backends.arrays import on_host
from roundwise.backends.contract import ArithmeticFailure, Backend, Status, Vector
from roundwise.backends.cuda.products import computed_in, is_rounded, rounded
from roundwise.backends.emulated.operation import OperationBackend
from roundwise.formats import FP64, FloatFormat

SAFE_SQUARES_FP32, SAFE_SQUARES_FP64 = (1e-20, 1e37), (1e-250, 1e300)
"""Sums of squares for which nothing that matters has underflowed, and nothing overflowed."""

_small = OperationBackend()
"""The small triangle of GMRES stays on the host: a few numbers a step."""


class CudaVectors(Backend):
    """The vector kernels of the CUDA backend."""

    @abstractmethod
    def _format(self, fmt: str | FloatFormat) -> FloatFormat:
        """The format of that name; refuses those that do not run here."""

    def dot(self, x: Vector, y: Vector, fmt: str | FloatFormat) -> float:
        fmt = self._format(fmt)
        return self._number(float(self._read(x, fmt) @ self._read(y, fmt)), "dot", fmt)

    def axpy(self, alpha: float, x: Vector, y: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = self._format(fmt)
        x, y, alpha = self._read(x, fmt), self._read(y, fmt), self._scalar(alpha, fmt)
        return self._written(y + x * alpha, fmt)

    def scale(self, alpha: float, x: Vector, fmt: str | FloatFormat) -> Vector:
        fmt = self._format(fmt)
        return self._written(self._read(x, fmt) * self._scalar(alpha, fmt), fmt)

    def norm2(self, x: Vector, fmt: str | FloatFormat) -> float:
        fmt = self._format(fmt)
        operand = self._read(x, fmt)
        least, most = SAFE_SQUARES_FP64 if fmt == FP64 else SAFE_SQUARES_FP32
        square = float(operand @ operand)
        if least < square < most:
            return self._number(math.sqrt(square), "norm2", fmt)
        size = float(abs(operand).max())
        if size == 0:
            return 0.0
        if not math.isfinite(size):
            raise ArithmeticFailure(Status.OVERFLOW, "norm2", fmt)
        power = math.frexp(size)[1]  # scaled by a power of two before it is squared
        scaled = self.xp.ldexp(operand, -power)
        return self._number(math.ldexp(math.sqrt(float(scaled @ scaled)), power), "norm2", fmt)

    def orthogonalize(self, V: Vector, w: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        h, left, _ = self.orthogonalize_and_norm(V, w, fmt)
        return h, left

    def orthogonalize_and_norm(
        self, V: Vector, w: Vector, fmt: str | FloatFormat
    ) -> tuple[Vector, Vector, float]:
        """Two passes of classical Gram-Schmidt, and one number read back: all of h and the norm.

        Two passes leave w as orthogonal to V as rounding allows, which modified Gram-Schmidt does
        not quite (Giraud, Langou, Rozloznik & van den Eshof, Numer. Math. 101(1), 2005), and are
        four products with V instead of a chain of as many dot products as V has rows.
        """
        fmt, kernel = self._format(fmt), "orthogonalize"
        V, w = self._read(V, fmt), self._read(w, fmt)
        h = 0.0
        for _ in range(2):
            part = self._rounded(V @ w, fmt)
            w = self._rounded(w - part @ V, fmt)
            h = h + part
        read = on_host(self.xp.concatenate([h, (w @ w)[None]])).astype(np.float64)
        if not np.isfinite(read).all():
            raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
        least = (SAFE_SQUARES_FP64 if fmt == FP64 else SAFE_SQUARES_FP32)[0]
        norm = math.sqrt(read[-1]) if read[-1] > least else self.norm2(w, fmt)
        return read[:-1], self._written(w, fmt), self._number(norm, kernel, fmt)

    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        _small.givens(j, cosines, sines, h, g, self._format(fmt))

    def solve_upper(self, R: Vector, g: Vector, fmt: str | FloatFormat) -> Vector:
        return _small.solve_upper(R, g, self._format(fmt))

    def _read(self, x: Vector, fmt: FloatFormat) -> Any:
        """An operand on the device, rounded to the format, in the type that it is computed with."""
        return rounded(self.xp, self.array(x), fmt)

    def _rounded(self, x: Any, fmt: FloatFormat) -> Any:
        return rounded(self.xp, x, fmt) if is_rounded(fmt) else x

    def _written(self, x: Any, fmt: FloatFormat) -> Any:
        return self._rounded(x, fmt).astype(np.float64, copy=False)

    def _scalar(self, alpha: float, fmt: FloatFormat) -> Any:
        if not is_rounded(fmt):
            return computed_in(fmt)(float(alpha))
        return computed_in(fmt)(rounded(np, np.array([float(alpha)]), fmt)[0])

    def _number(self, value: float, kernel: str, fmt: FloatFormat) -> float:
        """A number that was read back, rounded to the format; a failure if it is not finite."""
        if fmt != FP64:
            value = float(rounded(np, np.array([value]), fmt)[0])
        if not math.isfinite(value):
            raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
        return value
