"""The kernel contract: what an algorithm may ask of a backend.

Each kernel is given a format, rounds its vector operands to it, and returns a result in it. A
kernel that cannot return finite numbers raises `ArithmeticFailure` with a named `Status`; it never
returns inf, NaN or garbage. (`Backend.residual` and `Backend.add` may: see there.)

A backend also says what it can do: its formats, its factorization methods, whether its times mean
something, and the machine that its results belong to. Nobody asks for its class or its name.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.arrays import is_real_form, is_sparse
from roundwise.exceptions import RoundwiseError, UnknownNameError
from roundwise.formats import FloatFormat, get_format
from roundwise.machine.identity import Machine

Vector = Any
"""A vector, or a block of columns, as an array of `Backend.xp`; a float64 one on the CPU. Each
backend checks what it is given."""


Corrected = tuple[Vector, Vector, Vector]
"""X + Z, and the max norms of the columns of Z and of X + Z."""


class ToRefine(NamedTuple):
    """A system that one compiled call is to refine an answer of, and how far."""

    A: Matrix
    norm: float  # the infinity norm of A
    B: Vector
    target: float  # the largest backward error that is good enough
    most_steps: int = 30  # corrections: as many as `HalvingRule` makes
    sums: Any = None
    """How residuals are summed (`Sums` in native/exact.py), where that is not as usual."""


class AtOnce(NamedTuple):
    """The result of refinement by substitution, where one compiled call did all of it."""

    X: Vector
    R: Vector  # B - A X
    errors: NDArray[np.float64]  # the backward error of each column, at most the target
    error: float  # the largest of them
    largest: float  # correction of all, relative to x
    stretch: float  # the largest ||A|| ||x|| / ||b||
    history: list[float]
    """For each correction the largest backward error before it, and the largest correction."""


class Status(enum.Enum):
    """Why a kernel stopped; the value says what to do about it.

    Examples
    --------
    >>> [status.name for status in rw.backends.Status][:2]
    ['OVERFLOW', 'ZERO_PIVOT']
    """

    OVERFLOW = (
        "a result exceeds the format's largest number; scale the problem or use a wider range"
    )
    ZERO_PIVOT = "no nonzero pivot is left: the matrix is singular in this format; use more bits"
    NONFINITE_INPUT = "an operand holds inf or NaN; remove it before the call"
    NOT_POSITIVE_DEFINITE = (
        "a Cholesky pivot is not positive: the matrix is not positive definite in this format; "
        "use more bits or an LU factorization"
    )
    INDEFINITE = (
        "some x has x'Ax < 0: the matrix is not positive definite, whatever the format; use an LU "
        "factorization"
    )
    UNSUITED = "the method is for symmetric or triangular matrices, and this is none; use an LU one"
    STOPPED = "it would take, or has taken, more time than its limit; use another method"
    SLOW_CONVERGENCE = (
        "an iteration inside the method converges too slowly to be of use; use a factorization"
    )


class ArithmeticFailure(RoundwiseError, ArithmeticError):
    """A kernel could not return finite numbers; `column` tells where a factorization stopped."""

    def __init__(
        self, status: Status, kernel: str, fmt: FloatFormat, column: int | None = None
    ) -> None:
        self.status, self.kernel, self.fmt, self.column = status, kernel, fmt, column
        place = "" if column is None else f" at column {column}"
        super().__init__(f"{kernel} in {fmt}{place}: {status.name.lower()}: {status.value}")


class UnsupportedFormat(RoundwiseError, ValueError):
    """A backend cannot run a format; the message names those that it can."""


class Factors(ABC):
    """``A[perm][:, order] = L U`` in a format, ready to solve with.

    ``perm`` and ``order`` are None where nothing is permuted. L and U are float64, dense or sparse
    as A was. A Cholesky factorization has ``U = L'``; the L of an LU factorization has a unit
    diagonal; a QR factorization has Q in the place of L and R in that of U.

    Examples
    --------
    >>> A = np.array([[1.0, 2.0], [4.0, 4.0]])
    >>> factors = rw.backends.get_backend("operation").matrix(A, "fp64").lu()
    >>> factors.U
    array([[4., 4.],
           [0., 1.]])
    >>> factors.solve(np.array([3.0, 8.0]))
    array([1., 1.])
    """

    fmt: FloatFormat
    method: str  # how they were made: "lu", "cholesky", "qr", or a sparse engine's name
    shape: tuple[int, int]
    perm: NDArray[np.int32] | None
    order: NDArray[np.int32] | None
    is_sparse: bool
    entries: int  # stored numbers
    flops: float  # operations of the factorization
    replaced_pivots: int = 0
    """Pivots too small to divide by, which were replaced: the factors are of a nearby matrix."""

    @property
    @abstractmethod
    def L(self) -> Any: ...

    @property
    @abstractmethod
    def U(self) -> Any: ...

    @property
    def pivots(self) -> Vector | None:
        """The magnitudes of U's diagonal; None where reading it would copy the factors."""
        return None

    @property
    def diagonal(self) -> Vector | None:
        """The magnitudes of the diagonal of U, or of Cholesky's L; None as for `pivots`."""
        return None

    @abstractmethod
    def to(self, fmt: FloatFormat) -> Factors:
        """These factors rounded to another format, to be applied in its arithmetic."""

    @abstractmethod
    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        """Solve ``A x = b`` (or ``A' x = b``) by substitution, for a vector or a block of them."""

    def corrected(self, X: Vector, R: Vector, sizes: Vector) -> Corrected | None:
        """``X + Z`` in FP64 with ``Z = A^-1 R``, if one kernel computes all of it; else None.

        `sizes` are the max norms of R's columns, which are solved for divided by powers of two near
        them. Raises `ArithmeticFailure` if Z is not finite.
        """
        return None

    def refined(self, given: ToRefine, transpose: bool = False) -> AtOnce | None:
        """The X for which every backward error is at most the target, if one kernel refines alone.

        With `transpose` the matrix of the system is the transpose of what was factorized.
        Residuals are those of FP64, updates are in FP64, and the stopping rule is `HalvingRule`'s,
        for each column by itself: what is good enough is not corrected any more. None if there is
        no such kernel, or if X does not get there.
        """
        return None

    def discard(self) -> None:  # noqa: B027 (most have nothing to do)
        """Tells that nobody will use these factors any more: their memory may serve others."""


class Matrix(ABC):
    """A matrix rounded to a format; dense or sparse as it came.

    Examples
    --------
    >>> values = np.array([[1.0, 1 / 3], [0.0, 1.0]])
    >>> A = rw.backends.get_backend("operation").matrix(values, "bf16")
    >>> A.matvec(np.array([0.0, 1.0]))
    array([0.33398438, 1.        ])
    """

    fmt: FloatFormat
    shape: tuple[int, int]
    is_sparse: bool
    entries: int  # stored numbers

    def offer(self, rounded: Any) -> None:  # noqa: B027 (most have no use for it)
        """A copy of A in FP32 that may be factorized in place (`Backend.sizes_and_rounded`)."""

    def prepared(self) -> Matrix:
        """This matrix, converted to its format now: later timings of products exclude that."""
        return self

    @abstractmethod
    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        """``A x`` or ``A' x``."""

    def times(self, X: Vector) -> Vector:
        """``A X`` for a block of columns. Native products may leave inf and NaN in it."""
        Y = np.empty((self.shape[0], X.shape[1]), order="F")
        for j in range(X.shape[1]):
            Y[:, j] = self.matvec(X[:, j])
        return Y

    @abstractmethod
    def lu(self) -> Factors:
        """LU factorization with (threshold) partial pivoting."""

    @abstractmethod
    def cholesky(self) -> Factors:
        """``A = L L'`` of a symmetric positive definite matrix; only its lower triangle is read."""

    def qr(self) -> Factors:
        """Householder QR, which is backward stable even where the entries of LU grow."""
        raise UnknownNameError("factorization of this matrix", "qr", ["cholesky", "lu"])


class Analysis(ABC):
    """The preparation of a factorization method, from the pattern of a matrix alone.

    Examples
    --------
    >>> backend = rw.backends.get_backend("native")
    >>> analysis = backend.analyse(np.eye(2), "lu")
    >>> analysis.factorize(np.diag([2.0, 4.0]), "fp64").solve(np.ones(2))
    array([0.5 , 0.25])
    """

    @property
    def depends_on_values(self) -> bool:
        """Whether the values of the analysed matrix were looked at: others may want another one."""
        return False

    @abstractmethod
    def factorize(self, A: Any, fmt: str | FloatFormat) -> Factors:
        """Factors of a matrix with the analysed pattern; its values may differ."""


@dataclass(frozen=True)
class NoAnalysis(Analysis):
    """The analysis of methods that learn nothing from the pattern: `factorize` does everything."""

    backend: Backend
    of: Callable[[Matrix], Factors]  # a method of `Matrix`

    def factorize(self, A: Any, fmt: str | FloatFormat) -> Factors:
        return self.of(self.backend.matrix(A, fmt))


class Backend(ABC):
    """Kernels under one arithmetic model.

    Examples
    --------
    >>> backend = rw.backends.get_backend("operation")
    >>> backend.dot(np.array([1.0, 1.0]), np.array([1.0, 2.0**-9]), "bf16")  # 2^-9 is lost
    1.0
    """

    arithmetic: str
    timed: ClassVar[bool] = False
    """Whether its times mean something and are stored with outcomes."""
    on_host: ClassVar[bool] = True
    """Whether its arrays are NumPy's, in the memory of the processor."""
    sparse_on: str = "cpu"
    """Where sparse matrices are factorized: on the "cpu", on "cuda", or wherever ("auto")."""

    @property
    def xp(self) -> Any:
        """The array module of its matrices and vectors: NumPy, or CuPy on a GPU."""
        return np

    def array(self, values: Any) -> Any:
        """A matrix or vector, as NumPy or SciPy has it, where this backend computes with it."""
        return values

    @property
    def description(self) -> str:
        """The arithmetic model, and any setting that is not the default: a key for results."""
        return self.arithmetic

    @property
    def machine(self) -> Machine | None:
        """The machine that its results belong to; None if they are the same on all machines."""
        return None

    @abstractmethod
    def formats(self, sparse: bool = False, is_complex: bool = False) -> tuple[FloatFormat, ...]:
        """The named formats that it runs, for matrices of that kind; fewest bits first."""

    def supports(
        self, fmt: str | FloatFormat, sparse: bool = False, is_complex: bool = False
    ) -> bool:
        """Whether it runs a format, named or not."""
        return get_format(fmt) in self.formats(sparse, is_complex)

    def methods(self, sparse: bool = False, is_complex: bool = False) -> tuple[str, ...]:
        """The ways to factorize that `analyse` knows, for matrices of that kind."""
        return () if is_complex else ("cholesky", "lu")

    def runs(
        self, method: str, fmt: str | FloatFormat, sparse: bool = False, is_complex: bool = False
    ) -> bool:
        """Whether it factorizes by that method in that format."""
        known = self.methods(sparse, is_complex)
        return method in known and self.supports(fmt, sparse, is_complex)

    def analyse(self, A: Any, method: str) -> Analysis:
        """Prepare to factorize A, and other matrices with its pattern, by one of the `methods`."""
        known = self.methods(is_sparse(A), is_real_form(A))
        if method not in known:
            raise UnknownNameError("factorization method", method, list(known))
        return NoAnalysis(self, methodcaller(method))

    def sizes(self, A: Any) -> tuple[float, float]:
        """``||A||_inf`` and ``max_ij |a_ij|`` of a dense or sparse matrix, in float64."""
        magnitudes = abs(A)
        with np.errstate(over="ignore"):  # a sum beyond float64 is inf
            return float(magnitudes.sum(axis=1).max()), float(magnitudes.max())

    def sizes_and_rounded(self, A: Any) -> tuple[tuple[float, float], Any]:
        """`sizes`, and A rounded to FP32 if one pass gives both; else None."""
        return self.sizes(A), None

    @abstractmethod
    def matrix(self, A: Any, fmt: str | FloatFormat) -> Matrix:
        """Round a dense array or a SciPy sparse matrix to a format.

        A complex matrix comes in its real form (`roundwise.backends.real_form`).
        """

    @abstractmethod
    def dot(self, x: Vector, y: Vector, fmt: str | FloatFormat) -> float:
        """``x' y``."""

    @abstractmethod
    def axpy(self, alpha: float, x: Vector, y: Vector, fmt: str | FloatFormat) -> Vector:
        """``y + alpha x``, as a new vector."""

    @abstractmethod
    def scale(self, alpha: float, x: Vector, fmt: str | FloatFormat) -> Vector:
        """``alpha x``, as a new vector."""

    @abstractmethod
    def norm2(self, x: Vector, fmt: str | FloatFormat) -> float:
        """``||x||_2``."""

    @abstractmethod
    def orthogonalize(self, V: Vector, w: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        """Modified Gram-Schmidt of w against the rows of V: the coefficients, and what is left.

        ``h_i = v_i' w; w = w - h_i v_i`` for i = 0, 1, ... The rows of V must be numbers of
        the format already (results of earlier kernels): rounding them again in each call would
        take longer than the rest.
        """

    def orthogonalize_and_norm(
        self, V: Vector, w: Vector, fmt: str | FloatFormat
    ) -> tuple[Vector, Vector, float]:
        """The results of `orthogonalize`, the coefficients as a NumPy array, and the 2-norm of w.

        One kernel where reading a number back takes as long as a product: on a GPU.
        """
        h, left = self.orthogonalize(V, w, fmt)
        return h, left, self.norm2(left, fmt)

    @abstractmethod
    def givens(
        self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector, fmt: str | FloatFormat
    ) -> None:
        """Bring column j of a Hessenberg least squares problem to triangular form, in place.

        ``h`` (j + 2 entries) is rotated by the j rotations before it and by a new one that
        clears its last entry, and so is the right-hand side ``g``; the new rotation goes to
        ``cosines[j]``, ``sines[j]``. Afterwards ``|g[j + 1]|`` is the residual norm.
        """

    @abstractmethod
    def solve_upper(self, R: Vector, g: Vector, fmt: str | FloatFormat) -> Vector:
        """``R y = g`` for a small dense upper triangle R, by back substitution."""

    def gram(self, T: Any, fmt: str | FloatFormat) -> Any:
        """``T' T`` in a format, for a dense T with at least as many rows as columns, or a sparse T.

        Only its lower triangle is meant to be read. That of a sparse T is computed in float64.
        """
        if is_sparse(T):
            return (T.T @ T).tocsr()
        matrix = self.matrix(T, fmt)
        columns = [matrix.matvec(np.array(column), transpose=True) for column in T.T]
        return np.stack(columns, axis=1)

    def orthogonalized(self, T: Vector, fmt: str | FloatFormat) -> tuple[Vector, Vector]:
        """``T = Q R`` in a format, for a dense m-by-n T with m >= n: Q is m-by-n, R triangular.

        By Householder's method, from the kernels for vectors, unless a backend has a faster one.
        """
        fmt, (m, n) = get_format(fmt), T.shape
        columns = [self.scale(1.0, np.array(column), fmt) for column in T.T]
        reflectors: list[Vector] = []
        R = np.zeros((n, n))
        for j, column in enumerate(columns):
            for i, v in enumerate(reflectors):
                column[i:] = self._reflected(v, column[i:], fmt)
            R[:j, j] = column[:j]
            rest = column[j:]
            size = self.norm2(rest, fmt)
            if size == 0:
                raise ArithmeticFailure(Status.ZERO_PIVOT, "QR factorization", fmt, j)
            R[j, j] = -math.copysign(size, rest[0])
            first = np.zeros(m - j)
            first[0] = 1.0
            v = self.axpy(-R[j, j], first, rest, fmt)
            reflectors.append(self.scale(1.0 / self.norm2(v, fmt), v, fmt))
        Q = np.zeros((m, n), order="F")
        for j in range(n):
            Q[j, j] = 1.0
            for i in reversed(range(n)):
                Q[i:, j] = self._reflected(reflectors[i], np.array(Q[i:, j]), fmt)
        return Q, R

    def _reflected(self, v: Vector, x: Vector, fmt: FloatFormat) -> Vector:
        """``(I - 2 v v') x`` for a vector v of length 1."""
        return self.axpy(-2.0 * self.dot(v, x, fmt), v, x, fmt)

    def residual(self, A: Matrix, X: Vector, B: Vector) -> Vector:
        """``B - A X`` in A's format, for blocks of columns; a new block.

        A backend may leave inf and NaN in the result instead of raising `ArithmeticFailure`: the
        caller computes its norms anyway and must reject what is not finite.
        """
        R = A.times(X)
        for r, b in zip(R.T, B.T, strict=True):
            r[:] = self.axpy(-1.0, r, b, A.fmt)
        return R

    def residual_error(
        self, fmt: FloatFormat, n: int, sparse: bool = False, is_complex: bool = False
    ) -> float:
        """The c for which ``|r_ij| u + c (|A| |X| + |B|)_ij`` bounds the error of a residual.

        r_ij is an entry of the residual in a format, u float64's unit roundoff, and n the number
        of unknowns. For a complex matrix r_ij is complex, magnitudes are moduli, and n is that of
        the real form. Infinite if there is no such bound.
        """
        return math.inf

    def add(self, X: Vector, Z: Vector, fmt: str | FloatFormat) -> Vector:
        """``X + Z`` for blocks of columns; a new block. It may leave inf and NaN, too."""
        result = self.xp.empty_like(X, order="F")
        for j in range(X.shape[1]):
            result[:, j] = self.axpy(1.0, Z[:, j], X[:, j], fmt)
        return result
