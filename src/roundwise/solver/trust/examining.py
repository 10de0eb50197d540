"""How far an answer is to be trusted: its digits, A's condition number, and whether A is singular.

Every solve looks for signs of trouble that cost next to nothing, and examines A and x only where it
finds one. What a `Solution` tells of its error is examined when it is first read (`Knowledge`).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise._inside import INSIDE
from roundwise.algorithms.accuracy import default_tolerance, lost_pivots
from roundwise.algorithms.conditioning import LOST, RESOLVED, Conditioning
from roundwise.algorithms.scaling import LARGEST_SUM, magnitude_product
from roundwise.backends import ArithmeticFailure, Factors
from roundwise.backends.arrays import is_sparse, on_host
from roundwise.backends.native import exact
from roundwise.backends.real_form import OVER_ROOT_2, ROOT_2
from roundwise.exceptions import IllConditionedWarning
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.solver.inputs import GivenColumns, checked_columns, scaled_blocks
from roundwise.solver.prepare import prepare
from roundwise.solver.system import System
from roundwise.solver.trust.error_bound import PROVED_UP_TO, Prover, relative_errors
from roundwise.solver.trust.knowledge import (
    ErrorEstimate,
    Knowledge,
    SystemChanged,
    right_digits,
    worst_of,
)
from roundwise.solver.trust.singularity import EXAMINED_UP_TO, Singularity, examine

Array = NDArray[np.float64]

FEW_DIGITS = 1e-3
"""The relative error from which on a solve warns. (A taste: three digits are few.)"""

CERTAIN = FEW_DIGITS / 64
"""An error that one correction alone estimates must be below that to be no reason to warn: such
estimates are seldom off by more. (A taste.)"""

SUSPICIOUS = 1e-10
"""Pivots of FP64 factors that differ by this factor, or an x that is as much larger than b over A,
are a sign of trouble: the condition number is then perhaps beyond 1e13, where few digits are left.
(A taste; every solve pays for what it lets through, see docs/switching.md for what it misses.)"""

MAY_HIDE = 2 * LOST
"""Pivots of low factors below this multiple of their rounding errors may hide a lost direction of a
large A: a look at it costs little there, so that twice the margin is looked at."""

SMALL_PIVOT = 1e-4
"""Larger pivots are no sign, whatever the format: rounding errors of 16-bit formats hide more than
that in nearly every large matrix."""

UNKNOWN_AT_FIRST = 0.1
"""A relative correction of that size says that no digit of x was certain before it."""

HARMLESS = 1e12
"""With a condition number below that, FP64 residuals leave at least three digits right: its product
with sqrt(n) u is below 1e-3."""

NEARLY_SINGULAR = 1e15
"""Condition numbers beyond that leave no digit right in FP64: their product with u is 0.1."""

FROM_BELOW = 16.0
"""A condition number that was found from random vectors is mostly too low. The error is taken for
so many times larger: a solve should rather warn too often than be silent. (A taste.)"""

SAFETY = 2.0
"""An estimated error is this multiple of what one more correction would change: the sum of all
corrections to come if each halves."""

ROWS = 256
"""Rows of a GPU's matrix whose magnitudes are taken at a time."""

_U = 2.0**-53
_PROVED = "proved, all rounding errors counted"
_CORRECTED = "estimated from one more correction of x"
_FROM_CONDITION = "estimated from the condition number and the backward error"
_UNKNOWN = "A is singular to working precision, or close to it"
_SCALED = "A's rows and columns are of so different sizes that the largest entries are uncertain"


UNEXAMINED = ErrorEstimate(math.nan, False, "no sign of trouble", math.nan)


@dataclass(frozen=True, eq=False)
class Examined:
    """An answer, and what it comes from."""

    X: Array  # scaled, and rounded to the type that is returned
    columns: GivenColumns
    factors: Factors | None  # None: they were not kept, and FP64's are made
    residual: Any = None  # B - A X as the solve computed it; None if it did not
    residual_format: FloatFormat = FP64


class Examiner:
    """Examines one matrix and answers computed with it; remembers what it found of the matrix."""

    def __init__(self, matrix: System) -> None:
        self._matrix, self._backend = matrix, matrix.backend
        # What was found in the factors last seen.
        self._signs: tuple[Factors, bool] | None = None
        self._lost: tuple[Factors, bool] | None = None

    @cached_property
    def _conditioning(self) -> Conditioning:
        return Conditioning(self._matrix.A, self._backend)

    @cached_property
    def _prover(self) -> Prover:
        return Prover(self._matrix, self._backend)

    @cached_property
    def singularity(self) -> Singularity:
        """Whether A is singular, as far as that can be known."""
        matrix = self._matrix
        if not matrix.is_exact or (matrix.n > EXAMINED_UP_TO and not self._backend.on_host):
            return Singularity.UNDECIDED
        return examine(matrix.A if self._backend.on_host else on_host(matrix.A))

    def _residual(self, X: Array, B: Array) -> Array:
        """``B - A X`` in twice the precision."""
        return exact.doubled_residual(self._backend, self._matrix.A, X, B)  # type: ignore[no-any-return]

    def knowledge(self, answer: Examined) -> Knowledge:
        """What can be known of the error of an answer, once somebody asks for it."""
        if answer.residual is None:
            answer = replace(answer, residual=self._residual_again(answer))

        def find() -> ErrorEstimate:
            with self._matrix.entered():
                if not self._is_unchanged(answer):
                    raise SystemChanged
                return self.examined(answer)

        return Knowledge(find)

    def _is_unchanged(self, answer: Examined) -> bool:
        """Whether A and x are what they were: they give the same residual and norm, bit for bit.

        The numbers to compare with cost nothing, as the gate has computed them. Their kernels sum
        in the same order on any number of threads. b needs no test: the columns are a copy.
        """
        if not bool((self._residual_again(answer) == answer.residual).all()):
            return False
        matrix = self._matrix
        share = OVER_ROOT_2 if matrix.is_complex else 1.0
        scaled = matrix.rows is not None  # then A is a copy of our own
        return scaled or self._backend.sizes(matrix.A)[0] * share == matrix.norm

    def _residual_again(self, answer: Examined) -> Any:
        A = self._backend.matrix(self._matrix.A, answer.residual_format)
        return self._backend.residual(A, answer.X, answer.columns.B)

    @np.errstate(all="ignore")
    def suspects(self, factors: Factors, X: Array, columns: GivenColumns) -> bool:
        """Whether A or an answer shows signs of trouble, at next to no cost.

        Nothing proves that there is none: a matrix can hide its condition from its pivots.
        """
        matrix = self._matrix
        sizes = matrix.norm * matrix.solution_norms(X)
        stretched = bool((SUSPICIOUS * sizes > matrix.residual_norms(columns.B)).any())
        return not self.is_harmless(factors, stretched)

    def is_harmless(self, factors: Factors, stretched: bool, largest: float = 0.0) -> bool:
        """Whether nothing that a solve sees at next to no cost tells of trouble.

        `stretched`: x is far larger than b over A; `largest` is the largest relative correction,
        which tells something if n is large.
        """
        if stretched:
            return False
        if self._matrix.n <= PROVED_UP_TO:
            return not self.shows_signs(factors)
        most = FEW_DIGITS if factors.fmt == FP64 else UNKNOWN_AT_FIRST
        return largest < most and not self._shows_lost_pivots(factors)

    def _shows_lost_pivots(self, factors: Factors) -> bool:
        """Whether pivots of factors of a large A may hide a lost direction; looked for once."""
        if self._lost is None or self._lost[0] is not factors:
            low = MAY_HIDE, SMALL_PIVOT
            limits = (math.inf, SUSPICIOUS) if factors.fmt == FP64 else low
            self._lost = factors, bool(lost_pivots(factors, *limits))
        return self._lost[1]

    @np.errstate(all="ignore")
    def glanced(self, answer: Examined, largest: float, backward_error: float) -> ErrorEstimate:
        """What a plain solve finds out about its answer if n is large, at a small part of its time.

        `largest` is the largest relative correction of refinement. If FP64 factors or the answer
        show signs of trouble, one more correction estimates the error. If low factors have lost
        pivots, x is large beside b, or the first x had hardly a right digit, the condition number
        that they may hide is searched for.
        """
        matrix, factors = self._matrix, answer.factors
        assert factors is not None
        x_norms, columns = matrix.solution_norms(answer.X), answer.columns
        b_norms = columns.norms if matrix.has_plain_norms else matrix.residual_norms(columns.B)
        stretched = bool((SUSPICIOUS * matrix.norm * x_norms > b_norms).any())
        if self.is_harmless(factors, stretched, largest):
            return UNEXAMINED
        if factors.fmt != FP64:
            is_scaled = matrix.rows is not None
            norm = self._conditioning.norm_inf if is_scaled else matrix.norm
            condition = self._conditioning.hidden_by(factors, norm)
            if condition < HARMLESS:
                return UNEXAMINED
            error = FROM_BELOW * condition * max(backward_error, _U)
            if condition > NEARLY_SINGULAR:
                error = math.inf
            return ErrorEstimate(error, False, _FROM_CONDITION, condition)
        error = self._correction(answer)
        if error < CERTAIN:
            return UNEXAMINED
        found = self._conditioning.quick_estimate(factors)
        if not found.rate < RESOLVED:
            return ErrorEstimate(math.inf, False, _UNKNOWN, found.condition)
        return ErrorEstimate(error / (1 - found.rate), False, _CORRECTED, found.condition)

    @np.errstate(all="ignore")
    def estimated(self, answer: Examined) -> ErrorEstimate | None:
        """The error of an answer that shows signs of trouble, by substitutions; None if unknown.

        One more correction estimates it if the factors are in FP64 and can tell A from a singular
        matrix. If they cannot, the error is unknown here: `examined` finds it out, by n
        substitutions where it proves a bound.
        """
        factors = answer.factors
        assert factors is not None
        if factors.fmt != FP64 or not self._conditioning.is_resolved_by(factors):
            return None
        error = self._correction(answer)
        if error < FEW_DIGITS:
            return UNEXAMINED
        condition = self._conditioning.quick_estimate(factors).condition
        return ErrorEstimate(error, False, _CORRECTED, condition)

    def _correction(self, answer: Examined) -> float:
        """About the relative error of an answer: twice what one more correction would change."""
        residual = self._residual(answer.X, answer.columns.B)
        assert answer.factors is not None
        try:
            return self._relative(SAFETY * np.abs(answer.factors.solve(residual)), answer)
        except ArithmeticFailure:
            return math.inf

    def shows_signs(self, factors: Factors) -> bool:
        """Whether the factors of A show signs of trouble; looked for once."""
        if self._signs is None or self._signs[0] is not factors:
            self._signs = factors, self._signs_of(factors)
        return self._signs[1]

    @np.errstate(all="ignore")
    def _signs_of(self, factors: Factors) -> bool:
        pivots, n, fmt = factors.pivots, self._matrix.n, factors.fmt
        limit = SUSPICIOUS
        if fmt != FP64:
            limit = LOST * default_tolerance(n, fmt)
            if fmt.p < FP32.p and n > PROVED_UP_TO:
                return False  # nearly all large matrices would be suspected
        if pivots is not None:
            lost = lost_pivots(factors, math.inf, limit)
        else:  # what a random vector is stretched to tells about as much
            try:
                y = on_host(factors.solve(np.random.default_rng(0).standard_normal(n)))
            except ArithmeticFailure:
                return True
            lost = 0 if limit * self._conditioning.norm_inf * np.abs(y).max() < 1 else 1
        if fmt == FP64 or lost == 0:
            return lost > 0
        return self._conditioning.may_exceed(HARMLESS, factors, lost)

    @np.errstate(all="ignore")
    def examined(self, answer: Examined) -> ErrorEstimate:
        """What is known about the error of an answer.

        A bound is proved if n is small and A not too close to a singular matrix; if not, or if A is
        on a GPU, the error is estimated. FP64 factors are made for that if n is small, or low ones
        tell nothing.
        """
        factors, columns = answer.factors, answer.columns
        residual = self._residual(answer.X, columns.B)
        if self._matrix.n <= PROVED_UP_TO and self._backend.on_host:
            error = self._relative(self._prover.errors(answer.X, columns.B, residual), answer)
            if math.isfinite(error):
                condition = 1.0  # of no columns: A may be singular
                if answer.X.size:
                    condition = self._conditioning.lower_bound(self._prover.longest)
                return ErrorEstimate(error, True, _PROVED, condition)
        elif factors is not None and factors.fmt != FP64:
            found = self._estimated(answer, factors, residual)
            if math.isfinite(found.error):
                return found
        best = factors
        if factors is None or factors.fmt != FP64:
            best = self._fp64_factors()
        if best is None:
            condition = 1.0 if factors is None else self._conditioning.estimate(factors).condition
            return ErrorEstimate(math.inf, False, _UNKNOWN, condition)
        found = self._estimated(answer, best, residual)
        if math.isinf(found.error) and found.source != _UNKNOWN:
            return replace(found, source=_SCALED)
        return found

    def _estimated(self, answer: Examined, factors: Factors, residual: Array) -> ErrorEstimate:
        low = factors.fmt != FP64
        # Directions that low factors have lost are searched for; LAPACK's estimator has the others.
        search = low or self._matrix.n <= PROVED_UP_TO
        error, how = math.inf, _UNKNOWN
        try:
            M = factors.to(FP64)  # once: those of a sparse A are large
        except ArithmeticFailure:
            return ErrorEstimate(error, False, how, 1.0)
        found = (self._conditioning.estimate if search else self._conditioning.quick_estimate)(M)
        if found.rate < RESOLVED:
            try:
                Z = M.solve(residual)
                Z = np.abs(Z) + np.abs(M.solve(self._residual(Z, residual)))
                unseen = np.abs(M.solve(self._residual_noise(answer)))
            except ArithmeticFailure:
                return ErrorEstimate(math.inf, False, _UNKNOWN, found.condition)
            errors = SAFETY * (Z + unseen) / (1 - found.rate)
            error, how = self._relative(errors, answer), _CORRECTED
            # No estimate is finer than float64, nor than what residuals in twice its bits tell.
            error = max(error, _U, 8 * self._matrix.n * _U**2 * found.condition)
            spread = self._matrix.columns
            if spread is not None and np.ptp(spread) > LARGEST_SUM:  # norms are clipped there
                error = math.inf
        return ErrorEstimate(error, False, how, found.condition)

    def _residual_noise(self, answer: Examined) -> Array:
        """What is not known of a residual in twice the precision: some n u^2 of |A| |x| + |b|."""
        A, X, n = self._matrix.A, np.abs(answer.X), self._matrix.n
        if self._matrix.is_sparse:
            sizes = np.asarray(abs(A) @ X)
        elif isinstance(A, np.ndarray):
            sizes = np.column_stack([magnitude_product(A, x) for x in np.ascontiguousarray(X.T)])
        else:  # in blocks of rows: A is not copied as a whole
            sizes = np.vstack([np.abs(A[i : i + ROWS]) @ X for i in range(0, n, ROWS)])
        signs = np.where(np.random.default_rng(1).random(X.shape) < 0.5, -1.0, 1.0)
        noise = 8 * n * _U**2 * self._backend.array(signs)
        return noise * (sizes + np.abs(answer.columns.B))  # type: ignore[no-any-return]

    def _relative(self, errors: Array, answer: Examined) -> float:
        ratios = relative_errors(errors, answer.X, answer.columns.exponents)
        worst = float(ratios.max(initial=0.0))
        # With parts off by at most e ||x||, a modulus is off by at most sqrt(2) e ||x||.
        return ROOT_2 * worst if self._matrix.is_complex else worst

    def _fp64_factors(self) -> Factors | None:
        """FP64 factors of A, whatever the answer's are; None if there are none."""
        try:
            return self._backend.matrix(self._matrix.A, FP64).lu()
        except ArithmeticFailure:
            return None


def knowledge_of(
    A: Any, b: Any, x: Any, backward_error: float, measured: Callable[[], float]
) -> Knowledge:
    """Knowledge of an x that one compiled call gave, which kept nothing but x.

    A and b are as the caller has them: dense or sparse, real or complex; x is an array shaped as b.
    When it is read, ``measured()`` computes the backward error again, by the same kernel from the
    same arrays. If that is not `backward_error`, bit for bit, A, b or x has changed. If it is, A is
    factorized in FP64, and x examined with that.
    """

    def find() -> ErrorEstimate:
        if measured() != backward_error:
            raise SystemChanged
        return _examined_afresh(A, b, x)

    return Knowledge(find)


def _examined_afresh(A: Any, b: Any, x: Any) -> ErrorEstimate:
    A, b, x = (y if is_sparse(y) else on_host(y) for y in (A, b, x))  # small systems
    system = prepare(A)
    given, taken = system.taken(b), system.taken(x).columns
    examiner, done, estimates = Examiner(system), 0, []
    X = taken[:, None] if taken.ndim == 1 else taken
    for columns in scaled_blocks(checked_columns(given.columns, system), system):
        block = X[:, done : done + columns.B.shape[1]].astype(np.float64, order="F")
        done += block.shape[1]
        answer = Examined(columns.scaled_solution(block), columns, None)
        estimates.append(examiner.examined(answer))
    return worst_of(estimates).times(1 / given.share)


def warn_of(found: ErrorEstimate, asked_for_all: bool = False) -> None:
    """Warn of few digits, or of fewer than were asked for, at the line that called Roundwise."""
    digits = right_digits(found.error)
    count = "no digit" if digits == 0 else "one digit" if digits == 1 else f"{digits} digits"
    lead = "full accuracy is out of reach: " if asked_for_all else ""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("roundwise."):
        level, frame = level + 1, frame.f_back
    warning = IllConditionedWarning(
        f"{lead}{count} of x can be relied on ({found.source}; the condition number is at least "
        f"{found.condition:.1e})"
    )
    if INSIDE.replaced:
        raise warning
    warnings.warn(warning, stacklevel=level)
