"""Sparse matrices in native arithmetic, FP32 or FP64; sparse engines factorize them.

Complex ones come in their real form (`SparseRealForm`), which products take; engines are given the
complex numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._csr import canonical_csr
from roundwise.backends.arrays import is_real_form
from roundwise.backends.checks import checked_vector, require_square
from roundwise.backends.contract import (
    Analysis,
    Backend,
    Factors,
    Matrix,
    UnsupportedFormat,
    Vector,
)
from roundwise.backends.engines import COMPLEX_ENGINES, ENGINES, Engine, Symbolic
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.engines.pooled import PooledFactors
from roundwise.backends.engines.structure import suits_symmetric_mode, without_values
from roundwise.backends.engines.superlu import SuperLUFactors, SuperLUSymbolic
from roundwise.backends.engines.supernodal import SupernodalEngine, SupernodalSymbolic
from roundwise.backends.native.complex_matrix import ComplexFactors
from roundwise.backends.native.storage import (
    COMPLEX_DTYPES,
    DTYPES,
    finished,
    loaded,
    nonfinite,
    require_native_sparse,
)
from roundwise.backends.real_form import compressed
from roundwise.formats import FP64, FloatFormat, get_format
from roundwise.methods.sparse import SAFE


class SparseMatrix(Matrix):
    """Compressed rows."""

    is_sparse = True

    def __init__(self, A: Any, fmt: FloatFormat, symmetric_mode: bool) -> None:
        self.fmt, self.shape, self.is_complex = fmt, A.shape, is_real_form(A)
        csr = canonical_csr(A)
        with np.errstate(over="ignore"):
            self.rows = csr.astype(DTYPES[fmt], copy=False)
        self.entries = self.rows.nnz
        self._symmetric_mode = symmetric_mode
        if not np.isfinite(self.rows.data).all():
            raise nonfinite("rounding the matrix", fmt, csr.data)

    @property
    def array(self) -> sparse.csr_array:
        """The matrix in its format."""
        return self.rows

    def given_to_engines(self) -> sparse.csr_array:
        """What engines factorize: the complex matrix itself, if it is one."""
        if not self.is_complex:
            return self.rows
        return compressed(self.rows).astype(COMPLEX_DTYPES[self.fmt], copy=False)

    def matvec(self, x: Vector, transpose: bool = False) -> Vector:
        x = checked_vector(x, self.shape[0 if transpose else 1])
        A = self.rows.T if transpose else self.rows
        with np.errstate(over="ignore", invalid="ignore"):
            return finished(A @ loaded(x, self.fmt), "sparse matvec", self.fmt, x)

    def times(self, X: Vector) -> Vector:
        return self.rows @ np.asarray(X, dtype=self.rows.dtype)

    def lu(self) -> Factors:
        require_square(self.shape)
        A = self.given_to_engines()
        symmetric = self._symmetric_mode and suits_symmetric_mode(A)
        factors = SuperLUSymbolic(A, "mmd" if symmetric else "colamd").factorize(A.data, self.fmt)
        return ComplexEngineFactors(factors) if self.is_complex else factors

    def cholesky(self) -> Factors:
        require_square(self.shape)
        lower = sparse.tril(self.rows)
        symmetric = sparse.csr_array(lower + sparse.tril(lower, -1).T)
        return SuperLUSymbolic(symmetric, "cholesky").factorize(symmetric.data, self.fmt)


def engine_methods(is_complex: bool = False) -> Mapping[str, tuple[Engine, str]]:
    """Each engine with each of its orderings, by the name of the method."""
    return _methods_of(tuple((COMPLEX_ENGINES if is_complex else ENGINES).values()))


@lru_cache(maxsize=8)  # a choice asks for them some fifty times
def _methods_of(engines: tuple[Engine, ...]) -> Mapping[str, tuple[Engine, str]]:
    return {
        f"{engine.name}/{ordering}": (engine, ordering)
        for engine in engines
        for ordering in engine.orderings
    }


def placed_methods(is_complex: bool, place: str) -> tuple[str, ...]:
    """Those of the engines on the "cpu", on "cuda", or of all ("auto"); always the safe one."""
    found = engine_methods(is_complex).items()
    places = ("cpu", "cuda") if place == "auto" else (place,)
    return tuple(name for name, (engine, _) in found if name == SAFE or engine.runs_on in places)


class EngineAnalysis(Analysis):
    """An engine's symbolic analysis, which later factorizations use again."""

    def __init__(self, backend: Backend, A: Any, method: str, orders: Orders | None = None) -> None:
        self.method = method
        self._backend = backend
        is_complex = is_real_form(A)
        self._engine, ordering = engine_methods(is_complex)[method]
        self._pattern = compressed(A) if is_complex else canonical_csr(A)
        if orders is not None and orders.A is A and isinstance(self._engine, SupernodalEngine):
            self._symbolic: Symbolic = self._engine.analyse(self._pattern, ordering, orders)
        else:
            self._symbolic = self._engine.analyse(self._pattern, ordering)
        self._pattern = without_values(self._pattern)  # other values will come

    @property
    def depends_on_values(self) -> bool:
        return self._symbolic.depends_on_values

    def factorize(self, A: Any, fmt: str | FloatFormat, seconds: float | None = None) -> Factors:
        """As the contract says; engines of our own give up after so many `seconds`, if given."""
        fmt = fmt if isinstance(fmt, FloatFormat) else get_format(fmt)
        if fmt not in self._engine.formats:
            require_native_sparse(fmt)
            known = " or ".join(known.name for known in self._engine.formats)
            raise UnsupportedFormat(f"{self.method} does not run in {fmt}; use {known}")
        matrix = self._backend.matrix(A, FP64 if self._engine.stores else fmt)
        assert isinstance(matrix, SparseMatrix)
        A, pattern = matrix.given_to_engines(), self._pattern
        same = A.shape == pattern.shape and all(
            x is y or np.array_equal(x, y)
            for x, y in ((A.indptr, pattern.indptr), (A.indices, pattern.indices))
        )
        if not same:
            raise ValueError("A has another pattern than the matrix analysed; analyse A")
        if seconds is not None and isinstance(self._symbolic, SupernodalSymbolic):
            return self._symbolic.factorize(A.data, fmt, seconds)
        factors = self._symbolic.factorize(A.data, fmt)
        return ComplexEngineFactors(factors) if matrix.is_complex else factors


class ComplexEngineFactors(ComplexFactors):
    """Factors of a complex matrix that an engine keeps to itself."""

    is_sparse = True

    def __init__(self, found: Any) -> None:
        super().__init__(found.fmt, found.shape[0], found.method)
        self.entries, self.flops = 2 * found.entries, 4 * found.flops
        self.replaced_pivots = found.replaced_pivots
        self._found: SuperLUFactors | PooledFactors = found

    def _solve_complex(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        return self._found.solve_complex(Z, adjoint)
