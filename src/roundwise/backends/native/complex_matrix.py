"""Dense complex matrices and their factors, complex64 for fp32 and complex128 for fp64.

They come as `RealForm`, and vectors are real, of twice the length. LU is our own where that of real
matrices is: three real products for a complex one (cpp/native/complex_lu.hpp), half of LAPACK's
time or less (``python benchmarks/bench_native_lu.py --complex``). Other factorizations are
LAPACK's, as SciPy has them. Columns must be contiguous for both, as those of the transpose of a
C-ordered matrix are: LU and Cholesky factorize A' (not conjugated), of which ``A x = b`` is the
transposed system.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.backends.checks import Float64Array, checked_vector
from roundwise.backends.contract import (
    ArithmeticFailure,
    AtOnce,
    Factors,
    Matrix,
    Status,
    ToRefine,
    Vector,
)
from roundwise.backends.engines.opaque import HiddenFactors, OpaqueFactors
from roundwise.backends.native.dense import (
    GETRF,
    GETRS,
    LEAST_STRIP,
    POTRF,
    POTRS,
    has_own_lu,
    interchanged,
    refined_at_once,
    solve_threads,
)
from roundwise.backends.native.exact import EXACT, Sums, block_for
from roundwise.backends.native.indefinite import proved_indefinite, proves_form_indefinite
from roundwise.backends.native.storage import (
    COMPLEX_DTYPES,
    DTYPES,
    finished,
    gemv,
    is_finite,
    loaded,
    nonfinite,
    routines,
)
from roundwise.backends.real_form import RealForm, complex_columns, real_columns
from roundwise.formats import FP64, FloatFormat
from roundwise.machine.lu_threads import lu_threads
from roundwise.machine.threads import factorization_threads

_TRSV, _TRTRS = routines(blas, "trsv"), routines(lapack, "trtrs")
_GEQRF, _UNMQR = routines(lapack, "geqrf"), routines(lapack, "unmqr", "zc")


class ComplexMatrix(Matrix):
    """A complex matrix in a format, acting on real vectors of twice the length."""

    is_sparse = False

    def __init__(self, form: RealForm, fmt: FloatFormat) -> None:
        self.form, self.fmt = form, fmt
        self.shape, self.entries = form.shape, form.size
        self._rows: NDArray[Any] | None = None

    def prepared(self) -> ComplexMatrix:
        if self._rows is None:  # real and imaginary parts in the format
            self._rows = self._converted(self.form.values).view(DTYPES[self.fmt])
        return self

    def _converted(self, values: NDArray[Any], copy: bool = False) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return values.astype(COMPLEX_DTYPES[self.fmt], order="K", copy=copy)

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        x = checked_vector(x, self.shape[1])
        rows = self.prepared()._rows
        assert rows is not None
        operand, y = loaded(x, self.fmt), np.empty(len(x))
        re, im = (np.ascontiguousarray(operand[i::2]) for i in (0, 1))
        if transpose:  # (P - iQ)'(x + iy), where the products with P and Q alternate
            ours, theirs = (gemv(rows.T, part, False, self.fmt) for part in (re, im))
            y[0::2], y[1::2] = ours[0::2] + theirs[1::2], theirs[0::2] - ours[1::2]
        else:
            pair = operand.copy()
            pair[1::2] = -im
            y[0::2] = gemv(rows.T, pair, True, self.fmt)
            pair[0::2], pair[1::2] = im, re
            y[1::2] = gemv(rows.T, pair, True, self.fmt)
        return finished(y, "matvec", self.fmt, x, self.form.rows)

    def lu(self) -> Factors:
        if has_own_lu():
            return self._own_lu()
        work = self._work()
        packed, swaps, info = GETRF[work.dtype](work, overwrite_a=True)
        # What overflows spreads to later pivots; a factor that it did not reach solves, or not.
        if info != 0 or not np.isfinite(np.diagonal(packed)).all():
            raise self._failure(info, packed, "LU factorization", Status.ZERO_PIVOT)
        return ComplexLU(self.fmt, packed, swaps)

    def _own_lu(self) -> Factors:
        columns = self.form.values.T.astype(np.complex128, copy=False)
        n = len(columns)
        packed, swaps = np.empty((2 * n, n), DTYPES[self.fmt], order="F"), np.empty(n, np.int32)
        threads = lu_threads(n, packed.itemsize, factorization_threads())
        info = _kernels.native_complex_lu(columns, packed, swaps, threads)
        if info != 0:
            raise self._failure(info, packed, "LU factorization", Status.ZERO_PIVOT)
        return PlanarLU(self.fmt, packed, interchanged(swaps))

    def cholesky(self) -> Factors:
        """Of a Hermitian positive definite matrix; only its lower triangle is read."""
        work, kernel = self._work(), "Cholesky factorization"
        packed, info = POTRF[work.dtype](work, lower=False, overwrite_a=True)
        if info != 0 or not is_finite(packed):
            failure = self._failure(info, packed, kernel, Status.NOT_POSITIVE_DEFINITE)
            raise proved_indefinite(
                failure, lambda column: proves_form_indefinite(self.form, packed, column)
            )
        return ComplexCholesky(self.fmt, packed)

    def qr(self) -> Factors:
        work = np.asfortranarray(self._converted(self.form.values))
        packed, tau, _, _ = _GEQRF[work.dtype](work)
        if not is_finite(packed):
            raise nonfinite("QR factorization", self.fmt, self.form.rows)
        if not np.diagonal(packed).all():
            raise ArithmeticFailure(Status.ZERO_PIVOT, "QR factorization", self.fmt)
        return ComplexQR(self.fmt, packed, tau)

    def _work(self) -> NDArray[Any]:
        """A', to factorize in place."""
        return self._converted(self.form.values.T, copy=True)

    def _failure(
        self, info: int, work: NDArray[Any], kernel: str, breakdown: Status
    ) -> ArithmeticFailure:
        if info <= 0 or not is_finite(work):
            return nonfinite(kernel, self.fmt, self.form.rows)
        return ArithmeticFailure(breakdown, kernel, self.fmt, info - 1)


class ComplexFactors(OpaqueFactors):
    """Factors of a complex n x n matrix, standing for those of its real form."""

    is_sparse = False

    def __init__(self, fmt: FloatFormat, n: int, method: str) -> None:
        super().__init__(fmt, 2 * n, method)

    @abstractmethod
    def _solve_complex(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        """``A X = Z``, or ``A* X = Z``, for complex columns in the format.

        Z is Fortran-ordered and may be overwritten. It has at least one column.
        """

    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        with np.errstate(all="ignore"):  # `solve` finds what is not finite
            X: NDArray[Any] = real_columns(self._solve_complex(complex_columns(b), transpose))
            return X


class _DenseFactors(ComplexFactors):
    """Those that LAPACK packs into one array."""

    def __init__(self, fmt: FloatFormat, packed: NDArray[Any], method: str) -> None:
        n = len(packed)
        super().__init__(fmt, n, method)
        self._packed, self.entries = packed, 2 * n * n
        self.flops = 8 / 3 * n**3

    def _as(self, fmt: FloatFormat) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return self._packed.astype(COMPLEX_DTYPES[fmt], order="F", copy=False)


class ComplexLU(_DenseFactors):
    """LU factors of A', with the row exchanges of LAPACK."""

    def __init__(self, fmt: FloatFormat, packed: NDArray[Any], swaps: NDArray[np.int32]) -> None:
        super().__init__(fmt, packed, "lu")
        self._swaps = swaps

    @property
    def pivots(self) -> Vector:
        """Each twice: a lost one makes two directions of the real form vanish."""
        return np.repeat(np.abs(np.diagonal(self._packed).astype(np.complex128)), 2)

    def to(self, fmt: FloatFormat) -> ComplexLU:
        return self if fmt == self.fmt else ComplexLU(fmt, self._as(fmt), self._swaps)

    @cached_property
    def _rows(self) -> NDArray[np.int32]:
        """The order that the exchanges bring rows into."""
        return interchanged(self._swaps)

    def _solve_vector(self, z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        solve, LU = _TRSV[z.dtype], self._packed
        if adjoint:
            y = solve(LU, np.conj(z)[self._rows], lower=1, diag=1)
            return np.asarray(np.conj(solve(LU, y)))
        x = np.empty_like(z)
        x[self._rows] = solve(LU, solve(LU, z, trans=1), trans=1, lower=1, diag=1)
        return x

    def _solve_complex(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        if Z.shape[1] == 1:  # LAPACK takes twice to four times as long for one column
            return self._solve_vector(Z[:, 0], adjoint)[:, None]
        solve, swaps = GETRS[Z.dtype], self._swaps.copy()  # SciPy changes them meanwhile
        if adjoint:  # A* is the conjugate of A'
            X, _ = solve(self._packed, swaps, np.conj(Z), overwrite_b=True)
            return np.asarray(np.conj(X))
        return np.asarray(solve(self._packed, swaps, Z, trans=1, overwrite_b=True)[0])


class PlanarLU(HiddenFactors):
    """LU factors of A' (not conjugated), with rows interchanged: ``A'[rows] = L U``.

    Each column has its n real parts first, then its n imaginary ones. So the products of
    substitution are real ones, and factors in float32 can be applied in float64 without a copy.
    """

    is_sparse = False

    def __init__(self, fmt: FloatFormat, packed: NDArray[Any], rows: NDArray[np.int32]) -> None:
        n = len(rows)
        super().__init__(fmt, 2 * n, "lu")
        self._packed, self._rows = packed, rows
        self.entries, self.flops = 2 * n * n, 8 / 3 * n**3

    @property
    def pivots(self) -> Vector:
        """Each twice, as those of `ComplexLU`."""
        n = len(self._rows)
        parts = self._packed[:n].diagonal(), self._packed[n:].diagonal()
        return np.repeat(np.hypot(*parts, dtype=np.float64), 2)

    def to(self, fmt: FloatFormat) -> PlanarLU:
        return self if fmt == self.fmt else PlanarLU(fmt, self._packed, self._rows)

    def refined(self, given: ToRefine, transpose: bool = False) -> AtOnce | None:
        A, norm, B, target, most_steps, sums = given
        if not isinstance(A, ComplexMatrix) or A.fmt != FP64:
            return None
        sums = Sums(block_for(len(B), True)) if sums is None else sums
        if self._packed.dtype != DTYPES[self.fmt] or sums.block == EXACT:
            return None
        orders = (self._rows, None) if transpose else (None, self._rows)
        factors = self._packed, False, not transpose, *orders
        return refined_at_once(factors, (A.form.rows.T, True, norm), B, target, sums, most_steps)

    def _solve_columns(self, b: Float64Array, transpose: bool) -> Float64Array:
        # A* x = b says that A' conj(x) = conj(b).
        rows, places = (self._rows, None) if transpose else (None, self._rows)
        parts, x = (len(self._rows), 2 * b.shape[1]), np.empty(b.shape, order="F")
        B = np.empty(parts, DTYPES[self.fmt], order="F")
        _kernels.native_gather_pairs(rows, transpose, np.asfortranarray(b), B)
        granted = factorization_threads()
        threads = granted if b.shape[1] >= LEAST_STRIP else solve_threads(self._packed, granted)
        _kernels.native_complex_getrs(self._packed, B, not transpose, threads)
        if not _kernels.native_scatter_pairs(places, transpose, B, x):
            raise nonfinite(f"{self.method} solve", self.fmt, b)
        return x


class ComplexCholesky(_DenseFactors):
    """The upper triangle U of ``A' = U* U``; A' is the conjugate of A."""

    def __init__(self, fmt: FloatFormat, packed: NDArray[Any]) -> None:
        super().__init__(fmt, packed, "cholesky")
        n = len(packed)
        self.entries, self.flops = n * (n + 1), self.flops / 2

    def to(self, fmt: FloatFormat) -> ComplexCholesky:
        return self if fmt == self.fmt else ComplexCholesky(fmt, self._as(fmt))

    def _solve_complex(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        if Z.shape[1] == 1:
            solve, U = _TRSV[Z.dtype], self._packed
            x = solve(U, solve(U, np.conj(Z[:, 0]), trans=2))
            return np.asarray(np.conj(x))[:, None]
        X, _ = POTRS[Z.dtype](self._packed, np.conj(Z), lower=False, overwrite_b=True)
        return np.asarray(np.conj(X))


class ComplexQR(_DenseFactors):
    """``A = Q R``, as LAPACK packs them: the last resort, where LU's entries grow."""

    def __init__(self, fmt: FloatFormat, packed: NDArray[Any], tau: NDArray[Any]) -> None:
        super().__init__(fmt, packed, "qr")
        self._tau, self.flops = tau, 2 * self.flops

    def to(self, fmt: FloatFormat) -> ComplexQR:
        if fmt == self.fmt:
            return self
        return ComplexQR(fmt, self._as(fmt), self._tau.astype(COMPLEX_DTYPES[fmt]))

    def _solve_complex(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        solve = _TRTRS[Z.dtype]
        if adjoint:  # A* = R* Q*
            return self._reflected("N", solve(self._packed, Z, trans=2)[0])
        return np.asarray(solve(self._packed, self._reflected("C", Z))[0])

    def _reflected(self, trans: str, Z: NDArray[Any]) -> NDArray[Any]:
        """``Q Z`` or ``Q* Z``."""
        operands = "L", trans, self._packed, self._tau, Z
        multiply = _UNMQR[Z.dtype]
        _, work, _ = multiply(*operands, -1)
        return np.asarray(multiply(*operands, int(work[0].real))[0])
