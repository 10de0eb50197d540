"""Libraries that analyse a pattern into an object which then holds the factors of one matrix.

PARDISO and cuDSS are such libraries. `PooledSymbolic` hands their objects out: one that nobody uses
any more factorizes the next matrix with the pattern, so that the pattern is analysed once for each
matrix that is kept at a time.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.opaque import OpaqueFactors
from roundwise.backends.engines.structure import (
    SymmetricPattern,
    is_structurally_singular,
    without_values,
)
from roundwise.backends.native.storage import DTYPES
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.machine.threads import factorization_threads

MOST_IDLE = 2
"""Analyses that a pattern keeps for its next factorizations."""


class Solver(Protocol):
    """A library's analysis of a pattern and, after `factorize`, the factors of one matrix."""

    n: int
    threads: int
    """For which the analysis was made."""
    order: NDArray[Any]
    """The fill-reducing order, for the next analysis of the pattern."""
    replaced_at_first: int
    """Pivots that had to be replaced with the values that were analysed."""

    @property
    def entries(self) -> int: ...

    @property
    def flops(self) -> float: ...

    @property
    def replaced_pivots(self) -> int: ...

    def factorize(self, values: NDArray[Any]) -> None:
        """Factors of the matrix with these entries; raises `ZeroDivisionError` at a bad pivot."""

    def solve(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        """``A X = B`` or ``A' X = B`` for a Fortran-ordered block."""

    def forget_factors(self) -> None:
        """Give the memory of the factors back; the analysis stays."""


class PooledEngine(Engine):
    """An engine whose library keeps analysis and factors in one object, a `Solver`."""

    formats = (FP32, FP64)
    results_depend_on_threads = True

    matching: ClassVar[bool] = True
    """Whether the analysis matches the values that it is given, so that others may need another."""
    dtypes: ClassVar[Mapping[FloatFormat, type[np.inexact]]] = DTYPES
    """How the library reads values of each format: given another dtype, it reads past their end."""
    breakdown: ClassVar[Status] = Status.ZERO_PIVOT

    @abstractmethod
    def analysed(
        self,
        rows: tuple[NDArray[np.int64], NDArray[np.int64]],
        values: NDArray[Any],
        fmt: FloatFormat,
        ordering: str,
        order: NDArray[Any] | None,
    ) -> Solver:
        """The library's object for a pattern, of which `order` may have been found before.

        The pattern is ``(indptr, indices)``, the upper triangle alone for symmetric matrices.
        """

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> PooledSymbolic:
        return PooledSymbolic(self, pattern, ordering)


class PooledSymbolic(Symbolic):
    """A pattern with its order, and with analyses that wait for a matrix to factorize."""

    def __init__(self, engine: PooledEngine, pattern: sparse.csr_array, ordering: str) -> None:
        require_square(pattern.shape)
        self._engine, self._ordering = engine, ordering
        self._method = f"{engine.name}/{ordering}"
        self._pattern = None if engine.suits == "any" else SymmetricPattern(pattern)
        rows = self._pattern.upper if self._pattern else pattern
        self._stored = without_values(rows)
        self._rows = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
        self._order: NDArray[Any] | None = None
        self._idle: dict[FloatFormat, list[Solver]] = {fmt: [] for fmt in engine.formats}

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> PooledFactors:
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
        is_doubtful = solver.replaced_pivots or not values.all()  # a zero is stored
        is_triangle = self._pattern is not None
        if is_doubtful and is_structurally_singular(self._stored, values, is_triangle):
            raise ArithmeticFailure(Status.ZERO_PIVOT, self._method, fmt)
        self._order = solver.order
        factors = PooledFactors(solver, self._method, fmt)
        weakref.finalize(factors, _give_back, solver, self._idle[fmt]).atexit = False
        return factors

    def _factorized(self, values: NDArray[Any], fmt: FloatFormat) -> Solver:
        """An object of the library with the factors: an earlier one, if that does well."""
        if (solver := self._waiting(fmt)) is not None:
            solver.factorize(values)
            if solver.replaced_pivots <= solver.replaced_at_first or not self._engine.matching:
                return solver
        order = self._order if solver is None else None
        solver = self._engine.analysed(self._rows, values, fmt, self._ordering, order)
        solver.factorize(values)
        solver.replaced_at_first = solver.replaced_pivots
        return solver

    def _waiting(self, fmt: FloatFormat) -> Solver | None:
        """An analysis that nobody uses, made for the present number of threads."""
        idle = self._idle[fmt]
        while idle:
            with suppress(IndexError):  # another thread may have taken it
                solver = idle.pop()
                if solver.threads == factorization_threads():
                    return solver
        return None


def _give_back(solver: Solver, idle: list[Solver]) -> None:
    """Keep the analysis of factors that nobody uses any more for the next factorization."""
    if len(idle) < MOST_IDLE:
        solver.forget_factors()
        idle.append(solver)


class PooledFactors(OpaqueFactors):
    """Factors in the library's own storage."""

    def __init__(self, solver: Solver, method: str, fmt: FloatFormat) -> None:
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
