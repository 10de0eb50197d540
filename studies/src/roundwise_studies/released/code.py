"""What the paper's released code does otherwise than the paper's text, each piece by itself.

From a reading of https://github.com/inEXASCALE/rlops (folder dense_test); nothing is copied from
it. `ReleasedGmresIR` with all switches off is `GmresIR`; each switch turns one departure of the
solver on. The two that need no new solves, the counting of iterations and the dropped update, are
functions of an outcome: the history of a run holds what they need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator
from scipy.sparse.linalg import gmres as scipy_gmres

from roundwise.algorithms import GmresIR, Outcome, Shared, Stage, Stages
from roundwise.algorithms.accuracy import ErrorMeasure, max_norm
from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.refinement import (
    Correction,
    by_columns,
    refine_problem,
    shared_factors,
    shared_system,
)
from roundwise.algorithms.scaling import ScaledColumns, ScaledMatrix
from roundwise.backends import Factors, Matrix
from roundwise.formats import FP32, FP64, TF32, FloatFormat
from roundwise.problems import LinearSystem
from roundwise.rounding import round_to

Vector = Any


@dataclass(frozen=True)
class ReleasedGmresIR(GmresIR):
    """GMRES-IR with departures of the released code.

    ``departures.toml`` describes what the switches turn on, in this order as ``tf32`` (where the
    stopping rule keeps the unit roundoff of 11 bits), ``stages``, ``tolerance`` (GMRES takes one
    step at least), ``scipy`` (which restarts after 20 steps) and ``rounding``.

    The last entry of an outcome's history also has the errors of x before the last update
    (``ferr_before``, ``nbe_before``), and ``inner_residual`` is absolute where the tolerance is.
    """

    tf32_as_fp32: bool = False
    swapped_stages: bool = False
    absolute_tolerance: bool = False
    scipy_gmres: bool = False
    loose_rounding: bool = False

    def execute(self, problem: LinearSystem, stages: Stages, shared: Shared) -> Outcome:
        factor, second, third, fourth = (stages[name] for name in self.stages)
        if self.swapped_stages:
            second, third = third, second
        u, u_g, u_r = (
            FP32 if self.tf32_as_fp32 and stage.fmt == TF32 else stage.fmt
            for stage in (second, third, fourth)
        )
        measure = shared.get("errors", lambda: ErrorMeasure(problem))
        system = shared_system(problem, self.equilibrate, fourth, shared)
        if self.loose_rounding:
            A, B = _rounded(system[0].A, u), round_to(system[1].B, u)
            system = ScaledMatrix(A, fourth.backend.sizes(A)[0]), ScaledColumns(B)
            shared = Shared()  # its matrices and factors are of another A for each u
            shared.get("errors", lambda: measure)
        update = _Update(second, u, self.loose_rounding)
        residual = _Residual(fourth, u_r, self.loose_rounding)
        factors = shared_factors(factor, system, shared)
        inner: Stage
        if self.loose_rounding:
            inner = _LooseGmres(third, u_g, factor.fmt)
            A, M = inner.backend.matrix(system[0].A, FP64), factors.to(FP64)
        else:
            inner = _Kept(third, u_g)
            A = shared.get(("matrix", inner.fmt), lambda: inner.matrix(system[0].A))
            M = shared.get(("applied", factor.fmt, inner.fmt), lambda: factors.to(inner.fmt))

        def start(B: Vector) -> Correction:
            if self.loose_rounding:
                return Correction(M.solve(round_to(B, factor.fmt)))
            return Correction(factor.solve(factors, B))

        @by_columns
        def correct(r: Vector) -> Correction:
            if self.scipy_gmres and third.fmt == FP64:
                return _by_scipy(inner, A, M, r, self.tolerance)
            if self.absolute_tolerance and third.fmt != FP64:
                return _absolute(inner, A, M, r, self.tolerance, residual.size)
            return gmres(inner, A, M, r, self.tolerance, problem.n, 1)

        outcome = refine_problem(
            problem, system, start, correct, residual, update, self.stop, shared
        )
        if update.before is None:
            return outcome
        ferr, nbe = measure.forward(update.before), measure.backward(update.before)
        last = {**outcome.history[-1], "ferr_before": ferr, "nbe_before": nbe}
        return replace(outcome, history=(*outcome.history[:-1], last))


def _rounded(A: Any, fmt: FloatFormat) -> Any:
    """A dense or sparse matrix, its entries rounded."""
    if not sparse.issparse(A):
        return round_to(A, fmt)
    rounded = A.copy()
    rounded.data = round_to(A.data, fmt)
    return rounded


class _Kept(Stage):
    """The kernels of a stage in a format of our choice, counted where the stage counts."""

    def __init__(self, stage: Stage, fmt: FloatFormat) -> None:
        super().__init__(stage.name, fmt, stage.backend)
        self.tally = stage.tally

    def rounded(self, x: Vector, fmt: FloatFormat) -> Vector:
        return self.backend.scale(1.0, x, fmt)


class _Update(_Kept):
    """``x + z``; remembers x. Its `fmt` is what the stopping rule sees."""

    def __init__(self, stage: Stage, computed: FloatFormat, loose: bool) -> None:
        super().__init__(stage, stage.fmt)
        self.computed, self.loose = computed, loose
        self.before: Vector | None = None

    def add(self, X: Vector, Z: Vector) -> Vector:
        self.before = X[:, 0]
        self.count(2 * X.size, 3 * X.size)
        if self.loose:
            return X + self.rounded(Z[:, 0], self.computed)[:, None]
        return self.backend.add(X, Z, self.computed)


class _Residual(_Kept):
    """``b - A x``; remembers its size, as a power of two."""

    def __init__(self, stage: Stage, fmt: FloatFormat, loose: bool) -> None:
        super().__init__(stage, fmt)
        self.loose, self.size = loose, 1.0

    def matrix(self, A: Vector) -> Matrix:
        return self.backend.matrix(A, FP64 if self.loose else self.fmt)

    def residual(self, A: Matrix, X: Vector, B: Vector) -> Vector:
        if self.loose:
            r = self.rounded(B[:, 0] - self.matvec(A, X[:, 0]), self.fmt)[:, None]
        else:
            r = super().residual(A, X, B)
        self.size = math.ldexp(1.0, math.frexp(max_norm(r))[1] - 1)
        return r


class _LooseGmres(_Kept):
    """Operators in float64, of numbers in other formats; what they return is rounded."""

    def __init__(self, stage: Stage, fmt: FloatFormat, factor_format: FloatFormat) -> None:
        super().__init__(stage, fmt)
        self.factor_format = factor_format

    def matvec(self, A: Matrix, x: Vector) -> Vector:
        return self.rounded(super().matvec(A, self.rounded(x, self.fmt)), self.fmt)

    def solve(self, factors: Factors, b: Vector) -> Vector:
        b = self.rounded(self.rounded(b, self.fmt), self.factor_format)
        return self.rounded(super().solve(factors, b), self.fmt)


def _absolute(
    stage: Stage, A: Matrix, M: Factors, r: Vector, tolerance: float, size: float
) -> Correction:
    """GMRES with an absolute tolerance; r is the residual divided by `size`."""
    norm = size * stage.norm2(stage.solve(M, r))
    wanted, steps = (tolerance / norm, len(r)) if norm > tolerance else (0.0, 1)  # one at least
    found = gmres(stage, A, M, r, wanted, steps, 1)
    return replace(found, residual=found.residual * norm)


def _by_scipy(stage: Stage, A: Matrix, M: Factors, r: Vector, tolerance: float) -> Correction:
    steps: list[object] = []
    n = len(r)
    z, _ = scipy_gmres(
        LinearOperator((n, n), lambda v: stage.matvec(A, v.ravel()), dtype=np.float64),
        r,
        rtol=tolerance,
        maxiter=n,  # of steps, not of cycles: the callback's type says so
        M=LinearOperator((n, n), lambda v: stage.solve(M, v.ravel()), dtype=np.float64),
        callback=steps.append,
        callback_type="legacy",
    )
    left = np.linalg.norm(r - stage.matvec(A, z)) / np.linalg.norm(r)
    return Correction(z, len(steps), float(left))


def without_last_update(outcome: Outcome, *, measured: bool = False) -> Outcome:
    """The update that triggers the stop is not applied; a failure drops nothing.

    With `measured`, nbe is what the last residual of the run says, computed and rounded as the
    run does it; else it is that of the original system, in float64.
    """
    if outcome.status.failed or not outcome.history:
        return outcome
    last = outcome.history[-1]
    nbe = last["backward_error"] if measured else last["nbe_before"]
    return replace(outcome, ferr=last["ferr_before"], nbe=nbe)


def with_released_count(outcome: Outcome, n: int, tolerance: float) -> Outcome:
    """For GMRES below fp64: 0 for an outer step that reached the inner tolerance, else n."""
    missed = sum(step["inner_residual"] > tolerance for step in outcome.history)
    return replace(outcome, inner_iterations=n * missed)
