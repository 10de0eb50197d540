"""UMFPACK, as scikit-sparse has it from version 0.5 on: multifrontal sparse LU in FP64.

It needs the package ``scikit-sparse``, which is compiled from source against SuiteSparse where it
is installed, and is under the GPL. UMFPACK decides by itself between AMD on ``A + A'`` with
diagonal pivots, and COLAMD; a pivot is at least a tenth (a thousandth on the diagonal) of the
largest.

Its one "ordering" is ``amd``. scikit-sparse cannot copy an analysis, so each matrix is analysed
anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import fork_safe_lock
from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.opaque import OpaqueFactors
from roundwise.backends.engines.structure import without_values
from roundwise.formats import FP64, FloatFormat

METHOD = "umfpack/amd"

_one_at_a_time = fork_safe_lock()


@cache
def _library() -> Any:
    return import_module("sksparse.umfpack")


@contextmanager
def _quietly() -> Iterator[Any]:
    """Without warnings of singular matrices: those are failures, or the gate finds them.

    The filters of warnings belong to all threads, so that only one may be here.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore", _library().UMFPACKSingularMatrixWarning)
        yield _library()


class UmfpackEngine(Engine):
    """Multifrontal LU with threshold pivoting."""

    name = "umfpack"
    orderings = ("amd",)
    formats = (FP64,)
    package = "scikit-sparse"
    remedy = "pip install 'scikit-sparse>=0.5' (it needs a compiler and SuiteSparse)"

    @property
    def installed(self) -> bool:
        spec = find_spec("sksparse")
        folders = [] if spec is None else spec.submodule_search_locations or []
        return any(True for folder in folders for _ in Path(folder).glob("umfpack.*"))

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> UmfpackSymbolic:
        return UmfpackSymbolic(pattern)


class UmfpackSymbolic(Symbolic):
    """A pattern."""

    def __init__(self, pattern: sparse.csr_array) -> None:
        require_square(pattern.shape)
        self._pattern = without_values(pattern)

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> UmfpackFactors:
        A = self._pattern
        columns = sparse.csr_array((values, A.indices, A.indptr), shape=A.shape).tocsc()
        with _quietly() as umfpack:
            factor = umfpack.UMFFactor(columns, umfpack.UMFControl(print_level=0, ir_steps=0))
            factor.factorize(columns)
        if factor.nz_udiag < A.shape[0]:
            raise ArithmeticFailure(Status.ZERO_PIVOT, METHOD, fmt)
        return UmfpackFactors(factor, A.shape[0])


class UmfpackFactors(OpaqueFactors):
    """UMFPACK's factors in its own storage."""

    def __init__(self, factor: Any, n: int) -> None:
        super().__init__(FP64, n, METHOD)
        self.entries = int(factor.nnz)
        self._factor = factor

    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        with _quietly():
            return np.asarray(self._factor.solve(b, trans="T" if transpose else "N"))
