"""Decide: the second of the four steps of a solve. From a system and a policy to a `Plan`.

The decision is made in tiers. What is free comes first: shape, columns, what the caller has said.
Where that settles the choice, nothing else is computed. Then A is probed (64 rows, its structure);
a sparse one is analysed symbolically. The policy ranks the actions that fit, and the first of them
begins the ladder that the solve will climb.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from roundwise.actions import Action, ActionSpace
from roundwise.algorithms import Outcome
from roundwise.backends import Backend
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native.dense import is_symmetric
from roundwise.costs.prices import current_prices
from roundwise.features import probe
from roundwise.formats import BF16, FP32, FP64
from roundwise.machine.threads import FEW_CORES, factorization_threads
from roundwise.methods import METHODS
from roundwise.methods.iterative import ITERATIVE
from roundwise.policies import NeighbourPolicy, OnlinePolicy, Policy, Ranking
from roundwise.policies.profile import KINDS, STRUCTURE, Profile, fitting_actions, kind_of
from roundwise.solver.direct_or_iterative import FORMAT, DirectWay, rival_of
from roundwise.solver.memory_forecast import InsufficientMemory, in_words, room_for
from roundwise.solver.places import DeviceMemoryError, memory_needed
from roundwise.solver.policy_argument import (
    ALGORITHM,
    DEFAULT,
    Asker,
    Start,
    at_least,
    default_policy,
)
from roundwise.solver.prepare import PLAIN, Options
from roundwise.solver.system import AS_LARGE, System
from roundwise.tuning import DeployedPolicy

Learn = Callable[[Sequence[Outcome], float], None]
"""Takes the attempts of a solve, and its seconds."""

STRUCTURED_FROM = 300
"""The smallest n for which bands and triangles are looked for: LU of smaller ones is as fast. A
price in unknowns; ``python benchmarks/envelope.py`` draws such systems of sizes on both sides."""

SYMMETRIC_ON_DEVICE_FROM = 1500
"""The smallest n for which a matrix on a GPU is compared with its transpose. A price in unknowns
that no command measures yet."""

BY_CUDSS = "FP64 by cuDSS: most of its time goes into the order, so that FP32 gains none."
"""Why nothing is counted for a sparse system that is to be solved on a GPU. A fact of the times
that `benchmarks/bench_cudss.py` takes (H200): counting takes four times as long as cuDSS."""

PATIENCE, LEAST_LIMIT = 3.0, 0.1
"""A sparse factorization is stopped, and the next method tried, after PATIENCE times the seconds
expected of the safe action, but not before LEAST_LIMIT seconds. A taste: counts are seldom off by
that much, and a solve that is stopped has lost no more than it would take safely."""


UNASKED = 2.0**28
"""Bytes up to which nobody asks what is free. A taste: few machines have less, reading what Linux
says of it takes half a millisecond, and touching so many bytes for the first time a hundred."""

DENSE_BYTES, SPARSE_BYTES, FILLED_BYTES = 18.0, 214.0, 68.0
"""That all methods stay below, for each number of a dense A, of a sparse A, and of its L."""

TRIED = frozenset(method.name for method in ITERATIVE)
"""Methods whose price says little before they are tried: see `direct_or_iterative`."""

IN_SINGLE = (
    "FP32: A is in single precision, and so are answers for such b. Backward stable factors in "
    "that format pass their gate without a correction, in half the time."
)
"""Why facts of FP64's gate are not asked for FP32's: a fact of LU and Cholesky (Higham, 9.3)."""


@dataclass(frozen=True)
class Plan:
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
        Orders of a sparse A's unknowns that were found to decide; they serve to factorize.
    time_limit : float, optional
        Seconds that a sparse factorization before the last rung may take, if it can be stopped.
    asked : bool
        Whether the caller named the actions.
    seconds : float
        What the first action is expected to take; infinite where nobody knows.
    direct : DirectWay, optional
        What is to follow an iterative first action, planned only if it comes to that.

    Examples
    --------
    >>> from roundwise.solver import Plan
    >>> plan = Plan((rw.Action(["fp64"] * 4, "lu"),), "because it is safe")
    >>> str(plan.ladder[0])
    'lu:fp64-fp64-fp64-fp64'
    """

    ladder: tuple[Action, ...]
    reason: str
    learn: Learn | None = field(default=None, compare=False, repr=False)
    orders: Orders | None = field(default=None, compare=False, repr=False)
    time_limit: float | None = field(default=None, compare=False, repr=False)
    asked: bool = False
    seconds: float = field(default=math.inf, compare=False, repr=False)
    direct: DirectWay | None = field(default=None, compare=False, repr=False)


def decide(system: System, asker: Asker, options: Options = PLAIN) -> Plan:
    """What to try for a system, and why."""
    policy = asker.on(system.backend)
    known = _structure(system, options.definite)
    if not isinstance(policy, Start):
        return _ranked(policy, system, known, options)
    orders = None
    if system.is_sparse and options.memory is not None and system.backend.sparse_on != "cuda":
        _looked_at(system, known)
        orders = _counted(system, dict(known))
    system = _in_memory(system, known, orders, options)
    asked, backend = policy.with_method(_suited_method(system, known)), system.backend
    if not backend.on_host:
        asked = [_runnable(action, backend) for action in asked]
    if system.room is not None:
        asked = [action for action in asked if system.fits(action)]
        if not asked:
            raise system.room.error(policy.text)
    climb = partial(ladder_from, system=system)
    return as_asked(policy.text, asked, backend.methods(*system.kind), climb)


def as_asked(
    text: str,
    asked: list[Action],
    fitting: Sequence[str],
    climb: Callable[[Action], tuple[Action, ...]],
) -> Plan:
    """The caller's actions in turn, then the climb from the last of them.

    `text` is what was asked for, `fitting` are the methods for such a matrix.
    """
    for action in asked:
        if action.method not in fitting:
            names = ", ".join(fitting)
            raise ValueError(f"method {action.method!r} is not for this A; choose {names}")
    raised = [climb(action) for action in asked]
    ladder = tuple(dict.fromkeys((*(one[0] for one in raised[:-1]), *raised[-1])))
    first, reason = asked[0], f"You asked for {text} first."
    if ladder[0] != first:
        reason += f" {first.method} does not run in it here: {ladder[0][0]} instead."
    return Plan(ladder, reason, asked=True)


def _runnable(action: Action, backend: Backend) -> Action:
    """The action, with local pivoting where a GPU's LU or Cholesky does not run in the format.

    cuSOLVER's own LU is for FP64.
    """
    method = action.method
    if not backend.runs(method, action[0]) or (method == "lu" and action[0] != FP64):
        method = "lu/local"
    return Action(action, method)


def _ranked(
    policy: DeployedPolicy, system: System, known: dict[str, float], options: Options
) -> Plan:
    ranks = policy.policy
    size = system.profiled.A.nnz if system.is_sparse else system.profiled.n
    if system.is_sparse and system.backend.sparse_on == "cuda":
        known |= probe.structure(system.profiled)
        reason: str | None = BY_CUDSS
    elif options.memory is not None:
        reason = None  # nothing is taken without a forecast
    else:
        reason = ranks.small(_suited_kind(system, known), size)
    if reason is not None:
        return Plan(ladder_from(_safe_action(system, known), system), reason)
    if system.is_sparse:
        _looked_at(system, known)
    is_real = system.is_sparse and not system.is_complex
    may_iterate = (
        not options.forward and is_real and isinstance(ranks, NeighbourPolicy | OnlinePolicy)
    )
    if may_iterate:
        others = default_policy().rival_seconds
        rival = rival_of(
            *(system, current_prices(), known, partial(others, "sparse")),
            lambda: _direct(policy, system, known, options),
        )
        if rival is not None:
            method, direct, why = rival
            first = Action([FORMAT, FP64, FP64, FP64], method.name)
            if _in_memory(system, known, None, options).fits(first):
                return Plan(ladder_from(first, system), why, direct=direct)
    try:
        return _direct(policy, system, known, options)
    except InsufficientMemory as error:
        if may_iterate and (plan := _iterative(system, known, options, error)) is not None:
            return plan
        raise


def _iterative(
    system: System, known: dict[str, float], options: Options, error: InsufficientMemory
) -> Plan | None:
    """The iterative method that fits A and the memory, where no factorization does."""

    def make() -> Plan:
        raise error

    system = _in_memory(system, known, None, options)
    for name in ("multigrid/sa", "ilu/0"):
        action = Action([FORMAT, FP64, FP64, FP64], name)
        if METHODS[name].fits(known) and system.fits(action) and system.A.indices.dtype == "int32":
            direct = {key: one for key, one in error.forecasts.items() if not _is_tried(key)}
            least = min(direct, key=lambda key: direct[key])
            reason = (
                f"Chose {name}: no factorization is expected to fit into memory. Of these, {least} "
                f"would take least, {in_words(direct[least])}."
            )
            way = DirectWay(math.inf, 0.0, make)
            return Plan(ladder_from(action, system), reason, direct=way)
    return None


def _is_small(system: System, orders: Orders | None) -> bool:
    """Whether no method takes so much that anybody asks what is free."""
    if not system.is_sparse:
        return DENSE_BYTES * system.n**2 <= UNASKED
    filled = 0.0 if orders is None else orders.counts["factor_entries"]
    return bool(SPARSE_BYTES * system.A.nnz + FILLED_BYTES * filled <= UNASKED)


def _is_tried(key: str) -> bool:
    return key.partition(":")[0] in TRIED


def _in_memory(
    system: System, known: dict[str, float], orders: Orders | None, options: Options
) -> System:
    """The system, with the room for its factors where not everything fits.

    `orders` have the counts, which forecasts for sparse matrices need.
    """
    if system.place is not None:
        return system
    if options.memory is None and _is_small(system, orders):
        return system
    room = room_for(system, known, orders, options.memory)
    return replace(system, room=room) if room.lacking else system


def _direct(
    policy: DeployedPolicy, system: System, known: dict[str, float], options: Options
) -> Plan:
    """The plan by what a policy knows, or by counts and prices."""
    known, tol = dict(known), options.tol
    orders = _counted(system, known)
    system = _in_memory(system, known, orders, options)
    if system.room is not None and isinstance(policy.policy, OnlinePolicy):
        # What fits differs from solve to solve: this one is no lesson for others.
        policy = DeployedPolicy(policy.policy.prior, policy.context)
    ranks = policy.policy
    free = known | {"n": float(system.profiled.n)}
    known |= system.features(policy.context.features, known, ranks.probes(free))
    seen = ranks.seen(known) if system.place is None else None  # there, memory counts, too
    if tol is not None and isinstance(seen, Profile):
        seen = replace(seen, tol=tol)
    if seen is None:
        return replace(_priced(policy, system, known, None), orders=orders)
    plans, backend = ranks.plans(seen), system.backend
    lacking = None if system.room is None else system.room.lacking
    single = system.dtype == np.float32
    key = backend, backend.methods(*system.kind), system.kind, single, lacking
    if (plan := plans.get(key)) is None:
        plan = plans[key] = _priced(policy, system, known, seen)
    return plan if orders is None else replace(plan, orders=orders)


def _priced(policy: DeployedPolicy, system: System, known: dict[str, float], seen: Any) -> Plan:
    """The plan for a system with all features, by the ranking of the actions that fit."""
    ranks = policy.policy
    allowed = allowed_actions(ranks.space, system, known)
    if isinstance(ranks, NeighbourPolicy | OnlinePolicy):  # for these, see `rival_of`
        allowed = tuple(i for i in allowed if ranks.space[i].method not in TRIED)
    if not allowed:
        if system.place is not None:
            raise _too_large(ranks.space, system)
        safe = _safe_action(system, known)
        if system.room is not None and not system.fits(safe):
            raise system.room.error("the policy")
        reason = "The policy has no action for such a matrix: FP64 at once."
        return Plan(ladder_from(safe, system), reason)
    learn = None
    if seen is None:
        ranking, learn = policy.ranked(known, allowed)
    else:
        ranking = ranks.rank(seen, allowed)
    reason = ranking.reason
    if system.is_complex and not system.is_sparse and system.place is None:
        reason += f" (A complex unknown counts as {AS_LARGE:.2g} real ones.)"
    limit = _time_limit(ranks, ranking) if system.is_sparse else None
    first = ranks.space[ranking.first]
    if learn is None and _suffices_in_single(first, system):
        first, reason = Action([FP32, *first[1:]], first.method), IN_SINGLE
    seconds = ranking.costs[0] if isinstance(ranks, NeighbourPolicy) else math.inf
    ladder = ladder_from(first, system)
    return Plan(ladder, reason, learn, None, limit, seconds=seconds)


def _suffices_in_single(action: Action, system: System) -> bool:
    """Whether factors in FP32 take the place of the action's."""
    is_dense = system.place is None and not system.is_sparse and system.dtype == np.float32
    return is_dense and action[0] == FP64 and action.method in ("lu", "cholesky")


def _time_limit(policy: Policy, ranking: Ranking) -> float | None:
    """The seconds after which a method that is not the safe one is stopped; None for no limit."""
    safe = policy.space.safe
    if not isinstance(policy, NeighbourPolicy | OnlinePolicy) or safe not in ranking.actions:
        return None
    expected = ranking.costs[ranking.actions.index(safe)]
    return max(LEAST_LIMIT, PATIENCE * expected) if math.isfinite(expected) else None


def _structure(system: System, positive_definite: bool | None) -> dict[str, float]:
    """The features that say which methods fit A, as far as they are free or nearly so.

    If the caller knows whether A is positive definite, that is not computed. For a sparse A these
    are only the features that small systems need; `_counted` adds the others.
    """
    known = dict.fromkeys((*STRUCTURE, "diagonals"), 0.0)
    positive, profiled = "looks_positive_definite", system.profiled
    if system.is_sparse:
        known |= probe.symmetric_pattern(profiled)
        if positive_definite is not None and not system.is_complex:
            known[positive] = float(positive_definite)
        return known
    is_scaled = system.columns is not None  # by rows and columns: A is no longer symmetric
    if positive_definite is not None:
        known[positive] = float(positive_definite and not is_scaled)
        return known
    if system.place is None and system.n >= STRUCTURED_FROM:
        known |= probe.zeros(profiled)
    if is_scaled or known["banded"] or known["triangular"]:
        return known
    on_device = system.place is not None
    known[positive] = float(
        looks_definite(system.A, system.n) if on_device else _is_definite(system)
    )
    return known


def _is_definite(system: System) -> bool:
    return bool(probe.structure(system.profiled)["looks_positive_definite"])


def looks_definite(A: Any, n: int) -> bool:
    """Whether Cholesky is worth a try on a GPU: A is symmetric with a positive diagonal."""
    if n < SYMMETRIC_ON_DEVICE_FROM:
        return False
    return bool((A.diagonal() > 0).all()) and is_symmetric(A)


def _looked_at(system: System, known: dict[str, float]) -> None:
    """Complete what is known of the structure of a sparse A."""
    said = known["looks_positive_definite"]  # by the caller
    known |= probe.structure(system.profiled)
    if said:
        known["looks_positive_definite"] = known["symmetric"]


def _counted(system: System, known: dict[str, float]) -> Orders | None:
    """Complete what is known of a sparse A by counts, and return the orders found for it."""
    if not system.is_sparse:
        return None
    symmetric, strong = bool(known["symmetric"]), bool(known["strong_diagonal"])
    orders = Orders(system.profiled.A, matched=not symmetric, strong=strong)
    if system.orders is not None and (symmetric or strong):  # rows stay where they are
        orders.know_of(system.orders)
    known |= orders.counts
    return orders


def _suited_kind(system: System, known: dict[str, float]) -> str:
    """The kind of a matrix of this structure, as policies name kinds."""
    symmetric, positive = known["symmetric_pattern"], known["looks_positive_definite"]
    return kind_of(system.is_sparse, bool(symmetric), bool(positive))


def _suited_method(system: System, known: dict[str, float]) -> str:
    """The method for a matrix of this structure."""
    if system.is_sparse and system.backend.sparse_on == "cuda":
        there = system.backend.methods(*system.kind)
        sparse = (one for one in METHODS.values() if one.sparse and one.name in there)
        return next(one.name for one in sparse if one.suits(known))
    for zeros in ("banded", "triangular"):
        if known[zeros]:
            return zeros
    if known["looks_positive_definite"]:
        return "cholesky/amd" if system.is_sparse else "cholesky"
    return KINDS[_suited_kind(system, known)].name


def _safe_action(system: System, known: dict[str, float]) -> Action:
    return Action([FP64] * 4, _suited_method(system, known))


def allowed_actions(space: ActionSpace, system: System, known: dict[str, float]) -> tuple[int, ...]:
    """The actions of a space whose method fits the system, and whose factors fit its memory."""
    backend = system.backend
    fitting = fitting_actions(space, known, backend.methods(*system.kind))
    plain = backend.on_host and not system.is_complex and system.room is None
    if plain:  # formats that a machine lacks are raised later
        return fitting
    return tuple(
        i
        for i in fitting
        if (backend.on_host and not system.is_complex)
        or backend.runs(space[i].method or "lu", space[i][0], *system.kind)
        if system.fits(space[i])
    )


def _too_large(space: ActionSpace, system: System) -> DeviceMemoryError:
    needed = min(memory_needed(action, system.n) for action in space)
    return DeviceMemoryError(
        f"factors of a {system.n} x {system.n} matrix take {needed / 1e9:.1f} GB, of which "
        f"{system.memory_free / 1e9:.1f} GB are free on the GPU; free memory there, or solve "
        "on the CPU"
    )


def ladder_from(first: Action, system: System) -> tuple[Action, ...]:
    """The climb from an action on, formats that do not run replaced by higher ones.

    Rungs whose factors do not fit into the memory are left out; the first one does.
    """
    ladder = _ladder_from(first, system.backend, *system.kind)
    if system.place is None and system.room is None:
        return ladder
    fitting = tuple(action for action in ladder if action == first or system.fits(action))
    if not fitting and system.room is not None:  # the first one was raised to a higher format
        raise system.room.error(f"a climb from {first}")
    return fitting


@lru_cache(maxsize=256)
def _ladder_from(
    first: Action, backend: Backend, sparse: bool, is_complex: bool
) -> tuple[Action, ...]:
    if backend.on_host:
        factors = backend.formats(sparse, is_complex)
        dense = backend.formats(is_complex=is_complex)
        method = METHODS.get(first.method)
        if method is not None and (sparse or not method.chosen):
            factors = method.formats
        runs = [fmt for fmt in factors if backend.runs(first.method, fmt, sparse, is_complex)]
        factors = tuple(runs) or factors
        raised = (at_least(first[0], factors), *(at_least(fmt, dense) for fmt in first[1:]))
        first = Action(raised, first.method)
    return ALGORITHM.climb(first, backend, sparse, is_complex)


def starts_low(asker: Asker) -> bool:
    """Whether a dense A is to be rounded to FP32 when it is first read.

    So it is where most systems are factorized in FP32 or BF16 first, and where there are many
    threads: with few, a pass over A less gains nothing, and where FP64 or the structure of A is
    chosen after all, the copy was in vain.
    """
    low = asker is DEFAULT
    if isinstance(asker, Start):
        low = asker.actions[0][0] in (FP32, BF16)
    return low and factorization_threads() > FEW_CORES
