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
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import structural_rank
from scipy.sparse.linalg import SuperLU, splu

from roundwise.backends.checks import checked_block, require_square
from roundwise.backends.contract import ArithmeticFailure, Factors, Status, Vector
from roundwise.backends.emulated.sparse import (
    SparseCholesky,
    SparseFactors,
    columns_in,
    superlu_columns,
)
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.native.storage import finished, loaded, require_native_sparse
from roundwise.formats import FP32, FP64, FloatFormat

NONZERO_DIAGONAL, SYMMETRIC_PATTERN = 0.95, 0.9
"""The least shares of nonzeros on the diagonal, and of entries off it with a partner across it,
for which a pattern suits symmetric mode."""

SAMPLE = 500
"""About how many entries `suits_symmetric_mode` looks at to tell whether a pattern is symmetric."""

DIAGONAL_PIVOT = 0.1
"""In symmetric mode a diagonal entry is taken as pivot if it is this part of the largest."""

SYMMETRIC = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
"""SuperLU's minimum degree order on A + A', diagonal pivots preferred."""

OPTIONS: dict[str, dict[str, Any]] = {
    "mmd": SYMMETRIC | {"diag_pivot_thresh": DIAGONAL_PIVOT},
    "colamd": {"permc_spec": "COLAMD"},
}
"""The arguments of SciPy's splu, by ordering."""

ORDINARY = 1e100
"""FP64 factors of matrices with entries up to this are not searched for overflow."""


class SuperLUEngine(Engine):
    """Supernodal LU with partial or diagonal pivoting."""

    name = "superlu"
    orderings = tuple(OPTIONS)
    formats = (FP32, FP64)

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> SuperLUSymbolic:
        return SuperLUSymbolic(pattern, ordering)


class SuperLUSymbolic(Symbolic):
    """A pattern with its fill-reducing order, once that is known.

    SciPy gives the order only with a factorization: the first one finds it, later ones permute the
    matrix by it (rows, too, in symmetric mode) and tell SuperLU to keep the natural order.
    """

    def __init__(self, pattern: sparse.csr_array, ordering: str) -> None:
        require_square(pattern.shape)
        self._pattern, self._ordering = pattern, ordering
        self._order: NDArray[np.int32] | None = None

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> SuperLUFactors:
        kernel, method = "sparse LU factorization", f"{SuperLUEngine.name}/{self._ordering}"
        options = OPTIONS[self._ordering]
        if self._order is None:
            A = _with_values(self._pattern, values).tocsc()
            superlu = factorized(A, fmt, kernel, Status.ZERO_PIVOT, options)
            self._order = np.argsort(superlu.perm_c).astype(np.int32)
            return SuperLUFactors(fmt, superlu, method)
        order, positions = self._order, self._permuted
        A = _with_values(positions, values[positions.data])
        options = options | {"permc_spec": "NATURAL"}
        superlu = factorized(A, fmt, kernel, Status.ZERO_PIVOT, options)
        return SuperLUFactors(fmt, superlu, method, order if self._permutes_rows else None, order)

    @property
    def _permutes_rows(self) -> bool:
        return self._ordering == "mmd"

    @cached_property
    def _permuted(self) -> sparse.csc_array:
        """For each entry of the permuted matrix its position in the pattern."""
        positions = _with_values(self._pattern, np.arange(self._pattern.nnz))
        if self._permutes_rows:
            positions = positions[self._order]
        return positions.tocsc()[:, self._order]


def _with_values(pattern: Any, values: NDArray[Any]) -> Any:
    """A matrix with this one's pattern, and other values."""
    return type(pattern)((values, pattern.indices, pattern.indptr), shape=pattern.shape)


def factorized(
    A: sparse.csc_array, fmt: FloatFormat, kernel: str, breakdown: Status, options: dict[str, Any]
) -> SuperLU:
    """SuperLU's factors of a finite matrix; a failure of status `breakdown` if no pivot is left."""
    try:
        superlu = splu(A, **options)
    except RuntimeError as error:
        # Columns with fewer rows than there are columns make SuperLU abort with another text.
        if "singular" not in str(error) and structural_rank(sparse.csr_array(A)) == A.shape[0]:
            raise
        raise ArithmeticFailure(breakdown, kernel, fmt) from error
    if fmt == FP64 and np.abs(A.data).max(initial=0.0) < ORDINARY:
        return superlu
    # SuperLU does not tell of overflow, and to look for it one would copy the factors. A solution
    # hints at it: it is not finite then, or zero where something was divided by infinity.
    b = np.random.default_rng(0).uniform(1, 2, A.shape[0]).astype(A.dtype)
    x = superlu.solve(b)
    suspect = not (np.isfinite(x) & (x != 0)).all()
    if suspect and not all(np.isfinite(factor.data).all() for factor in (superlu.L, superlu.U)):
        raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
    return superlu


class SuperLUFactors(Factors):
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
        self.method = method
        self._superlu, self._rows, self._columns = superlu, rows, columns

    @cached_property
    def perm(self) -> NDArray[np.int32]:  # type: ignore[override]
        perm = np.argsort(self._superlu.perm_r).astype(np.int32)
        return perm if self._rows is None else self._rows[perm]

    @cached_property
    def order(self) -> NDArray[np.int32]:  # type: ignore[override]
        order = np.argsort(self._superlu.perm_c).astype(np.int32)
        return order if self._columns is None else self._columns[order]

    @property
    def _is_cholesky(self) -> bool:
        return self.method == "cholesky"

    @property
    def L(self) -> sparse.csc_array:
        L = self._superlu.L.astype(np.float64)
        if not self._is_cholesky:
            return L
        return sparse.csc_array(L @ sparse.diags_array(np.sqrt(self._superlu.U.diagonal())))

    @property
    def U(self) -> sparse.csc_array:
        return self.L.T.tocsc() if self._is_cholesky else self._superlu.U.astype(np.float64)

    def to(self, fmt: FloatFormat) -> Factors:
        """The same numbers in compressed columns: SuperLU applies them in its own format only."""
        if fmt == self.fmt:
            return self
        require_native_sparse(fmt)
        if self._is_cholesky:
            L = self.L
            L.sort_indices()  # the kernels need the diagonal first
            return SparseCholesky(fmt, columns_in((L.indptr, L.indices, L.data), fmt), self.order)
        lower, upper = (columns_in(columns, fmt) for columns in superlu_columns(self._superlu))
        return SparseFactors(fmt, lower, upper, self.perm, self.order)

    def solve(self, b: Vector, transpose: bool = False) -> Vector:
        block = checked_block(b, self.shape[0])
        # SuperLU factorized A[rows][:, columns].
        inward, outward = (self._rows, self._columns)[:: -1 if transpose else 1]
        operand = loaded(block if inward is None else block[inward], self.fmt)
        y = self._superlu.solve(operand, "T" if transpose else "N")
        x = finished(y, "sparse triangular solve", self.fmt, block)
        if outward is not None:
            x[outward] = x.copy()
        return x if np.ndim(b) == 2 else x[:, 0]


def suits_symmetric_mode(A: sparse.csr_array) -> bool:
    """Whether most entries have a partner across the diagonal, which has few zeros itself.

    Zeros there, as in a saddle-point matrix, make pivots leave the diagonal: the order that was
    chosen for it then fills in far more than COLAMD's. A must be in canonical form; some hundred
    of its entries stand for all.
    """
    n = A.shape[0]
    if np.count_nonzero(A.diagonal()) < NONZERO_DIAGONAL * n:
        return False
    rows = np.repeat(np.arange(n), np.diff(A.indptr))
    places = rows * n + A.indices  # ascending
    sample = slice(None, None, max(1, A.nnz // SAMPLE))
    partners = A.indices[sample].astype(np.int64) * n + rows[sample]
    found = places[np.minimum(np.searchsorted(places, partners), A.nnz - 1)] == partners
    off_diagonal = rows[sample] != A.indices[sample]
    least = SYMMETRIC_PATTERN * np.count_nonzero(off_diagonal)
    return bool(np.count_nonzero(found & off_diagonal) >= least)
