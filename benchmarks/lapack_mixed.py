"""LAPACK's own mixed-precision solver `dsgesv`, which SciPy's OpenBLAS has but SciPy does not."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from roundwise._blas import bundled


def dsgesv(A: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """x and `iter`: refinement steps in FP32, or negative if it fell back to FP64."""
    blas = bundled("scipy")
    if blas is None:
        raise RuntimeError("SciPy has no OpenBLAS of its own here; install SciPy's wheel")
    routine = blas.routine("dsgesv")
    n = len(b)
    columns = np.array(A, order="F")  # it overwrites A if it falls back
    x, pivots = np.empty(n), np.empty(n, dtype=np.int32)
    work, swork = np.empty(n), np.empty(n * (n + 1), dtype=np.float32)
    sizes = [ctypes.c_int(value) for value in (n, 1)]
    iterations, info = ctypes.c_int(), ctypes.c_int()
    size, one = (ctypes.byref(value) for value in sizes)

    def data(array: NDArray[np.generic]) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    right = np.array(b)
    routine(
        size,
        one,
        data(columns),
        size,
        data(pivots),
        data(right),
        size,
        data(x),
        size,
        data(work),
        data(swork),
        ctypes.byref(iterations),
        ctypes.byref(info),
    )
    if info.value != 0:
        raise np.linalg.LinAlgError(f"dsgesv reports {info.value}; A is singular")
    return x, iterations.value
