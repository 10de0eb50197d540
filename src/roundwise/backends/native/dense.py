"""Dense matrices and factors in native arithmetic.

LU and Cholesky are our own on x86, where they take less time than OpenBLAS's (``make bench``), and
LAPACK's elsewhere. So are solves, unless LAPACK takes less time for one column on one thread, and
solves with factors that are stored in another format than they are used in.

Both want columns to be contiguous. The transpose of a C-ordered matrix has that for free, so
it is factorized in place of a copy: ``A'[p] = L U`` says ``A[:, p] = U' L'``.

Numbers are stored in the format (bf16 and fp16 as 16-bit words) and computed with in FP32 or
FP64. Factors that are applied in a higher format than their own stay as they are stored; the
kernel widens each number when it reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas, lapack

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.backends.checks import checked_vector, require_square
from roundwise.backends.contract import (
    ArithmeticFailure,
    AtOnce,
    Corrected,
    Matrix,
    Status,
    ToRefine,
    Vector,
)
from roundwise.backends.native import buffer_pool
from roundwise.backends.native.exact import EXACT, Sums, block_for
from roundwise.backends.native.indefinite import proved_indefinite, proves_indefinite
from roundwise.backends.native.orthogonal import QRFactors, require_qr
from roundwise.backends.native.storage import (
    COMPUTED_IN,
    DTYPES,
    ONE_THREAD,
    converted,
    finished,
    gathered,
    gemv,
    is_finite,
    loaded,
    narrowed,
    nonfinite,
    require_native,
    routines,
    scattered,
    stored,
    work_array,
)
from roundwise.backends.native.structured import BandedFactors, TriangularFactors
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import BF16, FP16, FP32, FP64, FloatFormat
from roundwise.machine.lu_threads import lu_threads
from roundwise.machine.threads import PASS, factorization_threads, pass_threads

GETRF, GETRS = routines(lapack, "getrf"), routines(lapack, "getrs")
POTRF, POTRS = routines(lapack, "potrf"), routines(lapack, "potrs")
_GEMM = routines(blas, "gemm")
LEAST_STRIP = 8
"""Columns from which our kernel cuts them into strips (cpp/native/strip_solve.hpp), and takes as
many threads as the work pays for."""
_SHARED = 12 << 20
"""Bytes of factors times threads from which our threads take less time than LAPACK's one."""
_LEAST_SHARED = 3 << 19
"""Bytes of factors below which they do not, however many there are."""
_BYTES_PER_THREAD = 1 << 20
_LEAST_CORRECTED = 800
"""The order from which two threads take less time for a whole correction than LAPACK for its
substitution and Python for the rest."""


def getrf(work: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int32], int]:
    """LU of a Fortran-ordered float64 or float32 array, which is overwritten.

    As LAPACK's getrf returns it, but `info` is negative if the factors are not finite.
    """
    if not has_own_lu():
        lu, swaps, info = GETRF[work.dtype](work, overwrite_a=True)
        return lu, swaps, info if is_finite(lu) else -1
    swaps = np.empty(len(work), dtype=np.int32)
    return work, swaps, _kernels.native_lu(work, swaps, threads_for(work))


def threads_for(work: NDArray[Any]) -> int:
    """Threads of our LU or Cholesky of an array: of those that are granted, as many as pay."""
    return lu_threads(len(work), work.dtype.itemsize, factorization_threads())


def interchanged(swaps: NDArray[np.int32]) -> NDArray[np.int32]:
    """The order that LAPACK's interchanges, row i with row swaps[i], bring rows into."""
    order = np.empty_like(swaps)
    _kernels.native_order(swaps, order)
    return order


def potrf(work: NDArray[Any], upper: bool) -> tuple[NDArray[Any], int]:
    """Cholesky of a Fortran-ordered float64 or float32 array, which is overwritten.

    Reads one triangle and returns L in the lower one, or what LAPACK's potrf returns where there
    is no Cholesky of our own. `info` is negative if the factor is not finite.
    """
    if not has_own_lu():
        packed, info = POTRF[work.dtype](work, lower=not upper, overwrite_a=True)
        return packed, info if info != 0 or is_finite(packed) else -1
    return work, _kernels.native_cholesky(work, upper, threads_for(work))


def solve_threads(packed: NDArray[Any], granted: int | None = None) -> int:
    """Threads for one solve: one more for every mebibyte that it reads.

    `granted` are those that it may take, if the caller has asked.
    """
    granted = factorization_threads() if granted is None else granted
    return max(1, min(granted, packed.nbytes // _BYTES_PER_THREAD))


def own_solve_threads(packed: NDArray[Any], columns: int) -> int:
    """Threads of our kernel for a solve that LAPACK could do, too; 0 if LAPACK is to do it.

    For one column LAPACK's takes one thread. For more it wakes those of BLAS, which go on spinning
    beside the threads of the next LU.
    """
    if not has_own_lu():
        return 0
    granted = factorization_threads()
    if columns >= LEAST_STRIP:
        return granted
    threads = solve_threads(packed, granted)
    if granted > 1 and packed.nbytes >= max(_LEAST_SHARED, _SHARED // granted):
        return max(2, threads)
    return threads if columns > 1 else 0


def getrs(lu: NDArray[Any], swaps: NDArray[np.int32], b: NDArray[Any], flip: bool) -> NDArray[Any]:
    """x for float64 b, a vector or columns, by the factors of `getrf` or by their transpose."""
    threads = own_solve_threads(lu, 1 if b.ndim == 1 else b.shape[1])
    if threads == 0:
        return np.asarray(lapack.dgetrs(lu, swaps, b, trans=int(flip))[0])
    order, columns = interchanged(swaps), np.asfortranarray(b.reshape(len(b), -1))
    y, x = np.empty_like(columns), np.empty_like(columns)
    _kernels.native_gather(None if flip else order, columns, y)
    _kernels.native_getrs(lu, FP64.name, y, flip, threads)
    _kernels.native_scatter(order if flip else None, y, x)
    return x.reshape(b.shape)


def has_own_lu() -> bool:
    """Whether LU and Cholesky in fp32 and fp64 are our own here: on x86 with AVX2 or AVX-512."""
    return _kernels.native_level() != "baseline"


DEVICE_BLOCK = 2048
"""Rows that are compared with columns at a time, to keep a GPU busy."""


def is_symmetric(A: Any) -> bool:
    """Whether A equals its transpose, wherever it is; most that do not show it in a few rows."""
    if sparse.issparse(A):
        return bool((A != A.T).nnz == 0)
    if not isinstance(A, np.ndarray):
        if not all(np.array_equal(A[i], A[:, i]) for i in {0, len(A) // 2, len(A) - 1}):
            return False
        blocks, step = range(0, len(A), DEVICE_BLOCK), DEVICE_BLOCK
        return all(np.array_equal(A[i : i + step, i:], A[i:, i : i + step].T) for i in blocks)
    middle = len(A) // 2
    if not np.array_equal(A[middle], A[:, middle]):
        return False
    A = A if A.flags.f_contiguous or A.flags.c_contiguous else A.copy()
    if A.dtype not in (np.float64, np.float32):
        A = A.astype(np.float64)
    columns = A if A.flags.f_contiguous else A.T
    return bool(_kernels.native_symmetric(columns, pass_threads(A.size)))


class DenseMatrix(Matrix):
    """A matrix that is converted to its format when it is first multiplied with.

    Until then it keeps the array that it was given, which must not change.
    """

    is_sparse = False

    def __init__(self, A: NDArray[Any], fmt: FloatFormat, bf16_instructions: str) -> None:
        self.fmt, self.shape, self.entries = fmt, A.shape, A.size
        self._bf16_instructions = bf16_instructions
        self._rounded: NDArray[Any] | None = None  # see `offer`
        self._transposed = A.flags.c_contiguous
        self._columns = A.T if self._transposed else np.asfortranarray(A)

    @cached_property
    def _stored(self) -> NDArray[Any]:
        return stored(self._columns, self.fmt)

    @property
    def array(self) -> NDArray[Any]:
        """The matrix as it is stored in its format, in either memory order."""
        return self._stored.T if self._transposed else self._stored

    def prepared(self) -> DenseMatrix:
        _ = self._stored
        return self

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        x = checked_vector(x, self.shape[0 if transpose else 1])
        operand, flip = loaded(x, self.fmt), transpose != self._transposed
        y = gemv(self._stored, operand, flip, self.fmt)
        return finished(y, "matvec", self.fmt, x, self._columns)

    def times(self, X: Vector) -> Vector:
        A, flip = self._stored, self._transposed
        if A.dtype == np.uint16:
            return super().times(X)
        X = np.asarray(X, dtype=A.dtype)
        if X.shape[1] == 1:  # our own kernel: BLAS's threads would spin beside the next LU
            return gemv(A, np.ascontiguousarray(X[:, 0]), flip, self.fmt)[:, None]
        return _GEMM[A.dtype](1.0, A, X, trans_a=int(flip))

    def qr(self) -> QRFactors:
        require_square(self.shape)
        require_qr(self.fmt)
        return QRFactors.of(self.array, self.fmt, self._columns)

    def banded(self) -> BandedFactors:
        """LU of a narrow band."""
        require_square(self.shape)
        return BandedFactors(self.array, self.fmt)

    def triangular(self) -> TriangularFactors:
        """Substitution with a triangle, whose rows and columns may be in disorder."""
        require_square(self.shape)
        return TriangularFactors(self.array, self.fmt)

    def lu(self) -> DenseFactors:
        require_square(self.shape)
        kernel, work = "LU factorization", self._work()
        if self.fmt == BF16:
            swaps = np.empty(len(work), dtype=np.int32)
            level, threads = self._bf16_instructions, threads_for(work)
            info = _kernels.native_bf16_lu(work, swaps, level, threads)
        else:
            work, swaps, info = getrf(work)
        if info != 0:
            raise self._failure(info, work, kernel, Status.ZERO_PIVOT, np.asarray)
        packed = self._narrowed(work, kernel)
        return DenseFactors(self.fmt, packed, self.fmt, interchanged(swaps), self._transposed)

    def cholesky(self) -> DenseFactors:
        require_square(self.shape)
        kernel = "Cholesky factorization"
        upper, work = self._transposed, self._work()  # A's lower triangle is the upper one of A'
        own = self.fmt == BF16 or has_own_lu()
        if self.fmt == BF16:
            level, threads = self._bf16_instructions, threads_for(work)
            info = _kernels.native_bf16_cholesky(work, upper, level, threads)
        else:
            work, info = potrf(work, upper)
        lower = own or not upper  # where the factor is
        if info != 0:
            triangle, status = np.triu if upper else np.tril, Status.NOT_POSITIVE_DEFINITE
            failure = self._failure(info, work, kernel, status, triangle)
            raise proved_indefinite(
                failure, lambda column: proves_indefinite(self._columns, work, lower, column)
            )
        packed = self._narrowed(work, kernel)
        return DenseFactors(self.fmt, packed, self.fmt, None, not lower)

    def _narrowed(self, work: NDArray[Any], kernel: str) -> NDArray[Any]:
        packed = narrowed(work, self.fmt, kernel)
        if packed is not work:
            buffer_pool.keep(work)
        return packed

    def offer(self, rounded: NDArray[Any]) -> None:
        self._rounded = rounded

    def _work(self) -> NDArray[Any]:
        """A new array to factorize in place, in the type that is computed with."""
        rounded, self._rounded = self._rounded, None
        if rounded is not None:
            if COMPUTED_IN[self.fmt] == FP32 and self.fmt != FP16 and self._transposed:
                return rounded
            buffer_pool.keep(rounded)
        if self.fmt == FP16:  # FP32 on the rounded matrix
            return converted(stored(self._columns, FP16), FP16, np.float32)
        return work_array(self._columns, COMPUTED_IN[self.fmt])

    def _failure(
        self, info: int, work: NDArray[Any], kernel: str, breakdown: Status, part: Any
    ) -> ArithmeticFailure:
        """What to raise: ``part(A)`` was factorized, and is copied only if `work` is not finite."""
        if info < 0 or not is_finite(work):
            return nonfinite(kernel, self.fmt, part(self._columns))
        return ArithmeticFailure(breakdown, kernel, self.fmt, info - 1)


def refined_at_once(
    factors: tuple[Any, ...],
    matrix: tuple[Any, ...],
    B: Vector,
    target: float,
    sums: Sums,
    most_steps: int,
) -> AtOnce | None:
    """What `native_refine` makes of a vector or columns; None if it does not reach the target.

    `factors` and `matrix` are its arguments: the packed factors with how they are used, and A's
    contiguous columns, whether they are rows, and the norm.
    """
    if B.shape[1:] == (0,):
        return None
    packed, granted = factors[0], factorization_threads()
    columns = B.shape[1] if B.ndim == 2 else 1
    threads = granted if columns >= LEAST_STRIP else solve_threads(packed, granted)
    passes = granted if packed.size * columns >= PASS else ONE_THREAD
    X, R = np.empty(B.shape, order="F"), np.empty(B.shape, order="F")
    errors = np.empty(columns)
    rest = target, *sums, most_steps, B, X, R, errors, threads, passes
    given: tuple[Any, ...] = (*factors, *matrix, *rest)
    found = _kernels.native_refine(*given)
    return AtOnce(X, R, errors, *found[1:]) if found[0] else None


class DenseFactors(PermutedFactors):
    """LU or Cholesky factors of A, or of A' if that was the one with contiguous columns.

    They are packed in one Fortran-ordered array. That of a Cholesky factorization, which has no
    `perm`, holds L in its lower triangle, or L' in the upper one if A' was factorized.
    """

    is_sparse = False

    def __init__(
        self,
        fmt: FloatFormat,
        packed: NDArray[Any],
        storage: FloatFormat,
        perm: NDArray[np.int32] | None,
        transposed: bool,
    ) -> None:
        n, self._is_lu = len(packed), perm is not None
        if transposed and not self._is_lu and packed.dtype != DTYPES[COMPUTED_IN[fmt]]:
            packed, transposed = np.asfortranarray(packed.T), False  # what our kernel reads
        self.fmt, self.shape, self.method = fmt, packed.shape, "lu" if self._is_lu else "cholesky"
        self.perm, self.order = (None, perm) if transposed else (perm, None)
        self.entries = n * n if self._is_lu else n * (n + 1) // 2
        self.flops = (2 if self._is_lu else 1) / 3 * n**3
        self._packed, self._storage, self._transposed = packed, storage, transposed
        self._around = None, None  # `_solve_factored` permutes where it converts

    def discard(self) -> None:
        packed, self._packed = self._packed, np.empty((0, 0))
        buffer_pool.keep(packed)

    @cached_property
    def _float64(self) -> Vector:
        return converted(self._packed, self._storage, np.float64)

    @property
    def pivots(self) -> Vector | None:
        """The magnitudes of the diagonal of the U that was computed, of A or of A'."""
        return self.diagonal if self._is_lu else None

    @property
    def diagonal(self) -> Vector:
        diagonal = np.array(np.diagonal(self._packed))[:, None]
        return np.asarray(np.abs(converted(diagonal, self._storage, np.float64)[:, 0]))

    @property
    def L(self) -> Vector:
        if self._transposed:
            U = np.triu(self._float64)
            return U.T / np.diagonal(U) if self._is_lu else U.T
        if not self._is_lu:
            return np.tril(self._float64)
        return np.tril(self._float64, -1) + np.eye(self.shape[0])

    @property
    def U(self) -> Vector:
        if not self._is_lu:
            return self.L.T
        if not self._transposed:
            return np.triu(self._float64)
        unit = np.tril(self._float64, -1) + np.eye(self.shape[0])
        return np.diagonal(self._float64)[:, None] * unit.T

    def to(self, fmt: FloatFormat) -> DenseFactors:
        require_native(fmt)
        packed, storage = self._packed, self._storage
        if storage.p > fmt.p or storage.emax > fmt.emax:  # the format cannot hold them
            packed, storage = narrowed(self._float64, fmt, "rounding the factors"), fmt
        perm = self.order if self._transposed else self.perm
        return DenseFactors(fmt, packed, storage, perm, self._transposed)

    def _correction_threads(self, columns: int) -> int:
        """Threads of our kernel for a correction; 0 if it is left to single steps."""
        upper_cholesky = self._transposed and not self._is_lu
        if self._storage is not self.fmt or self.fmt not in (FP32, FP64) or upper_cholesky:
            return 0
        threads = own_solve_threads(self._packed, columns)
        if threads or not has_own_lu():
            return threads
        if not self._is_lu:  # as in `_solve_factored`
            return solve_threads(self._packed)
        many = len(self._packed) >= _LEAST_CORRECTED and factorization_threads() > 1
        return 2 if many else 0

    def corrected(self, X: Vector, R: Vector, sizes: Vector) -> Corrected | None:
        packed, fmt, columns = self._packed, self.fmt, len(sizes)
        threads = self._correction_threads(columns)
        if threads == 0:
            return None
        total = np.empty((len(packed), columns), order="F")
        norms = np.empty(columns), np.empty(columns)
        solved, scaled = _kernels.native_correct(
            *(packed, not self._is_lu, self._transposed, self.perm, self.order),
            *(np.asfortranarray(R), sizes, np.asfortranarray(X), total, *norms),
            threads,
        )
        if not solved:
            raise nonfinite("triangular solve", fmt, R)
        if not scaled:
            raise ArithmeticFailure(Status.OVERFLOW, "scaling a solution back", FP64)
        return total, *norms

    def refined(self, given: ToRefine, transpose: bool = False) -> AtOnce | None:
        A, norm, B, target, most_steps, sums = given
        if not isinstance(A, DenseMatrix) or A.fmt != FP64 or not self._refines:
            return None
        sums = Sums(block_for(len(A._columns))) if sums is None else sums
        if sums.block == EXACT:
            return None
        orders = (self.order, self.perm) if transpose else (self.perm, self.order)
        factors = self._packed, not self._is_lu, self._transposed != transpose, *orders
        matrix = A._columns, A._transposed, norm
        return refined_at_once(factors, matrix, B, target, sums, most_steps)

    @cached_property
    def _refines(self) -> bool:
        """Whether one compiled call refines with these factors."""
        upper_cholesky = self._transposed and not self._is_lu
        suits = self._storage is self.fmt and self.fmt in (FP32, FP64) and not upper_cholesky
        return suits and has_own_lu()

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        # A = P' L U Q' and A' = Q U' L' P.
        rows, places = (self.order, self.perm) if transpose else (self.perm, self.order)
        y = gathered(b, rows, self.fmt)
        packed, flip = self._packed, transpose != self._transposed
        storage, columns = self._storage.name, y.shape[1]
        threads = own_solve_threads(packed, columns)
        # LAPACK's potrs takes longer than ours even where one thread suffices.
        if packed.dtype != y.dtype or (threads == 0 and has_own_lu() and not self._is_lu):
            threads = solve_threads(packed) if has_own_lu() else ONE_THREAD
        if self._is_lu and threads:
            _kernels.native_getrs(packed, storage, y, flip, threads)
        elif self._is_lu:
            # No interchanges: the rows are in order. SciPy counts them from 1 in place meanwhile,
            # without the GIL, so that threads must not share them.
            order = np.arange(len(packed), dtype=np.int32)
            y, _ = GETRS[y.dtype](packed, order, y, trans=int(flip), overwrite_b=True)
        elif threads and not self._transposed:
            _kernels.native_potrs(packed, storage, y, threads)
        else:
            y, _ = POTRS[y.dtype](packed, y, lower=not self._transposed, overwrite_b=True)
        return scattered(y, places, "triangular solve", self.fmt, b)
