"""The ``native`` arithmetic model: the processor's own arithmetic.

In fp64 and fp32, products and (on x86) LU of dense matrices are our own kernels; the rest is NumPy,
and BLAS, LAPACK and SuperLU as SciPy has them. bf16 is stored in 16 bits and computed in FP32, its
LU with the processor's BF16 instructions. fp16 is a storage format: CPUs convert it (F16C), few
compute in it. Every other format is refused: nothing is emulated here.

Complex matrices come in their real form (`roundwise.backends.real_form`), vectors real and of twice
the length, and so are all numbers that a kernel returns.
"""

from __future__ import annotations

import math
from operator import methodcaller
from typing import Any

import numpy as np

import roundwise._kernels as _kernels
from roundwise.backends.arrays import is_real_form, is_sparse
from roundwise.backends.checks import real_matrix
from roundwise.backends.contract import Analysis, Matrix, NoAnalysis, UnsupportedFormat, Vector
from roundwise.backends.native import buffer_pool, exact
from roundwise.backends.native.complex_matrix import ComplexMatrix
from roundwise.backends.native.dense import DenseMatrix
from roundwise.backends.native.exact import ExactMatrix
from roundwise.backends.native.orthogonal import gram, has_products, thin_qr
from roundwise.backends.native.sparse import (
    EngineAnalysis,
    SparseMatrix,
    engine_methods,
    placed_methods,
)
from roundwise.backends.native.storage import (
    COMPUTED_IN,
    SPARSE_FORMATS,
    require_native,
    require_native_sparse,
)
from roundwise.backends.native.structured import STRUCTURED
from roundwise.backends.native.vectors import NativeVectors
from roundwise.backends.real_form import RealForm
from roundwise.formats import BF16, FP16, FP32, FP64, FP64X2, FloatFormat, get_format
from roundwise.machine.identity import Machine
from roundwise.machine.threads import PASS, pass_threads
from roundwise.methods import METHODS

OF_DENSE = {name: methodcaller(name) for name in ("lu", "cholesky", "qr", *STRUCTURED)}
"""The factorizations of `DenseMatrix`."""


def native_formats() -> tuple[FloatFormat, ...]:
    """The formats that this machine runs natively with dense matrices, lowest precision first.

    Examples
    --------
    >>> from roundwise.backends import native_formats
    >>> {"fp32", "fp64"} <= {fmt.name for fmt in native_formats()}
    True
    """
    return NativeBackend().formats()


class NativeBackend(NativeVectors):
    """The hardware's own arithmetic.

    Parameters
    ----------
    bf16_instructions : str, optional
        One of ``roundwise._kernels.native_bf16_levels()``; by default the processor's best, and
        bf16 is refused if it has none. ``"portable"`` runs the same factorization anywhere, far
        more slowly: to study and to test, not to gain time.
    symmetric_mode : bool
        Whether `lu` of a sparse matrix takes the method ``superlu/mmd`` where
        `suits_symmetric_mode` says yes; it takes ``superlu/colamd`` otherwise.
    sparse_on : {"cpu", "cuda", "auto"}
        Which engines factorize sparse matrices: those that run on the processor, those on a GPU
        (with ``superlu/colamd`` as the last resort), or all.

    Examples
    --------
    >>> from roundwise.backends import NativeBackend
    >>> NativeBackend().supports("fp32")
    True
    """

    arithmetic = "native"
    timed = True

    def __init__(
        self,
        bf16_instructions: str | None = None,
        symmetric_mode: bool = True,
        sparse_on: str = "cpu",
    ) -> None:
        levels = _kernels.native_bf16_levels()
        if bf16_instructions is not None and bf16_instructions not in levels:
            raise ValueError(
                f"bf16_instructions = {bf16_instructions!r}; this machine has {', '.join(levels)}"
            )
        best = None if levels[0] == "portable" else levels[0]
        self.bf16_instructions = bf16_instructions or best
        self.symmetric_mode, self.sparse_on = symmetric_mode, sparse_on

    @property
    def description(self) -> str:
        """The arithmetic with its machine, so that results of two machines are stored apart."""
        settings = [f"{self.arithmetic} on {self.machine.key}"]
        if self.bf16_instructions == "portable":
            settings.append("bf16_instructions='portable'")
        if not self.symmetric_mode:
            settings.append("symmetric_mode=False")
        if self.sparse_on != "cpu":
            settings.append(f"sparse_on={self.sparse_on!r}")
        return ", ".join(settings)

    @property
    def machine(self) -> Machine:
        """This machine with its present threads and instructions."""
        return Machine.this()

    def formats(self, sparse: bool = False, is_complex: bool = False) -> tuple[FloatFormat, ...]:
        if sparse or is_complex:
            return SPARSE_FORMATS
        return (*(() if self.bf16_instructions is None else (BF16,)), FP16, FP32, FP64)

    def methods(self, sparse: bool = False, is_complex: bool = False) -> tuple[str, ...]:
        own = placed_methods(is_complex, self.sparse_on) if sparse else ("qr", *STRUCTURED)
        if sparse and self.sparse_on == "cuda":
            return own
        if is_complex:
            return ("cholesky", "lu", *(own if sparse else ("qr",)))
        added = (m.name for m in METHODS.values() if m.prepare is not None and m.sparse == sparse)
        return ("cholesky", "lu", *own, *added)

    def runs(
        self, method: str, fmt: str | FloatFormat, sparse: bool = False, is_complex: bool = False
    ) -> bool:
        if is_complex:
            return super().runs(method, fmt, sparse, is_complex)
        if sparse and method in (engines := engine_methods()):
            is_here = method in placed_methods(False, self.sparse_on)
            return is_here and get_format(fmt) in engines[method][0].formats
        if method in STRUCTURED and get_format(fmt) != FP64:
            return False
        if (known := METHODS.get(method)) and known.prepare is not None:
            return known.sparse == sparse and get_format(fmt) in known.formats
        return super().runs(method, fmt, sparse)

    def analyse(self, A: Any, method: str) -> Analysis:
        if is_sparse(A) and method in engine_methods(is_real_form(A)):
            return EngineAnalysis(self, A, method)
        if (known := METHODS.get(method)) and known.prepare is not None:
            return known.prepare(self, A)  # type: ignore[no-any-return]
        if method in OF_DENSE and isinstance(A, np.ndarray):  # at once: most solves ask for these
            return NoAnalysis(self, OF_DENSE[method])
        return super().analyse(A, method)

    def _format(self, fmt: str | FloatFormat) -> FloatFormat:
        if fmt is FP64 or fmt is FP32:  # at once: a call on short vectors takes microseconds
            return fmt
        fmt = get_format(fmt)
        require_native(fmt)
        if fmt == BF16 and self.bf16_instructions is None:
            raise UnsupportedFormat(
                "this processor has no BF16 instructions (AVX512-BF16 or AMX); use fp32, or study "
                "bf16 with the operation model"
            )
        return fmt

    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        fmt = fmt if isinstance(fmt, FloatFormat) else get_format(fmt)
        is_complex = is_real_form(A)
        if fmt == FP64X2:
            return ExactMatrix(A if is_complex else self._matrix(A, FP64).array)
        if is_complex and fmt not in SPARSE_FORMATS:
            raise UnsupportedFormat(
                f"complex matrices run in fp32 and fp64 alone, not in {fmt}; use one of these"
            )
        if isinstance(A, RealForm):
            return ComplexMatrix(A, fmt)
        return self._matrix(A, self._format(fmt))

    def _matrix(self, A: Any, fmt: FloatFormat) -> DenseMatrix | SparseMatrix:
        A = real_matrix(A)
        if is_sparse(A):
            require_native_sparse(fmt)
            return SparseMatrix(A, fmt, self.symmetric_mode)
        # The kernels take neither 16-bit floats nor the other byte order.
        A = A.astype(np.float64 if A.dtype.itemsize == 8 else np.float32, copy=False)
        return DenseMatrix(A, fmt, self.bf16_instructions or "portable")

    def sizes(self, A: Any) -> tuple[float, float]:
        if isinstance(A, RealForm):
            return A.sizes()
        if is_sparse(A):
            return super().sizes(A)
        threads = pass_threads(A.size)
        if A.flags.c_contiguous:
            return _kernels.native_column_norms(A.T, threads)
        _, norm_inf, largest = _kernels.native_norms(np.asfortranarray(A), threads)
        return norm_inf, largest

    def sizes_and_rounded(self, A: Any) -> tuple[tuple[float, float], Any]:
        suits = isinstance(A, np.ndarray) and A.dtype == np.float64 and A.flags.c_contiguous
        if not suits or A.size < PASS:
            return self.sizes(A), None
        rounded = buffer_pool.empty(A.T.shape, np.float32)
        return _kernels.native_norms_and_rounded(A.T, rounded, pass_threads(A.size)), rounded

    def residual(self, A: Matrix, X: Vector, B: Vector) -> Vector:
        """``B - A X``; inf and NaN are left to the caller.

        In FP64 its error is known, and for dense A larger than in FP64X2: see `exact`.
        """
        if isinstance(A, ExactMatrix):
            return exact.residual(A.array, X, B)
        if isinstance(A, ComplexMatrix) and A.fmt == FP64:
            return exact.residual(A.form, X, B, exact.block_for(A.shape[1], True))
        if A.fmt == FP64:
            return exact.residual(A.array, X, B, exact.block_for(A.shape[1]))  # type: ignore[attr-defined]
        if A.fmt != COMPUTED_IN[A.fmt]:
            return super().residual(A, X, B)
        with np.errstate(all="ignore"):
            product = A.times(X)
            return (B.astype(product.dtype, copy=False) - product).astype(np.float64, copy=False)

    def gram(self, T: Any, fmt: str | FloatFormat) -> Any:
        fmt = self._format(fmt)
        return super().gram(T, fmt) if is_sparse(T) or not has_products(fmt) else gram(T, fmt)

    def orthogonalized(self, T: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        fmt = self._format(fmt)
        return thin_qr(T, fmt) if has_products(fmt) else super().orthogonalized(T, fmt)

    def residual_error(
        self, fmt: FloatFormat, n: int, sparse: bool = False, is_complex: bool = False
    ) -> float:
        if fmt == FP64 and not sparse:
            return exact.error_of(n, exact.block_for(n, is_complex), is_complex)
        return exact.error_of(n) if fmt in (FP64, FP64X2) else math.inf

    def add(self, X: Vector, Z: Vector, fmt: str | FloatFormat) -> Vector:
        """``X + Z``; in FP64 inf and NaN are left to the caller."""
        return X + Z if fmt is FP64 or get_format(fmt) == FP64 else super().add(X, Z, fmt)
