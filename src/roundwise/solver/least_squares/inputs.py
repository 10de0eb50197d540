"""What `lstsq` accepts: A and b as NumPy's does, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._csr import canonical_csr, dense_from_sparse
from roundwise.backends import Backend
from roundwise.solver.inputs import NOT_FINITE, dense_array

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GivenProblem:
    """A and b as float64, and what the answer is to look like."""

    A: Any  # float64 array, C or Fortran contiguous, or canonical csr_array
    b: Array  # (m, k)
    was_vector: bool
    dtype: Any  # of the answer: float32 if A and b are, else float64

    def shaped(self, x: NDArray[Any]) -> NDArray[Any]:
        return x[:, 0] if self.was_vector else x

    def per_column(self, values: Array) -> Any:
        return float(values[0]) if self.was_vector else values

    def residual_norms(self, x: NDArray[Any]) -> Any:
        """``||b - A x||_2`` of each column."""
        with np.errstate(all="ignore"):
            R = self.b - self.A @ x.astype(np.float64)
            largest = np.abs(R).max(axis=0, initial=0.0)
            scale = np.where(largest > 0, largest, 1.0)  # squares would leave float64's range
            return self.per_column(np.sqrt(np.square(R / scale).sum(axis=0)) * scale)


def checked_problem(A: Any, b: Any, backend: Backend) -> GivenProblem:
    """A and b, ready to be solved with, or an error that names the fix."""
    is_sparse = sparse.issparse(A)
    for name, values in (("A", A), ("b", b)):
        if np.issubdtype(getattr(values, "dtype", np.float64), np.complexfloating):
            raise TypeError(
                f"{name} is complex; real problems only: pass {name}.real if that is meant, or use "
                "numpy.linalg.lstsq"
            )
    given = A if is_sparse else dense_array("A", A)
    columns = dense_array("b", dense_from_sparse(b, "b") if sparse.issparse(b) else b)
    if given.ndim != 2:
        raise np.linalg.LinAlgError(f"A has {given.ndim} dimensions; pass a matrix")
    if columns.ndim not in (1, 2):
        raise np.linalg.LinAlgError(
            f"b has {columns.ndim} dimensions; pass a vector or a matrix of columns"
        )
    m = given.shape[0]
    if len(columns) != m:
        raise np.linalg.LinAlgError(f"b has {len(columns)} rows, A has {m}; pass b with {m} rows")
    dtype = np.float32 if given.dtype == columns.dtype == np.float32 else np.float64
    form: Any = canonical_csr(given) if is_sparse else _contiguous(given)
    largest = backend.sizes(form)[1] if (form.nnz if is_sparse else form.size) else 0.0
    if not math.isfinite(largest):
        raise ValueError(f"A {NOT_FINITE}")
    if not np.isfinite(columns).all():
        raise ValueError(f"b {NOT_FINITE}")
    block = np.array(columns if columns.ndim == 2 else columns[:, None], np.float64, order="F")
    return GivenProblem(form, block, columns.ndim == 1, dtype)


def _contiguous(A: NDArray[Any]) -> Array:
    contiguous = A.flags.c_contiguous or A.flags.f_contiguous
    if A.dtype == np.float64 and contiguous and A.flags.aligned:
        return A
    return np.array(A, dtype=np.float64, order="K" if contiguous else "C")
