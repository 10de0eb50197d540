"""What Krylov methods ask of vectors, and `BLOCKS`: float64 columns and compiled kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular

import roundwise._kernels as _kernels
from roundwise.krylov.stopping import Array, Sizes
from roundwise.machine.threads import get_num_threads

Operator = Callable[[Any], Any]
"""A product with A, or the preconditioner's application, for a block of vectors."""

CANCELLED = 0.5
"""Where less than that of ||w||^2 is left, w is orthogonalized again: Kahan's criterion (Parlett,
The Symmetric Eigenvalue Problem, 6.9)."""


class Vectors(Protocol):
    """Operations on a block of vectors, one after the other in memory.

    An operation may overwrite what it returns: ``Y = combine(a, X, b, Y)``. Numbers come and go as
    arrays with one for each vector.
    """

    def zeros_like(self, X: Any) -> Any:
        """A block of zeros."""

    def copy(self, X: Any) -> Any:
        """A block that may be overwritten."""

    def take(self, X: Any, columns: NDArray[Any]) -> Any:
        """Some of the vectors, as a block of their own."""

    def dots(self, X: Any, Y: Any) -> Array:
        """``x_j' y_j``."""

    def step(self, a: Array, P: Any, Q: Any, Z: Any, R: Any) -> tuple[Any, Any, Sizes]:
        """``Z + P a``, ``R - Q a``, and the sizes of both."""

    def combine(self, a: Array | float, X: Any, b: Array | float, Y: Any) -> Any:
        """``X a + Y b``."""

    def residual(self, product: Operator, X: Any, B: Any) -> Any:
        """``B - A X``."""

    def sizes(self, R: Any, X: Any) -> Sizes:
        """The sizes of residuals and iterates."""


class Blocks:
    """(n, k) arrays of float64 in Fortran order; by compiled kernels, on several threads.

    Bits depend neither on the number of threads nor on the processor's instruction set.

    Examples
    --------
    >>> from roundwise.krylov import BLOCKS
    >>> X = np.asfortranarray([[3.0, 1.0], [4.0, 0.0]])
    >>> BLOCKS.dots(X, X)
    array([25.,  1.])
    """

    def zeros_like(self, X: Any) -> Any:
        return np.zeros(X.shape, order="F")

    def copy(self, X: Any) -> Any:
        return np.array(X, dtype=np.float64, order="F")

    def take(self, X: Any, columns: NDArray[Any]) -> Any:
        return np.asfortranarray(X[:, columns])

    def dots(self, X: Any, Y: Any) -> Array:
        sums = np.empty(X.shape[1])
        _kernels.krylov_dots(block(X), block(Y), sums, get_num_threads())
        return sums

    def step(self, a: Array, P: Any, Q: Any, Z: Any, R: Any) -> tuple[Any, Any, Sizes]:
        sizes = np.empty((3, len(a)), order="F")
        _kernels.krylov_step(a, block(P), block(Q), Z, R, sizes, get_num_threads())
        return Z, R, Sizes(np.sqrt(sizes[0]), sizes[1], sizes[2])

    def combine(self, a: Array | float, X: Any, b: Array | float, Y: Any) -> Any:
        factors = [np.broadcast_to(np.float64(x), X.shape[1:]).copy() for x in (a, b)]
        _kernels.krylov_combine(factors[0], block(X), factors[1], Y, get_num_threads())
        return Y

    def residual(self, product: Operator, X: Any, B: Any) -> Any:
        return self.combine(1.0, B, -1.0, self.copy(product(X)))

    def sizes(self, R: Any, X: Any) -> Sizes:
        zero = np.zeros(R.shape[1])
        return self.step(zero, R, R, X, R)[-1]


class Rows:
    """Bases of Arnoldi's method in float64, one vector in a row; see `roundwise.krylov.gmres`.

    Orthogonalized by classical Gram-Schmidt, again where much was cancelled (Giraud, Langou &
    Rozloznik 2005): in two or three passes over the basis, on several threads.
    """

    def empty_rows(self, w: Any, rows: int) -> Any:
        return np.empty((rows, len(w)))

    def scale(self, alpha: float, x: Any) -> Any:
        return alpha * x

    def norm2(self, x: Any) -> float:
        return math.sqrt(BLOCKS.dots(x[:, None], x[:, None])[0])

    def orthogonalize_and_norm(self, V: Any, w: Any) -> tuple[Any, Any, float]:
        w, none, threads = np.array(w, dtype=np.float64), np.empty(0), get_num_threads()
        h, left = np.empty(len(V)), np.empty(len(V))
        before = _kernels.krylov_project(V, none, w, h, threads)
        square = _kernels.krylov_project(V, h, w, left, threads)
        if not square > CANCELLED * before:
            square = _kernels.krylov_project(V, left, w, none, threads)
            h += left
        return h, w, math.sqrt(square)

    def givens(self, j: int, cosines: Any, sines: Any, h: Any, g: Any) -> None:
        for i in range(j):
            h[i : i + 2] = (
                cosines[i] * h[i] + sines[i] * h[i + 1],
                cosines[i] * h[i + 1] - sines[i] * h[i],
            )
        size = math.hypot(h[j], h[j + 1])
        cosines[j], sines[j] = (h[j] / size, h[j + 1] / size) if size > 0 else (1.0, 0.0)
        h[j], h[j + 1] = size, 0.0
        g[j], g[j + 1] = cosines[j] * g[j], -sines[j] * g[j]

    def solve_upper(self, R: Any, g: Any) -> Any:
        if np.diagonal(R).all():
            return solve_triangular(R, g, check_finite=False)
        return np.linalg.lstsq(R, g)[0]  # A is singular

    def combine(self, V: Any, y: Any) -> Any:
        total = np.zeros(V.shape[1])
        _kernels.krylov_project(V, -np.asarray(y), total, np.empty(0), get_num_threads())
        return total


BLOCKS = Blocks()


def block(X: Any) -> Any:
    """X as the kernels read it; itself if it is that already."""
    return np.asarray(X, dtype=np.float64, order="F")


def products_of(A: Any) -> Operator:
    """Products with a matrix, by several threads where it is sparse; a function is one already.

    Examples
    --------
    >>> from scipy import sparse
    >>> from roundwise.krylov import products_of
    >>> times = products_of(sparse.csr_array([[2.0, 0.0], [1.0, 1.0]]))
    >>> times(np.ones((2, 1)))[:, 0]
    array([2., 2.])
    """
    if not sparse.issparse(A):
        return A if callable(A) else A.__matmul__  # type: ignore[no-any-return]
    rows = A.tocsr()
    values = np.ascontiguousarray(rows.data, dtype=np.float64)

    def times(X: Any) -> Any:
        Y = np.empty((rows.shape[0], X.shape[1]), order="F")
        _kernels.krylov_rows_times(
            rows.indptr, rows.indices, values, block(X), Y, get_num_threads()
        )
        return Y

    return times
