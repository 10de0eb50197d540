"""`OnlinePolicy`: a bandit over first actions that learns from measured solves.

Costs are relative: seconds over the priced seconds of FP64 at once, so that systems of different
size share what they teach. What is expected of starting with an action is, in turn,

1. the prior policy's expectation, worth a few solves, scaled by how far prices are off here;
2. what solves of the same bin took;
3. what solves of the same shape took, which counts most: steps of one Newton iteration, say.

Older solves count less at each level, so that a change is noticed within a few solves; those of a
shape also fade with every solve of another shape in their bin, as what these tell is newer. A solve
that climbs teaches about every action that it tried: its last part is what a start there would have
taken. And where a format did not suffice, a lower one would not have done either.

Exploration: an action other than the best is tried only if the worst that can come of it, added to
what exploring has cost already, is at most `explore` times the seconds spent solving so far. What
it cost is the seconds beyond those expected of the best. If one costs more than the worst that was
foreseen, the next must wait until the account is balanced again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.costs import Work
from roundwise.formats import FP64
from roundwise.policies.base import Arrays, Contexts, Policy, Ranking, StudiedOutcomes
from roundwise.policies.look import Seen, bin_in_words
from roundwise.policies.memory import Arm, Memory, Observation
from roundwise.policies.neighbours import Expectation, NeighbourPolicy, milliseconds, told

BIN_DISCOUNT, SERIES_DISCOUNT = 0.85, 0.6
"""What an observation counts after the next one, among systems of a bin and of one shape."""

BIN_PRIOR, SERIES_PRIOR = 3.0, 1.0
"""Observations that the expectation of the level above is worth; a tenth less after each one."""

PRIOR_DISCOUNT = 0.9
FADING, FADED = 0.9, 0.05
"""What remains of the solves of a shape after one of another shape in the same bin, and how little
counts as nothing."""

OUTLIER = 4.0
"""Clip measured times at this many times the priced ones: other programs may have been running."""

OFTEN = 5
"""Solves of one shape that are worth a line in the summary."""

FIRST_PATIENCE, LAST_PATIENCE = 8, 1024
"""Solves of a bin between two tries of an action: doubled each time that it does not pay."""


@dataclass(frozen=True, eq=False)
class Decision:
    """A ranking, and what was expected when it was made; `OnlinePolicy.learn` takes it back."""

    seen: Seen
    expected: Mapping[int, Expectation]
    ranking: Ranking
    best_seconds: float  # expected of the action that looks best
    reserved: float  # seconds that this may cost beyond it, if it explores

    @property
    def first(self) -> int:
        return self.ranking.first

    @property
    def explores(self) -> bool:
        return self.reserved > 0


@dataclass
class Curiosity:
    """When to try an action again."""

    idle: int = 0
    patience: int = FIRST_PATIENCE


@dataclass
class Account:
    """Seconds: spent solving, thereof for exploring, and reserved by explorations under way."""

    solves: int = 0
    seconds: float = 0.0
    exploring: float = 0.0
    explorations: int = 0
    reserved: dict[int, float] = field(default_factory=dict)

    def affords(self, seconds: float, share: float) -> bool:
        planned = self.exploring + sum(self.reserved.values()) + seconds
        return planned <= share * self.seconds


@dataclass(frozen=True)
class StartTime:
    """What a start with an action took, or would have taken if `count` is 0."""

    action: int
    count: int
    seconds: float
    priced: float


class OnlinePolicy(Policy):
    """Learns where solves start from how long they took; threads may share it.

    Costs in its rankings are seconds. `Solver` calls `decide` and `learn`; in training, `update`
    takes a reward as log2 of the speedup over FP64.

    Parameters
    ----------
    prior : NeighbourPolicy, optional
        What is expected before anything was solved.
    memory : Memory, optional
        Where what was learned is kept; in this process alone if not given.
    explore : float
        The share of the time spent solving that trying other actions may cost at most.
    """

    name: ClassVar[str] = "online"
    study_features: ClassVar[tuple[str, ...]] = NeighbourPolicy.study_features

    def __init__(
        self,
        prior: NeighbourPolicy | None = None,
        memory: Memory | None = None,
        explore: float = 0.02,
    ) -> None:
        if not 0 <= explore < 1:
            raise ValueError(f"explore = {explore}; choose a share of the time, 0 <= explore < 1")
        self.prior = NeighbourPolicy() if prior is None else prior
        self.memory = Memory() if memory is None else memory
        self.explore_share = explore
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self.account = Account()
        self._curiosity: dict[tuple[str, int], Curiosity] = {}
        self._solves: dict[str, int] = {}  # by bin
        self._latest: dict[tuple[str, str], int] = {}  # of a bin and shape, in solves of the bin

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = Lock()

    def begin(self, contexts: Contexts) -> None:
        self._forget()
        if self.memory.path is None:  # a file is the user's: what it holds stays
            self.memory.clear()
        self.prior.start(contexts if len(contexts) else np.empty((0, 9)), self.space)

    @property
    def at_once(self) -> int:
        return self.prior.at_once

    def small(self, kind: str, size: int) -> str | None:
        return self.prior.small(kind, size)

    def study(self, view: StudiedOutcomes, contexts: Contexts) -> None:
        self.prior.study(view, contexts)

    def states(self, contexts: Contexts) -> Sequence[Seen | None]:
        return self.prior.states(contexts)

    def expected(self, state: Seen) -> NDArray[np.float64] | None:
        """Minus the expected seconds of each start."""
        known = self.prior.expectations(state)
        if not known:
            return None
        with self._lock:
            costs, _ = self._estimates(state, known)
        values = np.full(len(self.space), -np.inf)
        for action, cost in costs.items():
            values[action] = -cost * unit_of(known)
        return values

    def why(self, state: Seen, action: int) -> str:
        return self.decide(state, may_explore=False).ranking.reason

    def update(self, state: Seen | None, action: int, reward: float) -> float:
        """Learn from the log2 speedup over FP64 of a start."""
        known = {} if state is None else self.prior.expectations(state)
        if state is None or action not in known:
            return 0.0
        unit = unit_of(known)
        priced = known[action].seconds / unit
        cost = min(2.0**-reward, OUTLIER * priced)
        with self._lock:
            before = self._estimates(state, known)[0][action]
            self.memory.add(
                Observation(cell, self.space.names[action], 1, cost, priced, discount)
                for cell, discount in self._cells(state)
            )
            self._note_solve(state)
        return float(np.log2(before) + reward)

    def decide(
        self, seen: Seen, may_explore: bool = True, allowed: Collection[int] | None = None
    ) -> Decision:
        """The action that looks best or, if the account affords it, another one to learn about."""
        known = self.prior.expectations(seen)
        if allowed is not None:
            known = {action: e for action, e in known.items() if action in allowed}
        with self._lock:
            costs, scale = self._estimates(seen, known)
            unit = unit_of(known)
            order = sorted(costs, key=lambda action: (costs[action], -action))
            best, reserved = order[0], 0.0
            if may_explore and (curious := self._worth_exploring(seen, known, costs, best, scale)):
                first, reserved = curious
                order = [first, *(action for action in order if action != first)]
            near = self.memory.cell(seen.bin)
            reason = _reason(order[0], best, reserved, known, costs, near, self.account)
            seconds = {action: costs[action] * unit for action in order}
            ranking = self.ranking(order, reason, allowed, seconds)
            decision = Decision(seen, known, ranking, seconds[best], reserved)
            if decision.explores:
                self.account.reserved[id(decision)] = reserved
        return decision

    def learn(self, decision: Decision, attempts: Sequence[Outcome], seconds: float) -> None:
        """Take the attempts of a finished solve, and its seconds."""
        with self._lock:
            self._book(decision, seconds)
            if attempts[-1].converged:
                self._wonder(decision, attempts, seconds)
                self.memory.add(self._observations(decision, attempts, seconds))
                self._note_solve(decision.seen)

    def release(self, decision: Decision) -> None:
        """Nothing came of a decision; harmless after `learn`."""
        with self._lock:
            self.account.reserved.pop(id(decision), None)

    def summary(self) -> str:
        """A table of what is remembered: similar systems, then shapes that were solved often."""
        with self._lock:
            cells, account = self.memory.cells(), replace(self.account)
        shapes = {name for name in cells if "=" in name}
        often = [name for name in shapes if sum(arm.count for arm in cells[name].values()) >= OFTEN]
        shown = [*(name for name in cells if name not in shapes), *sorted(often)]
        words = {name: bin_in_words(name) for name in shown}
        width = max(map(len, words.values()), default=0)
        starts = dict.fromkeys(_start(action) for name in shown for action in cells[name])
        lines = [
            "time over FP64's priced time (solves), by first format",
            " " * width + "".join(f"{start:>22}" for start in starts),
        ]
        for name in shown:
            arms = {_start(action): arm for action, arm in cells[name].items()}
            numbers = "".join(f"{_shown(arms.get(start)):>22}" for start in starts)
            lines.append(f"{words[name]:<{width}}{numbers}")
        lines.append(
            f"{account.solves} solves took {account.seconds:.3g} s; {account.explorations} to "
            f"explore took {account.exploring:.2g} s more than expected of the best"
        )
        return "\n".join(lines)

    def _cells(self, seen: Seen) -> tuple[tuple[str, float], ...]:
        return (seen.bin, BIN_DISCOUNT), (seen.series, SERIES_DISCOUNT)

    def _note_solve(self, seen: Seen) -> None:
        self._latest[seen.bin, seen.series] = self._solves[seen.bin] = (
            self._solves.get(seen.bin, 0) + 1
        )

    def _estimates(
        self, seen: Seen, known: Mapping[int, Expectation]
    ) -> tuple[dict[int, float], float]:
        """The expected relative cost of each start, and how far prices are off here."""
        names = self.space.names
        near, same = self.memory.cell(seen.bin), self._of_this_shape(seen)
        by_action = (
            {action: cell[names[action]] for action in known if names[action] in cell}
            for cell in (near, same)
        )
        return estimates(known, *by_action)

    def _of_this_shape(self, seen: Seen) -> dict[str, Arm]:
        """What is remembered of systems of this shape, faded by what has been solved since."""
        age = self._solves.get(seen.bin, 0) - self._latest.get((seen.bin, seen.series), 0)
        remains = FADING**age
        if remains < FADED:
            return {}
        return {name: arm.faded(remains) for name, arm in self.memory.cell(seen.series).items()}

    def _book(self, decision: Decision, seconds: float) -> None:
        account = self.account
        account.reserved.pop(id(decision), None)
        account.solves += 1
        account.seconds += seconds
        if decision.explores:
            account.explorations += 1
            account.exploring += max(0.0, seconds - decision.best_seconds)

    def _worth_exploring(
        self,
        seen: Seen,
        known: Mapping[int, Expectation],
        costs: Mapping[int, float],
        best: int,
        scale: float,
    ) -> tuple[int, float] | None:
        """The action that has waited longest of those that are due, may pay, and are affordable."""
        unit = unit_of(known)
        found = []
        for action, expectation in known.items():
            curiosity = self._curiosity.get((seen.bin, action), Curiosity())
            may_pay = scale * expectation.sure / unit < costs[best]
            if action == best or not may_pay or curiosity.idle < curiosity.patience:
                continue
            risk = max(scale * expectation.worst - costs[best] * unit, 1e-9)
            if self.account.affords(risk, self.explore_share):
                found.append((curiosity.idle, action, risk))
        return max(found)[1:] if found else None

    def _wonder(self, decision: Decision, attempts: Sequence[Outcome], seconds: float) -> None:
        """Note which actions were tried, and whether exploring paid."""
        tried = {self.space.find(Action.parse(attempt.action)) for attempt in attempts}
        for action in decision.expected:
            curiosity = self._curiosity.setdefault((decision.seen.bin, action), Curiosity())
            curiosity.idle = 0 if action in tried else curiosity.idle + 1
        if decision.explores:
            curiosity = self._curiosity[decision.seen.bin, decision.first]
            paid = seconds < decision.best_seconds
            curiosity.patience = (
                0 if paid else min(max(2 * curiosity.patience, FIRST_PATIENCE), LAST_PATIENCE)
            )

    def _observations(
        self, decision: Decision, attempts: Sequence[Outcome], seconds: float
    ) -> list[Observation]:
        unit = unit_of(decision.expected)
        starts = self._starts(decision, attempts, seconds)
        found = []
        for cell, discount in self._cells(decision.seen):
            slowest = OUTLIER * scale_of(self.memory.cell(cell).values())
            for start in starts:
                cost = min(start.seconds, slowest * start.priced) / unit
                name, priced = self.space.names[start.action], start.priced / unit
                found.append(Observation(cell, name, start.count, cost, priced, discount))
        return found

    def _starts(
        self, decision: Decision, attempts: Sequence[Outcome], seconds: float
    ) -> list[StartTime]:
        """What this solve tells about starting with each action."""
        seen, expected = decision.seen, decision.expected
        before = seconds - sum(attempt.seconds or 0.0 for attempt in attempts)
        starts: dict[int, StartTime] = {}
        for i, attempt in enumerate(attempts):
            action = self.space.find(Action.parse(attempt.action))
            if action is not None and action in expected and action not in starts:
                rest = attempts[i:]
                taken = before + sum(later.seconds or 0.0 for later in rest)
                priced = self.prior.priced(seen, climb_of(rest))
                starts[action] = StartTime(action, int(i == 0), taken, priced)
        if not attempts[0].converged and decision.first in starts:
            first = starts[decision.first]
            for action in list(expected)[: list(expected).index(decision.first)]:
                wasted = expected[action].sure
                starts[action] = StartTime(action, 0, first.seconds + wasted, first.priced + wasted)
        return list(starts.values())

    def settings(self) -> dict[str, Any]:
        return {"explore": self.explore_share}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> OnlinePolicy:
        return cls(explore=settings["explore"])

    def arrays(self) -> Arrays:
        """The prior's facts, every arm of the memory, and when each shape was last solved."""
        arms = [(c, a, arm) for c, arms in self.memory.cells().items() for a, arm in arms.items()]
        numbers = [[arm.count, arm.weight, arm.cost, arm.priced] for _, _, arm in arms]
        solves = [(name, "", count) for name, count in self._solves.items()]
        solves += [(*key, count) for key, count in self._latest.items()]
        learned = {
            "arm cells": np.array([cell for cell, _, _ in arms], dtype=np.str_),
            "arm actions": np.array([action for _, action, _ in arms], dtype=np.str_),
            "arm numbers": np.array(numbers, dtype=np.float64).reshape(-1, 4),
            "solve bins": np.array([name for name, _, _ in solves], dtype=np.str_),
            "solve shapes": np.array([shape for _, shape, _ in solves], dtype=np.str_),
            "solve counts": np.array([count for _, _, count in solves], dtype=np.int64),
        }
        return learned | {f"facts {k}": table for k, table in self.prior.arrays().items()}

    def restore(self, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        prior = {k.removeprefix("facts "): v for k, v in arrays.items() if k.startswith("facts ")}
        self.prior.start(np.empty((0, self.feature_count)), self.space)
        self.prior.restore({}, prior)
        cells, actions, numbers = (arrays[f"arm {x}"] for x in ("cells", "actions", "numbers"))
        bins, shapes, counts = (arrays[f"solve {x}"] for x in ("bins", "shapes", "counts"))
        whole = len(cells) == len(actions) == len(numbers) and np.isfinite(numbers).all()
        if not (whole and len(bins) == len(shapes) == len(counts)):
            raise ValueError("the saved memory is corrupt; save the policy again")
        self.memory.clear()
        for cell, action, (count, *rest) in zip(cells, actions, numbers.tolist(), strict=True):
            self.memory.put(str(cell), str(action), Arm(int(count), *rest))
        for key, shape, count in zip(bins.tolist(), shapes.tolist(), counts.tolist(), strict=True):
            if shape:
                self._latest[key, shape] = count
            else:
                self._solves[key] = count


def climb_of(attempts: Sequence[Outcome]) -> dict[str, Work]:
    """The work of a solve's attempts, by format of the factors."""
    climb: dict[str, Work] = {}
    for attempt in attempts:
        fmt = Action.parse(attempt.action)[0].name
        work = Work(1, attempt.outer_iterations, attempt.inner_iterations)
        climb[fmt] = climb.get(fmt, Work()) + work
    return climb


def unit_of(known: Mapping[int, Expectation]) -> float:
    """The expected seconds of FP64 at once, which costs are relative to."""
    return next(e.seconds for e in known.values() if e.fmt == FP64.name)


def estimates(
    known: Mapping[int, Expectation], near: Mapping[int, Arm], same: Mapping[int, Arm]
) -> tuple[dict[int, float], float]:
    """The expected cost of each start, and how many times slower than priced work is here.

    `near` and `same` are what is remembered of the bin and of the shape.
    """
    unit, scale = unit_of(known), scale_of(near.values())
    costs = {action: scale * e.seconds / unit for action, e in known.items()}
    costs = {a: blended(costs[a], BIN_PRIOR, near.get(a, Arm())) for a in costs}
    if same:
        factor = scale_of(same.values()) / scale
        scale *= factor
        costs = {a: blended(factor * costs[a], SERIES_PRIOR, same.get(a, Arm())) for a in costs}
    return costs, scale


def blended(prior: float, prior_weight: float, arm: Arm) -> float:
    """The mean of what was expected and what was observed."""
    trust = prior_weight * PRIOR_DISCOUNT**arm.count
    return (trust * prior + arm.cost) / (trust + arm.weight)


def scale_of(arms: Collection[Arm]) -> float:
    """Seconds taken over seconds priced, of all solves of a cell; 1 if there are none."""
    priced = sum(arm.priced for arm in arms)
    return sum(arm.cost for arm in arms) / priced if priced > 0 else 1.0


def _start(action: str) -> str:
    """The part of an action's text that says how a solve starts."""
    return action.partition("-")[0]


def _shown(arm: Arm | None) -> str:
    return "-" if arm is None else f"{arm.cost / arm.weight:.2f} ({arm.count})"


def _reason(
    first: int,
    best: int,
    reserved: float,
    known: Mapping[int, Expectation],
    costs: Mapping[int, float],
    near: Mapping[str, Arm],
    account: Account,
) -> str:
    """Why a solve starts where it does, in words."""
    solves = sum(arm.count for arm in near.values())
    if not solves:
        return told(known[first], list(known.values()))
    unit, names = unit_of(known), {action: e.fmt.upper() for action, e in known.items()}
    times = {action: milliseconds(cost * unit) for action, cost in costs.items()}
    if reserved:
        share = 100 * account.exploring / account.seconds
        return (
            f"{names[first]} first, to learn: expected {times[first]} against {times[best]} with "
            f"{names[best]} first; exploring took {share:.1f} % of the time so far."
        )
    others = [action for action in costs if action != first]
    if not others:
        return f"{names[first]}, from {solves} solves like this: expected {times[first]}."
    is_fp64 = known[first].fmt == FP64.name
    rival = min(others, key=lambda a: (is_fp64 or known[a].fmt != FP64.name, costs[a]))
    how = "FP64" if is_fp64 else f"{names[first]} first"
    return (
        f"{how}, from {solves} solves like this: expected {times[first]} against {times[rival]} "
        f"with {names[rival]} first."
    )
