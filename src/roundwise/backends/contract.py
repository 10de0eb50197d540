"""The kernel contract: what an algorithm may ask of a backend.

Vectors are plain float64 arrays at this level. Each kernel is given a format, rounds its
vector operands to it, and returns a result in it. A kernel that cannot return finite numbers
raises `ArithmeticFailure` with a named `Status`; it never returns inf, NaN or garbage.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.exceptions import RoundwiseError
from roundwise.formats import FloatFormat

Vector = NDArray[np.float64]


class Status(enum.Enum):
    """Why a kernel stopped; the value says what to do about it."""

    OVERFLOW = (
        "a result exceeds the format's largest number; scale the problem or use a wider range"
    )
    ZERO_PIVOT = "no nonzero pivot is left: the matrix is singular in this format; use more bits"
    NONFINITE_INPUT = "an operand holds inf or NaN; remove it before the call"
    NOT_POSITIVE_DEFINITE = (
        "a Cholesky pivot is not positive: the matrix is not positive definite in this format; "
        "use more bits or an LU factorization"
    )


class ArithmeticFailure(RoundwiseError, ArithmeticError):
    """A kernel could not return finite numbers.

    Attributes
    ----------
    status : Status
    kernel : str
        Name of the kernel.
    fmt : FloatFormat
    column : int or None
        Where a factorization stopped.
    """

    def __init__(
        self, status: Status, kernel: str, fmt: FloatFormat, column: int | None = None
    ) -> None:
        self.status, self.kernel, self.fmt, self.column = status, kernel, fmt, column
        place = "" if column is None else f" at column {column}"
        super().__init__(f"{kernel} in {fmt}{place}: {status.name.lower()}: {status.value}")


class UnsupportedFormat(RoundwiseError, ValueError):
    """This machine has no native arithmetic for a format."""


class Solves(Protocol):
    """What a stage asks of a factorization, of whatever kind."""

    is_sparse: bool
    entries: int  # stored numbers

    def solve(self, b: NDArray[Any], transpose: bool = False) -> Vector: ...
    def to(self, fmt: FloatFormat) -> Solves: ...


class Factors(ABC):
    """``A[perm][:, order] = L U`` in a format, ready to solve with.

    ``perm`` and ``order`` are None where nothing is permuted. A Cholesky factorization has
    ``U = L'``; the L of an LU factorization has a unit diagonal.
    """

    fmt: FloatFormat
    shape: tuple[int, int]
    perm: NDArray[np.int32] | None
    order: NDArray[np.int32] | None
    is_sparse: bool
    entries: int  # stored numbers
    flops: float  # operations of the factorization

    @property
    @abstractmethod
    def L(self) -> Any:
        """Lower triangular factor, float64, dense or sparse as A was."""

    @property
    @abstractmethod
    def U(self) -> Any:
        """Upper triangular factor, float64, dense or sparse as A was."""

    @abstractmethod
    def to(self, fmt: FloatFormat) -> Factors:
        """These factors rounded to another format, to be applied in its arithmetic."""

    @abstractmethod
    def solve(self, b: NDArray[Any], transpose: bool = False) -> Vector:
        """Solve ``A x = b`` (or ``A' x = b``) by substitution, for a vector or a block of them."""


class PermutedFactors(Factors):
    """Factors whose kernels know nothing of the permutations."""

    @abstractmethod
    def to(self, fmt: FloatFormat) -> PermutedFactors: ...

    @abstractmethod
    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        """LU X = B, or (LU)' X = B, for a Fortran-ordered block B that may be overwritten."""

    def solve(self, b: NDArray[Any], transpose: bool = False) -> Vector:
        block = checked_block(b, self.shape[0])
        # A = P' L U Q' and A' = Q U' L' P.
        rows, columns = (self.order, self.perm) if transpose else (self.perm, self.order)
        y = np.array(block if rows is None else block[rows], order="F")
        y = self._solve_factored(y, transpose)
        if columns is None:
            x = y
        else:
            x = np.empty_like(y)
            x[columns] = y
        return x if np.ndim(b) == 2 else x[:, 0]


class Matrix(ABC):
    """A matrix rounded to a format; dense or sparse as it came."""

    fmt: FloatFormat
    shape: tuple[int, int]
    is_sparse: bool
    entries: int  # stored numbers

    def prepared(self) -> Matrix:
        """This matrix, after what its first product would do besides: so that it can be timed."""
        return self

    @abstractmethod
    def matvec(self, x: NDArray[Any], transpose: bool = False) -> Vector:
        """``A x`` or ``A' x``."""

    @abstractmethod
    def lu(self) -> Factors:
        """LU factorization with (threshold) partial pivoting."""

    @abstractmethod
    def cholesky(self) -> Factors:
        """``A = L L'`` of a symmetric positive definite matrix; only its lower triangle is read."""


class Backend(ABC):
    """Kernels under one arithmetic model."""

    arithmetic: str
    timed: ClassVar[bool] = False

    @property
    def description(self) -> str:
        """The arithmetic model, and any setting that is not the default: a key for results."""
        return self.arithmetic

    def sizes(self, A: Any) -> tuple[float, float]:
        """``||A||_inf`` and ``max_ij |a_ij|`` of a dense or sparse matrix, in float64."""
        magnitudes = abs(A)
        with np.errstate(over="ignore"):  # a sum beyond float64 is inf
            return float(magnitudes.sum(axis=1).max()), float(magnitudes.max())

    @abstractmethod
    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        """Round a dense array or a SciPy sparse matrix to a format."""

    @abstractmethod
    def dot(self, x: NDArray[Any], y: NDArray[Any], fmt: str | FloatFormat) -> float:
        """``x' y``."""

    @abstractmethod
    def axpy(
        self, alpha: float, x: NDArray[Any], y: NDArray[Any], fmt: str | FloatFormat
    ) -> Vector:
        """``y + alpha x``, as a new vector."""

    @abstractmethod
    def scale(self, alpha: float, x: NDArray[Any], fmt: str | FloatFormat) -> Vector:
        """``alpha x``, as a new vector."""

    @abstractmethod
    def norm2(self, x: NDArray[Any], fmt: str | FloatFormat) -> float:
        """``||x||_2``."""

    @abstractmethod
    def orthogonalize(
        self, V: NDArray[Any], w: NDArray[Any], fmt: str | FloatFormat
    ) -> tuple[Vector, Vector]:
        """Modified Gram-Schmidt of w against the rows of V: the coefficients, and what is left.

        ``h_i = v_i' w; w = w - h_i v_i`` for i = 0, 1, ... The rows of V must be numbers of
        the format already (results of earlier kernels), as rounding them all again in each of
        many calls would take longest.
        """

    @abstractmethod
    def givens(
        self,
        j: int,
        cosines: Vector,
        sines: Vector,
        h: Vector,
        g: Vector,
        fmt: str | FloatFormat,
    ) -> None:
        """Bring column j of a Hessenberg least squares problem to triangular form, in place.

        ``h`` (j + 2 entries) is rotated by the j rotations before it and by a new one that
        clears its last entry, and so is the right-hand side ``g``; the new rotation goes to
        ``cosines[j]``, ``sines[j]``. Afterwards ``|g[j + 1]|`` is the residual norm.
        """

    @abstractmethod
    def solve_upper(self, R: NDArray[Any], g: NDArray[Any], fmt: str | FloatFormat) -> Vector:
        """``R y = g`` for a small dense upper triangle R, by back substitution."""


def checked_vector(x: Any, length: int | None = None) -> Vector:
    """x as a contiguous float64 vector of that length, or a one-line error."""
    x = np.asarray(x)
    if x.dtype.kind != "f" or x.dtype.itemsize > 8:
        raise TypeError(f"vectors are float64 or float32, got {x.dtype}; convert with astype")
    if x.ndim != 1 or (length is not None and x.shape[0] != length):
        wanted = "a vector" if length is None else f"a vector of length {length}"
        raise ValueError(f"got shape {x.shape}; pass {wanted}")
    return np.ascontiguousarray(x, dtype=np.float64)


def checked_block(b: Any, rows: int) -> Vector:
    """b as a float64 block of columns, not copied if it is one already."""
    b = np.asarray(b)
    if b.ndim == 1:
        return checked_vector(b, rows)[:, None]
    if b.ndim != 2 or b.shape[0] != rows:
        raise ValueError(f"b has shape {b.shape}; pass ({rows},) or ({rows}, k)")
    if b.dtype.kind != "f" or b.dtype.itemsize > 8:
        raise TypeError(f"b is float64 or float32, got {b.dtype}; convert with astype")
    return np.asarray(b, dtype=np.float64)


def checked_basis(V: Any, length: int) -> Vector:
    """V as contiguous float64 rows of that length."""
    V = np.asarray(V)
    if V.dtype.kind != "f" or V.dtype.itemsize > 8:
        raise TypeError(f"V is float64 or float32, got {V.dtype}; convert with astype")
    if V.ndim != 2 or V.shape[1] != length:
        raise ValueError(f"V has shape {V.shape}; pass rows of length {length}")
    return np.ascontiguousarray(V, dtype=np.float64)


def check_rotations(j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector) -> None:
    """What `Backend.givens` changes in place must be long enough, float64 and contiguous."""
    if j < 0:
        raise ValueError(f"j = {j}; pass a column number of at least 0")
    for name, x, length in (
        ("cosines", cosines, j + 1),
        ("sines", sines, j + 1),
        ("h", h, j + 2),
        ("g", g, j + 2),
    ):
        fits = isinstance(x, np.ndarray) and x.dtype == np.float64 and x.ndim == 1
        if not fits or len(x) < length or not x.flags.carray:
            raise ValueError(
                f"{name} is changed in place; pass a contiguous, writeable float64 vector of at "
                f"least {length} entries"
            )


def real_matrix(A: Any) -> Any:
    """A as it is, or as an array: of real numbers up to float64, and not empty."""
    if not sparse.issparse(A):
        A = np.asarray(A)
    if A.dtype.kind != "f" or A.dtype.itemsize > 8:
        raise TypeError(f"A is float64 or float32, got {A.dtype}; convert with astype")
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"A has shape {A.shape}; pass a matrix with at least one row and column")
    return A


def checked_matrix(A: Any, fmt: FloatFormat) -> Any:
    """A as a finite float64 array, or canonical CSR array if it is sparse."""
    A = real_matrix(A)
    if sparse.issparse(A):
        A = sparse.csr_array(A.astype(np.float64))  # duplicates are summed in float64
        A.sum_duplicates()
        if A.nnz > np.iinfo(np.int32).max:
            raise ValueError(f"A has {A.nnz} entries; the kernels' 32-bit indices reach 2**31 - 1")
        A.indices, A.indptr = A.indices.astype(np.int32), A.indptr.astype(np.int32)
    else:
        A = np.asarray(A, dtype=np.float64)
    if not np.isfinite(A.data if sparse.issparse(A) else A).all():
        raise ArithmeticFailure(Status.NONFINITE_INPUT, "matrix", fmt)
    return A


def sparse_lu_flops(lower_starts: NDArray[Any], upper_indices: NDArray[Any]) -> float:
    """Divisions and multiply-subtracts of a sparse LU, from the pattern of its factors.

    ``lower_starts`` are the column starts of L without its diagonal.
    """
    below = np.diff(lower_starts).astype(np.float64)
    right = np.bincount(upper_indices, minlength=len(below)) - 1.0
    return float(np.sum(below * (1 + 2 * right)))


def require_square(shape: tuple[int, int]) -> None:
    """Factorizations need as many rows as columns."""
    if shape[0] != shape[1]:
        raise ValueError(f"A is {shape[0]} x {shape[1]}; pass a square matrix to factorize it")


def require_nonzero_diagonal(diagonal: NDArray[Any], fmt: FloatFormat) -> None:
    """A factor's diagonal may have underflowed when it was rounded."""
    zeros = np.flatnonzero(diagonal == 0)
    if zeros.size:
        raise ArithmeticFailure(Status.ZERO_PIVOT, "triangular matrix", fmt, int(zeros[0]))
