"""NVIDIA's cuDSS, as its wheel brings it: finding the library, and calls of it through ctypes.

cuDSS is proprietary and free; the extras ``cudss12`` and ``cudss13`` install it. Matrices and
right-hand sides are copied to the current GPU, and answers back. One handle of the library serves
all calls on a GPU, so that they take turns.
"""

from __future__ import annotations

import ctypes
import os
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
from roundwise.backends.cuda.device import get_device
from roundwise.backends.engines.contract import EngineError
from roundwise.machine.threads import factorization_threads

DISTRIBUTIONS = ("nvidia-cudss-cu13", "nvidia-cudss-cu12")
LIBRARY = re.compile(r"libcudss\.so(\.\d+)*")
THREADING = "libcudss_mtlayer_gomp.so"
"""Begins the name of the file beside the library with which its analysis takes several threads."""

# Names of cudss_data_types.h and of CUDA's library_types.h.
ANALYSIS, FACTORIZATION, REFACTORIZATION, SOLVE = 3, 4, 8, 0x3F0
GENERAL, DEFINITE = 0, 3
FULL, UPPER = 0, 2
REORDERING, MATCHING, SOLVE_MODE, HOST_THREADS = 0, 3, 4, 14  # cudssConfigParam_t
INFO, FACTOR_ENTRIES, REPLACED, ROW_ORDER, USER_ORDER = 0, 1, 2, 4, 9  # cudssDataParam_t
NO_MATCHING, AUTOMATIC_MATCHING = 0, 6
ALLOCATION_FAILED = 2
INT32, BY_COLUMNS, FROM_ZERO = 10, 0, 0
TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}

STATUS = {
    1: "not initialized",
    3: "an invalid value",
    4: "not supported",
    5: "the execution failed",
    6: "an internal error",
}

LARGEST_INDEX = np.iinfo(np.int32).max


@cache
def library_path() -> Path | None:
    """Where the library is; None where no distribution of it is installed."""
    return next((path for path in _candidates() if path.is_file()), None)


def _candidates() -> Iterator[Path]:
    for name in DISTRIBUTIONS:
        try:
            files = distribution(name).files or ()
        except PackageNotFoundError:
            continue
        for file in files:
            if LIBRARY.fullmatch(file.name):
                yield Path(str(file.locate())).resolve()
    yield from sorted(Path(sys.prefix, "lib").glob("libcudss.so*"))  # conda's


@cache
def _library() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        raise EngineError("cuDSS is not installed; pip install 'roundwise[cudss13]'")
    get_device()  # loads cuBLAS, which cuDSS needs
    library = ctypes.CDLL(str(path))
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    dense = [pointer, size, size, size, pointer, integer, integer]
    rows = [pointer, size, size, size, *[pointer] * 4, *[integer] * 6]
    arguments: dict[str, list[Any]] = {
        "cudssCreate": [pointer],
        "cudssSetStream": [pointer, pointer],
        "cudssSetThreadingLayer": [pointer, ctypes.c_char_p],
        "cudssConfigCreate": [pointer],
        "cudssConfigDestroy": [pointer],
        "cudssConfigSet": [pointer, integer, pointer, ctypes.c_size_t],
        "cudssDataCreate": [pointer, pointer],
        "cudssDataDestroy": [pointer, pointer],
        "cudssDataSet": [pointer, pointer, integer, pointer, ctypes.c_size_t],
        "cudssDataGet": [pointer, pointer, integer, pointer, ctypes.c_size_t, pointer],
        "cudssExecute": [pointer, integer, *[pointer] * 5],
        "cudssMatrixCreateDn": dense,
        "cudssMatrixCreateCsr": rows,
        "cudssMatrixSetValues": [pointer, pointer],
        "cudssMatrixDestroy": [pointer],
    }
    for name, types in arguments.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, integer
    return library


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), name)(*arguments)
    if status == ALLOCATION_FAILED:
        raise MemoryError(f"cuDSS found not enough memory on the GPU ({name})")
    if status:
        meaning = STATUS.get(status, f"status {status}")
        raise EngineError(f"cuDSS failed in {name}: {meaning}; leave out device= for other engines")


def _created(name: str, *arguments: Any) -> int:
    """What a function of the library writes into its first argument."""
    made = ctypes.c_void_p()
    _call(name, ctypes.byref(made), *arguments)
    assert made.value is not None
    return made.value


class _Handle:
    """The library on one GPU; its calls must not overlap."""

    def __init__(self) -> None:
        self.lock = fork_safe_lock()
        self.pointer = _created("cudssCreate")
        path = library_path()
        assert path is not None
        for file in sorted(path.parent.glob(f"{THREADING}*"))[:1]:
            _call("cudssSetThreadingLayer", self.pointer, str(file).encode())


@cache
def _handle(number: int, process: int) -> _Handle:
    """That of a GPU, by CUDA's number of it, in a process."""
    return _Handle()


class Cudss:
    """cuDSS's analysis of a pattern and, after `factorize`, the factors of one matrix.

    Parameters
    ----------
    matrix_type : int
        `GENERAL` or `DEFINITE`.
    rows : pair of arrays
        The pattern in compressed rows, ``(indptr, indices)``; its upper triangle if symmetric.
    values : array
        Those of a first matrix: a matching depends on them.
    reordering : int
        cuDSS's number of the algorithm that orders.
    order : array, optional
        An `order` found before for this pattern, which is then taken instead.
    matching : bool
        Whether cuDSS may permute large entries to the diagonal.
    """

    def __init__(
        self,
        matrix_type: int,
        rows: tuple[NDArray[np.int64], NDArray[np.int64]],
        values: NDArray[Any],
        reordering: int,
        order: NDArray[Any] | None,
        matching: bool,
    ) -> None:
        indptr, indices = rows
        if len(indices) > LARGEST_INDEX:
            raise ValueError(
                f"A has {len(indices)} entries; cuDSS counts to {LARGEST_INDEX}: leave out device="
            )
        device = get_device()
        self._xp, self.n = device.xp, len(indptr) - 1
        self.replaced_at_first, self._is_factorized = 0, False
        self.flops = float("nan")
        self._handle = _handle(device.number, os.getpid())
        self._type = TYPES[values.dtype.name]
        self._pattern = [self._xp.asarray(part.astype(np.int32)) for part in (indptr, indices)]
        self._values = self._xp.asarray(values)
        self._nothing = self._xp.empty(self.n, values.dtype)  # for phases without columns
        with self._handle.lock:
            self._matrix, self._config, self._data = self._made(matrix_type)
            self.threads = factorization_threads()
            self._set(REORDERING, reordering)
            self._set(MATCHING, AUTOMATIC_MATCHING if matching else NO_MATCHING)
            self._set(HOST_THREADS, self.threads)
            if order is not None:
                given = np.ascontiguousarray(order, dtype=np.int32)
                place, size = given.ctypes.data, given.nbytes
                _call("cudssDataSet", self._handle.pointer, self._data, USER_ORDER, place, size)
            self._execute(ANALYSIS, 1)
        self.order = self._found_order() if order is None else order

    def _made(self, matrix_type: int) -> tuple[int, int, int]:
        """The library's matrix, configuration and data; all go when this object does."""
        indptr, indices = (part.data.ptr for part in self._pattern)
        view = FULL if matrix_type == GENERAL else UPPER
        size, types = (self.n, self.n, len(self._pattern[1])), (INT32, INT32, self._type)
        places = indptr, None, indices, self._values.data.ptr
        matrix = _created(
            "cudssMatrixCreateCsr", *size, *places, *types, matrix_type, view, FROM_ZERO
        )
        config = _created("cudssConfigCreate")
        made = ctypes.c_void_p()
        _call("cudssDataCreate", self._handle.pointer, ctypes.byref(made))
        assert made.value is not None
        release = weakref.finalize(self, _release, self._handle, matrix, config, made.value)
        release.atexit = False  # the process's memory goes anyway
        return matrix, config, made.value

    def _set(self, parameter: int, value: int) -> None:
        given = ctypes.c_int(value)
        _call("cudssConfigSet", self._config, parameter, ctypes.byref(given), 4)

    def _get(self, parameter: int, size: int) -> int:
        """A fact of the last phase, an integer of so many bytes."""
        found, written = ctypes.c_int64(), ctypes.c_size_t()
        place, count = ctypes.byref(found), ctypes.byref(written)
        _call("cudssDataGet", self._handle.pointer, self._data, parameter, place, size, count)
        return found.value

    def _found_order(self) -> NDArray[np.int32]:
        order, written = np.zeros(self.n, dtype=np.int32), ctypes.c_size_t()
        place, size, count = order.ctypes.data, order.nbytes, ctypes.byref(written)
        with self._handle.lock:
            _call("cudssDataGet", self._handle.pointer, self._data, ROW_ORDER, place, size, count)
        return order

    def _execute(self, phase: int, columns: int, x: Any = None, b: Any = None) -> None:
        """One phase, on CuPy's current stream. Solutions of other phases are not looked at."""
        x, b = (self._nothing if block is None else block for block in (x, b))
        blocks = []
        try:
            for block in (x, b):
                shape, place = (self.n, columns, self.n), block.data.ptr
                made = _created("cudssMatrixCreateDn", *shape, place, self._type, BY_COLUMNS)
                blocks.append(made)
            stream = self._xp.cuda.get_current_stream()
            _call("cudssSetStream", self._handle.pointer, stream.ptr)
            given = self._config, self._data, self._matrix, *blocks
            _call("cudssExecute", self._handle.pointer, phase, *given)
            stream.synchronize()
        finally:
            for made in blocks:
                _call("cudssMatrixDestroy", made)

    def factorize(self, values: NDArray[Any]) -> None:
        """Factors of the matrix with these entries; raises `ZeroDivisionError` at a bad pivot."""
        with self._handle.lock:
            self._values = self._xp.asarray(values)
            _call("cudssMatrixSetValues", self._matrix, self._values.data.ptr)
            self._execute(REFACTORIZATION if self._is_factorized else FACTORIZATION, 1)
            self._is_factorized = True
            if self._get(INFO, 4):
                raise ZeroDivisionError

    @property
    def entries(self) -> int:
        """Stored numbers of the factors."""
        with self._handle.lock:
            return self._get(FACTOR_ENTRIES, 8)

    @property
    def replaced_pivots(self) -> int:
        with self._handle.lock:
            return self._get(REPLACED, 4)

    def solve(self, b: NDArray[Any], transpose: bool) -> NDArray[Any]:
        """``A X = B`` or ``A' X = B`` for a Fortran-ordered block."""
        given = self._xp.asarray(b.ravel(order="F"))
        found = self._xp.empty_like(given)
        with self._handle.lock:
            self._set(SOLVE_MODE, int(transpose))
            self._execute(SOLVE, b.shape[1], found, given)
        return np.asarray(self._xp.asnumpy(found).reshape(b.shape, order="F"))

    def forget_factors(self) -> None:
        """Nothing: cuDSS frees factors with the analysis alone."""


def _release(handle: _Handle, matrix: int, config: int, data: int) -> None:
    with handle.lock:
        _call("cudssMatrixDestroy", matrix)
        _call("cudssDataDestroy", handle.pointer, data)
        _call("cudssConfigDestroy", config)
