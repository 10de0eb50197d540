"""CHOLMOD and UMFPACK, as scikit-sparse has them: sparse Cholesky and LU in FP64.

They need the package ``scikit-sparse``, which is compiled from source against SuiteSparse where it
is installed; UMFPACK and the fast part of CHOLMOD are under the GPL. Both interfaces to CHOLMOD are
known: ``analyze`` and ``Factor`` up to version 0.4, and ``CholeskyFactor`` from 0.5 on, which also
has UMFPACK.

CHOLMOD's threads are OpenMP's. Where they are GCC's, they do not survive a fork: a process that is
forked after a factorization may hang in its own. UMFPACK decides by itself between AMD on
``A + A'`` with diagonal pivots, and COLAMD; a pivot is at least a tenth (a thousandth on the
diagonal) of the largest. scikit-sparse cannot copy its analysis, so each matrix is analysed anew.

Orderings
---------
cholmod/metis
    Nested dissection by METIS, where SuiteSparse was built with it; else CHOLMOD's own choice.
cholmod/amd
    Approximate minimum degree.
umfpack/amd
    The one name for what UMFPACK chooses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import cached_property, fork_safe_lock
from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.opaque import OpaqueFactors
from roundwise.backends.engines.structure import SymmetricPattern, without_values
from roundwise.formats import FP64, FloatFormat

_one_at_a_time = fork_safe_lock()


@cache
def _library(name: str) -> Any:
    return import_module(f"sksparse.{name}")


class SuiteSparseFactors(OpaqueFactors):
    """Factors in the library's own storage; `solve` takes a block, and whether it is for A'."""

    def __init__(
        self, n: int, entries: int, method: str, solve: Callable[[NDArray[Any], bool], NDArray[Any]]
    ) -> None:
        super().__init__(FP64, n, method)
        self.entries, self._solve = entries, solve

    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        return np.asarray(self._solve(b, transpose))


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
        ones, library = self._columns(np.ones(len(self._places[0]))), _library("cholmod")
        if hasattr(library, "CholeskyFactor"):
            return library.CholeskyFactor(ones, order=self._ordering)
        return library.analyze(ones, ordering_method=self._ordering)

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> SuiteSparseFactors:
        self._symmetric.require_symmetric(values, self._method, fmt)
        failure = ArithmeticFailure(Status.NOT_POSITIVE_DEFINITE, self._method, fmt)
        if not values.any():
            raise failure
        try:
            with self._lock:
                factor = self._factorized(self._columns(np.require(values, requirements="W")))
        except _library("cholmod").CholmodNotPositiveDefiniteError:
            raise failure from None
        if factor is None:
            raise failure
        if self._entries is None:  # the same for all values; to count them copies the factor
            self._entries = factor.nnz if hasattr(factor, "nnz") else factor.L().nnz
        solve_with = factor.solve if hasattr(factor, "solve") else factor.solve_A
        lock = fork_safe_lock()  # a solve uses a workspace of the factor

        def solve(b: NDArray[Any], transpose: bool) -> NDArray[Any]:
            with lock:
                return np.asarray(solve_with(b))

        return SuiteSparseFactors(self._shape[0], self._entries, self._method, solve)

    def _factorized(self, A: sparse.csc_matrix) -> Any:
        """CHOLMOD's factor; None if it is ``L D L'`` with a D that is not positive."""
        if hasattr(self._analysis, "factorize"):
            factor = self._analysis.copy()
            factor.factorize(A)
            return factor
        factor = self._analysis.cholesky(A)
        return factor if (factor.D() > 0).all() else None


@contextmanager
def _quietly() -> Iterator[Any]:
    """UMFPACK without warnings of singular matrices: those are failures, or the gate finds them.

    The filters of warnings belong to all threads, so that only one may be here.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore", _library("umfpack").UMFPACKSingularMatrixWarning)
        yield _library("umfpack")


class UmfpackEngine(Engine):
    """Multifrontal LU with threshold pivoting."""

    name = "umfpack"
    orderings = ("amd",)
    formats = (FP64,)
    package, module = "scikit-sparse", "sksparse"
    remedy = "pip install 'scikit-sparse>=0.5' (it needs a compiler and SuiteSparse)"

    @property
    def installed(self) -> bool:
        spec = find_spec(self.module)
        folders = [] if spec is None else spec.submodule_search_locations or []
        return any(True for folder in folders for _ in Path(folder).glob("umfpack.*"))

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> UmfpackSymbolic:
        return UmfpackSymbolic(pattern)


class UmfpackSymbolic(Symbolic):
    """A pattern."""

    def __init__(self, pattern: sparse.csr_array) -> None:
        require_square(pattern.shape)
        self._pattern = without_values(pattern)

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> SuiteSparseFactors:
        A, method = self._pattern, f"{UmfpackEngine.name}/amd"
        columns = sparse.csr_array((values, A.indices, A.indptr), shape=A.shape).tocsc()
        with _quietly() as umfpack:
            factor = umfpack.UMFFactor(columns, umfpack.UMFControl(print_level=0, ir_steps=0))
            factor.factorize(columns)
        if factor.nz_udiag < A.shape[0]:
            raise ArithmeticFailure(Status.ZERO_PIVOT, method, fmt)

        def solve(b: NDArray[Any], transpose: bool) -> NDArray[Any]:
            with _quietly():
                return np.asarray(factor.solve(b, trans="T" if transpose else "N"))

        return SuiteSparseFactors(A.shape[0], int(factor.nnz), method, solve)
