"""Proves bounds of the errors of answers: what a proof needs of one matrix is computed once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.algorithms.scaling import ScaledMatrix
from roundwise.backends import ArithmeticFailure, Backend
from roundwise.backends.native import exact
from roundwise.formats import FP64
from roundwise.solver.trust.error_bound import Inverse

Array = NDArray[np.float64]
_U = 2.0**-53


class Prover:
    """For a small matrix, sparse ones made dense; columns are scaled to be of one size.

    With ``A' = A D``, D a diagonal of powers of two, ``A' y = b`` has the solution ``D^-1 x``.
    """

    def __init__(self, matrix: ScaledMatrix, backend: Backend) -> None:
        self._matrix, self._backend = matrix, backend

    @cached_property
    def _A(self) -> Array:
        A = self._matrix.A
        return np.asarray(A.toarray() if self._matrix.is_sparse else A)

    @cached_property
    def _shifts(self) -> NDArray[np.int32]:
        """``D = 2**-shifts``; none if A has been scaled already."""
        if self._matrix.columns is not None or not self._matrix.is_exact:
            return np.zeros((self._matrix.n, 1), dtype=np.int32)
        return np.asarray(np.frexp(np.abs(self._A).max(axis=0))[1])[:, None]

    @cached_property
    def _inverse(self) -> Inverse | None:
        """Of A'; None if it cannot be computed in FP64."""
        scaled = np.ldexp(self._A, -self._shifts[:, 0])
        try:
            factors = self._backend.matrix(scaled, FP64).lu()
            R = np.asarray(factors.solve(np.eye(len(scaled))))
        except ArithmeticFailure:
            return None
        return Inverse.of(scaled, R)

    @property
    def longest(self) -> Array:
        """The column that makes the norm of ``A^-1``."""
        assert self._inverse is not None
        R = np.ldexp(self._inverse.R, -self._shifts)
        return np.asarray(R[:, np.abs(R).sum(axis=0).argmax()])

    @np.errstate(all="ignore")
    def errors(self, X: Array, B: Array, residual: Array) -> Array:
        """Bounds of ``|A^-1 B - X|`` that hold in exact arithmetic; infinite if there are none.

        The residual is that of `exact.residual`.
        """
        if self._inverse is None or not self._inverse.proves_something:
            return np.full(X.shape, np.inf)
        n = len(X)
        size = (np.abs(self._A) @ np.abs(X) + np.abs(B)) * (1 + (n + 4) * _U)
        # What underflows here and in the residual is counted by `Inverse.errors`.
        uncertainty = 1.01 * (_U * np.abs(residual) + exact.error_of(n) * size)
        errors = self._inverse.errors(X, residual, uncertainty)
        return np.where(errors > 0, np.nextafter(np.ldexp(errors, -self._shifts), np.inf), 0.0)
