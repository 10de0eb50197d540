"""The CUDA backend on a machine without a GPU: `fake_cupy`, and references in place of kernels."""

from __future__ import annotations

import fake_cupy as cupy
import numpy as np
from scipy import linalg

import roundwise as rw
from roundwise import _kernels
from roundwise.backends.cuda import cholesky, lu, residual, stacks, tall
from roundwise.backends.cuda.backend import CudaBackend
from roundwise.backends.native import exact
from roundwise.solver import places


class HostDevice:
    """What the backend asks of a `Device`."""

    xp = cupy
    name, key = "a stand-in", "version 1"
    memory_free = 2**40

    def synchronize(self):
        pass

    def solve_triangular(self, L, B, lower=True, transposed=False):
        trans = int(transposed)
        return cupy.ndarray(linalg.solve_triangular(L._values, B._values, trans=trans, lower=lower))

    def lu_factor(self, A):
        return tuple(map(cupy.ndarray, linalg.lu_factor(A._values)))


class Packed:
    """Reference factors: those of A rounded to the format, computed and stored in FP32 or FP64."""

    def __init__(self, device, A, fmt, kind):
        self.device, self.fmt, self.n, self._kind = device, fmt, len(A), kind
        real = np.float64 if fmt == rw.FP64 else np.float32
        with np.errstate(over="ignore"):
            given = rw.round_to(A._values.astype(np.float64), fmt).astype(real)
        if not np.isfinite(given).all():
            raise rw.backends.ArithmeticFailure(rw.backends.Status.OVERFLOW, kind, fmt)
        if kind == "cholesky":
            try:
                self._L = linalg.cholesky(given, lower=True)
            except linalg.LinAlgError:
                raise rw.backends.ArithmeticFailure(
                    rw.backends.Status.NOT_POSITIVE_DEFINITE, kind, fmt
                ) from None
            return
        self._lu, self._swaps, info = linalg.get_lapack_funcs("getrf", [given])(given)
        if info:
            raise rw.backends.ArithmeticFailure(rw.backends.Status.ZERO_PIVOT, kind, fmt, info - 1)
        if not np.isfinite(self._lu).all():
            raise rw.backends.ArithmeticFailure(rw.backends.Status.OVERFLOW, kind, fmt)

    @property
    def pivots(self):
        return cupy.ndarray(np.abs(np.diagonal(self._lu)).astype(np.float64))

    def solve(self, B, dtype, transpose=False):
        assert isinstance(B, cupy.ndarray)
        assert B.dtype == dtype
        with np.errstate(all="ignore"):
            if self._kind == "cholesky":
                X = linalg.cho_solve((self._L.astype(dtype), True), B._values, check_finite=False)
            else:
                packed = self._lu.astype(dtype), self._swaps
                X = linalg.lu_solve(packed, B._values, trans=int(transpose), check_finite=False)
        return cupy.ndarray(X)


def reference_residual(device, A, X, B, block=0):
    assert all(isinstance(x, cupy.ndarray) for x in (A, X, B))
    return cupy.ndarray(exact.residual(A._values, X._values, B._values))


def reference_row_sums(device, A):
    with np.errstate(over="ignore"):
        sums = np.abs(A._values).sum(axis=1)
    return float(sums.max()), float(np.abs(A._values).max())


def reference_stack(device, A, B, count, places, gate):
    """What kernels/stacks_in_*.cu compute, by the processor's compiled call."""
    assert all(isinstance(x, cupy.ndarray) for x in (A, B))
    assert A.dtype == B.dtype
    where = [np.empty(0, np.int64) if given is None else given._values for given in places]
    X, bounds = np.empty((count, *B.shape[1:]), A.dtype), np.empty(count)
    tolerance, growth, exact_error, *rest = gate
    asked = "fp64", tolerance, growth, exact_error, exact_error, *rest, 0, False
    _kernels.express_solve_stack(A._values, B._values, *where, X, bounds, *asked, 1)
    return cupy.ndarray(X), cupy.ndarray(bounds), bool(np.isinf(bounds).any())


def install(monkeypatch):
    """Replace the kernels, and make the stand-in the GPU of the front door; its backend."""
    monkeypatch.setattr(lu, "factorize", lambda d, A, f, pivoting: Packed(d, A, f, pivoting))
    monkeypatch.setattr(cholesky, "factorize", lambda d, A, f: Packed(d, A, f, "cholesky"))
    monkeypatch.setattr(residual, "residual", reference_residual)
    monkeypatch.setattr(residual, "row_sums", reference_row_sums)
    monkeypatch.setattr(tall, "residual", reference_residual)
    monkeypatch.setattr(stacks, "solve_stack", reference_stack)
    backend = CudaBackend(HostDevice())
    monkeypatch.setattr(places, "backend_of", lambda number: backend)
    return backend
