"""Intel's MKL, as its wheel brings it: finding the library, and calls of its PARDISO.

PARDISO is called through ctypes by its interface with 64-bit integers (``pardiso_64``), which is
the same whatever ``MKL_INTERFACE_LAYER`` says. Every parameter is set here; none is left to a
default. The number of threads is set for the calling thread alone and put back after each call.
"""

from __future__ import annotations

import ctypes
import re
import sys
import weakref
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import fork_safe_lock
from roundwise.backends.engines.contract import EngineError
from roundwise.machine.threads import factorization_threads

LIBRARY = re.compile(r"(libmkl_rt\.so(\.\d+)*|libmkl_rt(\.\d+)*\.dylib|mkl_rt(\.\d+)*\.dll)")
"""The file to load: libmkl_rt.so.2 or .so.3, libmkl_rt.2.dylib, mkl_rt.2.dll."""

ANALYSE, FACTORIZE, SOLVE, RELEASE_FACTORS, RELEASE_ALL = 11, 22, 33, 0, -1
"""Phases of a call."""

MINIMUM_DEGREE, METIS = 0, 2
"""Fill-reducing orders."""

BREAKDOWN = (-4, -7)
"""Errors that tell of a pivot which cannot be used."""

CLASSIC, TWO_LEVEL = 0, 1
"""Algorithms of the factorization. The two-level one knows neither matching nor minimum degree;
it is the faster one for Cholesky. (There is a newer one, number 10. With minimum degree and two
threads MKL 2026.2 gave wrong factors by it, and it lost half of the digits of ``L D L'``.)"""

ERRORS = {
    -1: "inconsistent input",
    -2: "not enough memory",
    -3: "reordering failed",
    -5: "internal error",
    -6: "matching failed",
    -8: "more entries than 32-bit integers count",
}


@cache
def library_path() -> Path | None:
    """Where the library is; None where the distribution ``mkl`` is not installed."""
    return next((path for path in _candidates() if path.is_file()), None)


def _candidates() -> Iterator[Path]:
    try:
        found = distribution("mkl")
    except PackageNotFoundError:  # conda's package of that name is no Python distribution
        for folder in ("lib", "Library/bin"):
            files = sorted(Path(sys.prefix, folder).glob("*mkl_rt*"))
            yield from (file for file in files if LIBRARY.fullmatch(file.name))
        return
    for file in found.files or ():
        if LIBRARY.fullmatch(file.name):
            yield Path(str(found.locate_file(file))).resolve()


@cache
def _library() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        raise EngineError("MKL is not installed; pip install 'roundwise[mkl]'")
    library = ctypes.CDLL(str(path))
    library.pardiso_64.argtypes, library.pardiso_64.restype = [ctypes.c_void_p] * 16, None
    # The name in lower case is Fortran's and takes a pointer.
    library.MKL_Set_Num_Threads_Local.argtypes = [ctypes.c_int]
    library.MKL_Set_Num_Threads_Local.restype = ctypes.c_int
    return library


def _parameters(**settings: int) -> NDArray[np.int64]:
    """PARDISO's ``iparm``, counted from 0 as its manual for C does; all others are 0.

    That is: no CGS instead of a factorization (3), the solution in an array of its own (5), no
    refinement except after replaced pivots (7), substitution in parallel (24), no check of the
    matrix (26), no partial solve (30), no Schur complement (35), entries in compressed rows (36),
    no low-rank update (38), no diagonal returned (42), all in memory (59).
    """
    iparm = np.zeros(64, dtype=np.int64)
    iparm[0] = 1  # take what follows, not defaults
    iparm[1] = settings["ordering"]
    iparm[4] = settings["permutation"]
    iparm[9] = settings["tiny"]
    iparm[10] = iparm[12] = settings["matching"]
    iparm[17] = iparm[18] = -1  # count entries and operations
    iparm[20] = 1  # pivots of 1 x 1 and 2 x 2
    iparm[23] = settings["algorithm"]
    iparm[27] = settings["single"]
    iparm[34] = 1  # indices begin with 0
    return iparm


class Pardiso:
    """PARDISO's analysis of a pattern and, after `factorize`, the factors of one matrix.

    Parameters
    ----------
    matrix_type : int
        11 for LU (13 of a complex matrix), 2 for Cholesky, -2 for ``L D L'``.
    indptr, indices : arrays
        The pattern in compressed rows, its upper triangle for symmetric types; 64-bit integers.
    values : array
        Those of a first matrix: a matching depends on them.
    ordering : int
        `MINIMUM_DEGREE` or `METIS`.
    order : array, optional
        An `order` found before for this pattern, which is then taken instead.
    matching : bool
        Whether to scale, and to permute large entries to the diagonal.
    tiny : int
        Pivots below ``10**-tiny`` of the matrix's size are replaced by that.
    """

    def __init__(
        self,
        matrix_type: int,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int64],
        values: NDArray[Any],
        ordering: int,
        order: NDArray[np.int64] | None,
        matching: bool,
        tiny: int,
    ) -> None:
        self.n = len(indptr) - 1
        self.replaced_at_first = 0  # pivots, with the values that were analysed
        self._lock = fork_safe_lock()  # PARDISO's calls for one pattern must not overlap
        self._indptr, self._indices = indptr, indices
        self._handle = np.zeros(64, dtype=np.int64)
        # The analysis plans for a number of threads, so that later calls use as many.
        self.threads = factorization_threads()
        self._integers = np.array([matrix_type, self.n, 1, 0, self.threads], dtype=np.int64)
        self._iparm = _parameters(
            ordering=ordering,
            permutation=2 if order is None else 1,  # return it, or take it
            tiny=tiny,
            matching=int(matching),
            single=int(values.dtype in (np.float32, np.complex64)),
            algorithm=CLASSIC if matching or ordering == MINIMUM_DEGREE else TWO_LEVEL,
        )
        self.order = np.zeros(self.n, dtype=np.int64) if order is None else order
        release = weakref.finalize(self, _call, self._arguments(), RELEASE_ALL)
        release.atexit = False  # the process's memory goes anyway
        self._values = values
        self._run(ANALYSE, values)

    def _arguments(self) -> tuple[NDArray[Any], ...]:
        """What every call passes; kept alive by those who may still release."""
        return self._handle, self._integers, self._indptr, self._indices, self.order, self._iparm

    def _run(self, phase: int, values: NDArray[Any], *columns: NDArray[Any]) -> None:
        error = _call(self._arguments(), phase, values, *columns)
        if error in BREAKDOWN:
            raise ZeroDivisionError
        if error == -2:
            raise MemoryError(f"PARDISO found not enough memory in phase {phase}")
        if error:
            meaning = ERRORS.get(error, "unknown error")
            raise EngineError(
                f"PARDISO failed in phase {phase} with {error} ({meaning}); use superlu/colamd"
            )

    def factorize(self, values: NDArray[Any]) -> None:
        """Factors of the matrix with these entries; raises `ZeroDivisionError` at a bad pivot."""
        self._values = values  # solves look at them if pivots were replaced
        self._run(FACTORIZE, values)

    @property
    def entries(self) -> int:
        """Stored numbers of the factors."""
        return int(self._iparm[17])

    @property
    def flops(self) -> float:
        """Operations of the factorization, in whole millions; NaN below one."""
        return 1e6 * float(self._iparm[18]) if self._iparm[18] > 0 else float("nan")

    @property
    def replaced_pivots(self) -> int:
        return int(self._iparm[13])

    def solve(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        """``A X = B`` or ``A' X = B`` for a Fortran-ordered block."""
        x = np.empty_like(b, order="F")
        with self._lock:
            self._iparm[11] = 2 if transpose else 0
            self._run(SOLVE, self._values, b, x)
        return x

    def forget_factors(self) -> None:
        """Give the memory of the factors back; the analysis stays."""
        with self._lock:
            _call(self._arguments(), RELEASE_FACTORS)
            self._values = self._values[:0]


def _call(
    arguments: tuple[NDArray[Any], ...],
    phase: int,
    values: NDArray[Any] | None = None,
    *columns: NDArray[Any],
) -> int:
    """One call of PARDISO; its error, 0 if there is none."""
    handle, integers, indptr, indices, order, iparm = arguments
    matrix_type, n, one, zero = (integers[i:].ctypes.data for i in range(4))
    nothing = np.zeros(1)
    b, x = columns or (nothing, nothing)
    number_of_columns = np.array([b.shape[1] if columns else 1, phase, 0], dtype=np.int64)
    count, phase_at, error = (number_of_columns[i:].ctypes.data for i in range(3))
    library = _library()
    before = library.MKL_Set_Num_Threads_Local(int(integers[4]))
    try:
        numbers = nothing if values is None else values
        pattern = (array.ctypes.data for array in (numbers, indptr, indices, order))
        # One matrix with this pattern, the first; nothing is printed.
        library.pardiso_64(
            *(handle.ctypes.data, one, one, matrix_type, phase_at, n, *pattern),
            *(count, iparm.ctypes.data, zero, b.ctypes.data, x.ctypes.data, error),
        )
    finally:
        library.MKL_Set_Num_Threads_Local(before)
    return int(number_of_columns[2])
