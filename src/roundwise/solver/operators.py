"""Matrices and operators as iterative methods take them: products, norms, preconditioners.

A `scipy.sparse.linalg.LinearOperator`, or a function of vectors, is known by its products alone. So
its norm is a lower bound, the largest ``max |A v| / max |v|`` of the vectors v that were tried: a
backward error that is computed with it is rather too large, and what passes the gate would also
pass with ``||A||``. What the gate judges are the operator's own products: it cannot see rounding
errors within them.

Complex systems are solved in their real form: real parts first, then imaginary ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from roundwise import krylov
from roundwise._csr import canonical_csr
from roundwise.backends.arrays import is_sparse
from roundwise.backends.native import exact
from roundwise.backends.native.dense import is_symmetric
from roundwise.solver.inputs import check_complex, check_shape, dense_array

Array = NDArray[Any]

PROBES = 3
"""Random vectors that an operator is multiplied with before it is solved with. A taste: the largest
of three ratios is seldom below a third of the norm of matrices with random rows, and a solve takes
some ten products or more."""

ALMOST_SYMMETRIC = 1e-10
"""``|u'Av - v'Au|`` up to that share of ``|u'| |Av|`` is taken for rounding errors of products."""


def is_operator(A: Any) -> bool:
    """Whether A is known by its products alone."""
    if isinstance(A, LinearOperator):
        return True
    return callable(A) and not (is_sparse(A) or hasattr(A, "__array__") or hasattr(A, "shape"))


@dataclass(frozen=True, eq=False)
class Products:
    """A as Krylov methods see it, in its real form if it is complex.

    Examples
    --------
    >>> from scipy import sparse
    >>> from roundwise.solver.operators import products_with
    >>> given = products_with(sparse.csr_array([[2.0, -1.0], [0.0, 4.0]]), np.ones(2))
    >>> given.norm, given.is_symmetric, given.is_exact
    (4.0, False, True)
    """

    n: int  # unknowns, as the caller counts them
    times: Callable[[Any], Any]  # a block of real columns, n or 2 n long
    norm: float  # ||A||_inf, or at least a lower bound of it
    is_symmetric: bool  # or Hermitian; of an operator, as far as probes tell
    is_complex: bool
    matrix: Any = None  # None for an operator
    diagonal: Any = None  # of a matrix

    @property
    def is_exact(self) -> bool:
        """Whether `norm` is the norm, and residuals have known errors."""
        return self.matrix is not None

    def residual(self, X: Array, B: Array) -> tuple[Array, float]:
        """``B - A X`` for complex or real columns, and what rounding may add to backward errors."""
        if self.matrix is None:
            Y = self.times(real_parts(X, self.is_complex))
            return B - given_parts(Y, self.is_complex), 0.0
        if not self.is_complex:
            X, B = (np.asarray(x, dtype=np.float64, order="F") for x in (X, B))
            return exact.residual(self.matrix, X, B), exact.error_of(self.n)
        # Both parts in twice the precision: [Re A, -Im A] and [Im A, Re A] times [Re X; Im X].
        re, im, parts = self.matrix.real, self.matrix.imag, real_parts(X, True)
        join = sparse.hstack if is_sparse(self.matrix) else np.hstack
        found = []
        for row, rest in (((re, -im), B.real), ((im, re), B.imag)):
            wide: Any = join(row)
            wide = canonical_csr(wide, np.float64) if is_sparse(wide) else np.asfortranarray(wide)
            found.append(exact.residual(wide, parts, np.asfortranarray(rest)))
        return found[0] + 1j * found[1], 2 * exact.error_of(2 * self.n)


def products_with(A: Any, b: Array, assume_symmetric: bool = False) -> Products:
    """A matrix or an operator, for right-hand sides b."""
    if is_operator(A):
        return _of_operator(A, b, assume_symmetric)
    if is_sparse(A):
        check_complex("A", A.dtype)
        is_complex = A.dtype.kind == "c" or b.dtype.kind == "c"
        matrix: Any = canonical_csr(A, np.complex128 if is_complex else np.float64)
        matrix = matrix.astype(np.complex128 if is_complex else np.float64, copy=False)
        values = matrix.data
    else:
        given = dense_array("A", A, real=False)
        is_complex = given.dtype.kind == "c" or b.dtype.kind == "c"
        values = matrix = np.array(given, dtype=np.complex128 if is_complex else np.float64)
    check_shape(matrix.shape)
    if not np.isfinite(values).all():
        raise ValueError("A holds NaN or infinity; remove these before the call")
    plain = krylov.products_of(matrix) if not is_complex else matrix.__matmul__
    norm = float(np.asarray(abs(matrix).sum(axis=1)).max())
    symmetric = assume_symmetric or _is_hermitian(matrix)
    times = plain if not is_complex else _real_form(plain)
    return Products(matrix.shape[0], times, norm, symmetric, is_complex, matrix, matrix.diagonal())


def preconditioner(M: Any, given: Products) -> krylov.Operator | None:
    """What the caller passed as M, for blocks of real columns: `M @ r`, `M(r)` or `M.solve(r)`."""
    if M is None:
        return None
    if hasattr(M, "solve") and hasattr(M, "refactor"):  # a Factorization
        apply: Any = M.solve
    elif is_operator(M):
        apply = _products_of(M, given.n)
    else:
        apply = M.__matmul__ if is_sparse(M) else dense_array("M", M, real=False).__matmul__
    shape = getattr(M, "shape", (given.n, given.n))
    if tuple(shape) != (given.n, given.n):
        raise ValueError(f"M has shape {tuple(shape)}; pass {given.n} x {given.n}, as A has")
    return _real_form(apply) if given.is_complex else _as_block(apply)


def seems_symmetric(apply: krylov.Operator | None, length: int) -> bool:
    """Whether ``u'Mv = v'Mu`` for two random vectors."""
    if apply is None:
        return True
    U = np.asfortranarray(np.random.default_rng(length).standard_normal((length, 2)))
    return _agrees(U, apply(U))


def real_parts(X: Array, is_complex: bool) -> Array:
    """Columns in their real form."""
    if not is_complex:
        return np.asarray(X, dtype=np.float64, order="F")
    return np.asfortranarray(np.concatenate([X.real, X.imag]))


def given_parts(X: Array, is_complex: bool) -> Array:
    """Columns from their real form."""
    half = len(X) // 2
    return X[:half] + 1j * X[half:] if is_complex else X


def _of_operator(A: Any, b: Array, assume_symmetric: bool) -> Products:
    n = len(b)
    if isinstance(A, LinearOperator):
        check_shape(A.shape)
        if A.shape[0] != n:
            raise ValueError(f"b has {n} rows, A has {A.shape[0]}; pass b with {A.shape[0]} rows")
    is_complex = b.dtype.kind == "c" or getattr(A, "dtype", np.dtype(float)).kind == "c"
    plain = _products_of(A, n)
    times = _real_form(plain) if is_complex else _as_block(plain)
    rng = np.random.default_rng(n)
    V = np.asfortranarray(rng.choice([-1.0, 1.0], ((2 if is_complex else 1) * n, PROBES)))
    AV = times(V)
    if not np.isfinite(AV).all():
        raise ValueError("A times a vector of ones and minus ones is not finite; repair A")
    norm = float(np.abs(AV).max())
    if is_complex:  # max |A v| / max |v| with moduli: |v| is the square root of 2
        norm = float(np.abs(given_parts(AV, True)).max()) / math.sqrt(2)
    return Products(n, times, norm, assume_symmetric or _agrees(V, AV), is_complex)


def _products_of(A: Any, n: int) -> Callable[[Array], Array]:
    """Products with a block, column by column where A takes vectors alone."""
    if isinstance(A, LinearOperator):
        return lambda X: np.asarray(A.matmat(X))

    def times(X: Array) -> Array:
        columns = [np.asarray(A(np.ascontiguousarray(x))) for x in X.T]
        for y in columns:
            if y.size != n:
                raise ValueError(f"A(v) has shape {y.shape}; return a vector of {n} numbers")
        return np.column_stack([y.reshape(n) for y in columns])

    return times


def _as_block(apply: Callable[[Array], Array]) -> krylov.Operator:
    """Results as float64 in Fortran order."""

    def times(X: Array) -> Array:
        Y = np.asarray(apply(X))
        if Y.dtype.kind == "c":
            raise TypeError("a product is complex, A and b are real; pass a complex b")
        return np.asarray(Y, dtype=np.float64, order="F")

    return times


def _real_form(apply: Callable[[Array], Array]) -> krylov.Operator:
    return lambda X: real_parts(np.asarray(apply(given_parts(X, True))), True)


def _agrees(V: Array, AV: Array) -> bool:
    """Whether products of A with probes agree with a symmetric A."""
    products = V.T @ AV
    sizes = np.linalg.norm(V, axis=0)[:, None] * np.linalg.norm(AV, axis=0)
    return bool((np.abs(products - products.T) <= ALMOST_SYMMETRIC * (sizes + sizes.T)).all())


def _is_hermitian(A: Any) -> bool:
    if A.dtype.kind == "c":
        rest = A - A.conj().T
        return not (abs(rest).max() if rest.size else 0.0) > 0
    if sparse.issparse(A):
        rest = (A - A.T).tocsr()
        return not (rest.nnz and bool((rest.data != 0).any()))
    return bool(is_symmetric(A))
