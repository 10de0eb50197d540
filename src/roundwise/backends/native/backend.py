"""The ``native`` arithmetic model: the machine's own arithmetic, as fast as it goes.

In fp64 and fp32, products and (on x86) LU of dense matrices are our own kernels; the rest is BLAS,
LAPACK and SuperLU as SciPy has them. bf16 is stored in 16 bits and computed in FP32, its LU with
the processor's BF16 instructions. fp16 is a storage format: CPUs convert it (F16C), few compute in
it. Every other format is refused: nothing is emulated here.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise.backends.contract import (
    ArithmeticFailure,
    Backend,
    Matrix,
    Status,
    UnsupportedFormat,
    Vector,
    checked_basis,
    checked_matrix,
    checked_vector,
    real_matrix,
)
from roundwise.backends.emulated.operation import OperationBackend
from roundwise.backends.native.dense import (
    COMPUTED_IN,
    ONE_THREAD,
    DenseMatrix,
    nonfinite,
    require_native,
)
from roundwise.backends.native.sparse import SparseMatrix, require_native_sparse
from roundwise.formats import BF16, FP16, FP32, FP64, FloatFormat, get_format
from roundwise.machine.identity import Machine
from roundwise.rounding import round_to


def native_formats() -> tuple[FloatFormat, ...]:
    """The formats that this machine runs natively, lowest precision first."""
    return (*((BF16,) if bf16_level() is not None else ()), FP16, FP32, FP64)


def bf16_level() -> str | None:
    """The processor's best BF16 instructions, or None."""
    best = _kernels.native_bf16_levels()[0]
    return None if best == "portable" else best


class NativeBackend(Backend):
    """The hardware's own arithmetic.

    A vector operation is one call of the operation model's kernels in fp64 or fp32, which round
    nothing: they are the machine's operations, compiled for its vectors.

    Parameters
    ----------
    bf16_instructions : str, optional
        One of ``roundwise._kernels.native_bf16_levels()``; by default the processor's best, and
        bf16 is refused if it has none. ``"portable"`` runs the same factorization anywhere, far
        more slowly: to study and to test, not to gain time.
    symmetric_mode : bool
        Whether a sparse matrix with a (nearly) symmetric pattern is ordered by minimum degree on
        A + A' with diagonal pivots preferred, which often fills in far less than COLAMD.
    """

    arithmetic = "native"
    timed: ClassVar[bool] = True

    def __init__(self, bf16_instructions: str | None = None, symmetric_mode: bool = True) -> None:
        levels = _kernels.native_bf16_levels()
        if bf16_instructions is not None and bf16_instructions not in levels:
            raise ValueError(
                f"bf16_instructions = {bf16_instructions!r}; this machine has {', '.join(levels)}"
            )
        self.bf16_instructions = bf16_instructions or bf16_level()
        self.symmetric_mode = symmetric_mode
        self._vectors = OperationBackend()

    @property
    def description(self) -> str:
        """The arithmetic with its machine: neither results nor times of two machines mix."""
        settings = [f"{self.arithmetic} on {Machine.this().key}"]
        if self.bf16_instructions == "portable":
            settings.append("bf16_instructions='portable'")
        if not self.symmetric_mode:
            settings.append("symmetric_mode=False")
        return ", ".join(settings)

    def _format(self, fmt: str | FloatFormat) -> FloatFormat:
        fmt = get_format(fmt)
        require_native(fmt)
        if fmt == BF16 and self.bf16_instructions is None:
            raise UnsupportedFormat(
                "this processor has no BF16 instructions (AVX512-BF16 or AMX); use fp32, or study "
                "bf16 with the operation model"
            )
        return fmt

    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        fmt = self._format(fmt)
        A = real_matrix(A)
        if sparse.issparse(A):
            require_native_sparse(fmt)
            return SparseMatrix(A, fmt, self.symmetric_mode)
        # As the kernels take them: neither 16 bits nor another machine's byte order.
        A = A.astype(np.float64 if A.dtype.itemsize == 8 else np.float32, copy=False)
        return DenseMatrix(A, fmt, self.bf16_instructions or "portable")

    def sizes(self, A: Any) -> tuple[float, float]:
        if sparse.issparse(A):
            return super().sizes(A)
        rows_first = A.flags.c_contiguous
        norm_one, norm_inf, largest = _kernels.native_norms(
            A.T if rows_first else np.asfortranarray(A), ONE_THREAD
        )
        return norm_one if rows_first else norm_inf, largest

    def dot(self, x: NDArray[Any], y: NDArray[Any], fmt: str | FloatFormat) -> float:
        fmt = self._format(fmt)
        x, y = self._load(x, "dot", fmt), self._load(y, "dot", fmt)
        return self._store_number(self._vectors.dot(x, y, COMPUTED_IN[fmt]), "dot", fmt)

    def axpy(
        self, alpha: float, x: NDArray[Any], y: NDArray[Any], fmt: str | FloatFormat
    ) -> Vector:
        fmt = self._format(fmt)
        alpha = self._load_number(alpha, "axpy", fmt)
        x, y = self._load(x, "axpy", fmt), self._load(y, "axpy", fmt)
        return self._store(self._vectors.axpy(alpha, x, y, COMPUTED_IN[fmt]), "axpy", fmt)

    def scale(self, alpha: float, x: NDArray[Any], fmt: str | FloatFormat) -> Vector:
        fmt = self._format(fmt)
        alpha, x = self._load_number(alpha, "scale", fmt), self._load(x, "scale", fmt)
        return self._store(self._vectors.scale(alpha, x, COMPUTED_IN[fmt]), "scale", fmt)

    def norm2(self, x: NDArray[Any], fmt: str | FloatFormat) -> float:
        fmt = self._format(fmt)
        norm = self._vectors.norm2(self._load(x, "norm2", fmt), COMPUTED_IN[fmt])
        return self._store_number(norm, "norm2", fmt)

    def orthogonalize(
        self, V: NDArray[Any], w: NDArray[Any], fmt: str | FloatFormat
    ) -> tuple[Vector, Vector]:
        fmt = self._format(fmt)
        if fmt == COMPUTED_IN[fmt]:
            return self._vectors.orthogonalize(V, w, fmt)
        w = self._load(w, "orthogonalize", fmt)
        h = np.empty(len(V))
        for i, v in enumerate(checked_basis(V, len(w))):
            h[i] = self.dot(v, w, fmt)
            w = self.axpy(-h[i], v, w, fmt)
        return h, w

    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        fmt = self._format(fmt)
        self._vectors.givens(j, cosines, sines, h, g, COMPUTED_IN[fmt])
        for values in (cosines[j : j + 1], sines[j : j + 1], h[: j + 2], g[: j + 2]):
            values[:] = self._store(values, "givens", fmt)

    def solve_upper(self, R: NDArray[Any], g: NDArray[Any], fmt: str | FloatFormat) -> Vector:
        fmt = self._format(fmt)
        kernel = "triangular solve"
        R, g = self._load(R, kernel, fmt), self._load(g, kernel, fmt)
        return self._store(self._vectors.solve_upper(R, g, COMPUTED_IN[fmt]), kernel, fmt)

    def _load(self, x: NDArray[Any], kernel: str, fmt: FloatFormat) -> Any:
        """An operand as it is read from memory: rounded if it is stored in fewer bits."""
        if fmt == COMPUTED_IN[fmt]:
            return x  # the kernels of the operation model check it
        x = checked_matrix(x, fmt) if np.ndim(x) == 2 else checked_vector(x)
        rounded = round_to(x, fmt)
        if not np.isfinite(rounded).all():
            raise nonfinite(kernel, fmt, x)
        return rounded

    def _load_number(self, alpha: float, kernel: str, fmt: FloatFormat) -> float:
        return float(self._load(np.array([float(alpha)]), kernel, fmt)[0])

    def _store(self, x: Vector, kernel: str, fmt: FloatFormat) -> Vector:
        """A result as it is stored."""
        if fmt == COMPUTED_IN[fmt]:
            return x
        rounded = round_to(x, fmt)
        if not np.isfinite(rounded).all():
            raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
        return rounded

    def _store_number(self, x: float, kernel: str, fmt: FloatFormat) -> float:
        return float(self._store(np.array([x]), kernel, fmt)[0])
