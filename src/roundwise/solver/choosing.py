"""From a policy to the ladder of actions that a solve climbs.

The policy may be the default, a format's name, a trained `Tuner`, its file, or a `Policy`. A bad
one costs time, never digits: every answer passes the same gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from roundwise.actions import Action, ActionSpace
from roundwise.algorithms import Outcome, VerifiedSolve
from roundwise.backends import NativeBackend
from roundwise.backends.complex.backend import ComplexBackend
from roundwise.backends.engines.orderings import Orders
from roundwise.exceptions import UnknownNameError
from roundwise.features import look
from roundwise.formats import BF16, FP32, FP64, FloatFormat
from roundwise.machine.spinning import FEW_CORES
from roundwise.machine.threads import factorization_threads
from roundwise.methods import METHODS
from roundwise.policies import NeighbourPolicy, OnlinePolicy, Policy, Ranking, shipped_facts
from roundwise.policies.look import KINDS, STRUCTURE, fitting_actions, kind_of
from roundwise.problems import Problem
from roundwise.solver.inputs import GivenMatrix
from roundwise.tuning import LOOK_CONTEXT, DeployedPolicy, Tuner

BACKEND, COMPLEX_BACKEND = NativeBackend(), ComplexBackend()
ALGORITHM = VerifiedSolve()

Learn = Callable[[Sequence[Outcome], float], None]
"""Takes the attempts of a solve, and its seconds."""


@dataclass(frozen=True)
class Choice:
    """The actions to try in turn, and why the first is first.

    Parameters
    ----------
    ladder : tuple of Action
        What to try in turn.
    reason : str
        Why the first is first.
    learn : callable, optional
        Called with the attempts and the seconds of the solve, once it is done.
    orders : optional
        Orders of the unknowns that the look at a sparse A has found.
    granted : float, optional
        Seconds that exploring may cost.
    budget : int
        GMRES iterations before the next action of the ladder.

    Examples
    --------
    >>> from roundwise.solver import Choice
    >>> choice = Choice((rw.Action(["fp64"] * 4, "lu"),), "because it is safe")
    >>> str(choice.ladder[0])
    'lu:fp64-fp64-fp64-fp64'
    """

    ladder: tuple[Action, ...]
    reason: str
    learn: Learn | None = field(default=None, compare=False, repr=False)
    orders: Orders | None = field(default=None, compare=False, repr=False)
    """Of a sparse A: what was found to choose serves to factorize."""
    granted: float | None = field(default=None, compare=False, repr=False)
    """Seconds that a factorization before the last rung may take, where it can be stopped."""
    budget: int = VerifiedSolve.budget
    """GMRES iterations after which the next action is expected to be faster."""


class Chooser(Protocol):
    """Chooses the ladder for A; not asked about a dense A with fewer than `at_once` unknowns."""

    @property
    def at_once(self) -> int: ...

    def choose(self, matrix: GivenMatrix, positive_definite: bool | None) -> Choice: ...


@dataclass(frozen=True)
class FixedStart:
    """Always the same format first, by the method that suits the matrix."""

    fmt: FloatFormat
    at_once: int = 0

    def choose(self, matrix: GivenMatrix, positive_definite: bool | None) -> Choice:
        known = structure(matrix, positive_definite)
        first = Action((self.fmt, FP64, FP64, FP64), suited_method(matrix, known))
        ladder, reason = native_ladder(first, matrix), f"You asked for {self.fmt} first."
        if ladder[0] != first:
            reason += f" {first.method} does not run in it here: {ladder[0][0]} instead."
        return Choice(ladder, reason)


@dataclass(frozen=True)
class PolicyChooser:
    """A deployed policy: features, ranking, and the climb from the action that ranks first."""

    deployed: DeployedPolicy

    def __post_init__(self) -> None:
        stages = self.deployed.policy.space.stages
        if stages != ALGORITHM.stages:
            raise ValueError(
                f"the policy chooses formats for {', '.join(stages)}, solve needs them for "
                f"{', '.join(ALGORITHM.stages)}; train it for VerifiedSolve or GmresIR"
            )

    @property
    def at_once(self) -> int:
        return self.deployed.at_once

    def choose(self, matrix: GivenMatrix, positive_definite: bool | None) -> Choice:
        policy = self.deployed.policy
        known = structure(matrix, positive_definite)
        if small := small_choice(policy, matrix, known):
            return small
        orders = examined(matrix, known)
        allowed = allowed_actions(policy.space, matrix, known)
        if not allowed:
            first = safe_action(matrix, known)
            reason = "The policy has no action for such a matrix: FP64 at once."
            return Choice(native_ladder(first, matrix), reason)
        ranking = self.deployed.rank(matrix, known, allowed)
        ladder = native_ladder(policy.space[ranking.first], matrix)
        granted = granted_seconds(policy, ranking) if matrix.is_sparse else None
        return Choice(ladder, ranking.reason, orders=orders, granted=granted)


GRANTED, LEAST_GRANTED = 3.0, 0.1
"""A factorization is stopped, and the next method tried, after GRANTED times the seconds expected
of the safe action, but not before LEAST_GRANTED seconds."""


def granted_seconds(policy: Policy, ranking: Ranking) -> float | None:
    """The seconds after which a method that is not the safe one is stopped; None for no limit."""
    safe = policy.space.safe
    if not isinstance(policy, NeighbourPolicy | OnlinePolicy) or safe not in ranking.actions:
        return None
    expected = ranking.costs[ranking.actions.index(safe)]
    return max(LEAST_GRANTED, GRANTED * expected) if math.isfinite(expected) else None


def structure(matrix: GivenMatrix, positive_definite: bool | None) -> dict[str, float]:
    """The features that say which methods fit A.

    If the caller knows whether A is positive definite, that is not computed. For a sparse A these
    are only the features that small systems need; `examined` adds the others.
    """
    known = dict.fromkeys(STRUCTURE, 0.0)
    positive = "looks_positive_definite"
    if matrix.is_sparse:
        known["symmetric_pattern"] = look.symmetric_pattern(matrix)
    if positive_definite is not None:
        known[positive] = float(positive_definite)
    elif not matrix.is_sparse:
        known[positive] = look.structure(matrix)[positive]
    if matrix.columns is not None and not matrix.is_sparse:
        known[positive] = 0.0  # rows and columns are scaled: A is no longer symmetric
    return known


def examined(matrix: GivenMatrix, known: dict[str, float]) -> Orders | None:
    """Complete what is known of a sparse A, and return the orders that were found for it."""
    if not matrix.is_sparse:
        return None
    said = known["looks_positive_definite"]  # by the caller
    known |= look.structure(matrix)
    if said:
        known["looks_positive_definite"] = known["symmetric"]
    symmetric, strong = bool(known["symmetric"]), bool(known["strong_diagonal"])
    orders = Orders(matrix.A, matched=not symmetric, strong=strong)
    if matrix.orders is not None and (symmetric or strong):  # rows stay where they are
        orders.know_of(matrix.orders)
    known |= orders.counts
    return orders


def suited_kind(matrix: GivenMatrix, known: dict[str, float]) -> str:
    """The kind of a matrix of this structure, as policies name kinds."""
    symmetric, positive = known["symmetric_pattern"], known["looks_positive_definite"]
    return kind_of(matrix.is_sparse, bool(symmetric), bool(positive))


def suited_method(matrix: GivenMatrix, known: dict[str, float]) -> str:
    """The method for a matrix of this structure."""
    if known["looks_positive_definite"]:
        return "cholesky/amd" if matrix.is_sparse else "cholesky"
    return KINDS[suited_kind(matrix, known)].name


def safe_action(matrix: GivenMatrix, known: dict[str, float]) -> Action:
    return Action([FP64] * 4, suited_method(matrix, known))


def small_choice(policy: Policy, matrix: GivenMatrix, known: dict[str, float]) -> Choice | None:
    """FP64, without a closer look, if no lower format can gain time at this size."""
    size = matrix.A.nnz if matrix.is_sparse else matrix.n
    reason = policy.small(suited_kind(matrix, known), size)
    if reason is None:
        return None
    return Choice(native_ladder(safe_action(matrix, known), matrix), reason)


def allowed_actions(
    space: ActionSpace, matrix: GivenMatrix | Problem, known: dict[str, float]
) -> tuple[int, ...]:
    """The actions of a space whose method fits the matrix."""
    backend = backend_for(matrix)
    fitting = fitting_actions(space, known, backend.methods(matrix.is_sparse))
    if backend is not COMPLEX_BACKEND:  # formats that a machine lacks are raised later
        return fitting
    formats = backend.formats()
    return tuple(i for i in fitting if space[i][0] in formats)


def backend_for(matrix: GivenMatrix | Problem) -> NativeBackend:
    """What solves with a matrix natively: complex ones have fewer formats and methods."""
    return COMPLEX_BACKEND if getattr(matrix, "is_complex", False) else BACKEND


def native_ladder(first: Action, matrix: GivenMatrix) -> tuple[Action, ...]:
    """The climb from an action on, formats that do not run natively replaced by higher ones."""
    return _native_ladder(first, backend_for(matrix), matrix.is_sparse)


@lru_cache(maxsize=256)
def _native_ladder(first: Action, backend: NativeBackend, sparse: bool) -> tuple[Action, ...]:
    factors, dense = backend.formats(sparse), backend.formats()
    method = METHODS.get(first.method)
    if method is not None and not method.chosen:
        factors = method.formats
    raised = (_at_least(first[0], factors), *(_at_least(fmt, dense) for fmt in first[1:]))
    return ALGORITHM.climb(Action(raised, first.method), backend, sparse)


def _at_least(fmt: FloatFormat, formats: Sequence[FloatFormat]) -> FloatFormat:
    """The format itself if it is there, else the lowest that has its bits and its range."""
    if fmt in formats:
        return fmt
    return next((f for f in formats if f.p >= fmt.p and f.emax >= fmt.emax), FP64)


@cache
def default_policy() -> NeighbourPolicy:
    """The policy that comes with the package.

    Returns
    -------
    NeighbourPolicy

    Examples
    --------
    >>> from roundwise.solver import default_policy
    >>> default_policy().name
    'neighbours'
    """
    policy = NeighbourPolicy(shipped_facts())
    policy.start(np.empty((0, len(LOOK_CONTEXT.features))), ALGORITHM.starts((False, True)))
    return policy


@cache
def _default_chooser() -> PolicyChooser:
    return PolicyChooser(DeployedPolicy(default_policy(), LOOK_CONTEXT))


class _Default:  # the shipped policy, read when first asked: importing stays light
    @property
    def at_once(self) -> int:
        return default_policy().at_once

    def choose(self, matrix: GivenMatrix, positive_definite: bool | None) -> Choice:
        return _default_chooser().choose(matrix, positive_definite)


DEFAULT = _Default()


def starts_low(chooser: Chooser) -> bool:
    """Whether a dense A is to be rounded to FP32 when it is first read.

    So it is where most systems are factorized in FP32 or BF16 first, and where there are many
    threads: with few, a pass over A less gains nothing, and where FP64 or the structure of A is
    chosen after all, the copy was in vain.
    """
    low = chooser is DEFAULT or (isinstance(chooser, FixedStart) and chooser.fmt in (FP32, BF16))
    return low and factorization_threads() > FEW_CORES


def get_chooser(policy: Any) -> Chooser:
    """The chooser of what `solve` takes as `policy`."""
    if isinstance(policy, str) and policy == "default":
        return DEFAULT
    if isinstance(policy, str | PathLike) and str(policy).endswith(".json"):
        return PolicyChooser(Tuner.load(Path(policy)).deployed)
    if isinstance(policy, str):
        names = {fmt.name: fmt for fmt in BACKEND.formats()}
        if policy not in names:
            raise UnknownNameError("policy", policy, ["default", *names, "a .json file"])
        return FixedStart(names[policy])
    if isinstance(policy, Tuner):
        return PolicyChooser(policy.deployed)
    if isinstance(policy, DeployedPolicy):
        return PolicyChooser(policy)
    if isinstance(policy, NeighbourPolicy):
        return PolicyChooser(DeployedPolicy(policy, LOOK_CONTEXT))
    if hasattr(policy, "choose") and not isinstance(policy, Policy):
        return policy  # type: ignore[no-any-return]
    raise TypeError(
        f"policy = {policy!r}; pass 'default', a format's name, a fitted Tuner or its .json file "
        "(a Policy alone does not know which features it sees: pass the Tuner that trained it)"
    )
