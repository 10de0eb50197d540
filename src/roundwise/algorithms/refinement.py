"""Iterative refinement: the one loop that every solver here is made of.

    X = start(B)
    repeat  R = B - A X      (residual)
            Z = correct(R)
            X = X + Z        (update)

X, B, R and Z are blocks of columns. `correct` is an approximate solver, the stopping rule says when
to end, and the two stages say in which formats the residual and the update are computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms.accuracy import ErrorMeasure, backward_errors
from roundwise.algorithms.base import Outcome, OutcomeStatus, Shared
from roundwise.algorithms.scaling import (
    ScaledColumns,
    ScaledMatrix,
    norms_of,
    scaled_back,
    scaled_system,
    unit_columns,
)
from roundwise.algorithms.stage import Stage, Stages, Vector
from roundwise.algorithms.stopping import Progress, StoppingRule, largest
from roundwise.backends import ArithmeticFailure, Backend, Factors, Matrix, Status
from roundwise.backends.arrays import column_norms, on_host
from roundwise.backends.contract import AtOnce, Corrected
from roundwise.formats import FP64, FloatFormat
from roundwise.problems import LinearSystem

Array = NDArray[np.float64]
System = tuple[ScaledMatrix, ScaledColumns]


@dataclass(frozen=True)
class Correction:
    """An approximate solution Z of A Z = R, and what it took."""

    Z: Vector
    iterations: int = 0
    residual: float = 0.0  # relative, as the inner solver sees it


Corrector = Callable[[Vector], Correction]
MatrixOf = Callable[[Stage], Matrix]
"""Gives A in the format of a stage."""


@dataclass(eq=False)
class Refined:
    """The result of refinement."""

    progress: Progress
    best: Vector  # the iterate with the smallest backward error of each column
    errors: NDArray[np.float64]  # those of `best`
    X: Vector | None = None  # the last iterate; None if not even the first solve succeeded
    R: Vector | None = None  # the residual of `best`, None if it is not that of one iterate
    last_R: Vector | None = None  # that of X
    status: OutcomeStatus = OutcomeStatus.ITERATION_LIMIT
    reason: str = ""  # the failure that ended the loop, if one did
    history: list[dict[str, float]] = field(default_factory=list)

    def keep_better(self, errors: NDArray[np.float64], R: Vector) -> None:
        """Keep the columns of X whose backward error is smaller; NaN is never smaller."""
        self.last_R = R
        pairs = enumerate(zip(errors.tolist(), self.errors.tolist(), strict=True))
        columns = [j for j, (now, before) in pairs if now < before]
        if len(columns) == len(errors):
            self.best, self.errors, self.R = self.X, errors, R
        elif columns:
            assert self.X is not None
            self.best, self.errors, self.R = self.best.copy(), self.errors.copy(), None
            self.best[:, columns], self.errors[columns] = self.X[:, columns], errors[columns]


def refine(
    system: System,
    start: Corrector | Vector,
    correct: Corrector,
    residual: Stage,
    update: Stage,
    stop: StoppingRule,
    matrix: MatrixOf,
    errors_of: Callable[[Vector, Vector], NDArray[np.float64]] | None = None,
) -> Refined:
    """Refine until the rule stops; a kernel's failure ends the loop with its status.

    `start` is the first solve, or the X to start from. `matrix` gives the system's matrix in the
    format of the residual stage, and is asked after the first solve. ``errors_of(X, R)`` are the
    backward errors, where they are not those of a linear system.
    """
    scaled, B = system[0], system[1].B
    b_norms = system[1].norms if scaled.has_plain_norms else scaled.residual_norms(B)
    progress = Progress(scaled.n, update.fmt)
    refined = Refined(progress, residual.backend.xp.zeros_like(B), np.full(B.shape[1], np.inf))
    try:
        sizes, x_norms = None if scaled.weighs_rows else b_norms, None
        one_kernel = scaled.has_plain_norms and update.fmt == FP64
        made = corrected_at_once(start, refined.best, B, b_norms, None) if one_kernel else None
        if made is not None:
            X, _, x_norms = made
        else:
            X = with_unit_columns(start, B, sizes).Z if callable(start) else start
        refined.X, A = X, matrix(residual)
        while True:
            R = residual.residual(A, X, B)
            if x_norms is None:
                x_norms, r_norms = norms_of(scaled, X, R)
                require_finite(x_norms, residual.backend)
            else:
                r_norms = scaled.residual_norms(R)
            progress.x_norms.append(x_norms)
            if errors_of is None:
                errors = backward_errors(r_norms, scaled.norm, x_norms, b_norms)
            else:
                errors = errors_of(X, R)
            progress.backward_errors.append(errors)
            refined.keep_better(errors, R)
            if status := stop.after_residual(progress):
                break
            made = corrected_at_once(correct, X, R, r_norms, update) if one_kernel else None
            if made is not None:
                (X, z_norms, x_norms), iterations, left = made, 0, 0.0
            else:
                correction = with_unit_columns(correct, R, None if scaled.weighs_rows else r_norms)
                X = update.add(X, correction.Z)
                z_norms, x_norms = scaled.norms_of_solutions(correction.Z, X)
                require_finite(z_norms, residual.backend)
                iterations, left = correction.iterations, correction.residual
            refined.X = X
            progress.z_norms.append(z_norms)
            progress.x_norms[-1] = x_norms
            progress.inner_iterations += iterations
            progress.inner_residual = left
            refined.history.append(
                {
                    "backward_error": largest(errors),
                    "correction": largest(z_norms),
                    "inner_iterations": iterations,
                    "inner_residual": left,
                }
            )
            if status := stop.after_update(progress):
                break
    except ArithmeticFailure as failure:
        status, refined.reason = OutcomeStatus[failure.status.name], str(failure)
    refined.status = status
    return refined


def require_finite(norms: NDArray[np.float64], backend: Backend) -> None:
    """Raise if a norm is not finite: solves on a device leave inf and NaN in their result."""
    if not backend.on_host and not np.isfinite(norms).all():
        raise ArithmeticFailure(Status.OVERFLOW, "triangular solve", FP64)


def with_unit_columns(
    solve: Corrector, B: Vector, sizes: NDArray[np.float64] | None = None
) -> Correction:
    """Solve with columns scaled by powers of two to max norm in [1, 2), and scale the result back.

    `sizes` are the max norms of the columns, where they are known.
    This changes nothing unless numbers leave the format's range, which small residuals would.
    """
    sizes = column_norms(B) if sizes is None else sizes
    if not any(sizes.tolist()):
        return Correction(np.zeros_like(B))
    unit, exponents = unit_columns(B, sizes)
    correction = solve(unit)
    Z, is_finite = scaled_back(correction.Z, exponents)
    if not is_finite:
        raise ArithmeticFailure(Status.OVERFLOW, "scaling a solution back", FP64)
    return Correction(Z, correction.iterations, correction.residual)


@dataclass(frozen=True)
class Substitution:
    """The corrector that applies the factors alone."""

    stage: Stage
    factors: Factors

    def __call__(self, B: Vector) -> Correction:
        return Correction(self.stage.solve(self.factors, B))


def corrected_at_once(
    correct: Corrector | Vector, X: Vector, R: Vector, sizes: Any, update: Stage | None
) -> Corrected | None:
    """X with its correction added, and the norms of both, if one kernel does all of that."""
    if not isinstance(correct, Substitution):
        return None
    return correct.stage.corrected(correct.factors, X, R, sizes, update)


def by_columns(solve: Callable[[Vector], Correction]) -> Corrector:
    """A corrector of blocks from one of vectors: column by column."""

    def correct(R: Vector) -> Correction:
        columns = [solve(R[:, j]) for j in range(R.shape[1])]
        return Correction(
            np.stack([column.Z for column in columns], axis=1),
            sum(column.iterations for column in columns),
            max(column.residual for column in columns),
        )

    return correct


def refine_problem(
    problem: LinearSystem,
    system: System,
    start: Corrector,
    correct: Corrector,
    residual: Stage,
    update: Stage,
    stop: StoppingRule,
    shared: Shared,
) -> Outcome:
    """Refine one system, and measure the errors of the last iterate in float64."""
    with shared.diagnostics():
        measure = shared.get("errors", lambda: ErrorMeasure(problem))
    matrix = partial(shared_matrix, system=system, shared=shared)
    refined = refine(system, start, correct, residual, update, stop, matrix)
    history = tuple(refined.history)
    if refined.X is None:
        return Outcome(refined.status, None, reason=refined.reason)
    with np.errstate(over="ignore"):
        x = on_host(system[1].solution(refined.X)[:, 0])
    if not np.isfinite(x).all():
        overflow = ArithmeticFailure(Status.OVERFLOW, "undoing the scaling", FP64)
        return Outcome.from_failure(overflow, history=history)
    verifying = time.perf_counter()
    nbe = measure.backward(x)
    verified = time.perf_counter()
    with shared.diagnostics():
        ferr, cbe = measure.forward(x), measure.componentwise(x)
    return Outcome(
        stop.confirm(refined.status, problem.n, nbe),
        x,
        ferr=ferr,
        nbe=nbe,
        cbe=cbe,
        outer_iterations=len(history),
        inner_iterations=refined.progress.inner_iterations,
        history=history,
        reason=refined.reason,
        timings={"verify": verified - verifying},
    )


def refine_by_inner_solves(
    problem: LinearSystem,
    stages: Stages,
    shared: Shared,
    solve: Callable[[Stage, Matrix, Factors, Vector], Correction],
    stop: StoppingRule,
    method: str = "lu",
    equilibrate: bool = False,
) -> Outcome:
    """Refinement in four stages whose corrections come from an iterative solver.

    The first solve is a substitution in the factor stage's format; ``solve(stage, A, M, r)`` then
    corrects in the third stage, with A and the factors M in its format.
    """
    factor, update, inner, residual = stages.values()
    system = shared_system(problem, equilibrate, residual, shared)
    factors = shared_factors(factor, system, shared, method)
    A = shared_matrix(inner, system, shared)
    M = shared.get(("applied", factor.fmt, inner.fmt), lambda: factors.to(inner.fmt), inner)
    start, correct = Substitution(factor, factors), by_columns(lambda r: solve(inner, A, M, r))
    return refine_problem(problem, system, start, correct, residual, update, stop, shared)


def shared_system(
    problem: LinearSystem, equilibrate: bool, residual: Stage, shared: Shared
) -> System:
    """The system to refine: the problem itself, or its row and column equilibration."""
    A, b = operands(problem, residual.backend, shared)
    return shared.get(
        "system", partial(scaled_system, A, b, residual.backend, equilibrate), residual
    )


def operands(problem: LinearSystem, backend: Backend, shared: Shared) -> tuple[Any, Any]:
    """A and b in the backend's memory; runs are not charged for moving them."""
    with shared.diagnostics():
        return shared.get("operands", lambda: (backend.array(problem.A), backend.array(problem.b)))


def shared_matrix(stage: Stage, system: System, shared: Shared) -> Matrix:
    """A in the stage's format, for products."""
    A = system[0].A
    return shared.get(("matrix", stage.fmt), lambda: stage.matrix(A).prepared(), stage)


def shared_factors(factor: Stage, system: System, shared: Shared, method: str = "lu") -> Factors:
    """Factors in the factor stage's format, made once and counted in every run that uses them.

    A factorization that breaks off at a column has cost what came before it: counted for a dense
    matrix, where that is known; for a sparse one only the reading of A is.
    """
    A, backend = system[0].A, factor.backend
    try:
        analysis = shared.get(("analysis", method), lambda: backend.analyse(A, method), factor)
        factors = shared.get(
            ("factors", method, factor.fmt), lambda: analysis.factorize(A, factor.fmt), factor
        )
    except ArithmeticFailure as failure:
        n, entries = A.shape[0], float(A.size)
        if failure.column is not None and not sparse.issparse(A):
            share = (n**3 - (n - failure.column) ** 3) / (3 if method == "cholesky" else 1.5)
            factor.count(share, 2 * entries)
        else:
            factor.count(0, entries)
        raise
    factor.count_factorization(factors)
    return factors


@dataclass(eq=False)
class Answer:
    """The best X so far, column by column, and how refinement got there."""

    X: Vector
    errors: Array  # the backward error of each column
    status: OutcomeStatus
    reason: str
    steps: int = 0
    inner_iterations: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    is_accurate: bool = False  # X is right to the last place
    unholdable: bool = False  # X passes the gate, but rounded to the answer's type it does not
    passed: bool = False  # X passes the gate
    largest: float = 0.0  # correction of all, relative to x
    R: Vector | None = None  # B - A X, if one computation gave it for all columns
    residual_format: FloatFormat = FP64  # in which R was computed

    @classmethod
    def of(cls, refined: Refined, residual_format: FloatFormat) -> Answer:
        """The answer from refinement of all columns by the factors alone."""
        answer = cls(refined.best, refined.errors, refined.status, refined.reason)
        answer.R, answer.residual_format = refined.R, residual_format
        answer.count(refined)
        answer.largest = _largest_correction(refined)
        return answer

    @classmethod
    def at_once(cls, found: AtOnce) -> Answer:
        """The answer of one compiled call, whose columns are all good enough."""
        answer = cls(found.X, found.errors, OutcomeStatus.CONVERGED, "", len(found.history) // 2)
        # Of a few columns that were corrected, residuals are summed in another order than of all.
        is_whole = found.X.ndim == 1 or found.X.shape[1] == 1 or not found.history
        answer.R, answer.largest = found.R if is_whole else None, found.largest
        answer.history = [
            {
                "backward_error": error,
                "correction": correction,
                "inner_iterations": 0,
                "inner_residual": 0.0,
            }
            for error, correction in zip(found.history[::2], found.history[1::2], strict=True)
        ]
        return answer

    @classmethod
    def accurate(cls, refined: Refined, residual_format: FloatFormat) -> Answer:
        """The last iterate of refinement to full accuracy, if that ended well."""
        answer = cls.of(refined, residual_format)
        answer.X, answer.errors = refined.X, refined.progress.backward_errors[-1]
        answer.R = refined.last_R
        answer.is_accurate = True
        return answer

    def take(self, column: int, refined: Refined) -> None:
        """Take what GMRES gave for one column."""
        self.X[:, column], self.errors[column] = refined.best[:, 0], refined.errors[0]
        self.R = refined.R if self.X.shape[1] == 1 else None
        self.status, self.reason = refined.status, refined.reason
        self.count(refined)

    def count(self, refined: Refined) -> None:
        """Count the work of a refinement, whether or not anything of it is kept."""
        self.steps += refined.progress.steps
        self.inner_iterations += refined.progress.inner_iterations
        self.history += refined.history


def _largest_correction(refined: Refined) -> float:
    """The largest correction of any column, relative to x; 0 if there was none."""
    progress = refined.progress
    steps = range(1, progress.steps + 1)
    return max((largest(progress.relative_correction(k)) for k in steps), default=0.0)
