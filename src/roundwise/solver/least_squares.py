"""`lstsq`: least squares in as little precision as it takes, verified; in the steps of `solve`.

system = prepare(A, b, ...)      # checked, in float64
plan = decide(system, policy)    # the ladder of actions, and why
answer = climb(system, plan)     # run, judge by the gate, take the next
returned(answer.x, A, b)         # the kind of b
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action
from roundwise.algorithms.base import Outcome, OutcomeStatus, Shared
from roundwise.algorithms.least_squares.augmented import AugmentedFactors, AugmentedSystem
from roundwise.algorithms.least_squares.certificate import judged
from roundwise.algorithms.least_squares.ls_ir import LsIR, residual_of_both
from roundwise.algorithms.least_squares.rank import Decomposed, Rank, rank_shown, tall_condition
from roundwise.algorithms.least_squares.scaling import ScaledLeastSquares, scaled_as_a_whole
from roundwise.algorithms.least_squares.verified_lstsq import Attempt, attempt
from roundwise.algorithms.stage import Stages
from roundwise.machine.threads import ieee_arithmetic
from roundwise.solver.decide import Plan
from roundwise.solver.places import place_of, returned
from roundwise.solver.policy_argument import parse_policy
from roundwise.solver.prepare import BACKEND
from roundwise.solver.solution import LeastSquaresSolution, SolveFailed
from roundwise.solver.tall import BY_SVD, TallSystem, decide, prepare
from roundwise.solver.trust.knowledge import Knowledge

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
    policy : str, path, list, Tuner or DeployedPolicy
        What is tried first: ``"default"``, a format's name (fp32 and fp64 run here: the lower one
        that has the format's bits and range), an action such as ``"qr:fp32-fp64-fp64-fp64"``, a
        list of actions to try in turn, a `Tuner` that was fitted for `LsIR`, or the ``.json`` file
        that it saved. A bad choice costs time, never digits.
    full_output : bool
        Return a `LeastSquaresSolution` instead of x alone: the same x. (NumPy and SciPy return a
        tuple; rank and residual are attributes here.)

    Returns
    -------
    x : array, (n,) or (n, k)
        float32 if A and b are, else float64; of the kind of b, as `solve` returns it.

    Raises
    ------
    SolveFailed
        A `numpy.linalg.LinAlgError`: no answer passed the gate.
    ValueError, TypeError
        For input that cannot be solved with: shapes, NaN and infinity, complex numbers, arrays on
        a GPU.

    Examples
    --------
    >>> import roundwise
    >>> roundwise.lstsq([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 2.0, 3.0]).round(6)
    array([1., 1.])
    """
    if not (type(A) is type(b) is np.ndarray):
        place_of(A, b, "cpu")  # refuses what is on a GPU
    with ieee_arithmetic():
        start = perf_counter()
        asker = parse_policy(policy, LsIR)
        system = prepare(A, b, tol, rcond)
        if system.is_empty:
            answer = _nothing(system)
        else:
            plan = decide(system, asker)
            answer = climb(system, plan, perf_counter() - start, full_output)
        if type(b) is not np.ndarray:
            answer = replace(answer, x=returned(answer.x, A, b))
    return answer if full_output else answer.x


def _nothing(system: TallSystem) -> LeastSquaresSolution:
    """Of an empty problem: zeros, as NumPy has it."""
    (m, n), k = system.A.shape, system.b.shape[1]
    norms = system.per_column(np.sqrt(np.square(system.b).sum(axis=0)))
    return LeastSquaresSolution(
        *(system.shaped(np.zeros((n, k), dtype=system.dtype)), "accepted", "", 0.0, 0.0, 0, n == 0),
        Knowledge(cast(Any, lambda: (norms, 0.0))),
        attempts=(),
        timings={"look": 0.0, "solve": 0.0, "rank": 0.0},
        decision=f"A is {m} x {n}, b has {k} columns: nothing to solve.",
    )


def climb(
    system: TallSystem, plan: Plan, seconds: float, full_output: bool
) -> LeastSquaresSolution:
    """Try the actions of the plan in turn, until an answer passes the gate and the rank is known.

    `seconds` are those of the steps before. Without `full_output`, `knowledge` is None.
    """
    timings = {"look": seconds, "solve": 0.0, "rank": 0.0}
    climbed = _Climb(system, plan, timings, full_output)
    scaled, rank, condition = system.scaled, Rank.UNSEEN, math.nan
    for action in plan.ladder:
        if action.method == BY_SVD.method:
            return _by_svd(climbed)
        if rank is Rank.DOUBTFUL:
            continue
        start = perf_counter()
        made = climbed.tried(action, scaled)
        timings["solve"] += (seconds := perf_counter() - start)
        doubt = ""
        if made.outcome.converged:
            assert made.M is not None
            rank, condition = rank_shown(scaled.system, made.M, system.rcond)
            timings["rank"] += perf_counter() - start - seconds
            if rank is not Rank.FULL:
                doubt = f"but the condition number is about {condition:.0e} or larger: {rank.value}"
        climbed.record(made, action, seconds, doubt)
        if rank is Rank.FULL:
            return climbed.solution(made, scaled, min(system.A.shape), condition)
    raise climbed.failure()


@dataclass(eq=False)
class _Climb:
    """What has been tried so far."""

    system: TallSystem
    plan: Plan
    timings: dict[str, float]
    full_output: bool
    attempts: list[Outcome] = field(default_factory=list)
    best: Attempt | None = None
    shared: Shared = field(default_factory=Shared)  # T'T, and T in the formats it is needed in

    def tried(
        self, action: Action, scaled: ScaledLeastSquares, M: AugmentedFactors | None = None
    ) -> Attempt:
        """One rung: factors of its action, unless they are given, refinement, and the gate."""
        stages = residual_of_both(Stages(LsIR.stages, action, BACKEND))
        shared = self.shared if M is None else Shared()
        return attempt(scaled, stages, shared, self.system.tolerance, self.system.dtype, M)

    def record(self, made: Attempt, action: Action, seconds: float, doubt: str = "") -> None:
        facts = {"action": str(action), "arithmetic": BACKEND.arithmetic, "seconds": seconds}
        facts |= {"reason": doubt} if doubt else {}
        made.outcome = Outcome(**vars(made.outcome) | facts)
        self.attempts.append(made.outcome)
        if self.best is None or made.outcome.nbe < self.best.outcome.nbe:
            self.best = made

    def solution(
        self,
        made: Attempt,
        scaled: ScaledLeastSquares,
        rank: int,
        condition: float,
        tolerance: float | None = None,
    ) -> LeastSquaresSolution:
        """The answer as callers get it; a condition that is NaN is estimated when it is read."""
        system, x, X, R, M = self.system, made.x, made.X, made.R, made.M
        assert x is not None
        assert X is not None
        assert R is not None

        def find() -> tuple[Any, float]:
            norms = system.per_column(scaled.residual_norms(X, R))
            if M is None or not math.isnan(condition):
                return norms, condition
            return norms, tall_condition(scaled.system, M)

        return LeastSquaresSolution(
            system.shaped(x),
            "accepted" if len(self.attempts) == 1 else "escalated",
            made.outcome.action,
            made.outcome.nbe,
            system.tolerance if tolerance is None else tolerance,
            rank,
            rank == system.A.shape[1],
            Knowledge(cast(Any, find)) if self.full_output else None,
            tuple(self.attempts),
            self.timings,
            self.plan.reason,
        )

    def failure(self, reason: str = "") -> SolveFailed:
        best = self.best
        error = math.inf if best is None else best.outcome.nbe
        x = None if best is None or best.x is None else self.system.shaped(best.x)
        reason = reason or (
            f"no least squares solution passed the gate of {self.system.tolerance:.1e}; scale A "
            "and b, or pass a larger tol"
        )
        return SolveFailed(reason, x, error, tuple(self.attempts))


def _by_svd(climbed: _Climb) -> LeastSquaresSolution:
    """The last rung, which tells the rank; where it is not full, the answer is the shortest one."""
    system, start = climbed.system, perf_counter()
    A = system.A
    if system.is_sparse:
        if A.shape[0] * A.shape[1] > LARGEST_DENSE:
            raise climbed.failure(
                "A is sparse, and its rank may not be full; drop dependent columns, or pass "
                "A.toarray() if memory allows"
            )
        A = A.toarray()
    whole = scaled_as_a_whole(A, system.b)
    found = Decomposed.of(whole.system.T, system.rcond)
    tolerance = system.tolerance
    if found.rank == min(A.shape):
        made = climbed.tried(BY_SVD, whole, found.factors())
    else:
        # Leaving out j singular values changes A by at most sqrt(j) rcond ||A||_2.
        tolerance += math.sqrt(min(A.shape) - found.rank) * system.rcond
        made, whole = _shortest(system, whole, found, tolerance)
    seconds = perf_counter() - start
    climbed.timings["solve"] += seconds
    climbed.record(made, BY_SVD, seconds)
    if not made.outcome.converged:
        raise climbed.failure()
    return climbed.solution(made, whole, found.rank, found.condition, tolerance)


def _shortest(
    given: TallSystem, whole: ScaledLeastSquares, found: Decomposed, tolerance: float
) -> tuple[Attempt, ScaledLeastSquares]:
    """The shortest solution of a problem without full rank, judged as a least squares one."""
    system = whole.system
    b = system.parts(system.B)[1 if system.wide else 0]
    T = system.T.T if system.wide else system.T
    X, s = found.shortest(b, system.wide)
    B = np.asfortranarray(np.concatenate([b, np.zeros_like(X)]))
    as_tall = AugmentedSystem(T, B, False, np.ones(T.shape[1]), system.norm)
    scaled = replace(whole, system=as_tall)
    stacked = np.asfortranarray(np.concatenate([s, X]))
    x = scaled.solution(stacked).astype(given.dtype)
    stacked = scaled.with_solution(stacked, x)
    bounds, R = judged(as_tall, stacked, tolerance)
    worst = float(bounds.max())
    accepted = worst <= tolerance
    status = OutcomeStatus.CONVERGED if accepted else OutcomeStatus.UNCONFIRMED
    reason = "" if accepted else f"above {tolerance:.1e}"
    return Attempt(Outcome(status, None, nbe=worst, reason=reason), x, stacked, R), scaled
