"""Sparse matrices and SuperLU's factors in native arithmetic, FP32 or FP64.

SuperLU works in float32 and float64; there is no 16-bit sparse factorization to run natively.
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

from roundwise.backends.contract import (
    ArithmeticFailure,
    Factors,
    Matrix,
    Status,
    UnsupportedFormat,
    Vector,
    checked_block,
    checked_vector,
    require_square,
)
from roundwise.backends.emulated.dense import carried
from roundwise.backends.emulated.sparse import SparseCholesky, SparseFactors
from roundwise.backends.native.dense import DTYPES, finished, loaded, nonfinite
from roundwise.formats import FP32, FP64, FloatFormat

NONZERO_DIAGONAL, SYMMETRIC_PATTERN = 0.95, 0.9
"""The least shares of nonzeros on the diagonal, and of entries off it with a partner across it,
for which SuperLU's symmetric mode is taken."""

SAMPLE = 500
"""Entries that are looked at, at least, to tell whether a pattern is symmetric."""

SYMMETRIC = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
"""SuperLU's minimum degree order on A + A', diagonal pivots preferred."""

ORDINARY = 1e100
"""FP64 factors of matrices with entries up to this are not searched for overflow."""

DIAGONAL_PIVOT = 0.1
"""In symmetric mode a diagonal entry is taken as pivot if it is this part of the largest."""


def require_native_sparse(fmt: FloatFormat) -> None:
    """Refuse a format that SuperLU does not have."""
    if fmt not in (FP32, FP64):
        raise UnsupportedFormat(
            f"sparse matrices run natively in fp32 and fp64 alone, not in {fmt}; use one of these, "
            "or the operation model"
        )


class SparseMatrix(Matrix):
    """Compressed rows."""

    is_sparse = True

    def __init__(self, A: Any, fmt: FloatFormat, symmetric_mode: bool) -> None:
        self.fmt, self.shape = fmt, A.shape
        csr = sparse.csr_array(A.astype(np.float64, copy=False))
        if not csr.has_canonical_format:
            csr = csr.copy()  # not the caller's
            csr.sum_duplicates()
        with np.errstate(over="ignore"):
            self._csr = csr.astype(DTYPES[fmt], copy=False)
        self.entries = self._csr.nnz
        self._symmetric_mode = symmetric_mode
        if not np.isfinite(self._csr.data).all():
            raise nonfinite("rounding the matrix", fmt, csr.data)

    def matvec(self, x: NDArray[Any], transpose: bool = False) -> Vector:
        x = checked_vector(x, self.shape[0 if transpose else 1])
        A = self._csr.T if transpose else self._csr
        with np.errstate(over="ignore", invalid="ignore"):
            return finished(A @ loaded(x, self.fmt), "sparse matvec", self.fmt, x)

    def lu(self) -> SuperLUFactors:
        require_square(self.shape)
        options: dict[str, Any] = {}
        if self._symmetric_mode and suits_symmetric_mode(self._csr):
            options = SYMMETRIC | {"diag_pivot_thresh": DIAGONAL_PIVOT}
        kernel = "sparse LU factorization"
        superlu = _superlu(self._csr, self.fmt, kernel, Status.ZERO_PIVOT, options)
        return SuperLUFactors(self.fmt, superlu)

    def cholesky(self) -> SuperLUFactors:
        """``L D L'`` without pivoting, which is Cholesky's up to the scaling of L."""
        require_square(self.shape)
        kernel, breakdown = "sparse Cholesky factorization", Status.NOT_POSITIVE_DEFINITE
        lower = sparse.tril(self._csr)
        symmetric = lower + sparse.tril(lower, -1).T
        options = SYMMETRIC | {"diag_pivot_thresh": 0.0}
        superlu = _superlu(symmetric, self.fmt, kernel, breakdown, options)
        # SuperLU leaves the diagonal where that is zero, perhaps for positive pivots.
        on_diagonal = np.array_equal(superlu.perm_r, superlu.perm_c)
        if not (on_diagonal and (superlu.U.diagonal() > 0).all()):
            raise ArithmeticFailure(breakdown, kernel, self.fmt)
        return SuperLUFactors(self.fmt, superlu, cholesky=True)


def _superlu(
    A: Any, fmt: FloatFormat, kernel: str, breakdown: Status, options: dict[str, Any]
) -> SuperLU:
    """SuperLU's factors of a finite matrix; a failure of status `breakdown` if no pivot is left."""
    try:
        superlu = splu(sparse.csc_array(A), **options)
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


class SuperLUFactors(Factors):
    """SuperLU's factors in its own storage; of a Cholesky factorization, ``L D L'``."""

    is_sparse = True
    flops = math.nan  # SuperLU does not tell, and to count them one would copy its factors

    def __init__(self, fmt: FloatFormat, superlu: SuperLU, cholesky: bool = False) -> None:
        self.fmt, self.shape, self.entries = fmt, superlu.shape, superlu.nnz
        self._superlu, self._cholesky = superlu, cholesky

    @cached_property
    def perm(self) -> NDArray[np.int32]:  # type: ignore[override]
        return np.argsort(self._superlu.perm_r).astype(np.int32)

    @cached_property
    def order(self) -> NDArray[np.int32]:  # type: ignore[override]
        return np.argsort(self._superlu.perm_c).astype(np.int32)

    @property
    def L(self) -> sparse.csc_array:
        L = self._superlu.L.astype(np.float64)
        if not self._cholesky:
            return L
        return sparse.csc_array(L @ sparse.diags_array(np.sqrt(self._superlu.U.diagonal())))

    @property
    def U(self) -> sparse.csc_array:
        return self.L.T.tocsc() if self._cholesky else self._superlu.U.astype(np.float64)

    def to(self, fmt: FloatFormat) -> Factors:
        """The same numbers in compressed columns: SuperLU applies them in its own format only."""
        if fmt == self.fmt:
            return self
        require_native_sparse(fmt)
        if self._cholesky:
            L = self.L
            L.sort_indices()  # the kernels need the diagonal first
            return SparseCholesky(fmt, (L.indptr, L.indices, carried(L.data, fmt)), self.order)
        L, U = sparse.tril(self._superlu.L, -1, format="csc"), self._superlu.U
        U.sort_indices()  # the kernels need the diagonal last
        lower, upper = (
            (factor.indptr, factor.indices, carried(factor.data.astype(np.float64), fmt))
            for factor in (L, U)
        )
        return SparseFactors(fmt, lower, upper, self.perm, self.order)

    def solve(self, b: NDArray[Any], transpose: bool = False) -> Vector:
        block = checked_block(b, self.shape[0])
        y = self._superlu.solve(loaded(block, self.fmt), "T" if transpose else "N")
        x = finished(y, "sparse triangular solve", self.fmt, block)
        return x if np.ndim(b) == 2 else x[:, 0]
