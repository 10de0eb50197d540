"""Dense QR: the last resort, backward stable where LU's entries grow.

And what least squares needs: ``A' A``, and a QR factorization whose Q is at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from roundwise.backends.checks import require_nonzero_diagonal
from roundwise.backends.contract import UnsupportedFormat, Vector
from roundwise.backends.native.storage import DTYPES, finished, loaded, nonfinite
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.machine.threads import ONE_THREAD, factorization_threads

_ROUTINES = {
    FP32: (lapack.sgeqrf, lapack.sormqr, lapack.strtrs),
    FP64: (lapack.dgeqrf, lapack.dormqr, lapack.dtrtrs),
}
"""Householder QR, products with Q, and triangular solves, by format."""


def require_qr(fmt: FloatFormat) -> None:
    """Refuse a format that LAPACK has no QR for."""
    if fmt not in _ROUTINES:
        raise UnsupportedFormat(f"QR runs natively in fp32 and fp64 alone, not in {fmt}; use these")


class QRFactors(PermutedFactors):
    """``A = Q R``: R above the Householder vectors of Q, as LAPACK packs them."""

    method = "qr"
    is_sparse = False
    perm = order = None

    def __init__(self, fmt: FloatFormat, packed: NDArray[Any], tau: NDArray[Any]) -> None:
        self.fmt, self.shape, self.entries = fmt, packed.shape, packed.size
        self.flops = 4 / 3 * len(packed) ** 3
        self._packed, self._tau = packed, tau
        _, self._multiply, self._solve_triangle = _ROUTINES[fmt]
        require_nonzero_diagonal(np.diagonal(packed), fmt)

    @classmethod
    def of(cls, A: NDArray[Any], fmt: FloatFormat, given: NDArray[Any]) -> QRFactors:
        """Factorize a matrix that was given in another type and converted to the format's."""
        packed, tau, _, _ = _ROUTINES[fmt][0](A)
        if not np.isfinite(packed).all():
            raise nonfinite("QR factorization", fmt, given)
        return cls(fmt, packed, tau)

    @property
    def L(self) -> Vector:
        """Q, which is orthogonal to working precision."""
        return self._reflected("N", np.eye(self.shape[0], dtype=self._tau.dtype)).astype(np.float64)

    @property
    def U(self) -> Vector:
        return np.triu(self._packed).astype(np.float64)

    def to(self, fmt: FloatFormat) -> QRFactors:
        require_qr(fmt)
        if fmt == self.fmt:
            return self
        packed, tau = (x.astype(DTYPES[fmt]) for x in (self._packed, self._tau))
        return QRFactors(fmt, packed, tau)

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        y = loaded(b, self.fmt)
        if transpose:  # A' = R' Q'
            x = self._reflected("N", self._solve_triangle(self._packed, y, trans=1)[0])
        else:
            x, _ = self._solve_triangle(self._packed, self._reflected("T", y))
        return finished(x, "triangular solve", self.fmt, b)

    def _reflected(self, trans: str, block: NDArray[Any]) -> NDArray[Any]:
        """``Q B`` or ``Q' B``."""
        operands = "L", trans, self._packed, self._tau, block
        _, work, _ = self._multiply(*operands, -1)
        return np.asarray(self._multiply(*operands, int(work[0]))[0])


_FORM_Q = {FP32: lapack.sorgqr, FP64: lapack.dorgqr}
_SYRK = {FP32: blas.ssyrk, FP64: blas.dsyrk}


def has_products(fmt: FloatFormat) -> bool:
    """Whether BLAS and LAPACK compute in this format."""
    return fmt in _ROUTINES


def thin_qr(T: NDArray[Any], fmt: FloatFormat) -> tuple[Vector, Vector]:
    """``T = Q R`` of a tall matrix by Householder's method; Q has T's shape."""
    n = T.shape[1]
    with np.errstate(over="ignore"):
        work = np.array(T, dtype=DTYPES[fmt], order="F")
    factorize, form = _ROUTINES[fmt][0], _FORM_Q[fmt]
    lwork = int(factorize(work, lwork=-1)[2][0])
    packed, tau, _, _ = factorize(work, lwork=lwork, overwrite_a=True)
    if not np.isfinite(packed).all():
        raise nonfinite("QR factorization", fmt, T)
    R = np.triu(packed[:n]).astype(np.float64, order="F")
    require_nonzero_diagonal(np.diagonal(R), fmt)
    Q, _, _ = form(packed, tau, lwork=int(form(packed, tau, lwork=-1)[1][0]), overwrite_a=True)
    return Q.astype(np.float64, copy=False), R


ON_ONE_THREAD = 2**18
"""``rows n^2`` of a product for which BLAS takes one thread. OpenBLAS 0.3.30 on two cores was
seen to take one up to 430 000, and both from 460 000 on if n > 64 (dsyrk, timed for ten shapes)."""

FEW_BLOCKS = 8
"""Up to so many calls of that size, 0.1 ms in all, the threads of BLAS would gain less than waiting
for them may cost: milliseconds where another program has the core."""


def gram(T: NDArray[Any], fmt: FloatFormat) -> Vector:
    """The lower triangle of ``T' T``; zeros, or anything, above it.

    That of a small T is computed on one thread, in blocks of rows.
    """
    if T.dtype != DTYPES[fmt]:
        with np.errstate(over="ignore"):
            T = T.astype(DTYPES[fmt])
    m, n = T.shape
    rows = max(1, ON_ONE_THREAD // n**2)
    if rows * FEW_BLOCKS < m or (rows < m and factorization_threads() == ONE_THREAD):
        rows = m
    # BLAS reads columns. Those of a C-ordered T are the rows of T', which it multiplies by T.
    rows_first = T.flags.c_contiguous
    multiply, how = _SYRK[fmt], {"trans": not rows_first, "lower": True}
    blocks = [T[i : i + rows].T if rows_first else T[i : i + rows] for i in range(0, m, rows)]
    G = multiply(1.0, blocks[0], **how)
    for block in blocks[1:]:
        G = multiply(1.0, block, beta=1.0, c=G, overwrite_c=True, **how)
    return np.asarray(G)
