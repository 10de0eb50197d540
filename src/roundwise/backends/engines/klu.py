"""KLU, as PyKLU has it: sparse LU in FP64 of matrices that hardly fill in, circuits above all.

It needs the package ``PyKLU`` (the extra ``klu``). PyKLU's class analyses, factorizes and ignores
failures in one step, so the functions of KLU that its compiled module contains are called
directly: the analysis is used again, and a singular matrix is a failure.

KLU permutes to block triangular form, orders each block, scales rows by their largest entries, and
takes a diagonal entry as pivot if it is at least a thousandth of the largest.

Orderings
---------
colamd
    COLAMD for the columns of a block.
amd
    AMD on the pattern of ``A + A'`` of a block; KLU's default.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import cached_property, fork_safe_lock
from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.engines.contract import Engine, EngineError, Symbolic
from roundwise.backends.engines.opaque import OpaqueFactors
from roundwise.backends.engines.structure import without_values
from roundwise.formats import FP64, FloatFormat

ORDERINGS = {"colamd": 1, "amd": 0}
"""KLU's number of each ordering."""

SINGULAR, OUT_OF_MEMORY = 1, -2
"""Values of `_Common.status`."""

LARGEST_INDEX = np.iinfo(np.int32).max


class _Common(ctypes.Structure):
    """KLU's ``klu_common``: parameters and statistics."""

    _fields_ = (
        ("tol", ctypes.c_double),
        ("memgrow", ctypes.c_double),
        ("initmem_amd", ctypes.c_double),
        ("initmem", ctypes.c_double),
        ("maxwork", ctypes.c_double),
        ("btf", ctypes.c_int),
        ("ordering", ctypes.c_int),
        ("scale", ctypes.c_int),
        ("user_order", ctypes.c_void_p),
        ("user_data", ctypes.c_void_p),
        ("halt_if_singular", ctypes.c_int),
        ("status", ctypes.c_int),
        ("nrealloc", ctypes.c_int),
        ("structural_rank", ctypes.c_int),
        ("numerical_rank", ctypes.c_int),
        ("singular_col", ctypes.c_int),
        ("noffdiag", ctypes.c_int),
        ("statistics", ctypes.c_double * 5),
        ("memory", ctypes.c_size_t * 2),
        ("spare", ctypes.c_char * 256),  # should another version write more
    )


DEFAULTS: dict[str, float | None] = {
    "tol": 0.001,
    "memgrow": 1.2,
    "initmem_amd": 1.2,
    "initmem": 10.0,
    "maxwork": 0.0,
    "btf": 1,
    "ordering": 0,
    "scale": 2,
    "user_order": None,
    "halt_if_singular": 1,
}
"""What KLU sets by itself: where it does not, this version's structure is another one."""


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(import_module("PyKLU._klu").__file__)
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    functions: dict[str, tuple[Any, list[Any]]] = {
        "klu_defaults": (integer, [pointer]),
        "klu_analyze": (pointer, [integer, pointer, pointer, pointer]),
        "klu_factor": (pointer, [pointer] * 5),
        "klu_solve": (integer, [pointer, pointer, integer, integer, pointer, pointer]),
        "klu_free_symbolic": (integer, [pointer, pointer]),
        "klu_free_numeric": (integer, [pointer, pointer]),
    }
    for name, (returns, arguments) in functions.items():
        if not hasattr(library, name):
            raise EngineError(f"this PyKLU hides {name}; use superlu/colamd")
        getattr(library, name).restype = returns
        getattr(library, name).argtypes = arguments
    common = _Common()
    library.klu_defaults(ctypes.byref(common))
    if any(getattr(common, name) != value for name, value in DEFAULTS.items()):
        raise EngineError("this PyKLU has a KLU of an unknown version; use superlu/colamd")
    return library


def _common(ordering: str) -> _Common:
    common = _Common()
    _library().klu_defaults(ctypes.byref(common))
    common.ordering = ORDERINGS[ordering]
    return common


def _free(function: str, pointer: int) -> None:
    """Free what KLU has allocated."""
    common, place = _common("amd"), ctypes.c_void_p(pointer)
    getattr(_library(), function)(ctypes.byref(place), ctypes.byref(common))


class KLUEngine(Engine):
    """LU in block triangular form with threshold pivoting."""

    name = "klu"
    orderings = tuple(ORDERINGS)
    formats = (FP64,)
    package = module = "PyKLU"
    remedy = "pip install 'roundwise[klu]'"

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> KLUSymbolic:
        return KLUSymbolic(pattern, ordering)


class _Columns:
    """KLU's analysis of a pattern in compressed columns; `pointer` is None if it is singular."""

    def __init__(self, n: int, indptr: Any, indices: Any, ordering: str) -> None:
        if len(indices) > LARGEST_INDEX:
            raise ValueError(
                f"A has {len(indices)} entries; KLU counts to {LARGEST_INDEX}: use superlu/colamd"
            )
        self.n, self.ordering = n, ordering
        self._indptr, self._indices = (
            np.ascontiguousarray(index, dtype=np.int32) for index in (indptr, indices)
        )
        self.indices = self._indptr.ctypes.data, self._indices.ctypes.data
        common = _common(ordering)
        self.pointer = _library().klu_analyze(n, *self.indices, ctypes.byref(common))
        if self.pointer is None and common.status != SINGULAR:
            raise _error(common.status)
        if self.pointer is not None:
            release = weakref.finalize(self, _free, "klu_free_symbolic", self.pointer)
            release.atexit = False  # the process's memory goes anyway


def _error(status: int) -> Exception:
    if status == OUT_OF_MEMORY:
        return MemoryError("KLU found not enough memory")
    return EngineError(f"KLU failed with status {status}; use superlu/colamd")


class _Numeric:
    """KLU's factors of the matrix with these values, column by column."""

    def __init__(self, columns: _Columns, values: NDArray[np.float64], method: str) -> None:
        self.n, self._columns, self._common = columns.n, columns, _common(columns.ordering)
        self._lock = fork_safe_lock()  # a solve uses a workspace that belongs to the factors
        if columns.pointer is None:
            raise ArithmeticFailure(Status.ZERO_PIVOT, method, FP64)
        self._pointer = _library().klu_factor(
            *columns.indices, values.ctypes.data, columns.pointer, ctypes.byref(self._common)
        )
        if self._pointer is None:
            if self._common.status == SINGULAR:
                column = self._common.singular_col
                raise ArithmeticFailure(Status.ZERO_PIVOT, method, FP64, column)
            raise _error(self._common.status)
        weakref.finalize(self, _free, "klu_free_numeric", self._pointer).atexit = False

    @property
    def entries(self) -> int:
        """Stored numbers of L and U: the third and fourth integer of ``klu_numeric``."""
        integers = ctypes.cast(self._pointer, ctypes.POINTER(ctypes.c_int))
        return int(integers[2] + integers[3] - self.n)

    def solve(self, b: NDArray[np.float64]) -> NDArray[np.float64]:
        symbolic, common = self._columns.pointer, ctypes.byref(self._common)
        with self._lock:
            done = _library().klu_solve(
                symbolic, self._pointer, self.n, b.shape[1], b.ctypes.data, common
            )
        if not done:
            raise _error(self._common.status)
        return b


class KLUSymbolic(Symbolic):
    """A pattern by columns for solves with A, and by rows for those with A'."""

    def __init__(self, pattern: sparse.csr_array, ordering: str) -> None:
        require_square(pattern.shape)
        self._pattern, self._ordering = without_values(pattern), ordering
        self._method = f"{KLUEngine.name}/{ordering}"
        positions = np.arange(pattern.nnz)
        entries = sparse.csr_array((positions, pattern.indices, pattern.indptr), pattern.shape)
        by_columns = entries.tocsc()
        self._positions = by_columns.data
        self._columns = _Columns(pattern.shape[0], by_columns.indptr, by_columns.indices, ordering)

    @cached_property
    def _rows(self) -> _Columns:
        """A's rows are the columns of A'."""
        A = self._pattern
        return _Columns(A.shape[0], A.indptr, A.indices, self._ordering)

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> KLUFactors:
        return KLUFactors(self, values.copy(), self._method)

    def factors(self, values: NDArray[np.float64], transpose: bool) -> _Numeric:
        """Factors of A, or of A', from its values by rows."""
        if transpose:
            return _Numeric(self._rows, values, self._method)
        return _Numeric(self._columns, values[self._positions], self._method)


class KLUFactors(OpaqueFactors):
    """KLU's factors of A and, from the first solve with it on, of A'.

    PyKLU does not contain the function that solves with A' by the factors of A.
    """

    def __init__(self, symbolic: KLUSymbolic, values: NDArray[np.float64], method: str) -> None:
        self._numeric = symbolic.factors(values, transpose=False)
        super().__init__(FP64, self._numeric.n, method)
        self.entries = self._numeric.entries
        self._symbolic, self._values = symbolic, values

    @cached_property
    def _transposed(self) -> _Numeric:
        return self._symbolic.factors(self._values, transpose=True)

    def _solve_block(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        return (self._transposed if transpose else self._numeric).solve(b)
