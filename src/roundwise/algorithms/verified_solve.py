"""`VerifiedSolve`: the front door as an algorithm. Factorize, refine, pass the gate or say why not.

One run tries one action:

1. Factorize by the action's method, in the format of the factor stage.
2. Refine all columns together with the factors alone, as long as corrections halve.
3. Where they do not: GMRES in the format of the gmres stage, the factors as preconditioner, column
   by column. It is given up early if it is not on its way, or at once if many pivots have drowned
   in rounding errors.
4. The gate: every column's backward error, against the data as given. It is computed in twice
   the precision wherever float64 leaves a doubt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action, ActionSpace
from roundwise.algorithms.accuracy import (
    ErrorMeasure,
    backward_errors,
    default_tolerance,
    holds_in_single,
    lost_pivots,
    passes,
    rounded_errors,
    target_of,
    upper_bounds,
    within,
)
from roundwise.algorithms.base import Algorithm, Outcome, OutcomeStatus, Shared
from roundwise.algorithms.deflation import deflated_corrector, keeps_bits
from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.refinement import (
    Answer,
    Correction,
    Corrector,
    MatrixOf,
    Refined,
    Substitution,
    System,
    by_columns,
    operands,
    refine,
    shared_factors,
    shared_matrix,
)
from roundwise.algorithms.scaling import ScaledColumns, moderate, scaled_columns
from roundwise.algorithms.stage import Stage, Stages, Vector
from roundwise.algorithms.stopping import BudgetRule, ForwardRule, HalvingRule, StoppingRule
from roundwise.backends import ArithmeticFailure, Backend, Factors, Matrix, get_backend
from roundwise.backends.arrays import column_norms, on_host
from roundwise.backends.contract import AtOnce, ToRefine
from roundwise.backends.native import exact
from roundwise.backends.native.dense import is_symmetric
from roundwise.backends.native.structured import STRUCTURED, structured_method
from roundwise.formats import FP32, FP64, FP64X2, FloatFormat, get_format
from roundwise.methods import DEFAULT_METHOD, METHODS, safest_last
from roundwise.problems import LinearSystem

Array = NDArray[np.float64]
AtOnceOf = Callable[[], AtOnce | None]
BudgetOf = Callable[[Factors], int | None]
INNER_TOLERANCE = 1e-6
LEAST_INNER, MOST_INNER, INNER_MARGIN = 1e-10, 1e-3, 0.1
"""The first GMRES cycle is to reduce the residual as far as the gate asks for, with that margin."""
RESTART = 30
CHECK_AFTER = 12
"""A GMRES cycle that after so many iterations is not on its way to the inner tolerance within half
of the budget is given up: two such cycles are needed."""


@dataclass(frozen=True, eq=False)
class Rung:
    """The result of one rung of a ladder."""

    outcome: Outcome
    answer: Answer | None  # as refinement left it; None if there are no factors
    factors: Factors | None
    factor_seconds: float
    seconds: float  # of all


@dataclass(frozen=True)
class VerifiedSolve(Algorithm):
    """One attempt of `roundwise.solve`: factors of one action, refinement, and the gate.

    Parameters
    ----------
    tolerance : float, optional
        The backward error to accept; ``sqrt(n) u`` with float64's u if not given.
    budget : int
        GMRES iterations for one column, with factors below FP64, after which the attempt is given
        up for better factors; `rung` may be told of fewer. (At n = 1250 on the two cores where it
        was chosen, that many take about half as long as an FP64 factorization.)
    accuracy : {"backward", "forward"}
        ``"forward"``: refine until x itself is right to a few units in the last place, which
        needs residuals in fp64x2 and no GMRES (`deflation`). An attempt whose factors do
        not allow that stagnates.

    Examples
    --------
    >>> system = rw.problems.randsvd(30, kappa=1e4, rng=0)
    >>> outcome = rw.VerifiedSolve().run(system, "lu:fp32-fp64-fp64-fp64", "native")
    >>> outcome.status.name
    'CONVERGED'
    """

    stages: ClassVar[tuple[str, ...]] = ("factor", "update", "gmres", "residual")
    has_methods: ClassVar[bool] = True
    arithmetic: ClassVar[str] = "native"

    tolerance: float | None = None
    budget: int = 40
    accuracy: Literal["backward", "forward"] = "backward"

    def execute(self, problem: LinearSystem, stages: Stages, shared: Shared) -> Outcome:
        factor, residual = stages["factor"], stages["residual"]
        backend = factor.backend
        method = stages.method or DEFAULT_METHOD
        kind, fmt = "sparse" if problem.is_sparse else "dense", factor.fmt
        if method not in backend.methods(problem.is_sparse):
            return _unsuited(f"{method} is not for {kind} A")
        if backend.supports(fmt) and not backend.runs(method, fmt, problem.is_sparse):
            return _unsuited(f"{method} in {fmt} is not for {kind} A")
        with shared.diagnostics():
            measure = shared.get("errors", lambda: ErrorMeasure(problem))
            if method == "cholesky" and not shared.get(
                "symmetric", lambda: is_symmetric(problem.A)
            ):
                return _unsuited("A is not symmetric")

        A, b = operands(problem, backend, shared)

        def scaled() -> System:
            matrix = moderate(A, *backend.sizes(A))
            return matrix, scaled_columns(b, matrix)

        system = shared.get("system", scaled, residual)
        factors = partial(shared_factors, factor, system, shared, method)
        matrix = partial(shared_matrix, system=system, shared=shared)
        outcome = self.rung(system, factors, stages, matrix).outcome
        if outcome.x is None:
            return outcome
        with shared.diagnostics():
            x = on_host(outcome.x[:, 0])
            ferr, cbe = measure.forward(x), measure.componentwise(x)
        return replace(outcome, x=x, ferr=ferr, cbe=cbe)

    def rung(
        self,
        system: System,
        factors_of: Callable[[], Factors],
        stages: Stages,
        matrix: MatrixOf,
        dtype: Any = np.float64,
        refined: AtOnceOf | None = None,
        worth: BudgetOf | None = None,
    ) -> Rung:
        """Factorize, refine and judge: one rung of a ladder. Failures of arithmetic are outcomes.

        It is the step that `roundwise.solve` climbs by, and that training runs. `refined` returns
        what `Factors.refined` gave for these columns, if somebody has called that already;
        `worth`, how many GMRES iterations of all columns factors are worth, None if nobody knows.
        """
        start, answer, factors = perf_counter(), None, None
        try:
            factors = factors_of()
            made = perf_counter()
            outcome, answer = self.attempt(
                *(system, factors, stages, matrix, dtype, refined, worth)
            )
        except ArithmeticFailure as failure:
            made = perf_counter()
            outcome = Outcome.from_failure(failure)
        return Rung(outcome, answer, factors, made - start, perf_counter() - start)

    @np.errstate(all="ignore")  # infinity and NaN never pass the gate
    def attempt(
        self,
        system: System,
        factors: Factors,
        stages: Stages,
        matrix: MatrixOf,
        dtype: Any = np.float64,
        refined: AtOnceOf | None = None,
        worth: BudgetOf | None = None,
    ) -> tuple[Outcome, Answer]:
        """Refine with these factors until every column has passed the gate, or one will not.

        `dtype` is the answer's type: float32 answers are judged by float32's tolerance.
        """
        tolerance = self.target(system[0].n, dtype)
        target = target_of(tolerance, dtype, system[0].is_complex)
        answer = self._refined(system, factors, stages, matrix, target, refined, worth)
        x = system[1].solution(answer.X).astype(dtype, copy=False)
        kept = system[1].scaled_solution(x.astype(np.float64, copy=False))
        unchanged = kept is answer.X or np.array_equal(kept, answer.X)
        errors = answer.errors if unchanged else None
        backend = stages["residual"].backend
        if errors is None and dtype == np.float32 and answer.residual_format == FP64:
            unknown = backend.residual_error(FP64, system[0].n, *system[0].kind)
            errors = _once_rounded(system, answer, x, unknown, tolerance)
            answer.R = None  # it is that of x before
        if errors is None and dtype == np.float64:  # a number of x is too small for 53 bits
            answer.is_accurate = False
        judged = self._gate(system, kept, errors, answer, stages["residual"], matrix, tolerance)
        worst = float(judged.max(initial=0.0))
        worst = math.inf if math.isnan(worst) else worst
        status, reason = answer.status, answer.reason
        if answer.passed and self.accuracy == "forward" and not answer.is_accurate:
            if status is OutcomeStatus.CONVERGED:
                status = OutcomeStatus.STAGNATED
            reason = reason or "corrections do not shrink fast enough for full accuracy"
        elif answer.passed:
            status, reason = OutcomeStatus.CONVERGED, ""
        elif (
            errors is None and stages["residual"].fmt.p >= FP64.p and passes(answer.errors, target)
        ):
            status, reason = OutcomeStatus.OVERFLOW, _unholdable(dtype)
            answer.unholdable = True
        elif status is OutcomeStatus.CONVERGED:
            status, reason = OutcomeStatus.UNCONFIRMED, status.UNCONFIRMED.value
        outcome = Outcome(
            status,
            x if math.isfinite(worst) else None,
            nbe=worst,
            outer_iterations=answer.steps,
            inner_iterations=answer.inner_iterations,
            history=tuple(answer.history),
            reason=reason or ("" if status is OutcomeStatus.CONVERGED else status.value),
        )
        return outcome, answer

    def _gate(
        self,
        system: System,
        X: Vector,
        errors: Array | None,
        answer: Answer,
        residual: Stage,
        matrix: MatrixOf,
        tolerance: float,
    ) -> Array:
        """The backward errors of X; the answer passes if they are at most the tolerance, exactly.

        `errors` are those that refinement computed, None if it did not. Where their upper bounds
        are above the tolerance, but they are not, residuals are computed in twice the precision;
        the errors are upper bounds then.
        """
        n, kind = system[0].n, system[0].kind
        unknown = residual.backend.residual_error(residual.fmt, n, *kind)
        if errors is None or math.isinf(unknown):
            residual = Stage("gate", FP64, residual.backend)
            R = residual.residual(matrix(residual), X, system[1].B)
            errors, answer.R, answer.residual_format = _errors(system, X, R), R, FP64
            unknown = residual.backend.residual_error(FP64, n, *kind)
        bounds = upper_bounds(errors, n, unknown)
        answer.passed = passes(bounds, tolerance)
        if answer.passed:
            return errors
        doubtful = ~(bounds <= tolerance) & ~(errors - min(unknown, 1.0) > tolerance)
        if doubtful.any():
            columns = np.flatnonzero(doubtful)
            B = system[1].B[:, columns]
            R = exact.doubled_residual(residual.backend, system[0].A, X[:, columns], B)
            exactly = _errors((system[0], ScaledColumns(B)), X[:, columns], R)
            # 0 = A 0 without any error
            zero = (column_norms(X[:, columns]) == 0) & (column_norms(B) == 0)
            bounds[columns] = np.where(zero, 0.0, upper_bounds(exactly, n, exact.error_of(n)))
            errors = np.where(doubtful, bounds, errors)
        answer.passed = passes(bounds, tolerance)
        return errors

    def target(self, n: int, dtype: Any = np.float64) -> float:
        """The backward error that the gate accepts."""
        if self.tolerance is not None:
            return self.tolerance
        return default_tolerance(n, FP32 if dtype == np.float32 else FP64)

    def _refined(
        self,
        system: System,
        factors: Factors,
        stages: Stages,
        matrix: MatrixOf,
        target: float,
        before: AtOnceOf | None = None,
        worth: BudgetOf | None = None,
    ) -> Answer:
        """Refine by the factors alone; where that does not pass the gate, by GMRES."""
        factor, update, inner, residual = (stages[name] for name in self.stages)
        # What is known of the residual's error is kept free, so that what stops here also passes.
        n, kind, backend = system[0].n, system[0].kind, residual.backend
        unknown, doubled = (backend.residual_error(fmt, n, *kind) for fmt in (residual.fmt, FP64X2))
        if residual.fmt == FP64 and doubled < target / 2 < unknown < math.inf:
            residual, unknown = Stage("residual", FP64X2, backend), doubled
        if unknown < target:
            target = within(target, n, unknown)
        substitute, low = Substitution(factor, factors), factor.fmt != FP64

        def refined(correct: Corrector, rule: StoppingRule) -> Refined:
            return refine(system, correct, correct, residual, update, rule, matrix)

        tried = None
        forward = self.accuracy == "forward" and residual.fmt == FP64X2
        forward = forward and keeps_bits(system[0], factors)
        if forward and (correct := deflated_corrector(system[0], factors, factor, residual)):
            tried = refined(correct, ForwardRule(target))
            if tried.status is OutcomeStatus.CONVERGED:
                return Answer.accurate(tried, residual.fmt)
        rule = HalvingRule(target)
        if forward and low:  # they fell short of full accuracy: better factors come next
            rule = HalvingRule(target, max_steps=0)
        unweighted = not (system[0].weighs_rows or system[0].weighs_columns)
        if not forward and residual.fmt == update.fmt == FP64 and unweighted:
            given = ToRefine(matrix(residual), system[0].norm, system[1].B, target, rule.max_steps)
            others = residual, update
            at_once = factor.refined(factors, given, others) if before is None else before()
            if at_once is not None:
                return Answer.at_once(at_once)
        plain = refined(substitute, rule)
        answer = Answer.of(plain, residual.fmt)
        if tried:
            answer.count(tried)
        if plain.X is None or passes(answer.errors, target):
            return answer
        columns = np.flatnonzero(~(answer.errors <= target)).tolist()
        granted = worth(factors) if low and worth is not None else None
        each = self.budget if granted is None else min(self.budget, granted // len(columns))
        lost = lost_pivots(factors)
        if low and (forward or lost > each / 2 or each == 0):
            answer.status = OutcomeStatus.HOPELESS
            answer.reason = f"{lost} pivots vanish beside the largest: better factors are faster"
            if lost == 0:
                answer.reason = "better factors are faster than GMRES"
            return answer
        try:
            A, M = matrix(inner), factors.to(inner.fmt)
        except ArithmeticFailure as failure:
            answer.status, answer.reason = OutcomeStatus[failure.status.name], str(failure)
            return answer
        budget = each if low else None
        slow = INNER_TOLERANCE ** min(1.0, 2 * CHECK_AFTER / (budget or RESTART))
        check = (CHECK_AFTER, slow) if low else None
        for column in columns:
            one = (system[0], ScaledColumns(system[1].B[:, [column]]))
            needed = INNER_MARGIN * target / answer.errors[column]
            first = min(max(needed, LEAST_INNER), MOST_INNER)
            first = first if math.isfinite(answer.errors[column]) else INNER_TOLERANCE
            correction = _GmresWithin(budget, inner, A, M, check, first)
            start = answer.X[:, [column]]
            found = refine(
                *(one, start, by_columns(correction), residual, update),
                # A cycle that got as far as it was asked to is not hopeless.
                *(BudgetRule(target, budget, max(slow, first)), matrix),
            )
            answer.take(column, found)
            if not answer.errors[column] <= target:
                answer.reason = answer.reason or "GMRES with these factors does not get there"
                break  # the other columns share the matrix
        return answer

    def action_space(
        self, formats: Iterable[str | FloatFormat] | None = None, problems: Iterable[Any] = ()
    ) -> ActionSpace:
        """Every method that fits some of the problems, in every native format that it has.

        Without problems, those of dense systems. The other stages are in FP64, which the gate
        asks for; residuals also in FP64X2 if that is among the formats, and only in FP64X2 for
        full accuracy. FP64's LU, or SuperLU with COLAMD, is the safe action. Methods for bands and
        triangles are there if some problem is one.
        """
        problems = list(problems)
        space = self.starts({problem.is_sparse for problem in problems} or {False}, formats)
        found = {structured_method(problem.A) for problem in problems if not problem.is_sparse}
        kept = (a for a in space if a.method not in STRUCTURED or a.method in found)
        return ActionSpace(self.stages, tuple(kept))

    def starts(
        self,
        sparse: Iterable[bool],
        formats: Iterable[str | FloatFormat] | None = None,
        backend: str | Backend | None = None,
    ) -> ActionSpace:
        """The actions that a solve may start with: for dense systems, sparse ones, or both.

        `backend` runs them: the processor's native one if not given.
        """
        backend = get_backend(self.arithmetic if backend is None else backend)
        wanted = None if formats is None else {get_format(fmt) for fmt in formats} | {FP64}
        residuals = [self._rest[-1]]
        if wanted and FP64X2 in wanted and FP64X2 not in residuals:
            residuals.append(FP64X2)
        actions = [
            Action((fmt, FP64, FP64, residual), method.name)
            for residual in residuals
            for kind in sorted(sparse)
            for method in safest_last()
            if method.chosen and method.sparse == kind
            for fmt in method.formats
            if backend.runs(method.name, fmt, kind) and (wanted is None or fmt in wanted)
        ]
        return ActionSpace(self.stages, tuple(actions))

    @property
    def _rest(self) -> tuple[FloatFormat, FloatFormat, FloatFormat]:
        """The formats of the stages after factorization that are always good enough."""
        return FP64, FP64, FP64X2 if self.accuracy == "forward" else FP64

    def climb(
        self, first: Action, backend: Backend, sparse: bool = False, is_complex: bool = False
    ) -> tuple[Action, ...]:
        """The ladder from an action on; each rung reuses what the one before has computed.

        First the same factors with FP64 in all other stages (FP64X2 in residuals for full
        accuracy), then factors of the next format, then FP64 factors of the next method.
        """
        method = first.method or DEFAULT_METHOD
        factor, rest = first[0], self._rest
        ladder = [Action(first, method)]
        if any(fmt.p < least.p for fmt, least in zip(first[1:], rest, strict=True)):
            ladder.append(Action((factor, *rest), method))
        while True:
            known = METHODS.get(method)
            higher = [fmt for fmt in known.formats if fmt.p > factor.p] if known else []
            fitting = set(backend.methods(sparse, is_complex))
            later = [name for name in known.then if name in fitting] if known else []
            if higher:
                factor = higher[0]
            elif later:
                method, factor = later[0], FP64
            else:
                return tuple(ladder)
            if backend.runs(method, factor, sparse, is_complex):
                ladder.append(Action((factor, *rest), method))

    @staticmethod
    def rung_after(ladder: Sequence[Action], level: int, status: OutcomeStatus) -> int | None:
        """The rung to try after one that ended with this outcome; None if none is left.

        If the matrix turned out indefinite or unsymmetric, or the method too slow, all rungs of
        that method are skipped: more bits would not help.
        """
        left = status in (
            OutcomeStatus.INDEFINITE,
            OutcomeStatus.UNSUITED,
            OutcomeStatus.STOPPED,
            OutcomeStatus.SLOW_CONVERGENCE,
        )
        later = range(level + 1, len(ladder))
        return next(
            (i for i in later if not left or ladder[i].method != ladder[level].method), None
        )


@dataclass
class _GmresWithin:
    """A corrector of one column that spends at most a budget of iterations in all its calls."""

    budget: int | None
    stage: Stage
    A: Matrix
    M: Factors
    check: tuple[int, float] | None
    tolerance: float  # of the next cycle
    spent: int = 0

    def __call__(self, r: Vector) -> Correction:
        restart = RESTART if self.budget is None else min(RESTART, self.budget - self.spent)
        step = gmres(self.stage, self.A, self.M, r, self.tolerance, restart, 1, self.check)
        self.spent += step.iterations
        self.tolerance = INNER_TOLERANCE
        return step


def _errors(system: System, X: Vector, R: Vector) -> Array:
    """The backward errors of X, whose residual is R."""
    scaled, columns = system
    norms = scaled.solution_norms(X), scaled.residual_norms(columns.B)
    return np.asarray(backward_errors(scaled.residual_norms(R), scaled.norm, *norms))


def _once_rounded(
    system: System, answer: Answer, x: Vector, unknown: float, tolerance: float
) -> Array | None:
    """Bounds of the backward errors of x, the answer in single precision.

    None if that is not known without another residual, or if the gate would not accept them.
    """
    scaled = system[0]
    if scaled.weighs_rows or scaled.weighs_columns or not holds_in_single(column_norms(x)):
        return None
    errors = rounded_errors(answer.errors, scaled.is_complex)
    return errors if passes(upper_bounds(errors, scaled.n, unknown), tolerance) else None


def _unsuited(reason: str) -> Outcome:
    return Outcome(OutcomeStatus.UNSUITED, None, reason=reason)


def _unholdable(dtype: Any) -> str:
    remedy = "scale A or b" + (", or pass float64" if dtype == np.float32 else "")
    return f"{np.dtype(dtype).name} cannot hold x to that accuracy; {remedy}"
