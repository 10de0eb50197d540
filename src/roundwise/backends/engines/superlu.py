"""SuperLU, as SciPy has it: sparse LU in FP32 and FP64.

Orderings
---------
mmd
    Minimum degree on the pattern of A + A', for rows and columns alike, and diagonal pivots where
    they are not small (SuperLU's symmetric mode). Often fills in far less than COLAMD where
    `suits_symmetric_mode` says yes.
colamd
    COLAMD for the columns, partial pivoting for the rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import SuperLU

from roundwise._forking import cached_property
from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status, Vector
from roundwise.backends.emulated.ordering import SYMMETRIC, superlu
from roundwise.backends.emulated.sparse import SparseFactors, columns_of
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.structure import without_values
from roundwise.backends.native.storage import finished, loaded, require_native_sparse
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FP32, FP64, FloatFormat

DIAGONAL_PIVOT = 0.1
"""In symmetric mode a diagonal entry is taken as pivot if it is this part of the largest."""

LEAN = {"relax": 1, "panel_size": 8}
"""SuperLU's own values merge small subtrees of columns into supernodes, zeros included, and update
20 columns at once. With partial pivoting these zeros fill in further (twice the entries of L and U
for hangGlider_3), and wide panels pay only where supernodes are large. With these values, systems
with few entries in the factors take 0.8 to 0.95 of the time, some with many 0.3, others 1.1."""

OPTIONS: dict[str, dict[str, Any]] = {
    "mmd": SYMMETRIC | {"diag_pivot_thresh": DIAGONAL_PIVOT},
    "colamd": {"permc_spec": "COLAMD"} | LEAN,
    "cholesky": SYMMETRIC | {"diag_pivot_thresh": 0.0},
}
"""The arguments of SciPy's splu, by ordering."""

ORDINARY = 1e100
"""FP64 factors of matrices with entries up to this are not searched for overflow."""


class SuperLUEngine(Engine):
    """Supernodal LU with partial or diagonal pivoting."""

    name, package = "superlu", "scipy"
    orderings = ("mmd", "colamd")
    formats = (FP32, FP64)

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> SuperLUSymbolic:
        return SuperLUSymbolic(pattern, ordering)


class SuperLUSymbolic(Symbolic):
    """A pattern with its fill-reducing order, once that is known.

    SciPy gives the order only with a factorization: the first one finds it, later ones permute the
    matrix by it (rows, too, in symmetric mode) and tell SuperLU to keep the natural order.

    The ordering ``cholesky`` is for symmetric positive definite matrices: without pivoting,
    SuperLU computes ``L D L'``, which is Cholesky's up to the scaling of L.
    """

    def __init__(self, pattern: sparse.csr_array, ordering: str) -> None:
        require_square(pattern.shape)
        self._pattern, self._ordering = without_values(pattern), ordering
        self._places: NDArray[np.int32] | None = None  # of columns in the first order
        self._permutes_rows, self._is_cholesky = ordering != "colamd", ordering == "cholesky"
        self._method = ordering if self._is_cholesky else f"{SuperLUEngine.name}/{ordering}"

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> SuperLUFactors:
        options = OPTIONS[self._ordering]
        if self._places is None:
            found = self._factorized(_with_values(self._pattern, values).tocsc(), fmt, options)
            self._places = found.perm_c
            return SuperLUFactors(fmt, found, self._method)
        A = _with_values(self._permuted, values[self._permuted.data])
        found = self._factorized(A, fmt, options | {"permc_spec": "NATURAL"})
        rows = self._order if self._permutes_rows else None
        return SuperLUFactors(fmt, found, self._method, rows, self._order)

    @cached_property
    def _order(self) -> NDArray[np.int32]:
        return np.argsort(np.asarray(self._places)).astype(np.int32)

    @cached_property
    def _permuted(self) -> sparse.csc_array:
        """For each entry of the permuted matrix its position in the pattern."""
        positions = _with_values(self._pattern, np.arange(self._pattern.nnz))
        if self._permutes_rows:
            positions = positions[self._order]
        return positions.tocsc()[:, self._order]

    def _factorized(
        self, A: sparse.csc_array, fmt: FloatFormat, options: dict[str, Any]
    ) -> SuperLU:
        """SuperLU's factors of a finite matrix, or a failure."""
        kernel, breakdown = "sparse LU factorization", Status.ZERO_PIVOT
        if self._is_cholesky:
            kernel, breakdown = "sparse Cholesky factorization", Status.NOT_POSITIVE_DEFINITE
        # An order has come from a factorization of this pattern, which is regular therefore.
        found = superlu(A, pattern_is_regular=self._places is not None, **options)
        if found is None:
            raise ArithmeticFailure(breakdown, kernel, fmt)
        if fmt != FP64 or np.abs(A.data).max(initial=0.0) >= ORDINARY:
            # SuperLU does not tell of overflow, and to look for it one would copy the factors. A
            # solution hints at it: not finite, or zero where something was divided by infinity.
            b = np.random.default_rng(0).uniform(1, 2, A.shape[0]).astype(A.dtype)
            x = found.solve(b)
            suspect = not (np.isfinite(x) & (x != 0)).all()
            if suspect and not all(np.isfinite(factor.data).all() for factor in (found.L, found.U)):
                raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
        # SuperLU leaves the diagonal where that is zero, perhaps for positive pivots.
        if self._is_cholesky and not (
            np.array_equal(found.perm_r, found.perm_c) and (found.U.diagonal() > 0).all()
        ):
            raise ArithmeticFailure(breakdown, kernel, fmt)
        return found


def _with_values(pattern: Any, values: NDArray[Any]) -> Any:
    """A matrix with this one's pattern, and other values."""
    return type(pattern)((values, pattern.indices, pattern.indptr), shape=pattern.shape)


class SuperLUFactors(PermutedFactors):
    """SuperLU's factors in its own storage; of a Cholesky factorization, ``L D L'``.

    Parameters
    ----------
    superlu : scipy.sparse.linalg.SuperLU
        Factors of ``A[rows][:, columns]``.
    rows, columns : array, optional
        None where A was not permuted before SuperLU got it.
    """

    is_sparse = True
    flops = math.nan  # SuperLU does not tell, and to count them one would copy its factors

    def __init__(
        self,
        fmt: FloatFormat,
        superlu: SuperLU,
        method: str = "superlu",
        rows: NDArray[np.int32] | None = None,
        columns: NDArray[np.int32] | None = None,
    ) -> None:
        self.fmt, self.shape, self.entries = fmt, superlu.shape, superlu.nnz
        self.method, self._is_cholesky = method, method == "cholesky"
        self._superlu, self._around = superlu, (rows, columns)

    @cached_property
    def perm(self) -> NDArray[np.int32]:
        perm, (rows, _) = np.argsort(self._superlu.perm_r).astype(np.int32), self._around
        return perm if rows is None else rows[perm]

    @cached_property
    def order(self) -> NDArray[np.int32]:
        order, (_, columns) = np.argsort(self._superlu.perm_c).astype(np.int32), self._around
        return order if columns is None else columns[order]

    @property
    def L(self) -> sparse.csc_array:
        L = self._superlu.L.astype(np.float64)
        if not self._is_cholesky:
            return L
        return sparse.csc_array(L @ sparse.diags_array(np.sqrt(self._superlu.U.diagonal())))

    @property
    def U(self) -> sparse.csc_array:
        return self.L.T.tocsc() if self._is_cholesky else self._superlu.U.astype(np.float64)

    def to(self, fmt: FloatFormat) -> PermutedFactors:
        """The same numbers in compressed columns: SuperLU applies them in its own format only."""
        if fmt == self.fmt:
            return self
        require_native_sparse(fmt)
        L = self.L
        factors = [L] if self._is_cholesky else [sparse.tril(L, -1, format="csc"), self.U]
        columns = [columns_of(factor) for factor in factors]
        return SparseFactors(FP64, columns, self.perm, self.order, self.method).to(fmt)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        y = self._superlu.solve(loaded(b, self.fmt), "T" if transpose else "N")
        return finished(y, "sparse triangular solve", self.fmt, b)

    def solve_complex(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        """``A X = Z`` or ``A* X = Z``, if A is complex; inf and NaN stay."""
        rows, columns = self._around[::-1] if adjoint else self._around
        X = self._superlu.solve(np.array(Z if rows is None else Z[rows], order="F"), "NH"[adjoint])
        if columns is not None:
            X[columns] = X.copy()
        return np.asarray(X)
