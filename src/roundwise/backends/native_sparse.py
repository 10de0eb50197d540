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

from roundwise.backends.base import (
    ArithmeticFailure,
    Factors,
    Matrix,
    Status,
    Vector,
    checked_block,
    checked_vector,
    require_square,
)
from roundwise.backends.native_dense import DTYPES, finished, loaded, nonfinite
from roundwise.backends.operation_dense import carried
from roundwise.backends.operation_sparse import SparseFactors
from roundwise.formats import FloatFormat

SYMMETRIC_PATTERN = 0.9
"""Share of off-diagonal entries with a partner across the diagonal that counts as symmetric."""

DIAGONAL_PIVOT = 0.1
"""In symmetric mode a diagonal entry is taken as pivot if it is this part of the largest."""


class SparseMatrix(Matrix):
    """Compressed rows."""

    is_sparse = True

    def __init__(self, A: Any, fmt: FloatFormat, symmetric_mode: bool) -> None:
        self.fmt, self.shape = fmt, A.shape
        csr = sparse.csr_array(A)
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
        if self._symmetric_mode and has_symmetric_pattern(self._csr):
            return self._factorized(
                "sparse LU factorization",
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=DIAGONAL_PIVOT,
                options={"SymmetricMode": True},
            )
        return self._factorized("sparse LU factorization", permc_spec="COLAMD")

    def cholesky(self) -> SuperLUFactors:
        """``L D L'`` without pivoting, which is Cholesky's up to the scaling of L."""
        lower = sparse.tril(self._csr)
        symmetric = SparseMatrix(lower + sparse.tril(lower, -1).T, self.fmt, True)
        factors = symmetric._factorized(
            "sparse Cholesky factorization",
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        if not (factors.U.diagonal() > 0).all():
            raise ArithmeticFailure(
                Status.NOT_POSITIVE_DEFINITE, "sparse Cholesky factorization", self.fmt
            )
        return factors

    def _factorized(self, kernel: str, **options: Any) -> SuperLUFactors:
        require_square(self.shape)
        try:
            return SuperLUFactors(self.fmt, splu(self._csr.tocsc(), **options))
        except RuntimeError as error:
            # Columns with fewer rows than there are columns make SuperLU abort with another text.
            if "singular" not in str(error) and structural_rank(self._csr) == self.shape[0]:
                raise
            raise ArithmeticFailure(Status.ZERO_PIVOT, kernel, self.fmt) from error


def has_symmetric_pattern(A: sparse.csr_array) -> bool:
    """Whether most entries have a partner across the diagonal."""
    pattern = sparse.csr_array(
        (np.ones(A.nnz, dtype=np.int8), A.indices, A.indptr), shape=A.shape, copy=False
    )
    both = pattern.multiply(pattern.T)
    return bool(both.nnz >= SYMMETRIC_PATTERN * A.nnz)


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

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        raise NotImplementedError("SuperLU permutes by itself; call solve")
