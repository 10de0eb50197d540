"""`ComplexFactorization`: a complex matrix behind the interface of a real one.

It solves the real form of the system (`roundwise.backends.real_form`) with factors of the complex
matrix, and gives complex answers.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms.accuracy import default_tolerance, passes, upper_bounds, within
from roundwise.backends.complex.backend import error_of
from roundwise.backends.complex.small import solve_complex_at_once
from roundwise.backends.real_form import complex_columns
from roundwise.features import LOOK
from roundwise.formats import FP32, FP64
from roundwise.solver.choosing import COMPLEX_BACKEND, Choice, Chooser, PolicyChooser
from roundwise.solver.complex.systems import (
    AS_LARGE,
    GivenComplex,
    checked_complex,
    real_right_hand_sides,
)
from roundwise.solver.derived import complex_slogdet
from roundwise.solver.factorization import Factorization
from roundwise.solver.inputs import GivenMatrix, is_transposed
from roundwise.solver.solution import Solution, SolveFailed
from roundwise.solver.trust.examining import SUSPICIOUS


class ComplexFactorization(Factorization):
    """A complex matrix whose every answer passes the gate; `roundwise.factor` makes it."""

    @property
    def _order(self) -> int:
        return self._matrix.n // 2

    def _checked(self, A: Any, columns: int) -> GivenMatrix:
        n, shape = self._order, A.shape if sparse.issparse(A) else np.shape(A)
        if shape != (n, n):
            raise ValueError(f"A has shape {shape}; pass a {n} x {n} matrix, or call factor(A)")
        return checked_complex(A, self._backend, columns, copy=True)

    def _tolerance(self, dtype: Any) -> float | None:
        if self._tol is not None:
            return self._tol
        return default_tolerance(self._order, FP32 if dtype == np.float32 else FP64)

    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any:
        """``A^-1 b``, as `Factorization.solve`.

        ``trans="T"`` (or 1) solves with the transpose of A, ``"H"`` (or 2) with its conjugate
        transpose. Either copies A once.
        """
        columns = real_right_hand_sides(b, self._order)
        plain_transpose = is_transposed(trans) and trans in ("T", 1)
        if plain_transpose:  # A' x = b says that A* conj(x) = conj(b)
            columns = _conjugated(columns)
        try:
            answer = super().solve(columns, trans, full_output=full_output)
        except SolveFailed as failure:
            if failure.x is not None:
                failure.x = _complex(failure.x, plain_transpose)
            raise
        if isinstance(answer, Solution):
            return replace(answer, x=_complex(answer.x, plain_transpose))
        return _complex(answer, plain_transpose)

    def slogdet(self) -> tuple[complex, float]:
        """The sign, a complex number of modulus 1, and the logarithm of the determinant's modulus.

        As `Factorization.slogdet`; 0 and minus infinity if A is singular.
        """
        return complex_slogdet(self._factored)

    def det(self) -> complex:
        """The determinant of A; see `slogdet`. Zero or infinite where float64 cannot hold it."""
        sign, logarithm = self.slogdet()
        with np.errstate(over="ignore", under="ignore"):
            return complex(sign * np.exp(logarithm)) if sign else 0j


def _conjugated(columns: NDArray[Any]) -> NDArray[Any]:
    signs = np.where(np.arange(len(columns)) % 2, -1, 1).astype(columns.dtype)
    return np.asarray((columns.T * signs).T)


def _complex(x: NDArray[Any], conjugate: bool) -> NDArray[Any]:
    z = complex_columns(x)
    return np.conj(z) if conjugate else z


def complex_choice(
    chooser: Chooser, matrix: GivenComplex, positive_definite: bool | None
) -> Choice:
    """What to try for a complex matrix: by the facts of real ones, with prices of its size."""
    if isinstance(chooser, PolicyChooser):
        unknown = set(chooser.deployed.context.features) - set(LOOK)
        if unknown:
            raise TypeError(
                f"the policy asks for {', '.join(sorted(unknown))}, which real matrices alone have "
                "here; pass policy='default', or a Tuner that was fitted with LOOK_CONTEXT"
            )
    definite = None if matrix.is_sparse else positive_definite
    choice = chooser.choose(matrix.seen(), definite)
    reason = choice.reason
    if not matrix.is_sparse:
        reason += f" (A complex unknown counts as {AS_LARGE:.2g} real ones.)"
    # Orders are those of the matrix that was seen; no engine for complex ones can be stopped.
    return replace(choice, reason=reason, orders=None, granted=None)


def factor_complex(
    A: Any,
    chooser: Chooser,
    *,
    tol: float | None,
    positive_definite: bool | None,
    columns: int,
    accuracy: Any,
    copy: bool,
    analyses: Any = None,
) -> ComplexFactorization:
    """A factorization of a complex A, dense or sparse; the front door has checked the options."""
    start = perf_counter()
    matrix = checked_complex(A, COMPLEX_BACKEND, columns, copy=copy)
    choice = complex_choice(chooser, matrix, positive_definite)
    seconds = perf_counter() - start
    return ComplexFactorization(matrix, choice, COMPLEX_BACKEND, tol, seconds, accuracy, analyses)


@np.errstate(all="ignore")
def small_complex(A: Any, b: Any, tol: float | None, bound: int) -> NDArray[Any] | None:
    """A dense complex128 system with n < bound in FP64, through the same gate; None if it fails."""
    n = len(A) if A.ndim == 2 else 0
    fits = A.shape == (n, n) and b.ndim in (1, 2) and len(b) == n and b.size > 0
    if not (fits and 0 < AS_LARGE * n < bound and A.dtype == np.complex128):
        return None
    if not (A.flags.c_contiguous and A.flags.aligned):
        A = np.array(A, order="C")
    tolerance, unknown = default_tolerance(n) if tol is None else tol, error_of(2 * n)
    solved = solve_complex_at_once(A, b, within(tolerance, 2 * n, unknown))
    if solved is None:
        return None
    x, error, pivot_ratio = solved
    if not pivot_ratio > SUSPICIOUS:
        return None  # perhaps few digits are right, or A is singular: that is looked into
    return x if passes(upper_bounds(error, 2 * n, unknown), tolerance) else None
