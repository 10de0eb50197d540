"""The algorithm contract: `Algorithm`, the `Outcome` of a run, and nothing about learning.

An algorithm is a frozen dataclass of settings with named stages. `Algorithm.run` gives each
stage its format, as the action says, and returns the facts of the run.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action, ActionLike, ActionSpace, as_action, monotone_space
from roundwise.algorithms.stage import Stage, Stages, Tally
from roundwise.backends import ArithmeticFailure, Backend, Status, get_backend
from roundwise.formats import FP64, FloatFormat
from roundwise.problems import LinearSystem, Problem

PAPER_FORMATS = ("bf16", "tf32", "fp32", "fp64")
T = TypeVar("T")


class OutcomeStatus(enum.Enum):
    """How a run ended; the value says it in words.

    Examples
    --------
    >>> rw.OutcomeStatus.CONVERGED.value
    "the stopping rule's target was reached"
    """

    CONVERGED = "the stopping rule's target was reached"
    STAGNATED = "the corrections stopped shrinking; use more bits if the errors are too large"
    HOPELESS = "the errors shrink too slowly to reach the target; use more bits in factor or gmres"
    UNCONFIRMED = (
        "the residual stage's own residual met the target, the float64 residual does not; use "
        "more bits in residual"
    )
    ITERATION_LIMIT = "the iteration budget was spent; raise it or use more bits"
    OVERFLOW = "a stage exceeded its format's range; equilibrate or use a wider range"
    ZERO_PIVOT = "the matrix is singular in the format of a stage; use more bits there"
    NOT_POSITIVE_DEFINITE = (
        "the matrix is not positive definite in the format of the factor stage; use more bits "
        "there, or LU"
    )
    NONFINITE_INPUT = "the problem holds inf or NaN"
    UNSUITED = "the method does not fit this matrix (dense or sparse, symmetric or not)"
    INDEFINITE = "the matrix is not positive definite, which more bits do not change; use LU"
    STOPPED = "factorizing would take more time than its limit; use another method or ordering"
    SLOW_CONVERGENCE = "an iteration inside the method converges too slowly; use a factorization"

    @property
    def failed(self) -> bool:
        """Whether the run was broken off by an arithmetic failure, or its method is unsuited."""
        return self.name in Status.__members__


@dataclass(frozen=True)
class Outcome:
    """The facts of running an algorithm on a problem with an action; never a reward.

    Parameters
    ----------
    status : OutcomeStatus
        How the run ended.
    others
        See the attributes.

    Attributes
    ----------
    x : array or None
        The computed solution; after a failure the last finite one, or None if there is none.
    ferr, nbe, cbe : float
        Normwise forward error, and normwise and componentwise backward error, computed in float64
        with the original data. inf if there is no x; ferr is NaN if the true solution is unknown.
    history : tuple of dict
        What was measured in each outer step, by name.
    reason : str
        What failed and where, or why the run ended without success; empty after a success.
    operations : dict
        ``(stage, format name)`` to `Tally`: flops and bytes moved, for a cost model to price.
    seconds : float or None
        Seconds that this run would take alone: work shared with other runs counts in full, and
        measuring the errors does not count.
    timings : dict
        Seconds of each stage, conversions to its format included, and of ``verify``. Times of
        emulated arithmetic say nothing about hardware; tables store those of timed backends only.

    Examples
    --------
    >>> outcome = rw.GmresIR().run(rw.problems.randsvd(20, 10.0, rng=0), "fp32-fp64-fp64-fp64")
    >>> outcome.action, outcome.operations["factor", "fp32"].flops > 20**3 / 2
    ('fp32-fp64-fp64-fp64', True)
    """

    status: OutcomeStatus
    x: NDArray[np.float64] | None = field(repr=False, compare=False)
    ferr: float = np.inf
    nbe: float = np.inf
    cbe: float = np.inf
    outer_iterations: int = 0
    inner_iterations: int = 0
    history: tuple[Mapping[str, float], ...] = field(default=(), repr=False)
    reason: str = ""
    action: str = ""
    arithmetic: str = ""
    operations: Mapping[tuple[str, str], Tally] = field(default_factory=dict, repr=False)
    seconds: float | None = field(default=None, compare=False)
    timings: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def converged(self) -> bool:
        """Whether the stopping rule's target was reached; of `VerifiedSolve`, the gate passed."""
        return self.status is OutcomeStatus.CONVERGED

    @classmethod
    def from_failure(cls, failure: ArithmeticFailure, **facts: Any) -> Outcome:
        """The outcome of a run that a kernel broke off."""
        facts = {"x": None} | facts
        return cls(status=OutcomeStatus[failure.status.name], reason=str(failure), **facts)


class Shared:
    """Factors and matrices that the runs on one problem with one backend share.

    Each is computed once. A failure is remembered too, and raised again in every run that asks. A
    `Shared` belongs to the problem, algorithm and backend of its first run, and refuses others.
    It records the seconds of each computation, and charges them to every run that uses the result.

    Examples
    --------
    >>> from roundwise.algorithms import Shared
    >>> shared, algorithm = Shared(), rw.GmresIR()
    >>> system = rw.problems.randsvd(20, 10.0, rng=0)
    >>> for action in ("fp32-fp32-fp64-fp64", "fp32-fp64-fp64-fp64"):  # one factorization for both
    ...     outcome = algorithm.run(system, action, shared=shared)
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Any, float]] = {}
        self._owner: tuple[Any, Any, str] | None = None
        # Of the present run: what was charged, seconds saved by sharing, those of diagnostics.
        self._charged: set[Hashable] = set()
        self.reused = self.untimed = 0.0

    def bind(self, problem: Any, algorithm: Any, arithmetic: str) -> None:
        """Tie it to these three; raise if it is tied to others already."""
        if self._owner is None:
            self._owner = problem, algorithm, arithmetic
        owner, settings, model = self._owner
        if owner is not problem or settings != algorithm or model != arithmetic:
            raise ValueError(
                "this Shared belongs to another problem, algorithm or backend; pass a new one"
            )
        self._charged.clear()
        self.reused = self.untimed = 0.0

    def get(self, key: Hashable, make: Callable[[], T], stage: Stage | None = None) -> T:
        """The value of that key, made on the first call; its time goes to the stage, if given."""
        if key in self._charged:
            value, seconds = self._made[key][0], 0.0
        elif key in self._made:
            value, seconds = self._made[key]
            self.reused += seconds
        else:
            start = time.perf_counter()
            try:
                value = make()
            except ArithmeticFailure as failure:
                value = failure
            seconds = time.perf_counter() - start
            self._made[key] = value, seconds
        self._charged.add(key)
        if stage is not None:
            stage.seconds += seconds
        if isinstance(value, ArithmeticFailure):
            raise value.with_traceback(None)  # else each run would lengthen it
        return value  # type: ignore[no-any-return]

    @contextmanager
    def diagnostics(self) -> Iterator[None]:
        """Work that is no part of the run, such as comparing with the true solution."""
        start, reused = time.perf_counter(), self.reused
        yield
        self.untimed += time.perf_counter() - start
        self.reused = reused


class Algorithm(ABC):
    """An algorithm with named stages, each run in one format, and perhaps methods.

    A subclass is a frozen dataclass whose fields are its settings. `stages` names the steps, and
    `execute` does the work through the `Stage` objects that it is given: each rounds to its format
    and counts its operations. If `has_methods` is true, actions also name a method, which `execute`
    finds in ``stages.method``. `arithmetic` is the arithmetic model that `Tuner` takes by default;
    `problem_type` is what it makes of a pair ``(A, b)``.

    Examples
    --------
    >>> rw.GmresIR().stages  # GmresIR is one
    ('factor', 'update', 'gmres', 'residual')
    >>> from roundwise.algorithms import Algorithm
    >>> issubclass(rw.GmresIR, Algorithm)
    True
    """

    stages: ClassVar[tuple[str, ...]]
    problem_type: ClassVar[type[Problem]] = LinearSystem
    has_methods: ClassVar[bool] = False
    arithmetic: ClassVar[str] = "operation"

    @abstractmethod
    def execute(self, problem: Any, stages: Stages, shared: Shared) -> Outcome:
        """Run, and return the outcome without action, arithmetic and operations."""

    def formats(self, action: ActionLike) -> Action:
        """The action, from text like ``bf16-fp32-fp64-fp64`` or a sequence; checked.

        Parameters
        ----------
        action : str or sequence of formats

        Examples
        --------
        >>> str(rw.LuIR().formats(("fp32", "fp64", "fp64")))
        'fp32-fp64-fp64'
        """
        made = as_action(action, self.stages)
        if made.method and not self.has_methods:
            raise ValueError(
                f"{type(self).__name__} has no methods; leave out {made.method + ':'!r} in {made}"
            )
        return made

    def action_space(
        self, formats: Iterable[str | FloatFormat] | None = None, problems: Iterable[Any] = ()
    ) -> ActionSpace:
        """The actions to choose from for these formats and problems: by default the monotone ones.

        Their significand bits do not decrease from stage to stage. The formats are the paper's if
        none are given.

        Parameters
        ----------
        formats : iterable of str or FloatFormat, optional
        problems : iterable of Problem
            What they suit, for algorithms with methods.

        Examples
        --------
        >>> rw.LuIR().action_space(["fp32", "fp64"]).names
        ('fp32-fp32-fp32', 'fp32-fp32-fp64', 'fp32-fp64-fp64', 'fp64-fp64-fp64')
        """
        return monotone_space(self.stages, PAPER_FORMATS if formats is None else formats)

    def climb(
        self, first: Action, backend: Backend, sparse: bool = False, is_complex: bool = False
    ) -> tuple[Action, ...]:
        """The ladder: actions to try in turn until one succeeds; by default `first`, then FP64.

        Parameters
        ----------
        first : Action
        backend : Backend
        sparse, is_complex : bool
            Whether the problem is.

        Examples
        --------
        >>> ladder = rw.LuIR().climb(rw.Action(["fp32", "fp64", "fp64"]), rw.backends.get_backend())
        >>> [str(action) for action in ladder]
        ['fp32-fp64-fp64', 'fp64-fp64-fp64']
        """
        safe = Action([FP64] * len(self.stages))
        return (first,) if first == safe else (first, safe)

    def run(
        self,
        problem: Any,
        action: ActionLike,
        backend: str | Backend = "operation",
        shared: Shared | None = None,
    ) -> Outcome:
        """Run on a problem with one action: one format per stage, in stage order.

        Pass the same `shared` to several runs on one problem, and factors and converted matrices
        are computed once.

        Parameters
        ----------
        problem : Problem
        action : str or sequence of formats
        backend : str or Backend
            The arithmetic model.
        shared : Shared, optional

        Examples
        --------
        >>> outcome = rw.GmresIR().run(rw.problems.randsvd(20, 10.0, rng=0), "fp32-fp64-fp64-fp64")
        >>> bool(outcome.ferr < 1e-13)
        True
        """
        action = self.formats(action)
        backend = get_backend(backend)
        stages = Stages(self.stages, action, backend)
        shared = Shared() if shared is None else shared
        shared.bind(problem, self, backend.description)
        start = time.perf_counter()
        try:
            outcome = self.execute(problem, stages, shared)
        except ArithmeticFailure as failure:
            outcome = Outcome.from_failure(failure)
        return dataclasses.replace(
            outcome,
            action=str(action),
            arithmetic=backend.arithmetic,
            operations={(s.name, s.fmt.name): s.tally for s in stages.values()},
            seconds=time.perf_counter() - start + shared.reused - shared.untimed,
            timings={s.name: s.seconds for s in stages.values()} | dict(outcome.timings),
        )

    def run_all(
        self, problem: Any, actions: Iterable[ActionLike], backend: str | Backend = "operation"
    ) -> list[Outcome]:
        """One outcome per action, with factors and matrices shared.

        Parameters
        ----------
        problem : Problem
        actions : iterable of actions
        backend : str or Backend
            The arithmetic model.

        Examples
        --------
        >>> system = rw.problems.randsvd(20, 10.0, rng=0)
        >>> actions = ["bf16-fp64-fp64-fp64", "fp32-fp64-fp64-fp64"]
        >>> low, high = rw.GmresIR().run_all(system, actions)
        >>> low.inner_iterations > high.inner_iterations
        True
        """
        shared, backend = Shared(), get_backend(backend)
        return [self.run(problem, action, backend, shared) for action in actions]
