"""Who else solves dense systems here: NumPy, SciPy, LAPACK's dsgesv, MKL and torch.

What is not installed is left out; `absent` says why. MKL is that of the wheel ``mkl``, called
through ctypes; torch brings MKL (or OpenBLAS) along.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import scipy
import scipy.linalg

from roundwise.backends.engines import mkl
from roundwise_studies.native.direct import dsgesv, has_dsgesv

Solve = Callable[[np.ndarray, np.ndarray], np.ndarray]


def peers() -> dict[str, Solve]:
    """The solvers by name, each from (A, b) to x in FP64; NumPy's is the first."""
    found: dict[str, Solve] = {"numpy": np.linalg.solve, "scipy": scipy.linalg.solve}
    if has_dsgesv():
        found["dsgesv"] = lambda A, b: dsgesv(A, b)[0]
    if mkl.library_path() is not None:
        found["mkl"] = _mkl_solve()
    if find_spec("torch") is not None:
        found["torch"] = _torch_solve()
    return found


def absent() -> list[str]:
    """What is missing, and why."""
    told = []
    if not has_dsgesv():
        told.append(f"dsgesv: the BLAS of SciPy {scipy.__version__} does not export it")
    if mkl.library_path() is None:
        told.append("MKL: the wheel mkl is not installed")
    if find_spec("torch") is None:
        told.append("torch: not installed")
    return told


def _mkl_solve() -> Solve:
    library = ctypes.CDLL(str(mkl.library_path()))
    dgesv = library.LAPACKE_dgesv_64  # 64-bit integers, whatever the interface layer is
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    dgesv.argtypes = [ctypes.c_int, integer, integer, pointer, integer, pointer, pointer, integer]
    dgesv.restype = integer
    column_major = 102

    def solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
        n = len(b)
        lu, x, pivots = np.array(A, order="F"), np.array(b), np.empty(n, dtype=np.int64)
        data = lu.ctypes.data, pivots.ctypes.data, x.ctypes.data
        info = dgesv(column_major, n, 1, data[0], n, data[1], data[2], n)
        if info != 0:
            raise np.linalg.LinAlgError(f"MKL's dgesv returned {info}; pass a regular matrix")
        return x

    return solve


def _torch_solve() -> Solve:
    import torch  # it takes seconds, and is seldom there

    def solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
        return torch.linalg.solve(torch.from_numpy(A), torch.from_numpy(b)).numpy()

    return solve
