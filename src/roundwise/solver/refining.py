"""Refinement of many columns at once, until each passes the gate or cannot.

Plain refinement first; where it does not contract, GMRES with the same factors as preconditioner.
The residual that the gate looks at is the one that refinement computes anyway: in float64, from
the data as they were given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.stage import Stage
from roundwise.backends import ArithmeticFailure, Backend, Solves
from roundwise.backends.native.dense import DenseFactors
from roundwise.formats import FP64
from roundwise.solver.inputs import Array, CheckedMatrix, norms

MAX_STEPS = 30
INNER_TOLERANCE = 1e-6
RESTART = 30
CHECK_AFTER = 12
_TINY = float(np.finfo(np.float64).tiny)


@dataclass
class Refined:
    """Columns X with their backward errors, and what it took."""

    X: Array
    errors: Array  # backward errors, one per column
    previous: Array = field(init=False)  # sizes of the last two corrections of each column,
    last: Array = field(init=False)  # relative to x
    method: str = "refinement"
    steps: int = 0
    inner_iterations: int = 0
    reason: str = ""
    verify_seconds: float = 0.0

    def __post_init__(self) -> None:
        # The first solve corrects zero by x itself.
        self.previous, self.last = np.full(len(self.errors), np.inf), np.ones(len(self.errors))

    @property
    def worst(self) -> float:
        return float(self.errors.max()) if np.isfinite(self.errors).all() else np.inf

    def remaining_correction(self, expected_rate: float) -> float:
        """What further corrections would amount to, relative to x; NaN if too few were made.

        ``||z|| rate / (1 - rate)`` of the last correction z, the largest over the columns (after
        Demmel et al., ACM Trans. Math. Softw. 32(2), 2006). One that is lucky shrinks faster than
        the next will, so that the rate is the expected one at least. A rate beyond 1/2 means that
        the corrections are as small as they get.
        """
        if not np.isfinite(self.previous).all():
            return np.nan
        rates = np.where(self.last > 0, self.last / self.previous, 0.0)
        rates = np.clip(rates, min(expected_rate, 0.5), 0.5)
        return float((self.last * rates / (1 - rates)).max(initial=0.0))

    def corrected(self, columns: NDArray[np.intp], sizes: Array) -> None:
        """Note the relative sizes of new corrections of some columns."""
        self.previous[columns] = self.last[columns]
        self.last[columns] = sizes


def backward_errors(matrix: CheckedMatrix, X: Array, B: Array) -> tuple[Array, Array]:
    """``B - A X``, and ``||r|| / (||A|| ||x|| + ||b||)`` of each column, in the max norm."""
    R = B - matrix.times(X)
    residuals = matrix.residual_norms(R)
    sizes = matrix.norm * matrix.solution_norms(X) + matrix.residual_norms(B)
    return R, np.where(residuals == 0, 0.0, residuals / sizes)


def refine(
    matrix: CheckedMatrix,
    factors: Solves,
    B: Array,
    tolerance: float,
    backend: Backend,
    budget: int | None,
    corrections: int = 0,
) -> Refined:
    """Solve ``A X = B`` to the tolerance, or say why that does not work with these factors.

    Parameters
    ----------
    budget : int, optional
        GMRES iterations for one column after which a better factorization is the better deal;
        None if there is none.
    corrections : int
        How many to compute at least, even if the gate asks for fewer: to bound the error.
    """
    state = Refined(np.zeros_like(B), np.full(B.shape[1], np.inf))
    try:
        _refine_plainly(state, matrix, _unit_solver(factors.solve), B, tolerance, corrections)
        if (state.errors <= tolerance).all():
            return state
        if budget is not None and (lost := _lost_directions(factors)) > budget / 2:
            state.reason = f"{lost} pivots vanish beside the largest: GMRES would take too long"
        else:
            _refine_by_gmres(state, matrix, factors, B, tolerance, backend, budget)
    except ArithmeticFailure as failure:
        state.reason = str(failure)
    return state


def _refine_plainly(
    state: Refined,
    matrix: CheckedMatrix,
    solve: Callable[[Array], Array],
    B: Array,
    tolerance: float,
    corrections: int,
) -> None:
    """All columns together, as long as the corrections of those not yet accepted halve."""
    everyone = np.arange(B.shape[1])
    X = solve(B)
    R, errors = _timed_errors(state, matrix, X, B)
    _keep_better(state, X, errors)
    while state.steps < MAX_STEPS:
        accepted = errors <= tolerance
        shrinking = (accepted | (state.last <= 0.5 * state.previous)).all()
        if state.steps >= corrections if accepted.all() else not shrinking:
            break
        Z = solve(R)
        X = X + Z
        state.steps += 1
        state.corrected(everyone, norms(Z) / np.maximum(norms(X), _TINY))
        R, errors = _timed_errors(state, matrix, X, B)
        _keep_better(state, X, errors)


def _refine_by_gmres(
    state: Refined,
    matrix: CheckedMatrix,
    factors: Solves,
    B: Array,
    tolerance: float,
    backend: Backend,
    budget: int | None,
) -> None:
    """The columns that plain refinement left, one by one, from the best it had."""
    state.method = "gmres"
    stage = Stage("gmres", FP64, backend)
    A, M = backend.matrix(matrix.A, FP64), factors.to(FP64)
    # On its way to the inner tolerance within half of the budget? Two such steps are needed.
    check_value = INNER_TOLERANCE ** (2 * CHECK_AFTER / (budget or RESTART))
    for column in np.flatnonzero(~(state.errors <= tolerance)):
        one = np.array([column])
        b, x = B[:, one], state.X[:, one]
        r, error = _timed_errors(state, matrix, x, b)
        spent, size = 0, np.inf
        for _ in range(MAX_STEPS):
            if error[0] <= tolerance or (budget is not None and spent >= budget):
                break
            restart = RESTART if budget is None else min(RESTART, budget - spent)
            scale = float(norms(r)[0])
            check = None if budget is None else (CHECK_AFTER, check_value)
            step = gmres(stage, A, M, r[:, 0] / scale, INNER_TOLERANCE, restart, 1, check)
            z = scale * step.z[:, None]
            x = x + z
            spent += max(step.iterations, 1)
            state.steps += 1
            state.inner_iterations += step.iterations
            before, size = size, float(norms(z)[0])
            state.corrected(one, norms(z) / np.maximum(norms(x), _TINY))
            previous, (r, error) = error, _timed_errors(state, matrix, x, b)
            _keep_better(state, x, error, one)
            slow = budget is not None and step.residual > check_value
            if slow or (size >= 0.5 * before and not error[0] <= 0.5 * previous[0]):
                break
        if not state.errors[column] <= tolerance:
            state.reason = "GMRES with these factors does not get there"
            return  # the other columns share the matrix


def _lost_directions(factors: Solves) -> int:
    """Pivots below ``sqrt(n) u`` of the largest, u the factors' own, where they are at hand.

    Rounding errors hide such directions from the factors; each costs GMRES about one iteration.
    """
    if not isinstance(factors, DenseFactors):
        return 0
    pivots = factors.pivots
    noise = np.sqrt(len(pivots)) * factors.fmt.unit_roundoff * pivots.max()
    return int(np.count_nonzero(pivots < noise))


def _timed_errors(state: Refined, matrix: CheckedMatrix, X: Array, B: Array) -> tuple[Array, Array]:
    start = perf_counter()
    result = backward_errors(matrix, X, B)
    state.verify_seconds += perf_counter() - start
    return result


def _keep_better(
    state: Refined, X: Array, errors: Array, columns: NDArray[np.intp] | slice = slice(None)
) -> None:
    """Keep, column by column, what has the smaller backward error; NaN is never better."""
    better = np.asarray(errors < state.errors[columns])
    where = np.arange(len(state.errors))[columns][better]
    state.X[:, where], state.errors[where] = X[:, better], errors[better]


def _unit_solver(solve: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Solve with columns scaled to max norm in [1/2, 1): residuals would leave FP32's range."""

    def scaled(B: Array) -> Array:
        exponents = np.frexp(norms(B))[1]
        return np.ldexp(solve(np.ldexp(B, -exponents)), exponents)

    return scaled
