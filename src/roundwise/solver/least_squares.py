"""`lstsq`: least squares in as little precision as it takes, verified; in the steps of `solve`.

system = prepare(A, b, ...)      # checked, in float64
plan = decide(system, policy)    # the ladder of actions, and why
answer = climb(system, plan)     # run, judge by the gate, take the next
returned(answer.x, A, b)         # the kind of b

Before them stands one look-up (`express.memo`): where the shape alone settles that QR comes first,
one compiled call does it all. What it refuses is the ladder's first rung, failed.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from time import perf_counter
from typing import Any, Literal, NamedTuple, cast, overload

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action
from roundwise.algorithms.base import Outcome, OutcomeStatus, Shared
from roundwise.algorithms.least_squares.at_once import (
    ABOVE_TOLERANCE,
    IN_DOUBT,
    OUTCOMES,
    Found,
    Gate,
    allowed_error,
    gate_of,
    runs_at_once,
    solve_at_once,
)
from roundwise.algorithms.least_squares.augmented import AugmentedFactors, AugmentedSystem
from roundwise.algorithms.least_squares.certificate import judged
from roundwise.algorithms.least_squares.ls_ir import LsIR, residual_of_both
from roundwise.algorithms.least_squares.rank import (
    Decomposed,
    Rank,
    rank_shown,
    tall_condition,
    truncated,
)
from roundwise.algorithms.least_squares.scaling import ScaledLeastSquares, scaled_as_a_whole
from roundwise.algorithms.least_squares.verified_lstsq import Attempt, attempt
from roundwise.algorithms.stage import Stages
from roundwise.backends.native import exact
from roundwise.formats import FP32
from roundwise.machine.threads import ieee_arithmetic
from roundwise.methods.tall import TALL
from roundwise.solver.decide import Plan
from roundwise.solver.express import remembered
from roundwise.solver.frameworks import framework_of
from roundwise.solver.places import Place, place_of, returned
from roundwise.solver.policy_argument import DEFAULT, Start, parse_policy
from roundwise.solver.prepare import BACKEND
from roundwise.solver.solution import LeastSquaresSolution, SolveFailed
from roundwise.solver.tall import (
    BY_SVD,
    TallSystem,
    decide,
    decided_by_shape,
    is_native_float,
    limits_of,
    prepare,
)
from roundwise.solver.trust.knowledge import Knowledge

Array = NDArray[np.float64]

LARGEST_DENSE = 2**24
"""A sparse A with at most so many places is made dense where only an SVD can tell its rank."""


@overload
def lstsq(
    A: Any,
    b: Any,
    rcond: float | None = None,
    *,
    tol: float | None = None,
    policy: Any = "default",
    full_output: Literal[True],
    device: str | None = None,
) -> LeastSquaresSolution: ...
@overload
def lstsq(
    A: Any,
    b: NDArray[Any],
    rcond: float | None = None,
    *,
    tol: float | None = None,
    policy: Any = "default",
    full_output: Literal[False] = False,
    device: str | None = None,
) -> NDArray[Any]: ...
@overload
def lstsq(
    A: Any,
    b: Any,
    rcond: float | None = None,
    *,
    tol: float | None = None,
    policy: Any = "default",
    full_output: bool = False,
    device: str | None = None,
) -> Any: ...
def lstsq(
    A: Any,
    b: Any,
    rcond: float | None = None,
    *,
    tol: float | None = None,
    policy: Any = "default",
    full_output: bool = False,
    device: str | None = None,
) -> Any:
    """Minimise ``||b - A x||_2`` in as little precision as it takes, and verify the answer.

    If A has fewer rows than columns, or dependent columns, many x minimise that; the shortest one
    is returned.

    Parameters
    ----------
    A : (m, n) array_like or sparse
        Dense or sparse, real, of any shape. It is not modified. CuPy arrays and torch tensors on a
        GPU are solved there.
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
    device : {None, "cpu", "cuda", "cuda:1", ...}
        As for `solve`: ``"cuda"`` copies dense A and b to that GPU, and x back.

    Returns
    -------
    x : array, (n,) or (n, k)
        float32 if A and b are, else float64; of the kind of b, as `solve` returns it.

    Raises
    ------
    SolveFailed
        A `numpy.linalg.LinAlgError`: no answer passed the gate.
    ValueError, TypeError
        For input that cannot be solved with: shapes, NaN and infinity, complex numbers, operands
        on two devices.

    Examples
    --------
    >>> import roundwise
    >>> roundwise.lstsq([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 2.0, 3.0]).round(6)
    array([1., 1.])
    """
    tried: list[Tried] = []
    if type(A) is type(b) is np.ndarray and device is None:
        known: Known | None = None
        if type(policy) is str:
            with suppress(TypeError):  # of what is no number; `prepare` says so
                asked = A.shape, A.dtype, b.shape, b.dtype, rcond, tol, policy
                known = remembered(_known, *asked, tuple(TALL))
        if known is not None:
            tried = known.run(A, b)
            if tried[-1].found.accepted:
                if not full_output:
                    return tried[-1].found.x
                with ieee_arithmetic():
                    return known.solution(tried)
    elif (framework := framework_of(A, b)) is not None:
        return framework.lstsq_followed(
            A, b, rcond, tol=tol, policy=policy, full_output=full_output, device=device
        )
    elif (place := place_of(A, b, device)) is not None:
        return _on_device(A, b, (tol, rcond), parse_policy(policy, LsIR), full_output, place)
    with ieee_arithmetic():
        start = perf_counter()
        asker = parse_policy(policy, LsIR)
        system = prepare(A, b, tol, rcond)
        if system.is_empty:
            answer = _nothing(system)
        else:
            plan = decide(system, asker)
            answer = climb(system, plan, perf_counter() - start, full_output, tried)
        if type(b) is not np.ndarray:
            answer = replace(answer, x=returned(answer.x, A, b))
    return answer if full_output else answer.x


def _on_device(
    A: Any, b: Any, limits: tuple[Any, Any], asker: Any, full_output: bool, place: Place
) -> Any:
    """The same steps on a GPU."""
    with place.entered(A, b):
        start = perf_counter()
        system = prepare(place.array("A", A), place.array("b", b), *limits, place)
        answer = climb(system, decide(system, asker), perf_counter() - start, full_output)
        x = place.returned(answer.x, b)
        return replace(answer, x=x) if full_output else x


class Tried(NamedTuple):
    """What the compiled call made of a problem."""

    action: Action
    gate: Gate
    full_rank: int  # the smaller one of A's dimensions
    found: Found
    seconds: float

    @property
    def outcome(self) -> Outcome:
        found = self.found
        reason = {
            IN_DOUBT: f"the condition number is about {found.condition:.0e} or larger: "
            + Rank.DOUBTFUL.value,
            ABOVE_TOLERANCE: f"above {self.tolerance:.1e}",
        }
        return Outcome(
            OUTCOMES[found.status],
            None,
            nbe=found.backward_error,
            outer_iterations=found.steps,
            action=str(self.action),
            arithmetic=BACKEND.arithmetic,
            seconds=self.seconds,
            reason=reason.get(found.status, ""),
        )

    @property
    def tolerance(self) -> float:
        """What is accepted, for the rank that was found."""
        return allowed_error(self.gate, self.full_rank - self.found.rank)


class Known(NamedTuple):
    """What shapes, types and options say of a problem that one compiled call solves."""

    plan: Plan
    rungs: tuple[tuple[Action, Gate], ...]  # the first ones of the plan, which are compiled calls
    dtype: Any  # of x
    converted: tuple[Any, Any]  # the types that A and b are converted to, None if they are not

    def run(self, A: NDArray[Any], b: NDArray[Any]) -> list[Tried]:
        """What came of the rungs, until one was accepted."""
        start, tried = perf_counter(), []
        if self.converted != (None, None):
            of_A, of_b = self.converted
            with ieee_arithmetic():
                A = A if of_A is None else A.astype(of_A)
                b = b if of_b is None else b.astype(of_b)
        for action, gate in self.rungs:
            found = solve_at_once(A, b, self.dtype, gate)
            end = perf_counter()
            tried.append(Tried(action, gate, min(A.shape), found, end - start))
            start = end
            if found.accepted:
                break
        return tried

    def solution(self, tried: list[Tried]) -> LeastSquaresSolution:
        timings = {"look": 0.0, "solve": sum(one.seconds for one in tried), "rank": 0.0}
        outcomes = tuple(one.outcome for one in tried)
        return _solution_at_once(tried[-1], self.plan.reason, outcomes, timings)


def _known(
    shape: tuple[int, ...],
    A_dtype: Any,
    b_shape: tuple[int, ...],
    b_dtype: Any,
    rcond: float | None,
    tol: float | None,
    policy: str,
    methods: tuple[str, ...],
) -> Known | None:
    """None for what is not for one call, or what `prepare` refuses.

    It depends on the names of the `methods` only in so far as another one may be chosen.
    """
    if not all(value is None or type(value) is float for value in (rcond, tol)):
        return None  # the four steps take any numbers, and refuse what are none
    fits = len(shape) == 2 and len(b_shape) in (1, 2) and b_shape[0] == shape[0]
    if not fits or 0 in (*shape, *b_shape) or not 0 <= (rcond or 0.0) < 1:
        return None
    if any(dtype.kind not in "fiub" or dtype.itemsize > 8 for dtype in (A_dtype, b_dtype)):
        return None
    asker, single = parse_policy(policy, LsIR), A_dtype == b_dtype == np.float32
    start = None if asker is DEFAULT else asker.on(BACKEND)
    if not (start is None or isinstance(start, Start)):
        return None
    plan = decided_by_shape(start, shape, b_shape[1] if len(b_shape) == 2 else 1, False, single)
    if not runs_at_once(plan.ladder[0]):
        return None
    dtype = np.float32 if single else np.float64
    compiled, limits = takewhile(runs_at_once, plan.ladder), limits_of(shape, dtype, tol, rcond)
    rungs = tuple((action, _gate_for(action, *limits, shape)) for action in compiled)
    converted = [None if is_native_float(one) else np.float64 for one in (A_dtype, b_dtype)]
    return Known(plan, rungs, dtype, (converted[0], converted[1]))


def _gate_for(action: Action, tolerance: float, rcond: float, shape: tuple[int, ...]) -> Gate:
    return gate_of(shape[0], shape[1], action[0] == FP32, tolerance, rcond)


def _solution_at_once(
    tried: Tried, reason: str, attempts: tuple[Outcome, ...], timings: dict[str, float]
) -> LeastSquaresSolution:
    found, x = tried.found, tried.found.x
    norms = found.residual_norms if x.ndim == 2 else float(found.residual_norms[0])
    return LeastSquaresSolution(
        x,
        "accepted" if len(attempts) == 1 else "escalated",
        str(tried.action),
        found.backward_error,
        tried.tolerance,
        found.rank,
        found.rank == len(x),
        Knowledge(cast(Any, lambda: (norms, found.condition))),
        attempts,
        timings,
        reason,
    )


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
    system: TallSystem,
    plan: Plan,
    seconds: float,
    full_output: bool,
    before: list[Tried] | None = None,
) -> LeastSquaresSolution:
    """Try the actions of the plan in turn, until an answer passes the gate and the rank is known.

    `seconds` are those of the steps before; `before` is what came of the actions that were tried
    already. Without `full_output`, `knowledge` is None.
    """
    timings = {"look": seconds, "solve": 0.0, "rank": 0.0}
    climbed = _Climb(system, plan, timings, full_output)
    rank, condition = Rank.UNSEEN, math.nan
    known = {one.action: one for one in before or ()}
    for action in plan.ladder:
        if action.method == BY_SVD.method:
            return _by_svd(climbed)
        if rank is Rank.DOUBTFUL:
            continue
        if system.place is None and runs_at_once(action):
            tried = known.get(action) or _at_once(system, action)
            timings["solve"] += tried.seconds
            climbed.attempts.append(tried.outcome)
            if tried.found.accepted:
                x = system.shaped(tried.found.x)
                tried = tried._replace(found=tried.found._replace(x=x))
                return _solution_at_once(tried, plan.reason, tuple(climbed.attempts), timings)
            # Factors in fp32 may have left a rank in doubt that those in fp64 show.
            if tried.found.status == IN_DOUBT and not tried.gate.in_single:
                rank = Rank.DOUBTFUL
            continue
        scaled = system.scaled
        if scaled.has_zero_column:  # the rank is not full: factors of the whole tell nothing
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
                rank = Rank.UNSEEN
        climbed.record(made, action, seconds, doubt)
        if rank is Rank.FULL:
            return climbed.solution(made, scaled, min(system.A.shape), condition)
    raise climbed.failure()


def _at_once(system: TallSystem, action: Action) -> Tried:
    """The compiled call for a problem that is prepared."""
    start = perf_counter()
    gate = _gate_for(action, system.tolerance, system.rcond, system.A.shape)
    found = solve_at_once(system.A, system.b, system.dtype, gate)
    return Tried(action, gate, min(system.A.shape), found, perf_counter() - start)


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
        stages = residual_of_both(Stages(LsIR.stages, action, self.system.backend))
        shared = self.shared if M is None else Shared()
        return attempt(scaled, stages, shared, self.system.tolerance, self.system.dtype, M)

    def record(self, made: Attempt, action: Action, seconds: float, doubt: str = "") -> None:
        arithmetic = self.system.backend.arithmetic
        facts = {"action": str(action), "arithmetic": arithmetic, "seconds": seconds}
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
    if system.place is not None:
        raise climbed.failure(
            "the rank of A may not be full, and the SVD that tells runs on the CPU; pass A.get() "
            "and b.get(), or drop dependent columns"
        )
    if system.is_sparse:
        if A.shape[0] * A.shape[1] > LARGEST_DENSE:
            raise climbed.failure(
                "A is sparse, and its rank may not be full; drop dependent columns, or pass "
                "A.toarray() if memory allows"
            )
        A = A.toarray()
    whole = scaled_as_a_whole(A, system.b)
    X, S, rank = truncated(whole.system, system.rcond)
    tolerance = _allowed(system, rank)
    made, scaled = _shortest(system, whole, X, None, tolerance)
    if rank == min(A.shape) or not made.outcome.converged:
        # The factors themselves, which x can be refined with, and a residual that is orthogonal.
        found = Decomposed.of(whole.system.T, system.rcond)
        S, rank = found.S, found.rank
        tolerance = _allowed(system, rank)
        if rank == min(A.shape):
            made, scaled = climbed.tried(BY_SVD, whole, found.factors()), whole
        else:
            b = whole.system.parts(whole.system.B)[1 if whole.system.wide else 0]
            made, scaled = _shortest(
                system, whole, *found.shortest(b, whole.system.wide), tolerance
            )
    seconds = perf_counter() - start
    climbed.timings["solve"] += seconds
    climbed.record(made, BY_SVD, seconds)
    if not made.outcome.converged:
        raise climbed.failure()
    with np.errstate(all="ignore"):
        condition = float(S[0] / S[-1]) if S[-1] > 0 else math.inf
    return climbed.solution(made, scaled, rank, condition, tolerance)


def _allowed(system: TallSystem, rank: int) -> float:
    """Leaving out j singular values changes A by at most sqrt(j) rcond ||A||_2."""
    return system.tolerance + math.sqrt(min(system.A.shape) - rank) * system.rcond


def _shortest(
    given: TallSystem, whole: ScaledLeastSquares, X: Array, s: Array | None, tolerance: float
) -> tuple[Attempt, ScaledLeastSquares]:
    """The shortest solution X of a problem without full rank, judged as a least squares one.

    s is its residual without the rounding errors of X; by default the residual as it is.
    """
    system = whole.system
    b = system.parts(system.B)[1 if system.wide else 0]
    T = system.T.T if system.wide else system.T
    if s is None:
        s = exact.residual(T, X, b, exact.block_for(len(X)))
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
