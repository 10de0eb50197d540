"""`lstsq`: least squares in as little precision as it takes, verified."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.actions import Action
from roundwise.algorithms.base import Outcome, OutcomeStatus, Shared
from roundwise.algorithms.least_squares.augmented import AugmentedFactors, AugmentedSystem
from roundwise.algorithms.least_squares.certificate import proven_errors
from roundwise.algorithms.least_squares.ls_ir import LsIR, residual_of_both
from roundwise.algorithms.least_squares.rank import Decomposed, is_doubtful
from roundwise.algorithms.least_squares.scaling import (
    ScaledLeastSquares,
    scaled_as_a_whole,
    scaled_least_squares,
)
from roundwise.algorithms.least_squares.verified_lstsq import Attempt, attempt, target_error
from roundwise.algorithms.stage import Stages
from roundwise.formats import FP32, FP64
from roundwise.machine.arithmetic import ieee_arithmetic
from roundwise.solver.least_squares.choice import LADDER_END, ladder_of
from roundwise.solver.least_squares.inputs import GivenProblem, checked_problem
from roundwise.solver.least_squares.solution import LeastSquaresSolution
from roundwise.solver.prepare import BACKEND, checked_tolerance
from roundwise.solver.solution import SolveFailed

Array = NDArray[np.float64]

LARGEST_DENSE = 2**24
"""A sparse A with at most so many places is made dense where only an SVD can tell its rank."""


def lstsq(
    A: Any,
    b: Any,
    rcond: float | None = None,
    *,
    tol: float | None = None,
    policy: Any = "default",
    full_output: bool = False,
) -> Any:
    """Minimise ``||b - A x||_2`` in as little precision as it takes, and verify the answer.

    If A has fewer rows than columns, or dependent columns, many x minimise that; the shortest one
    is returned.

    Parameters
    ----------
    A : (m, n) array_like or sparse
        Dense or sparse, real, of any shape. It is not modified.
    b : (m,) or (m, k) array_like
    rcond : float, optional
        Singular values up to `rcond` times the largest count as zero; by default
        ``max(m, n)`` times the machine epsilon, as in `numpy.linalg.lstsq`. First the columns of A
        (its rows if m < n) are scaled to about the same length. Only if a singular value of the
        scaled matrix counts as zero, those of A as it is decide.
    tol : float, optional
        The backward error to accept; by default ``sqrt(m + n) u``, and at least ``6 u``
        (docs/least-squares.md). Where j singular values count as zero, ``sqrt(j) rcond`` is added.
    policy : str or Tuner
        What is tried first: ``"default"``, a format's name (fp32 and fp64 run here: the lower one
        that has the format's bits and range), an action such as ``"qr:fp32-fp64-fp64-fp64"``, or a
        `Tuner` that was fitted for `LsIR`. A bad choice costs time, never digits.
    full_output : bool
        Return a `LeastSquaresSolution` instead of x alone. (NumPy and SciPy return a tuple; rank
        and residual are attributes here.)

    Returns
    -------
    x : array, (n,) or (n, k)
        float32 if A and b are, else float64.

    Raises
    ------
    SolveFailed
        A `numpy.linalg.LinAlgError`: no answer passed the gate.
    ValueError, TypeError
        For input that cannot be solved with: shapes, NaN and infinity, complex numbers.

    Examples
    --------
    >>> import roundwise
    >>> roundwise.lstsq([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 2.0, 3.0]).round(6)
    array([1., 1.])
    """
    with ieee_arithmetic():
        start = perf_counter()
        tol = checked_tolerance(tol)
        problem = checked_problem(A, b, BACKEND)
        m, n = problem.A.shape
        if rcond is None:
            rcond = max(m, n) * 2 * (FP32 if problem.dtype == np.float32 else FP64).unit_roundoff
        elif not 0 <= rcond < 1:
            raise ValueError(f"rcond = {rcond}; choose 0 <= rcond < 1, or None for max(m, n) eps")
        if 0 in (m, n, problem.b.shape[1]):
            solution = _nothing(problem)
        else:
            tolerance = target_error(m, n, problem.dtype) if tol is None else tol
            ladder, decision = ladder_of(policy, problem)
            scaled = scaled_least_squares(problem.A, problem.b, BACKEND)
            climb = _Climb(problem, scaled, float(rcond), tolerance, decision)
            climb.seconds["look"] = perf_counter() - start
            solution = climb.to(ladder)
    return solution if full_output else solution.x


def _nothing(problem: GivenProblem) -> LeastSquaresSolution:
    """Of an empty problem: zeros, as NumPy has it."""
    m, n = problem.A.shape
    x = problem.shaped(np.zeros((n, problem.b.shape[1]), dtype=problem.dtype))
    norms = problem.per_column(np.sqrt(np.square(problem.b).sum(axis=0)))
    return LeastSquaresSolution(
        *(x, "accepted", "", 0.0, 0.0, 0, n == 0, norms, 0.0),
        attempts=(),
        timings={"look": 0.0, "solve": 0.0, "rank": 0.0},
        decision=f"A is {m} x {n}, b has {problem.b.shape[1]} columns: nothing to solve.",
    )


@dataclass(eq=False)
class _Climb:
    """Tries the actions of a ladder in turn, until an answer passes the gate."""

    problem: GivenProblem
    scaled: ScaledLeastSquares
    rcond: float
    tolerance: float
    decision: str
    attempts: list[Outcome] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    best: Attempt | None = None
    shared: Shared = field(default_factory=Shared)  # T'T, and T in the formats it is needed in

    def __post_init__(self) -> None:
        self.seconds |= {"look": 0.0, "solve": 0.0, "rank": 0.0}

    def to(self, ladder: Sequence[Action]) -> LeastSquaresSolution:
        system, deficient = self.scaled.system, False
        if self.scaled.has_zero_column:
            ladder, deficient = ladder[-1:], True
            self.decision = "A column of A is zero" if not system.wide else "A row of A is zero"
            self.decision += ": the rank is not full, and the SVD finds the shortest solution."
        for action in ladder:
            if deficient and action.method != LADDER_END.method:
                continue
            if action.method == LADDER_END.method:
                return self._by_svd(action)
            made = self._attempt(action, self.scaled)
            if not made.outcome.converged:
                continue
            assert made.M is not None
            start = perf_counter()
            deficient, condition = is_doubtful(system, made.M, self.rcond)
            self.seconds["rank"] += perf_counter() - start
            blind = not condition * made.M.resolution <= system.norm  # so that NaN is blind
            if not (deficient or blind):
                return self._solution(made, min(system.T.shape), condition, self.tolerance)
            doubt = "an SVD tells its rank"
            if blind:
                deficient, doubt = False, "better factors are to tell its rank"
            doubt = f"but the condition number is about {condition:.0e} or larger: {doubt}"
            self.attempts[-1] = replace(self.attempts[-1], reason=doubt)
        raise self._failure()

    def _attempt(
        self, action: Action, scaled: ScaledLeastSquares, M: AugmentedFactors | None = None
    ) -> Attempt:
        start = perf_counter()
        stages = residual_of_both(Stages(LsIR.stages, action, BACKEND))
        shared = self.shared if scaled is self.scaled else Shared()
        made = attempt(scaled, stages, shared, self.tolerance, self.problem.dtype, M)
        return self._recorded(made, action, perf_counter() - start)

    def _recorded(self, made: Attempt, action: Action, seconds: float) -> Attempt:
        self.seconds["solve"] += seconds
        made.outcome = replace(
            made.outcome, action=str(action), arithmetic=BACKEND.arithmetic, seconds=seconds
        )
        self.attempts.append(made.outcome)
        if self.best is None or made.outcome.nbe < self.best.outcome.nbe:
            self.best = made
        return made

    def _by_svd(self, action: Action) -> LeastSquaresSolution:
        problem, start = self.problem, perf_counter()
        A = problem.A
        if sparse.issparse(A):
            if A.shape[0] * A.shape[1] > LARGEST_DENSE:
                raise self._failure(
                    "A is sparse, and its rank may not be full; drop dependent columns, or pass "
                    "A.toarray() if memory allows"
                )
            A = A.toarray()
        whole = scaled_as_a_whole(A, problem.b)
        if not whole.system.norm:
            found = Decomposed(np.zeros((0, 0)), np.zeros(1), np.zeros((0, 0)), 0)
        else:
            found = Decomposed.of(whole.system.T, self.rcond)
        seconds = perf_counter() - start
        if found.rank == min(A.shape):
            made = self._attempt(action, whole, found.factors())
            if not made.outcome.converged:
                raise self._failure()
            return self._solution(made, found.rank, found.condition, self.tolerance)
        made, tolerance = self._shortest(A, whole, found)
        made = self._recorded(made, action, perf_counter() - start + seconds)
        if not made.outcome.converged:
            raise self._failure()
        return self._solution(made, found.rank, found.condition, tolerance)

    def _shortest(
        self, A: Array, whole: ScaledLeastSquares, found: Decomposed
    ) -> tuple[Attempt, float]:
        """The shortest solution of a problem without full rank, judged as a least squares one."""
        system = whole.system
        b = system.parts(system.B)[1 if system.wide else 0]
        T = system.T.T if system.wide else system.T
        if found.rank:
            X, s = found.shortest(b, system.wide)
        else:
            X, s = np.zeros((T.shape[1], b.shape[1])), b
        zeros = np.zeros((T.shape[1], b.shape[1]))
        B = np.asfortranarray(np.concatenate([b, zeros]))
        judged = ScaledLeastSquares(
            AugmentedSystem(T, B, False, np.ones(T.shape[1]), system.norm), whole.exponents
        )
        stacked = np.asfortranarray(np.concatenate([s, X]))
        x = judged.solution(stacked).astype(self.problem.dtype)
        # Leaving out j singular values changes A by at most sqrt(j) rcond ||A||_2.
        tolerance = self.tolerance + math.sqrt(min(A.shape) - found.rank) * self.rcond
        bounds = proven_errors(judged.system, judged.with_solution(stacked, x), tolerance)
        worst = float(bounds.max())
        accepted = worst <= tolerance
        status = OutcomeStatus.CONVERGED if accepted else OutcomeStatus.UNCONFIRMED
        reason = "" if accepted else f"above {tolerance:.1e}"
        return Attempt(Outcome(status, None, nbe=worst, reason=reason), None, x), tolerance

    def _solution(
        self, made: Attempt, rank: int, condition: float, tolerance: float
    ) -> LeastSquaresSolution:
        assert made.x is not None
        problem = self.problem
        return LeastSquaresSolution(
            x=problem.shaped(made.x),
            status="accepted" if len(self.attempts) == 1 else "escalated",
            action=made.outcome.action,
            backward_error=made.outcome.nbe,
            tolerance=tolerance,
            rank=rank,
            is_unique=rank == problem.A.shape[1],
            residual_norm=problem.residual_norms(made.x),
            condition=condition,
            attempts=tuple(self.attempts),
            timings=self.seconds,
            decision=self.decision,
        )

    def _failure(self, reason: str = "") -> SolveFailed:
        best = self.best
        error = math.inf if best is None else best.outcome.nbe
        x = None if best is None or best.x is None else self.problem.shaped(best.x)
        reason = reason or (
            f"no least squares solution passed the gate of {self.tolerance:.1e}; scale A and b, or "
            "pass a larger tol"
        )
        return SolveFailed(reason, x, error, tuple(self.attempts))
