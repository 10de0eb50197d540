"""LU of one dense matrix by several threads, whose every answer passes the gate.

What the compiled calls for small systems are to one thread (`solver/express.py`) this is to
several: LU, then one call that substitutes, computes the residual and corrects columns that need it
(`Factors.refined`). There are no decisions, and nothing is scaled: what is refused takes the four
steps of a solve.

A matrix of single precision may have factors in FP32, and is read as it is for residuals, whose
sums are in FP64: half of the memory that a solve reads otherwise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.algorithms.accuracy import judged, target_of, within
from roundwise.backends import ArithmeticFailure, Factors, Matrix, NativeBackend
from roundwise.backends.contract import ToRefine
from roundwise.backends.native.exact import error_of, sums_for
from roundwise.backends.permuted import TransposedFactors
from roundwise.backends.real_form import OVER_ROOT_2, RealForm, complex_columns, real_columns
from roundwise.formats import FP64, FloatFormat


class Verified(NamedTuple):
    """An x that has passed the gate."""

    x: NDArray[Any]
    error: float  # an upper bound of the backward error of every column
    corrections: int
    largest: float  # of them, relative to x
    stretch: float  # the largest ||A|| ||x|| / ||b||


class VerifiedLU:
    """Factors of a square matrix, which must not change.

    Substitution for one column takes two thirds of the time if the columns of a real A are
    contiguous.
    """

    def __init__(self, A: NDArray[Any], factor: FloatFormat = FP64) -> None:
        self._backend, self.is_complex = NativeBackend(), A.dtype.kind == "c"
        self.is_single = A.dtype in (np.float32, np.complex64)
        contiguous = A.flags.c_contiguous or (A.flags.f_contiguous and not self.is_complex)
        A = A if contiguous and A.flags.aligned else A.copy(order="C")
        self._form: Any = RealForm(A) if self.is_complex else A
        self._matrix = self._backend.matrix(self._form, FP64)
        self.factors: Factors | None = None
        self.pivot_ratio = 0.0
        """The smallest pivot over the largest; 0 if there are no factors."""
        try:
            self.factors = self._backend.matrix(self._form, factor).lu()
        except ArithmeticFailure:
            return
        pivots = self.factors.pivots
        assert pivots is not None
        self.pivot_ratio = float(pivots[pivots.argmin()] / pivots[pivots.argmax()])

    @cached_property
    def _given(self) -> tuple[Matrix, float]:
        return self._matrix, self._norm(self._form)

    @cached_property
    def _transposed(self) -> tuple[Matrix, float]:
        form = self._form.T
        return self._backend.matrix(form, FP64), self._norm(form)

    def _norm(self, form: Any) -> float:
        """The norm that the gate takes (docs/accuracy.md)."""
        if self.is_single:  # summed in float64
            rows = form.rows if self.is_complex else form
            sums = np.abs(rows).sum(axis=1, dtype=np.float64)
            return float(sums.max()) * (OVER_ROOT_2 if self.is_complex else 1.0)
        return self._backend.sizes(form)[0] * (OVER_ROOT_2 if self.is_complex else 1.0)

    def solve(self, b: NDArray[Any], tolerance: float, trans: str = "N") -> Verified | None:
        """x for a vector or columns b, complex if A is; None if it does not pass the gate.

        A b in single precision asks for x in single precision.
        """
        if self.factors is None:
            return None
        factors, (A, norm) = self.factors, self._given
        conjugate = self.is_complex and trans == "T"  # A' x = b says that A* conj(x) = conj(b)
        if trans != "N":
            factors, (A, norm) = TransposedFactors(factors), self._transposed
        columns = real_columns(b.conj() if conjugate else b) if self.is_complex else b
        n, is_single = len(columns), columns.dtype == np.float32
        dtype = np.float32 if is_single else np.float64
        sums = sums_for(n, self.is_complex, is_single, self.is_single)
        unknown = error_of(n, sums.block, self.is_complex)
        target = within(target_of(tolerance, dtype, self.is_complex), n, unknown)
        B = np.asfortranarray(columns, dtype=np.float64)
        if not (target > 0 and math.isfinite(norm)):
            return None
        found = factors.refined(ToRefine(A, norm, B, target, sums=sums))
        if found is None and (powers := powers_of_units(B)) is not None:
            B = np.asfortranarray(np.ldexp(B, -powers))
            found = factors.refined(ToRefine(A, norm, B, target, sums=sums))
            if found is not None:
                found = found._replace(X=np.ldexp(found.X, powers))
                if not keep_digits(found.X, B):
                    return None
        if found is None:
            return None
        X, error, passed = judged(found, dtype, tolerance, unknown, self.is_complex)
        if not passed:
            return None
        x = complex_columns(X) if self.is_complex else X
        x = x.conj() if conjugate else x
        return Verified(x, error, len(found.history) // 2, found.largest, found.stretch)

    def discard(self) -> None:
        """Tells that there will be no other solve."""
        if self.factors is not None:
            self.factors.discard()
            self.factors = None


def powers_of_units(B: NDArray[np.float64]) -> NDArray[np.int32] | None:
    """The powers of two whose inverses bring columns, or a vector, to norms near 1.

    None if all are near enough for refinement in one call, or if a number is not finite.
    """
    norms = np.abs(B).max(axis=0)
    if not (np.isfinite(norms).all() and ((norms < 2.0**-40) | (norms > 2.0**39)).any()):
        return None
    return np.asarray(np.frexp(norms)[1], dtype=np.int32)


def keep_digits(X: NDArray[np.float64], B: NDArray[np.float64]) -> bool:
    """Whether columns that were scaled by powers of two are far from the smallest numbers.

    What their smaller entries lose vanishes beside what the gate's bound has room for
    (docs/accuracy.md). The solution for zeros is zero.
    """
    norms = np.abs(X).max(axis=0)
    return bool((((norms > 2.0**-900) & (norms < np.inf)) | ~B.any(axis=0)).all())
