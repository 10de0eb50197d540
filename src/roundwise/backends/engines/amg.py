"""Algebraic multigrid (pyamg) behind the contract of factorizations, for M-matrix-like systems.

It needs the package ``pyamg`` (the extra ``amg``). Nothing is factorized: `AMGFactors.solve` runs
the conjugate gradient method in FP64, preconditioned by one V-cycle of a Ruge-Stueben hierarchy
(direct interpolation, symmetric Gauss-Seidel smoothing), until ``||r||_2 <= 1e-8 ||b||_2``.
Refinement makes the answer as accurate as any other; each solve costs some ten iterations.

It is for symmetric positive definite matrices with nonpositive entries off the diagonal, or nearly
so: Laplacians and the like, where it needs far less memory and work than any factorization in three
dimensions. Elsewhere it may converge slowly. It is then given up at once
(`Status.SLOW_CONVERGENCE`): in the tenth iteration, if the residual has not shrunk at the rate that
reaches the tolerance in `MOST_ITERATIONS`.

Results are deterministic and do not depend on the number of threads. The "ordering" is the kind of
hierarchy; ``rs`` is the only one, because pyamg's smoothed aggregation begins with random numbers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise import krylov
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.opaque import OpaqueFactors
from roundwise.backends.engines.structure import SymmetricPattern, without_values
from roundwise.formats import FP64, FloatFormat

TOLERANCE = 1e-8
"""The residual of a solve, relative to its right-hand side, in the 2-norm."""

MOST_ITERATIONS = 60
CHECK_AFTER = 10

METHOD = "amg/rs"

SLOW = Status.SLOW_CONVERGENCE
_FAILURES = {
    krylov.KrylovStatus.INDEFINITE: Status.NOT_POSITIVE_DEFINITE,
    krylov.KrylovStatus.INDEFINITE_PRECONDITIONER: Status.NOT_POSITIVE_DEFINITE,
    krylov.KrylovStatus.BREAKDOWN: Status.NOT_POSITIVE_DEFINITE,
}


class AMGEngine(Engine):
    """Conjugate gradients preconditioned by multigrid."""

    name = "amg"
    orderings = ("rs",)
    formats = (FP64,)
    suits, stops_at = "positive definite", TOLERANCE
    package = module = "pyamg"
    remedy = "pip install 'roundwise[amg]'"

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> AMGSymbolic:
        return AMGSymbolic(pattern)


class AMGSymbolic(Symbolic):
    """A pattern; the hierarchy depends on the values and is built for each matrix."""

    def __init__(self, pattern: sparse.csr_array) -> None:
        self._pattern, self._symmetric = without_values(pattern), SymmetricPattern(pattern)

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> AMGFactors:
        self._symmetric.require_symmetric(values, METHOD, fmt)
        A = sparse.csr_array(
            (values.copy(), self._pattern.indices, self._pattern.indptr), self._pattern.shape
        )
        if not (A.diagonal() > 0).all():
            status = Status.NOT_POSITIVE_DEFINITE if values.any() else Status.ZERO_PIVOT
            raise ArithmeticFailure(status, METHOD, fmt)
        return AMGFactors(A)


class AMGFactors(OpaqueFactors):
    """A hierarchy of coarser and coarser matrices; `entries` counts those of all."""

    def __init__(self, A: sparse.csr_array) -> None:
        super().__init__(FP64, A.shape[0], METHOD)
        # Classical interpolation, pyamg's default, takes longer to set up, and prints where a
        # matrix is far from what it is made for.
        hierarchy = import_module("pyamg").ruge_stuben_solver(A, interpolation="direct")
        if not all(np.isfinite(level.A.data).all() for level in hierarchy.levels):
            raise ArithmeticFailure(Status.SLOW_CONVERGENCE, METHOD, FP64)
        self.entries = sum(level.A.nnz for level in hierarchy.levels)
        self._times, self._cycle = krylov.products_of(A), hierarchy.aspreconditioner(cycle="V")

    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        if not np.isfinite(b).all():
            return b  # `solve` finds it
        sizes = np.abs(b).max(axis=0)
        sizes[sizes == 0] = 1.0
        unit = b / sizes  # so that no norm under- or overflows
        norms = np.maximum(np.linalg.norm(unit, axis=0), 1.0)
        found = krylov.cg(
            *(self._times, unit / norms, self._cycles),
            stop=krylov.Residual(TOLERANCE),
            most=MOST_ITERATIONS,
            watch=_is_slow,
            replaces=False,
        )
        if not found.converged:
            raise ArithmeticFailure(_FAILURES.get(found.status, SLOW), METHOD, FP64)
        return np.asarray(found.X * norms * sizes)

    def _cycles(self, R: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([self._cycle.matvec(r) for r in R.T])


def _is_slow(iteration: int, sizes: krylov.Sizes) -> bool:
    """Whether residuals, 1 at first, do not shrink at the rate that is needed."""
    allowed = TOLERANCE ** (iteration / MOST_ITERATIONS)
    return iteration >= CHECK_AFTER and not (sizes.two <= allowed).all()
