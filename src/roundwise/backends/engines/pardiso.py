"""MKL PARDISO: sparse LU, Cholesky and ``L D L'`` in FP32 and FP64, on several threads.

It needs the package ``mkl`` (the extra of that name; x86 only).

Engines
-------
pardiso
    LU of any matrix. A matching brings large entries to the diagonal and scales the matrix; then
    pivots stay within a block of columns, and tiny ones are replaced (`Factors.replaced_pivots`).
pardiso-cholesky
    Of symmetric positive definite matrices.
pardiso-ldl
    Of symmetric matrices, with pivots of 1 x 1 and 2 x 2, after a symmetric matching.

Orderings
---------
mmd
    Minimum degree; often the better one in two dimensions.
metis
    Nested dissection by METIS.

The matching of the first values serves later ones too. If more pivots had to be replaced than for
the first, the matrix is matched and analysed anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.mkl import METIS, MINIMUM_DEGREE, Pardiso, library_path
from roundwise.backends.engines.opaque import OpaqueFactors
from roundwise.backends.engines.static_pivoting import is_structurally_singular, without_values
from roundwise.backends.engines.symmetric import SymmetricPattern
from roundwise.backends.native.storage import COMPLEX_DTYPES, DTYPES
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.machine.threads import factorization_threads

ORDERINGS = {"mmd": MINIMUM_DEGREE, "metis": METIS}

MOST_IDLE = 2
"""Analyses that a pattern keeps for its next factorizations."""


class PardisoLU(Engine):
    """LU with matching, scaling and static pivoting."""

    name = "pardiso"
    orderings = tuple(ORDERINGS)
    formats = (FP32, FP64)
    package = "mkl"
    remedy = "pip install 'roundwise[mkl]' (x86 only)"
    results_depend_on_threads = True

    matrix_type: ClassVar[int] = 11
    matching: ClassVar[bool] = True
    dtypes: ClassVar[Mapping[FloatFormat, type[np.inexact]]] = DTYPES
    """How PARDISO reads values of each format: given another dtype, it reads past their end."""
    breakdown: ClassVar[Status] = Status.ZERO_PIVOT
    tiny: ClassVar[dict[FloatFormat, int]] = {FP32: 7, FP64: 13}
    """Pivots below ``10**-tiny`` of the matrix's size are replaced."""

    @property
    def installed(self) -> bool:
        return library_path() is not None

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> PardisoSymbolic:
        return PardisoSymbolic(self, pattern, ordering)


class ComplexPardisoLU(PardisoLU):
    """The same of complex matrices."""

    matrix_type, dtypes = 13, COMPLEX_DTYPES


class PardisoCholesky(PardisoLU):
    """``L L'``."""

    name, suits = "pardiso-cholesky", "positive definite"
    matrix_type, matching = 2, False
    breakdown = Status.NOT_POSITIVE_DEFINITE


class PardisoLDL(PardisoLU):
    """``L D L'`` with 1 x 1 and 2 x 2 pivots, after a symmetric matching and scaling."""

    name, suits = "pardiso-ldl", "symmetric"
    matrix_type = -2
    tiny: ClassVar[dict[FloatFormat, int]] = {FP32: 7, FP64: 8}


class PardisoSymbolic(Symbolic):
    """A pattern with its order, and with analyses that wait for a matrix to factorize."""

    def __init__(self, engine: PardisoLU, pattern: sparse.csr_array, ordering: str) -> None:
        require_square(pattern.shape)
        self._engine, self._ordering = engine, ordering
        self._method = f"{engine.name}/{ordering}"
        self._pattern = None if engine.suits == "any" else SymmetricPattern(pattern)
        rows = self._pattern.upper if self._pattern else pattern
        self._rows = without_values(rows)
        self._indptr, self._indices = (i.astype(np.int64) for i in (rows.indptr, rows.indices))
        self._order: NDArray[np.int64] | None = None
        self._idle: dict[FloatFormat, list[Pardiso]] = {fmt: [] for fmt in engine.formats}

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> PardisoFactors:
        given, values = values, np.asarray(values, dtype=self._engine.dtypes[fmt])
        if self._pattern:
            self._pattern.require_symmetric(values, self._method, fmt)
            values = self._pattern.upper_values(values)
        elif values is given:
            values = values.copy()  # the caller may change them, and solves may need them
        try:
            solver = self._factorized(values, fmt)
        except ZeroDivisionError:
            raise ArithmeticFailure(self._engine.breakdown, self._method, fmt) from None
        symmetric = self._pattern is not None
        if solver.replaced_pivots and is_structurally_singular(self._rows, values, symmetric):
            raise ArithmeticFailure(Status.ZERO_PIVOT, self._method, fmt)
        self._order = solver.order
        factors = PardisoFactors(solver, self._method, fmt)
        weakref.finalize(factors, _give_back, solver, self._idle[fmt]).atexit = False
        return factors

    def _factorized(self, values: NDArray[Any], fmt: FloatFormat) -> Pardiso:
        """PARDISO with the factors: its analysis an earlier one, if that does well."""
        if (solver := self._waiting(fmt)) is not None:
            solver.factorize(values)
            if solver.replaced_pivots <= solver.replaced_at_first or not self._engine.matching:
                return solver
        solver = self._analysed(values, fmt, self._order if solver is None else None)
        solver.factorize(values)
        solver.replaced_at_first = solver.replaced_pivots
        return solver

    def _waiting(self, fmt: FloatFormat) -> Pardiso | None:
        """An analysis that nobody uses, made for the present number of threads."""
        idle = self._idle[fmt]
        while idle:
            with suppress(IndexError):  # another thread may have taken it
                solver = idle.pop()
                if solver.threads == factorization_threads():
                    return solver
        return None

    def _analysed(
        self, values: NDArray[Any], fmt: FloatFormat, order: NDArray[np.int64] | None
    ) -> Pardiso:
        engine, ordering = self._engine, ORDERINGS[self._ordering]
        pattern = engine.matrix_type, self._indptr, self._indices
        return Pardiso(*pattern, values, ordering, order, engine.matching, engine.tiny[fmt])


def _give_back(solver: Pardiso, idle: list[Pardiso]) -> None:
    """Keep the analysis of factors that nobody uses any more for the next factorization."""
    if len(idle) < MOST_IDLE:
        solver.forget_factors()
        idle.append(solver)


class PardisoFactors(OpaqueFactors):
    """PARDISO's factors in its own storage."""

    def __init__(self, solver: Pardiso, method: str, fmt: FloatFormat) -> None:
        super().__init__(fmt, solver.n, method)
        self.entries, self.flops = solver.entries, solver.flops
        self.replaced_pivots = solver.replaced_pivots
        self._solver = solver

    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        return self._solver.solve(b, transpose)

    def solve_complex(self, Z: NDArray[Any], adjoint: bool) -> NDArray[Any]:
        """``A X = Z`` or ``A* X = Z``, if A is complex; inf and NaN stay."""
        if adjoint:  # A* is the conjugate of A'
            return np.asarray(np.conj(self._solver.solve(np.asfortranarray(np.conj(Z)), True)))
        return self._solver.solve(np.asfortranarray(Z), False)
