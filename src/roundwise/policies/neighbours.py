"""`NeighbourPolicy`: facts of similar systems, priced for this machine.

Facts say how often each format sufficed on the systems most like this one, and how much work it
was; prices say what this work takes here. Of the methods that fit the system and have a price
(`roundwise.methods`), each in each of its formats, it starts with what is expected to take the
least time. For a sparse system, prices tell the seconds from symbolic counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.backends import NativeBackend
from roundwise.costs import Shape, Work, current_prices
from roundwise.costs.prices import Prices
from roundwise.features import PROBE
from roundwise.formats import FP64
from roundwise.methods import METHODS, SAFE, Method
from roundwise.policies.base import Arrays, Contexts, Ranking, StudiedOutcomes
from roundwise.policies.baselines import Baseline
from roundwise.policies.facts import Experience, Facts, Tried, columns_of
from roundwise.policies.profile import KINDS, OF_DENSE_KINDS, Profile

SPARSE_CROSSOVER = 10_000
"""Sparse systems with fewer entries are factorized by SuperLU in FP64: computing features takes
longer than another method can gain. A price, in entries: ``make sparse-prices`` compares the policy
asked about every system with plain solves (two cores of a Zen 4)."""

INSPECTION = 1.5e-3
"""Seconds, about, that computing features and preparing refinement take if A is not in the
processor's cache. A price: ``make stages`` times the parts of a solve."""

HUGE = 300.0
"""A fact: logarithms of features are below that, and a float holds 10 to this power."""

ALWAYS_SMALL = 64
"""A taste: below this n, or so many entries, no other choice is ever looked for."""

LARGEST = 100_000
"""A taste: where no n up to that gains from a lower format, none is looked for."""

UNKNOWN_FILL = 10.0
"""A taste: entries of the factors for each of A, where no similar system is known."""

MOST_KNOWN = 1000
"""A taste: rankings that are kept."""

EASY, FAILED = Work(1, steps=1), Work(1, steps=10, iterations=40)
"""EASY: one correction. FAILED: ten corrections and the whole budget of GMRES, a fact of
`VerifiedSolve`."""

CONFIDENT, TOLERATED = 0.9, 1.15
"""A start that failed on more than a tenth of the similar systems is not taken if failing would
make the solve longer than this many times FP64's LU. A taste: a rare long solve annoys more than
many short ones please."""


@dataclass(frozen=True)
class Expectation:
    """The expected course of a solve that starts in a format, in seconds."""

    method: str
    fmt: str
    seconds: float  # expected, climbs to higher formats included; what is risked, if intolerable
    met: int  # on so many of the similar `systems` the format sufficed; zeros if none is known
    systems: int
    sure: float  # if it suffices after one correction: it will not be faster
    worst: float  # if every format below FP64 fails after all the work that it is granted
    intolerable: bool = False  # it fails too often for what that would cost

    @property
    def label(self) -> str:
        """For reasons in words; LU and Cholesky of a whole dense matrix need not be named."""
        plain = self.method in OF_DENSE_KINDS
        return self.name if plain else f"{self.method} in {self.name}"

    @property
    def name(self) -> str:
        return self.fmt.upper()


class NeighbourPolicy(Baseline):
    """Starts in the format with the least expected time, failed attempts included.

    Costs in its rankings are seconds. It learns from outcomes (`study`), not from rewards.

    Parameters
    ----------
    facts : Facts, optional
        What is known of other systems; if not given, `study` gathers it from training outcomes.
    prices : Prices, optional
        By default those of this machine, with the threads that it has at the time of a decision.

    Examples
    --------
    >>> from roundwise.solver import default_policy
    >>> from roundwise.policies import NeighbourPolicy
    >>> isinstance(default_policy(), NeighbourPolicy)
    True
    """

    name: ClassVar[str] = "neighbours"
    unknown: ClassVar[str] = "No similar systems in the training data"
    study_features: ClassVar[tuple[str, ...]] = ("fill_ratio",)
    needs_context: ClassVar[tuple[str, ...] | None] = PROBE

    def __init__(self, facts: Facts | None = None, prices: Prices | None = None) -> None:
        self._given, self._prices = facts, prices
        self.facts = Facts({}) if facts is None else facts
        self._memo: tuple[tuple[Any, ...], dict[Any, Any]] = (), {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_memo": ((), {})}

    @property
    def prices(self) -> Prices:
        return current_prices() if self._prices is None else self._prices

    def begin(self, contexts: Contexts) -> None:
        self.facts = Facts({}) if self._given is None else self._given

    def study(self, view: StudiedOutcomes, contexts: Contexts) -> None:
        """Gather facts from the outcomes, unless facts were given."""
        if self._given is not None:
            return
        cases = []
        for i, context in enumerate(contexts.tolist()):
            profile, tried = Profile.of(context), {}
            for j, action in enumerate(view.actions):
                if action.method == profile.method.name and set(action[1:]) == {FP64}:
                    run = view.outcome(i, j)
                    work = run.outer_iterations, run.inner_iterations
                    tried[action[0].name] = Tried(run.converged, *work)
            cases.append((profile, view.features_of(i).get("fill_ratio", 1.0), tried))
        self.facts = Facts.gathered(cases)

    def states(self, contexts: Contexts) -> list[Profile | None]:
        rows = contexts.tolist()
        return [Profile.of(row) if _is_finite(row) else None for row in rows]

    def seen(self, features: Mapping[str, float]) -> Profile | None:
        profile = Profile.seen(features)
        return profile if math.isfinite(sum(profile.place)) else None

    def plans(self, state: Profile) -> dict[Any, Any]:
        key = "plans", state.sizes, self.facts.near(state)
        found: dict[Any, Any] = self._known().setdefault(key, {})
        return found

    def expected(self, state: Profile) -> NDArray[np.float64] | None:
        """Minus the expected seconds of each start."""
        seconds = {action: e.seconds for action, e in self.expectations(state).items()}
        costs = [-seconds.get(i, math.inf) for i in range(len(self.space))]
        return np.array(costs) if seconds else None

    def rank(self, state: Profile | None, allowed: Collection[int] | None = None) -> Ranking:
        return self.ranking((), "", allowed) if state is None else self._found(state, allowed)[1]

    def expectations(
        self, profile: Profile, allowed: Collection[int] | None = None
    ) -> Mapping[int, Expectation]:
        """The expected work of starting in each format, lowest first.

        If no similar system is known, it is the worst case.
        """
        return self._found(profile, allowed)[0]

    def _found(
        self, profile: Profile, allowed: Collection[int] | None
    ) -> tuple[dict[int, Expectation], Ranking]:
        """Expectations and the ranking by them: the same for all systems of these sizes whose
        neighbours are the same."""
        near, memo = self.facts.near(profile), self._known()
        key = profile.sizes, near, None if allowed is None else tuple(allowed)
        if key not in memo:
            known = self._expectations(profile, near, allowed)
            seconds = {action: e.seconds for action, e in known.items()}
            order = sorted(known, key=lambda action: (seconds[action], -action))
            reason = told(known[order[0]], list(known.values())) if order else ""
            if len(memo) > MOST_KNOWN:
                memo.clear()
            memo[key] = known, self.ranking(order, reason, allowed, seconds)
        found: tuple[dict[int, Expectation], Ranking] = memo[key]
        return found

    def _known(self) -> dict[Any, Any]:
        """The memo for the present facts, prices, actions and methods; empty if these are new."""
        by = self.facts, self.prices, getattr(self, "space", None), *METHODS.values()
        memo = self._memo  # another thread, with other prices, may replace it
        if memo[0] != by:
            memo = self._memo = by, {}
        return memo[1]

    def _expectations(
        self, profile: Profile, near: tuple[int, ...], allowed: Collection[int] | None
    ) -> dict[int, Expectation]:
        experience, prices = self.facts.of_rows(profile, near), self.prices
        shape, rest = _shape(profile, experience), (FP64, FP64, FP64)
        starts = {(a.method, a[0].name): i for i, a in enumerate(self.space) if a[1:] == rest}
        found = {}
        for method in profile.methods:
            formats = self.formats(method, prices)
            for i, fmt in enumerate(formats):
                action = starts.get((method.name, fmt))
                if action is None or not (allowed is None or action in allowed):
                    continue
                if experience is None or fmt in experience.climbs:
                    lu = method.name if profile.is_sparse else "lu"
                    names = method.name, lu
                    found[action] = _expectation(shape, names, formats[i:], experience, prices)
        return found

    def formats(self, method: Method, prices: Prices) -> tuple[str, ...]:
        """The formats to choose from: those that have a price and run here, lowest first."""
        backend = NativeBackend()
        return tuple(
            fmt.name
            for fmt in method.formats
            if prices.prices(method.name, fmt.name)
            and backend.runs(method.name, fmt, method.sparse)
        )

    def priced(
        self, profile: Profile, climb: Mapping[str, Work], method: str | None = None
    ) -> float:
        """The seconds of work by format, with the fill-in of similar systems."""
        known = self.facts.of(profile) if profile.is_sparse else None
        return _seconds(self.prices, method or profile.method.name, _shape(profile, known), climb)

    def probes(self, free: Mapping[str, float]) -> bool:
        """Rows tell of LU's formats: in vain for a band or a triangle, which FP64 solves sooner."""
        return not (free["banded"] or free["triangular"])

    def small(self, kind: str, size: int) -> str | None:
        crossover = self.crossover(kind)
        if size >= crossover:
            return None
        if KINDS[kind].sparse:
            return f"FP64 at once: below {crossover} entries, a probe gains no time."
        return f"FP64 at once: below {crossover} unknowns, lower precision gains no time."

    @property
    def express_below(self) -> int:
        return self.crossover("dense")

    def crossover(self, kind: str) -> int:
        """The smallest system that another choice than FP64 at once can solve sooner.

        That is a lower format with one correction, or another method that fits all such systems.
        """
        memo = self._known()
        if kind not in memo:
            memo[kind] = self._find_crossover(kind, self.prices)
        return int(memo[kind])

    def _find_crossover(self, kind: str, prices: Prices) -> int:
        rivals, method = self._rivals(kind, prices), KINDS[kind]
        largest = SPARSE_CROSSOVER if method.sparse else LARGEST
        size = ALWAYS_SMALL if rivals else largest
        while size < largest:
            shape = _typical(size) if method.sparse else Shape(size, size * size)
            highest = prices.seconds(shape, SAFE if method.sparse else method.name, "fp64", Work(1))
            if _least(rivals, shape, prices) + INSPECTION < highest:
                return size
            size += size // 16
        return largest

    def rival_seconds(self, kind: str, shape: Shape) -> float:
        """Seconds of the best choice that the express call does not weigh itself; inf if none.

        Looking at the system is included.
        """
        memo = self._known()
        if (kind, shape) in memo:
            return float(memo[kind, shape])
        rivals = memo.get(("rivals", kind))
        if rivals is None:
            rivals = memo["rivals", kind] = self._rivals(kind, self.prices)
        if not rivals:
            return math.inf
        if len(memo) > MOST_KNOWN:
            memo.clear()
        least = memo[kind, shape] = _least(rivals, shape, self.prices) + INSPECTION
        return least

    def _rivals(self, kind: str, prices: Prices) -> list[tuple[str, str]]:
        """The methods and formats that fit all systems of a kind, beside FP64 at once.

        The express call of a sparse system weighs SuperLU's and our engines by prices of its own.
        """
        own, backend = KINDS[kind], NativeBackend()
        runs = backend.methods(own.sparse)
        fit = [
            method
            for method in METHODS.values()
            if method.sparse == own.sparse
            and method.name in runs
            and not (method.needs or method.counts)
            and not (own.sparse and method.name.startswith("superlu/"))
        ]
        others = (fmt for fmt in self.formats(own, prices)[:-1])
        found = [] if own.sparse else [(own.name, fmt) for fmt in others]
        return found + [
            (method.name, fmt)
            for method in fit
            if method.name not in OF_DENSE_KINDS
            for fmt in self.formats(method, prices)
        ]

    def arrays(self) -> Arrays:
        self.check_started()
        return {kind: np.asarray(table) for kind, table in self.facts.tables.items()}

    def restore(self, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        for kind, table in arrays.items():
            if kind not in KINDS or table.ndim != 2 or table.shape[1] != len(columns_of(kind)):
                raise ValueError(f"the saved facts of {kind!r} systems are corrupt; save again")
        self.facts = Facts({kind: np.array(arrays[kind], dtype=np.float64) for kind in arrays})


def _is_finite(context: list[float]) -> bool:
    """Whether no feature is infinite, nor so large that `Profile.of` could not read it."""
    logarithms = (x for name, x in zip(PROBE, context, strict=False) if name != "columns")
    return max(map(abs, logarithms)) < HUGE and math.isfinite(sum(context))


def _least(rivals: list[tuple[str, str]], shape: Shape, prices: Prices) -> float:
    """The least seconds of a factorization, with one correction below FP64."""
    return min(
        prices.seconds(shape, method, fmt, Work(1) if fmt == FP64.name else EASY)
        for method, fmt in rivals
    )


def _typical(entries: int) -> Shape:
    """A sparse system with so many entries, where nothing else is known."""
    filled = UNKNOWN_FILL * entries / 2
    n = max(1, entries // 5)
    return Shape(n, entries, filled=filled, flops=filled**2 / n, row_squares=entries**2 / n)


def _shape(profile: Profile, known: Experience | None) -> Shape:
    return profile.shape(UNKNOWN_FILL if known is None else known.fill)


def _seconds(prices: Prices, method: str, shape: Shape, climb: Mapping[str, Work]) -> float:
    total = 0.0
    for fmt, work in climb.items():
        total += prices.seconds(shape, method, fmt, work)
    return total


def _expectation(
    shape: Shape,
    methods: tuple[str, str],
    formats: tuple[str, ...],
    known: Experience | None,
    prices: Prices,
) -> Expectation:
    """The expectation of starting in the first of these formats and climbing to the others.

    `methods` are the one to start with, and the one that it is compared with.
    """
    fmt, (method, lu) = formats[0], methods
    sure = prices.seconds(shape, method, fmt, EASY)
    unlucky = {f: EASY if f == FP64.name else FAILED for f in formats}
    worst = _seconds(prices, method, shape, unlucky)
    if known is None:
        return Expectation(method, fmt, worst, 0, 0, sure, worst)
    climb = {f: work for f, work in known.climbs[fmt].items() if f in formats}
    seconds = _seconds(prices, method, shape, climb) / known.systems
    risked = 0.0
    if fmt != FP64.name and known.met[fmt] < CONFIDENT * known.systems:
        risked = _seconds(prices, method, shape, dict.fromkeys(_uncertain(formats, known), EASY))
    intolerable = risked > TOLERATED * prices.seconds(shape, lu, FP64.name, EASY)
    if intolerable:
        seconds = max(seconds, risked)
    return Expectation(
        method, fmt, seconds, known.met[fmt], known.systems, sure, worst, intolerable
    )


def _uncertain(formats: tuple[str, ...], known: Experience) -> Iterator[str]:
    """The formats of a climb, up to the first that sufficed for nearly all similar systems."""
    for fmt in formats:
        if fmt in known.met:
            yield fmt
            if known.met[fmt] >= CONFIDENT * known.systems:
                return


def told(chosen: Expectation, all_known: list[Expectation]) -> str:
    """Why a method and a format are first, in words."""
    others = [e for e in all_known if e.method != chosen.method]
    said = _told_of_formats(chosen, [e for e in all_known if e.method == chosen.method])
    # Most dense systems have one method: it goes without saying.
    by = f"{chosen.method} in " if others or "/" in chosen.method else ""
    said = f"Chose {by}{chosen.name}: {said}"
    if not others:
        return said
    rival = min(others, key=lambda e: e.seconds)
    return f"{said} {rival.method} in {rival.name} would take {milliseconds(rival.seconds)}."


def _told_of_formats(chosen: Expectation, all_known: list[Expectation]) -> str:
    if not chosen.systems:
        return "no similar systems in the training data."
    ours = milliseconds(chosen.seconds)
    others = {e.fmt: e for e in all_known if e.fmt != chosen.fmt}
    if not others or chosen.fmt != FP64.name:
        higher = others.get(FP64.name)  # none where its factors do not fit into memory
        against = f", against {milliseconds(higher.seconds)} in FP64" if higher else ""
        return f"it sufficed on {_share(chosen)}; expected {ours}{against}."
    lower = min(others.values(), key=lambda e: e.seconds)
    theirs = milliseconds(lower.seconds)
    if lower.intolerable:
        return (
            f"{lower.name} sufficed on {_share(lower)} only, and a failure would cost too much "
            f"(up to {theirs} against {ours})."
        )
    if lower.met == lower.systems:
        said = f"{lower.name} would also work, but is"
    else:
        said = f"{lower.name} sufficed on {_share(lower)}, and is"
    return f"{said} expected to take longer here ({theirs} against {ours})."


def _share(e: Expectation) -> str:
    return f"{e.met} of {e.systems} similar systems"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
