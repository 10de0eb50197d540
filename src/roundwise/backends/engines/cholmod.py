"""CHOLMOD, as scikit-sparse has it: sparse Cholesky in FP64 of positive definite matrices.

It needs the package ``scikit-sparse``, which is compiled from source against SuiteSparse where it
is installed; its fast part is under the GPL. Both of its interfaces are known: ``analyze`` and
``Factor`` up to version 0.4, ``CholeskyFactor`` from 0.5 on.

CHOLMOD's threads are OpenMP's. Where they are GCC's, they do not survive a fork: a process that is
forked after a factorization may hang in its own.

Orderings
---------
metis
    Nested dissection by METIS, where SuiteSparse was built with it; else CHOLMOD's own choice.
amd
    Approximate minimum degree.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import cached_property, fork_safe_lock
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.opaque import OpaqueFactors
from roundwise.backends.engines.symmetric import SymmetricPattern
from roundwise.formats import FP64, FloatFormat


@cache
def _library() -> Any:
    return import_module("sksparse.cholmod")


class CholmodEngine(Engine):
    """Simplicial or supernodal Cholesky, as CHOLMOD decides."""

    name = "cholmod"
    orderings = ("metis", "amd")
    formats = (FP64,)
    suits = "positive definite"
    package, module = "scikit-sparse", "sksparse"
    remedy = "pip install scikit-sparse (it needs a compiler and SuiteSparse)"

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> CholmodSymbolic:
        return CholmodSymbolic(pattern, ordering)


class CholmodSymbolic(Symbolic):
    """CHOLMOD's analysis of a pattern; it makes a copy of it for each matrix."""

    def __init__(self, pattern: sparse.csr_array, ordering: str) -> None:
        self._symmetric = SymmetricPattern(pattern)
        self._shape, self._ordering = pattern.shape, ordering
        # scikit-sparse 0.5 refuses arrays that it could not write to.
        self._places = [np.require(i, requirements="W") for i in (pattern.indices, pattern.indptr)]
        self._method = f"{CholmodEngine.name}/{ordering}"
        self._lock = fork_safe_lock()  # the analysis and its copies share a workspace
        self._entries: int | None = None

    def _columns(self, values: NDArray[np.float64]) -> sparse.csc_matrix:
        """The matrix, whose rows are its columns."""
        return sparse.csc_matrix((values, *self._places), shape=self._shape)

    @cached_property
    def _analysis(self) -> Any:
        ones = self._columns(np.ones(len(self._places[0])))
        if hasattr(_library(), "CholeskyFactor"):
            return _library().CholeskyFactor(ones, order=self._ordering)
        return _library().analyze(ones, ordering_method=self._ordering)

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> CholmodFactors:
        self._symmetric.require_symmetric(values, self._method, fmt)
        failure = ArithmeticFailure(Status.NOT_POSITIVE_DEFINITE, self._method, fmt)
        if not values.any():
            raise failure
        try:
            with self._lock:
                factor = self._factorized(self._columns(np.require(values, requirements="W")))
        except _library().CholmodNotPositiveDefiniteError:
            raise failure from None
        if factor is None:
            raise failure
        if self._entries is None:  # the same for all values; to count them copies the factor
            self._entries = factor.nnz if hasattr(factor, "nnz") else factor.L().nnz
        return CholmodFactors(factor, self._shape[0], self._entries, self._method)

    def _factorized(self, A: sparse.csc_matrix) -> Any:
        """CHOLMOD's factor; None if it is ``L D L'`` with a D that is not positive."""
        if hasattr(self._analysis, "factorize"):
            factor = self._analysis.copy()
            factor.factorize(A)
            return factor
        factor = self._analysis.cholesky(A)
        return factor if (factor.D() > 0).all() else None


class CholmodFactors(OpaqueFactors):
    """CHOLMOD's factors in its own storage."""

    def __init__(self, factor: Any, n: int, entries: int, method: str) -> None:
        super().__init__(FP64, n, method)
        self.entries = entries
        self._solve = factor.solve if hasattr(factor, "solve") else factor.solve_A
        self._lock = fork_safe_lock()  # a solve uses a workspace of the factor

    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        with self._lock:
            return np.asarray(self._solve(b))
