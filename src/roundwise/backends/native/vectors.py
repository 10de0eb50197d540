"""Vector kernels in native arithmetic: NumPy's, in FP64 or FP32, on one thread.

Operands of 16-bit formats are rounded when they are read and results when they are written; FP32
computes between. A result that is not finite becomes an `ArithmeticFailure`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

import roundwise._kernels as _kernels
from roundwise.backends.checks import (
    Float64Array,
    checked_basis,
    checked_vector,
    require_nonzero_diagonal,
)
from roundwise.backends.contract import Backend, Vector
from roundwise.backends.emulated.operation import OperationBackend
from roundwise.backends.native.storage import COMPUTED_IN, finished, gemv, loaded, nonfinite
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.rounding import round_to

ONE_BLAS_THREAD = 10_000
"""OpenBLAS's dot takes one thread up to this length. Longer products are our own: threads that spin
after a call would slow the next factorization down."""

SMALL_TRIANGLE = 64
"""Larger ones, as least squares has them, are LAPACK's."""

SAFE_SQUARES_FP32, SAFE_SQUARES_FP64 = (1e-20, 1e37), (1e-250, 1e300)
"""Sums of squares for which nothing that matters has underflowed, and nothing overflowed."""

_compiled = OperationBackend()
"""In FP64 and FP32 the kernels of the operation model round nothing: they are the machine's own."""


class NativeVectors(Backend):
    """The vector kernels of the native backend."""

    @abstractmethod
    def _format(self, fmt: str | FloatFormat) -> FloatFormat:
        """The format of that name; refuses those that do not run here."""

    def dot(self, x: Vector, y: Vector, fmt: str | FloatFormat) -> float:
        fmt, x = self._format(fmt), checked_vector(x)
        y = checked_vector(y, len(x))
        with np.errstate(all="ignore"):
            return _finished_number(_dot(_read(x, fmt), _read(y, fmt)), "dot", fmt, x, y)

    def axpy(self, alpha: float, x: Vector, y: Vector, fmt: str | FloatFormat) -> Vector:
        fmt, x = self._format(fmt), checked_vector(x)
        y = checked_vector(y, len(x))
        with np.errstate(all="ignore"):
            result = np.array(_read(y, fmt))
            factor = float(_read_number(alpha, fmt))
            if _kernels.native_axpy(factor, _read(x, fmt), result) and fmt == COMPUTED_IN[fmt]:
                return result.astype(np.float64, copy=False)
            return finished(result, "axpy", fmt, alpha, x, y)

    def scale(self, alpha: float, x: Vector, fmt: str | FloatFormat) -> Vector:
        fmt, x = self._format(fmt), checked_vector(x)
        with np.errstate(all="ignore"):
            result = _read_number(alpha, fmt) * _read(x, fmt)
            return _finished_vector(result, "scale", fmt, alpha, x)

    def norm2(self, x: Vector, fmt: str | FloatFormat) -> float:
        fmt, x = self._format(fmt), checked_vector(x)
        least, most = SAFE_SQUARES_FP64 if fmt is FP64 else SAFE_SQUARES_FP32
        with np.errstate(all="ignore"):
            operand = _read(x, fmt)
            square = _dot(operand, operand)
            if least < square < most:
                return _finished_number(math.sqrt(square), "norm2", fmt)
            if not np.isfinite(operand).all():
                raise nonfinite("norm2", fmt, x)
            # The compiled kernel scales x by a power of two before it squares.
            return _finished_number(_compiled.norm2(operand, COMPUTED_IN[fmt]), "norm2", fmt)

    def orthogonalize(self, V: Vector, w: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        kernel, fmt, w = "orthogonalize", self._format(fmt), checked_vector(w)
        V = checked_basis(V, len(w))
        with np.errstate(all="ignore"):
            left = np.array(_read(w, fmt))
            h = np.empty(len(V), dtype=left.dtype)
            if fmt == COMPUTED_IN[fmt]:
                if not _kernels.native_orthogonalize(_read(V, fmt), left, h):
                    raise nonfinite(kernel, fmt, V, w)
                return h.astype(np.float64), left.astype(np.float64, copy=False)
            for i, v in enumerate(V):
                row = _read(v, fmt)
                h[i] = _finished_number(_dot(row, left), kernel, fmt, v, w)
                left = round_to(left - h[i] * row, fmt)
            return h.astype(np.float64), _finished_vector(left, kernel, fmt, V, w)

    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        fmt = self._format(fmt)
        _compiled.givens(j, cosines, sines, h, g, COMPUTED_IN[fmt])
        if fmt != COMPUTED_IN[fmt]:
            for values in (cosines[j : j + 1], sines[j : j + 1], h[: j + 2], g[: j + 2]):
                values[:] = finished(values, "givens", fmt)

    def solve_upper(self, R: Vector, g: Vector, fmt: str | FloatFormat) -> Vector:
        kernel, fmt = "triangular solve", self._format(fmt)
        if fmt is FP64 and len(g) > SMALL_TRIANGLE:  # as it is: our kernel would copy R first
            require_nonzero_diagonal(np.diagonal(R), fmt)
            return finished(lapack.dtrtrs(R, checked_vector(g, len(R)))[0], kernel, fmt, R, g)
        if fmt != COMPUTED_IN[fmt]:
            R, g = finished(R, kernel, fmt, R), finished(checked_vector(g), kernel, fmt, g)
        return finished(_compiled.solve_upper(R, g, COMPUTED_IN[fmt]), kernel, fmt)


def _dot(x: NDArray[Any], y: NDArray[Any]) -> float:
    if len(x) <= ONE_BLAS_THREAD:
        return float(np.dot(x, y))
    return float(gemv(x[:, None], y, True, FP64 if x.dtype == np.float64 else FP32)[0])


def _read(x: Float64Array, fmt: FloatFormat) -> NDArray[Any]:
    """A vector in the type that it is computed with; the same array in FP64."""
    if fmt is FP64:
        return x
    return x.astype(np.float32) if fmt is FP32 else loaded(x, fmt)


def _read_number(alpha: float, fmt: FloatFormat) -> Any:
    if fmt is FP64:
        return float(alpha)
    return np.float32(float(alpha)) if fmt is FP32 else loaded(np.array([float(alpha)]), fmt)[0]


def _finished_vector(
    result: NDArray[Any], kernel: str, fmt: FloatFormat, *operands: Any
) -> Float64Array:
    """As `finished` in storage.py; a finite sum of squares shows sooner that all is finite."""
    if (fmt is FP64 or fmt is FP32) and math.isfinite(_dot(result, result)):
        return result.astype(np.float64, copy=False)
    return finished(result, kernel, fmt, *operands)


def _finished_number(result: float, kernel: str, fmt: FloatFormat, *operands: Any) -> float:
    if fmt is FP32:
        result = float(np.float32(result))
    if (fmt is FP64 or fmt is FP32) and math.isfinite(result):
        return result
    value = loaded(np.array([result]), fmt)  # rounded from the double of `_dot`
    return float(finished(value, kernel, fmt, *operands)[0])
