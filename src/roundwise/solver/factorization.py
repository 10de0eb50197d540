"""`Factorization`: factor once, solve many, and climb to more precision only when needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.backends import ArithmeticFailure, NativeBackend, Solves, Status
from roundwise.features import condition_estimate
from roundwise.formats import FP32, FP64, get_format
from roundwise.solver.inputs import CheckedMatrix, Columns, checked_columns
from roundwise.solver.refining import Refined, backward_errors, refine
from roundwise.solver.solution import Attempt, Learn, Solution, SolveFailed

GMRES_BUDGET = 40
"""GMRES iterations for one column before better factors are made. On the two cores where it was
chosen (n = 1250), that many take about as long as half of an FP64 factorization."""


@dataclass(frozen=True)
class Rung:
    """A factorization to try, and the GMRES iterations to spend before the next one is tried."""

    fmt: str
    label: str
    make: Callable[[], Solves]
    budget: int | None = None

    @property
    def action(self) -> str:
        """The formats of factor, update, gmres and residual."""
        return f"{self.fmt}-fp64-fp64-fp64"


@dataclass(frozen=True, eq=False)
class Tried:
    """An attempt with its result; the Attempt is what the user sees of it."""

    attempt: Attempt
    X: NDArray[Any] | None = None
    forward_error_bound: float = math.nan
    condition: float = math.nan
    singular: bool = False
    unholdable: bool = False  # x exceeds the range or the precision of its dtype


class Factorization:
    """A factored matrix whose every answer passes the gate; `roundwise.factor` makes it.

    Later solves start with the factors that the last one ended with. Threads may share it.
    """

    def __init__(
        self,
        matrix: CheckedMatrix,
        formats: tuple[str, ...],
        backend: NativeBackend,
        *,
        tol: float | None = None,
        positive_definite: bool = False,
        decision: str = "",
        features_seconds: float = 0.0,
        learn: Learn | None = None,
    ) -> None:
        self._matrix, self._backend = matrix, backend
        self._tol = tol
        self._decision, self._features_seconds = decision, features_seconds
        self._learn = learn
        self._rungs = _ladder(matrix, formats, backend, positive_definite)
        self._level = 0
        self._factors: Solves | None = None  # of this level
        self._climbing = Lock()

    @property
    def shape(self) -> tuple[int, int]:
        return self._matrix.n, self._matrix.n

    @property
    def format(self) -> str:
        """What the factors in use are: ``fp32``, ``fp64``, ..."""
        return self._rungs[self._level].label

    def __repr__(self) -> str:
        kind = "sparse" if self._matrix.is_sparse else "dense"
        return f"Factorization({kind} {self._matrix.n} x {self._matrix.n}, {self.format})"

    def solve(self, b: Any, *, full_output: bool = False) -> Any:
        """``A^-1 b`` for a vector or columns b, verified; a `Solution` with `full_output`.

        Raises
        ------
        SolveFailed
            If no answer passes the gate: A is singular, or as good as singular.
        """
        solution = self.run(checked_columns(b, self._matrix), full_output)
        return solution if full_output else solution.x

    # Infinity and NaN are dealt with where they arise: they never pass the gate.
    @np.errstate(all="ignore")
    def run(self, columns: Columns, full_output: bool = True) -> Solution:
        """Climb from the present rung until an answer passes the gate."""
        timings = {"features": self._features_seconds, "factor": 0.0, "refine": 0.0, "verify": 0.0}
        self._features_seconds = 0.0  # later solves do not pay for it again
        level = self._level
        tolerance = columns.default_tolerance if self._tol is None else self._tol
        tries: list[Tried] = []
        while True:
            tries.append(self._try(level, columns, tolerance, full_output, timings))
            last, attempts = tries[-1], tuple(tried.attempt for tried in tries)
            if last.X is not None and last.attempt.accepted:
                break
            hopeless = last.unholdable or (last.singular and self._rungs[level].label == FP64.name)
            if hopeless or level == len(self._rungs) - 1:
                best = min(tries, key=lambda tried: tried.attempt.backward_error)
                reason = f"no answer reached a backward error of {tolerance:.1e}"
                raise SolveFailed(
                    f"{'A is singular' if last.singular else reason}: {last.attempt.reason}",
                    best.X,
                    best.attempt.backward_error,
                    attempts,
                )
            level += 1
        with self._climbing:  # from the first solve: later ones find the factors made
            learn, self._learn = self._learn, None
        if learn is not None:
            learn(attempts, sum(timings.values()) - timings.get("bound", 0.0))
        return Solution(
            last.X,
            "accepted" if len(tries) == 1 else "escalated",
            last.attempt.action,
            last.attempt.backward_error,
            tolerance,
            last.forward_error_bound,
            last.condition,
            attempts,
            timings,
            self._decision,
        )

    def _factors_of(self, level: int) -> Solves:
        """Factors of this rung, made if they are not there yet; solves to come start there."""
        with self._climbing:  # what one thread makes, others wait for
            if level < self._level:  # another thread has climbed on
                return self._rungs[level].make()
            if level > self._level:
                self._level, self._factors = level, None
            if self._factors is None:
                self._factors = self._rungs[level].make()
            return self._factors

    def _try(
        self,
        level: int,
        columns: Columns,
        tolerance: float,
        bound_error: bool,
        timings: dict[str, float],
    ) -> Tried:
        """One rung: its factors, and refinement with them."""
        rung, start = self._rungs[level], perf_counter()
        try:
            factors = self._factors_of(level)
        except ArithmeticFailure as failure:
            seconds = perf_counter() - start
            timings["factor"] += seconds
            attempt = Attempt(rung.action, "none", 0, 0, math.inf, False, str(failure), seconds)
            return Tried(attempt, singular=failure.status is Status.ZERO_PIVOT)
        made = perf_counter()
        # Rounding x to float32 adds at most u to the backward error, of sqrt(n) u.
        target = tolerance / (4 if columns.dtype == np.float32 else 1)
        refined = refine(
            self._matrix,
            factors,
            columns.B,
            target,
            self._backend,
            rung.budget,
            corrections=2 if bound_error else 0,
        )
        end = perf_counter()
        timings["factor"] += made - start
        timings["verify"] += refined.verify_seconds
        timings["refine"] += end - made - refined.verify_seconds
        X, error = self._finished(refined, columns)
        accepted = error <= tolerance
        unholdable = not accepted and refined.worst <= target
        reason = refined.reason or "the backward error stays above the tolerance"
        if unholdable:
            name, remedy = columns.dtype.__name__, "scale A or b"
            remedy += ", or pass float64" if columns.dtype == np.float32 else ""
            reason = f"{name} cannot hold x to that accuracy; {remedy}"
        attempt = Attempt(
            rung.action,
            refined.method,
            refined.steps,
            refined.inner_iterations,
            error,
            accepted,
            "" if accepted else reason,
            end - start,
        )
        if not (accepted and bound_error):
            return Tried(attempt, X, unholdable=unholdable)
        start = perf_counter()
        bound, condition = self._error_bound(refined, rung.fmt, factors)
        bound += FP32.unit_roundoff if columns.dtype == np.float32 else 0.0
        timings["bound"] = perf_counter() - start
        return Tried(attempt, X, bound, condition)

    def _error_bound(self, refined: Refined, fmt: str, factors: Solves) -> tuple[float, float]:
        """A bound of the relative error, and the condition number that it rests on.

        Refinement converges to the solution up to ``kappa u``, if the factors tell A from a
        singular matrix: ``kappa u_f < 1``, u_f the factors' unit roundoff. If not, small
        corrections prove nothing, and neither number is known.
        """
        norm, _ = self._backend.sizes(self._matrix.A.T)
        condition = condition_estimate(self._matrix.A, factors, norm)
        rate = condition * get_format(fmt).unit_roundoff
        if not rate < 1 or self._matrix.columns is not None:  # these are of a scaled x
            return math.nan, math.nan
        limiting = condition * FP64.unit_roundoff
        return max(refined.remaining_correction(rate), limiting), condition

    def _finished(self, refined: Refined, columns: Columns) -> tuple[NDArray[Any], float]:
        """X in the caller's scale, type and shape, with its backward error."""
        shift = columns.exponents
        X = np.ldexp(refined.X, shift).astype(columns.dtype)
        kept = np.ldexp(X.astype(np.float64), -shift)
        errors = refined.errors
        if not np.array_equal(kept, refined.X):  # rounded to float32, or out of float64's range
            _, errors = backward_errors(self._matrix, kept, columns.B)
        error = float(errors.max(initial=0.0))
        return X[:, 0] if columns.was_vector else X, math.inf if math.isnan(error) else error


def _ladder(
    matrix: CheckedMatrix, formats: tuple[str, ...], backend: NativeBackend, positive_definite: bool
) -> tuple[Rung, ...]:
    """Factorizations from the first choice up to the last resort."""

    def lu(fmt: str, how: NativeBackend = backend) -> Callable[[], Solves]:
        return lambda: how.matrix(matrix.A, fmt).lu()

    def cholesky(fmt: str) -> Callable[[], Solves]:
        return lambda: backend.matrix(matrix.A, fmt).cholesky()

    rungs = []
    for fmt in formats:
        budget = None if fmt == FP64.name else GMRES_BUDGET
        if positive_definite:
            rungs.append(Rung(fmt, f"{fmt} Cholesky", cholesky(fmt), budget))
        if not positive_definite or fmt == FP64.name:
            rungs.append(Rung(fmt, fmt, lu(fmt), budget))
    if not matrix.is_sparse:
        rungs.append(Rung(FP64.name, "fp64 QR", lambda: backend.matrix(matrix.A, FP64).qr()))
    elif backend.symmetric_mode:
        pivoting = NativeBackend(symmetric_mode=False)
        rungs.append(Rung(FP64.name, "fp64 partial pivoting", lu(FP64.name, pivoting)))
    return tuple(rungs)
