"""The ``cuda`` arithmetic model: a GPU's own arithmetic, for dense matrices.

Matrices and vectors are CuPy's arrays, and stay on the device; what a kernel returns as a number is
read back. Residuals are double-double, in one pass over A; those of several columns in fp64 sum
blocks of products first, as the processor's do (docs/accuracy.md). Factors in
fp16, bf16 and the split formats fp16x2 and bf16x3 are computed on 16-bit units, those in tf32 on
TF32's. Every other kernel runs in FP64 or FP32, and rounds operands and results of lower formats.

Reading a number back takes as long as a product with a large vector, so that nobody looks whether a
vector that stays on the device is finite: `dot`, `norm2` and `orthogonalize`, whose numbers are
read back, raise the failure of the kernels before them, too.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from scipy.sparse import issparse

from roundwise._forking import cached_property
from roundwise.backends.arrays import GPUS, on_host
from roundwise.backends.contract import (
    Analysis,
    ArithmeticFailure,
    Backend,
    Matrix,
    Status,
    UnsupportedFormat,
    Vector,
)
from roundwise.backends.cuda import residual, tall
from roundwise.backends.cuda.device import Device, DeviceUnavailable, get_device
from roundwise.backends.cuda.matrix import PIVOTING, CudaAnalysis, CudaMatrix
from roundwise.backends.cuda.products import computed_in, is_rounded, rounded
from roundwise.backends.emulated.operation import OperationBackend
from roundwise.backends.native import exact
from roundwise.backends.native.vectors import SAFE_SQUARES_FP32, SAFE_SQUARES_FP64
from roundwise.formats import (
    BF16,
    BF16X3,
    FP16,
    FP16X2,
    FP32,
    FP64,
    FP64X2,
    TF32,
    FloatFormat,
    get_format,
)
from roundwise.machine.identity import GpuMachine

FORMATS = (BF16, FP16, TF32, FP16X2, BF16X3, FP32, FP64)

_small = OperationBackend()
"""The small triangle of GMRES stays on the host: a few numbers a step."""


class CudaBackend(Backend):
    """A GPU's own arithmetic; the device is that which is current when it is made."""

    arithmetic = "cuda"
    timed = True
    on_host = False

    def __init__(self, device: Device | None = None) -> None:
        self.device = get_device() if device is None else device
        self._process = os.getpid()
        if isinstance(self.device, Device):
            GPUS[self.device.number] = self.device

    @property
    def xp(self) -> Any:
        return self.device.xp

    def check_process(self) -> None:
        """`DeviceUnavailable` in a child that was forked from the process that uses the GPU."""
        if os.getpid() != self._process:
            raise DeviceUnavailable(
                "this process was forked from one that uses the GPU, which CUDA does not support; "
                "start processes by multiprocessing's 'spawn' or 'forkserver'"
            )

    @property
    def description(self) -> str:
        """The arithmetic with its machine, so that results of two devices are stored apart."""
        return f"{self.arithmetic} on {self.machine.key}"

    @cached_property
    def machine(self) -> GpuMachine:
        return GpuMachine.of(self.device.name, self.device.key)

    def array(self, values: Any) -> Any:
        """Values on the device, copied there if they are the host's."""
        if issparse(values):
            raise TypeError(
                "A is sparse, the cuda backend is for dense matrices; pass A.toarray(), or leave "
                "out device= to solve on the CPU"
            )
        return self.xp.asarray(values)

    def formats(self, sparse: bool = False, is_complex: bool = False) -> tuple[FloatFormat, ...]:
        return () if sparse or is_complex else FORMATS

    def methods(self, sparse: bool = False, is_complex: bool = False) -> tuple[str, ...]:
        return () if sparse or is_complex else ("cholesky", *PIVOTING, "qr")

    def runs(
        self, method: str, fmt: str | FloatFormat, sparse: bool = False, is_complex: bool = False
    ) -> bool:
        """cuSOLVER's factorizations, with partial pivoting or by QR, are FP64's and FP32's."""
        known = super().runs(method, fmt, sparse, is_complex)
        if method == "qr":
            return known and get_format(fmt) == FP64
        return known and (method != "lu" or get_format(fmt) in (FP32, FP64))

    def analyse(self, A: Any, method: str) -> Analysis:
        super().analyse(A, method)  # refuses what it does not know
        return CudaAnalysis(self._matrix, method)

    def _format(self, fmt: str | FloatFormat) -> FloatFormat:
        fmt = get_format(fmt)
        if fmt not in FORMATS:
            raise UnsupportedFormat(
                f"a GPU runs {', '.join(known.name for known in FORMATS)}, not {fmt}; use the "
                "operation or storage model"
            )
        return fmt

    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        fmt = get_format(fmt)
        return self._matrix(A, fmt if fmt == FP64X2 else self._format(fmt))

    def _matrix(self, A: Any, fmt: FloatFormat) -> CudaMatrix:
        A = self.array(A)
        if A.dtype not in (np.float64, np.float32):
            raise TypeError(f"A is float64 or float32, got {A.dtype}; convert with astype")
        if A.ndim != 2 or 0 in A.shape:
            raise ValueError(
                f"A has shape {A.shape}; pass a matrix with at least one row and column"
            )
        if not (A.flags.c_contiguous or A.flags.f_contiguous):
            A = self.xp.ascontiguousarray(A)
        return CudaMatrix(self.device, A, fmt)

    def sizes(self, A: Any) -> tuple[float, float]:
        return residual.row_sums(self.device, A)

    def residual(self, A: Matrix, X: Vector, B: Vector) -> Vector:
        """``B - A X``; inf and NaN are left to the caller. In FP64 its error is known."""
        assert isinstance(A, CudaMatrix)
        if A.fmt in (FP64, FP64X2) and A.shape[0] != A.shape[1]:
            return tall.residual(self.device, A.array, self.array(X), self.array(B))
        if A.fmt in (FP64, FP64X2):
            block = residual.block_for(len(X)) if A.fmt == FP64 else exact.EXACT
            return residual.residual(self.device, A.array, self.array(X), self.array(B), block)
        return self._written(self._read(B, A.fmt) - self._read(A.times(X), A.fmt), A.fmt)

    def residual_error(
        self, fmt: FloatFormat, n: int, sparse: bool = False, is_complex: bool = False
    ) -> float:
        if fmt == FP64:
            return exact.error_of(n, residual.block_for(n))
        return exact.error_of(n) if fmt == FP64X2 else math.inf

    def add(self, X: Vector, Z: Vector, fmt: str | FloatFormat) -> Vector:
        """``X + Z``; inf and NaN are left to the caller."""
        fmt = self._format(fmt)
        return X + Z if fmt == FP64 else self._written(self._read(X, fmt) + self._read(Z, fmt), fmt)

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

    def gram(self, T: Any, fmt: str | FloatFormat) -> Any:
        """``T' T``, in FP64 or FP32."""
        given = self._read(T, self._format(fmt))
        return given.T @ given

    def orthogonalized(self, T: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        """By cuSOLVER, in FP64 whatever the format."""
        return tall.orthogonalized(self.device, self.array(T).astype(np.float64, copy=False))

    def solve_triangle(self, R: Any, B: Any, transposed: bool = False) -> Any:
        """``R X = B``, or ``R' X = B``, for an upper triangle."""
        return self.device.solve_triangular(R, B, lower=False, transposed=transposed)

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
