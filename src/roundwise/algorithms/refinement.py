"""Iterative refinement: the loop that GMRES-IR, LU-IR and CG-IR share."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms.accuracy import ErrorMeasure, max_norm
from roundwise.algorithms.base import Outcome, OutcomeStatus, Shared
from roundwise.algorithms.stage import Stage
from roundwise.algorithms.stopping import Progress, StoppingRule
from roundwise.backends import ArithmeticFailure, Backend, Factors, Matrix, Status
from roundwise.formats import FP64
from roundwise.problems import LinearSystem

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Correction:
    """An approximate solution z of A z = r, and what it took."""

    z: Vector
    iterations: int = 0
    residual: float = 0.0  # relative, as the inner solver sees it


@dataclass(frozen=True)
class ScaledSystem:
    """``(R A C) y = R b`` with ``x = C y``; R and C diagonal powers of two, or nothing."""

    A: Any  # R A C
    b: Vector  # R b
    norm_A: float  # in the infinity norm, as all norms here
    columns: Vector | None = None

    def solution(self, y: Vector) -> Vector:
        return y if self.columns is None else self.columns * y


def shared_system(
    problem: LinearSystem, equilibrate: bool, residual: Stage, shared: Shared
) -> ScaledSystem:
    """The system to refine: the problem itself, or its row and column equilibration."""

    def make() -> ScaledSystem:
        return scaled_system(problem, equilibrate, residual.backend)

    return shared.get("system", make, residual)


def scaled_system(problem: LinearSystem, equilibrate: bool, backend: Backend) -> ScaledSystem:
    """The problem itself, or its row and column equilibration.

    Rows, then columns, are scaled by the power of two that brings their largest entry into
    [1, 2): without rounding errors, as long as nothing underflows. A zero row or column is
    left alone. If sums of A's entries could overflow, all are scaled down in any case.
    """
    A, b = problem.A, problem.b
    norm_A, largest = backend.sizes(A)
    exponent = math.frexp(largest)[1]
    if exponent > 900:
        A, b = A * math.ldexp(1.0, 1 - exponent), np.ldexp(b, 1 - exponent)
        norm_A, _ = backend.sizes(A)
    if not equilibrate:
        return ScaledSystem(A, b, norm_A)
    rows = _inverse_power_of_two(_largest(abs(A), axis=1))
    A = sparse.csr_array(sparse.diags_array(rows) @ A) if problem.is_sparse else rows[:, None] * A
    columns = _inverse_power_of_two(_largest(abs(A), axis=0))
    A = sparse.csr_array(A @ sparse.diags_array(columns)) if problem.is_sparse else A * columns
    with np.errstate(over="ignore"):
        b = rows * b
    if not np.isfinite(b).all():
        raise ArithmeticFailure(Status.OVERFLOW, "equilibrating the right-hand side", FP64)
    return ScaledSystem(A, b, backend.sizes(A)[0], columns)


def _largest(magnitudes: Any, axis: int) -> Vector:
    largest = magnitudes.max(axis=axis)
    return np.asarray(largest.toarray() if sparse.issparse(largest) else largest).ravel()


def _inverse_power_of_two(x: Vector) -> Vector:
    _, exponents = np.frexp(np.where(x > 0, x, 1.0))
    return np.asarray(np.ldexp(1.0, np.clip(1 - exponents, -1022, 1023)))


def shared_matrix(stage: Stage, system: ScaledSystem, shared: Shared) -> Matrix:
    """A in the stage's format, for products."""
    return shared.get(("matrix", stage.fmt), lambda: stage.matrix(system.A).prepared(), stage)


def shared_factors(
    factor: Stage, system: ScaledSystem, shared: Shared, cholesky: bool = False
) -> Factors:
    """LU or Cholesky factors in the factor stage's format, made once and counted every time.

    A factorization that breaks off at a column has cost what came before it: counted for a dense
    matrix, where that is known; for a sparse one only the reading of A is.
    """

    def make() -> Factors:
        A = factor.matrix(system.A)
        return A.cholesky() if cholesky else A.lu()

    try:
        factors = shared.get(("factors", factor.fmt), make, factor)
    except ArithmeticFailure as failure:
        n, entries = len(system.b), float(system.A.size)
        if failure.column is not None and not sparse.issparse(system.A):
            share = (n**3 - (n - failure.column) ** 3) / (3 if cholesky else 1.5)
            factor.count(share, 2 * entries)
        else:
            factor.count(0, entries)
        raise
    factor.count_factorization(factors)
    return factors


def with_unit_size(solve: Callable[[Vector], Correction], b: Vector) -> Correction:
    """Solve with b scaled by a power of two to max norm in [1, 2), and scale the result back.

    This changes nothing unless numbers leave the format's range, which small residuals would.
    """
    size = max_norm(b)
    if size == 0:
        return Correction(np.zeros_like(b))
    exponent = math.frexp(size)[1] - 1
    correction = solve(np.ldexp(b, -exponent))
    with np.errstate(over="ignore"):
        z = np.ldexp(correction.z, exponent)
    if not np.isfinite(z).all():
        raise ArithmeticFailure(Status.OVERFLOW, "scaling a solution back", FP64)
    return dataclasses.replace(correction, z=z)


def refine(
    problem: LinearSystem,
    system: ScaledSystem,
    start: Callable[[Vector], Correction],
    correct: Callable[[Vector], Correction],
    residual: Stage,
    update: Stage,
    stop: StoppingRule,
    shared: Shared,
) -> Outcome:
    """x = start(b); repeat r = b - A x (residual), z = correct(r), x = x + z (update).

    A kernel's failure ends the loop with its status and the last finite x.
    """
    with shared.diagnostics():
        measure = shared.get("errors", lambda: ErrorMeasure(problem))
    progress = Progress(problem.n, system.norm_A, max_norm(system.b), update.fmt)
    history: list[dict[str, float]] = []
    x: Vector | None = None
    reason = ""
    try:
        x = with_unit_size(start, system.b).z
        A = shared_matrix(residual, system, shared)
        while True:
            r = residual.axpy(-1.0, residual.matvec(A, x), system.b)
            progress.x_norms.append(max_norm(x))
            size = progress.norm_A * progress.x_norms[-1] + progress.norm_b
            progress.backward_errors.append(max_norm(r) / size if r.any() else 0.0)
            if status := stop.after_residual(progress):
                break
            correction = with_unit_size(correct, r)
            x = update.axpy(1.0, correction.z, x)
            progress.z_norms.append(max_norm(correction.z))
            progress.x_norms[-1] = max_norm(x)
            history.append(
                {
                    "backward_error": progress.backward_errors[-1],
                    "correction": progress.z_norms[-1],
                    "inner_iterations": correction.iterations,
                    "inner_residual": correction.residual,
                }
            )
            if status := stop.after_update(progress):
                break
    except ArithmeticFailure as failure:
        status, reason = OutcomeStatus[failure.status.name], str(failure)

    if x is None:
        return Outcome(status, None, reason=reason)
    with np.errstate(over="ignore"):
        x = system.solution(x)
    if not np.isfinite(x).all():
        overflow = ArithmeticFailure(Status.OVERFLOW, "undoing the equilibration", FP64)
        return Outcome.from_failure(overflow, history=tuple(history))
    verifying = time.perf_counter()
    nbe = measure.backward(x)
    verified = time.perf_counter()
    with shared.diagnostics():
        ferr, cbe = measure.forward(x), measure.componentwise(x)
    return Outcome(
        stop.confirm(status, problem.n, nbe),
        x,
        ferr=ferr,
        nbe=nbe,
        cbe=cbe,
        outer_iterations=len(history),
        inner_iterations=int(sum(step["inner_iterations"] for step in history)),
        history=tuple(history),
        reason=reason,
        timings={"verify": verified - verifying},
    )
