"""Sparse complex matrices: products in their real form, factors by SuperLU or MKL PARDISO.

Our own supernodal engine, KLU, UMFPACK and CHOLMOD are called for real matrices only.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.complex.factors import COMPLEX, PairedFactors
from roundwise.backends.contract import Analysis, ArithmeticFailure, Factors, Status
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.pardiso import PardisoFactors, PardisoLU
from roundwise.backends.engines.static_pivoting import without_values
from roundwise.backends.engines.superlu import (
    SuperLUEngine,
    SuperLUFactors,
    SuperLUSymbolic,
    suits_symmetric_mode,
)
from roundwise.backends.native.sparse import SparseMatrix
from roundwise.backends.real_form import compressed
from roundwise.formats import FloatFormat, get_format


class ComplexPardisoLU(PardisoLU):
    """PARDISO's LU of complex matrices."""

    matrix_type: ClassVar[int] = 13
    dtypes = COMPLEX


def complex_methods() -> dict[str, tuple[Engine, str]]:
    """The engines that factorize complex matrices here, with each of their orderings."""
    engines: tuple[Engine, ...] = (SuperLUEngine(), ComplexPardisoLU())
    return {
        f"{engine.name}/{ordering}": (engine, ordering)
        for engine in engines
        if engine.installed
        for ordering in engine.orderings
    }


class ComplexSparseMatrix(SparseMatrix):
    """The real form of a sparse complex matrix."""

    def lu(self) -> Factors:
        A = compressed(self.rows)
        symmetric = self._symmetric_mode and suits_symmetric_mode(A)
        return _factorized(SuperLUSymbolic(A, "mmd" if symmetric else "colamd"), A, self.fmt)


class ComplexAnalysis(Analysis):
    """An engine's analysis of a complex pattern, of which it is given the real form."""

    def __init__(self, A: sparse.csr_array, method: str) -> None:
        engine, ordering = complex_methods()[method]
        pattern = compressed(A)
        self._symbolic: Symbolic = engine.analyse(pattern, ordering)
        self._pattern = without_values(pattern)

    @property
    def depends_on_values(self) -> bool:
        return self._symbolic.depends_on_values

    def factorize(self, A: Any, fmt: str | FloatFormat) -> Factors:
        A, pattern = compressed(A), self._pattern
        if not (
            np.array_equal(A.indptr, pattern.indptr) and np.array_equal(A.indices, pattern.indices)
        ):
            raise ValueError("A has another pattern than the matrix analysed; analyse A")
        return _factorized(self._symbolic, A, get_format(fmt))


def _factorized(symbolic: Symbolic, A: sparse.csr_array, fmt: FloatFormat) -> Factors:
    with np.errstate(over="ignore"):
        values = A.data.astype(COMPLEX[fmt])
    if not np.isfinite(values).all():
        raise ArithmeticFailure(Status.OVERFLOW, "rounding the matrix", fmt)
    found = symbolic.factorize(values, fmt)
    if isinstance(found, SuperLUFactors):
        return ComplexSuperLU(found)
    assert isinstance(found, PardisoFactors)
    return ComplexPardiso(found)


class _EngineFactors(PairedFactors):
    """Factors that an engine keeps to itself: in another format, operands are converted."""

    is_sparse = True

    def __init__(self, found: Any, fmt: FloatFormat | None = None) -> None:
        super().__init__(found.fmt if fmt is None else fmt, found.shape[0])
        self.method, self.entries, self.flops = found.method, 2 * found.entries, 4 * found.flops
        self.replaced_pivots = found.replaced_pivots
        self._found = found

    def to(self, fmt: FloatFormat) -> Factors:
        return self if fmt == self.fmt else type(self)(self._found, fmt)

    def _solve_block(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        X = self._solved(Z.astype(COMPLEX[self._found.fmt], order="F", copy=False), adjoint)
        return X.astype(Z.dtype, copy=False)

    @abstractmethod
    def _solved(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        """``A X = Z``, or ``A* X = Z``, in the format of the engine's factors."""


class ComplexSuperLU(_EngineFactors):
    """SuperLU's."""

    def _solved(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        return np.asarray(self._found.solve_complex(Z, adjoint))


class ComplexPardiso(_EngineFactors):
    """PARDISO's."""

    def _solved(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        if adjoint:  # A* is the conjugate of A'
            return np.asarray(np.conj(self._found.solve_complex(np.conj(Z), True)))
        return np.asarray(self._found.solve_complex(Z, False))
