"""A stage of a run: a backend's kernels bound to one format, counting and timing what they do.

Flops are the textbook's; bytes are compulsory traffic: each operand is read once and each
result written once, in the format's size in memory (and four bytes per index of a sparse
matrix). A cost model can price them for any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

from roundwise.actions import Action
from roundwise.backends import ArithmeticFailure, Backend, Factors, Matrix
from roundwise.backends.contract import AtOnce, Corrected, ToRefine
from roundwise.formats import FloatFormat
from roundwise.methods import DEFAULT_METHOD

Vector = Any  # an array of the backend: NumPy here, CuPy on a GPU
P = ParamSpec("P")
T = TypeVar("T")


def timed(kernel: Callable[Concatenate[Stage, P], T]) -> Callable[Concatenate[Stage, P], T]:
    """Add the seconds that a kernel takes to those of its stage."""

    @wraps(kernel)
    def wrapper(self: Stage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        start = perf_counter()
        try:
            return kernel(self, *args, **kwargs)
        finally:
            self.seconds += perf_counter() - start

    return wrapper


@dataclass
class Tally:
    """Operations counted so far.

    Parameters
    ----------
    flops, bytes : float
        Arithmetic operations, and bytes moved.

    Examples
    --------
    >>> from roundwise.algorithms import Tally
    >>> Tally(flops=2e6, bytes=8e6).flops
    2000000.0
    """

    flops: float = 0.0
    bytes: float = 0.0


class Stage:
    """Kernels of a backend in one format; `roundwise.backends.contract` says what they compute.

    Parameters
    ----------
    name : str
    fmt : FloatFormat
    backend : Backend
        Whose kernels it calls, and counts.

    Examples
    --------
    >>> from roundwise.algorithms import Stage
    >>> stage = Stage("update", rw.BF16, rw.backends.get_backend("operation"))
    >>> float(stage.dot(np.array([1.0, 1.0]), np.array([1.0, 2.0**-9])))  # bf16 cannot tell
    1.0
    """

    def __init__(self, name: str, fmt: FloatFormat, backend: Backend) -> None:
        self.name, self.fmt, self.backend = name, fmt, backend
        self.tally = Tally()
        self.seconds = 0.0
        self._bytes_per_number = fmt.storage_bytes

    def count(self, flops: float, numbers: float, indices: float = 0.0) -> None:
        """Add flops and the traffic of numbers in this format and of 32-bit indices."""
        self.tally.flops += flops
        self.tally.bytes += numbers * self._bytes_per_number + 4 * indices

    def matrix(self, A: Any) -> Matrix:
        """A rounded to this format. The conversion counts no operations; `Shared` times it."""
        return self.backend.matrix(A, self.fmt)

    @timed
    def matvec(self, A: Matrix, x: Vector) -> Vector:
        """``A x`` with a matrix in this format."""
        self.count(2 * A.entries, A.entries + sum(A.shape), A.entries if A.is_sparse else 0)
        return A.matvec(x)

    @timed
    def factorize(self, A: Any, method: str = DEFAULT_METHOD) -> Factors:
        """Factors of A in this format, by a method of the backend (``backend.methods()``).

        Apply them with `solve`, in this stage or in another one after ``factors.to(stage.fmt)``.
        Raises `ArithmeticFailure`, which `Algorithm.run` turns into an outcome, if A is singular in
        this format. In `execute`, wrap the call in ``shared.get(("factors", self.fmt), ...)``, and
        runs with the same format share the factors.

        Examples
        --------
        >>> from roundwise.algorithms import Stage
        >>> stage = Stage("factor", rw.FP32, rw.backends.get_backend("operation"))
        >>> stage.solve(stage.factorize(np.diag([2.0, 4.0])), np.ones(2))
        array([0.5 , 0.25])
        """
        factors = self.backend.analyse(A, method).factorize(A, self.fmt)
        self.count_factorization(factors)
        return factors

    def count_factorization(self, factors: Factors) -> None:
        """Count the making of factors, whether they were just made or are reused."""
        self.count(factors.flops, 2 * factors.entries, factors.entries if factors.is_sparse else 0)

    @timed
    def residual(self, A: Matrix, X: Vector, B: Vector) -> Vector:
        """``B - A X`` for blocks of columns, with a matrix in this format."""
        self.count_residual(A, X)
        return self.backend.residual(A, X, B)

    def count_residual(self, A: Matrix, X: Vector) -> None:
        """Count ``B - A X`` where a kernel has computed it as part of something else."""
        n, columns = X.shape
        indices = A.entries if A.is_sparse else 0
        self.count(  # a product and a difference for each column
            columns * (2 * A.entries + 2 * n),
            columns * (A.entries + sum(A.shape) + 3 * n),
            columns * indices,
        )

    @timed
    def add(self, X: Vector, Z: Vector) -> Vector:
        """``X + Z`` for blocks of columns."""
        self.count(2 * X.size, 3 * X.size)
        return self.backend.add(X, Z, self.fmt)

    @timed
    def solve(self, factors: Factors, b: Vector) -> Vector:
        """Substitution with factors in this format, for a vector or a block of columns."""
        self._count_solve(factors, b)
        return factors.solve(b)

    def _count_solve(self, factors: Factors, b: Vector) -> None:
        columns = b.shape[1] if b.ndim == 2 else 1
        indices = factors.entries if factors.is_sparse else 0
        self.count(2 * columns * factors.entries, factors.entries + 2 * b.size, indices)

    @timed
    def corrected(
        self, factors: Factors, X: Vector, R: Vector, sizes: Vector, update: Stage | None
    ) -> Corrected | None:
        """``X + A^-1 R`` and norms by one kernel (`Factors.corrected`), if there is one.

        The addition is counted in the update stage, and timed in this one; None: X is zero, and
        there is none.
        """
        try:
            made = factors.corrected(X, R, sizes)
        except ArithmeticFailure:
            self._count_solve(factors, X)
            raise
        if made is not None:
            self._count_solve(factors, X)
            if update is not None:
                update.count(2 * X.size, 3 * X.size)
        return made

    @timed
    def refined(
        self, factors: Factors, given: ToRefine, others: tuple[Stage, Stage]
    ) -> AtOnce | None:
        """Refinement by one kernel (`Factors.refined`), if there is one that gets there.

        Residuals and additions are counted in `others`, the stages of both, and timed in this one.
        """
        found = factors.refined(given)
        if found is not None:
            A, B = given.A, given.B
            (residual, update), steps = others, len(found.history) // 2
            for _ in range(steps + 1):
                self._count_solve(factors, B)
                residual.count_residual(A, B)
            update.count(2 * steps * B.size, 3 * steps * B.size)
        return found

    @timed
    def dot(self, x: Vector, y: Vector) -> float:
        """``x' y``."""
        self.count(2 * len(x), 2 * len(x))
        return self.backend.dot(x, y, self.fmt)

    @timed
    def axpy(self, alpha: float, x: Vector, y: Vector) -> Vector:
        """``y + alpha x``."""
        self.count(2 * len(x), 3 * len(x))
        return self.backend.axpy(alpha, x, y, self.fmt)

    @timed
    def scale(self, alpha: float, x: Vector) -> Vector:
        """``alpha x``."""
        self.count(len(x), 2 * len(x))
        return self.backend.scale(alpha, x, self.fmt)

    @timed
    def norm2(self, x: Vector) -> float:
        """``||x||_2``."""
        self.count(2 * len(x), len(x))
        return self.backend.norm2(x, self.fmt)

    @timed
    def orthogonalize(self, V: Vector, w: Vector) -> tuple[Vector, Vector]:
        """The coefficients of w along the rows of V, and what is left (modified Gram-Schmidt)."""
        self.count(4 * V.size, V.size + 2 * len(w))
        return self.backend.orthogonalize(V, w, self.fmt)

    @timed
    def orthogonalize_and_norm(self, V: Vector, w: Vector) -> tuple[Vector, Vector, float]:
        """Coefficients and rest as `orthogonalize` gives them, and the 2-norm of the rest."""
        self.count(4 * V.size, V.size + 2 * len(w))
        self.count(2 * len(w), len(w))
        return self.backend.orthogonalize_and_norm(V, w, self.fmt)

    @timed
    def givens(self, j: int, cosines: Vector, sines: Vector, h: Vector, g: Vector) -> None:
        """Bring column h of GMRES's Hessenberg matrix to triangular form, in place.

        Applies the j known rotations to h, makes the one that clears ``h[j + 1]``, and applies it
        to h and to the right-hand side g; ``|g[j + 1]|`` is the residual norm afterwards.
        """
        self.count(6 * (j + 2), 4 * (j + 2))
        self.backend.givens(j, cosines, sines, h, g, self.fmt)

    @timed
    def solve_upper(self, R: Vector, g: Vector) -> Vector:
        """The y with ``R y = g``, R upper triangular and small (GMRES's least squares problem)."""
        self.count(len(g) ** 2, len(g) ** 2 / 2)
        return self.backend.solve_upper(R, g, self.fmt)

    def empty_rows(self, w: Vector, rows: int) -> Vector:
        """Room for the vectors of a basis, one in each row."""
        return self.backend.xp.empty((rows, len(w)), dtype=w.dtype)

    def combine(self, V: Vector, y: Vector) -> Vector:
        """``V' y``: a combination of the rows of V."""
        return self.matvec(self.matrix(V.T), y)


class Stages(dict[str, Stage]):
    """The stages of a run by name, and the method of its action ("" if it has none).

    Parameters
    ----------
    names : iterable of str
    action : Action
        One format for each name.
    backend : Backend

    Examples
    --------
    >>> from roundwise.algorithms import Stages
    >>> action, backend = rw.Action(["bf16", "fp64"]), rw.backends.get_backend()
    >>> stages = Stages(["factor", "residual"], action, backend)
    >>> stages["factor"].fmt.name
    'bf16'
    """

    def __init__(self, names: Iterable[str], action: Action, backend: Backend) -> None:
        named = zip(names, action, strict=True)
        super().__init__((name, Stage(name, fmt, backend)) for name, fmt in named)
        self.method = action.method
