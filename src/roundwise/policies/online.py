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

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import fork_safe_lock
from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.policies import bandit
from roundwise.policies.bandit import Account, Curiosity
from roundwise.policies.base import Arrays, Contexts, Policy, Ranking, StudiedOutcomes
from roundwise.policies.memory import Arm, Memory, Observation
from roundwise.policies.neighbours import Expectation, NeighbourPolicy
from roundwise.policies.profile import Profile, bin_in_words, is_key

OFTEN = 5
"""Solves of one shape that are worth a line in the summary."""


@dataclass(frozen=True, eq=False)
class Decision:
    """A ranking, and what was expected when it was made; `OnlinePolicy.learn` takes it back."""

    profile: Profile
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


@dataclass(frozen=True)
class Learned:
    """The memory for people: by system, in words, the possible starts and their times."""

    starts: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Arm]]
    account: Account


class OnlinePolicy(Policy):
    """Learns where solves start from how long they took; threads may share it.

    Costs in its rankings are seconds. `Solver` calls `decide` and `learn`; in training, `update`
    takes a reward as log2 of the speedup over FP64.

    Parameters
    ----------
    prior : NeighbourPolicy, optional
        Gives the expected times before anything was solved.
    memory : Memory, optional
        Where what was learned is kept; in this process alone if not given.
    explore : float
        The share of the time spent solving that trying other actions may cost at most.

    Examples
    --------
    >>> from roundwise.policies import OnlinePolicy
    >>> OnlinePolicy(explore=0.05).name
    'online'
    """

    name: ClassVar[str] = "online"
    study_features: ClassVar[tuple[str, ...]] = NeighbourPolicy.study_features
    needs_context: ClassVar[tuple[str, ...] | None] = NeighbourPolicy.needs_context

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
        self._forget()
        self._lock = fork_safe_lock()

    def _forget(self) -> None:
        self.account = Account()
        self._curiosity: dict[tuple[str, int], Curiosity] = {}
        self._solves: dict[str, int] = {}  # by bin
        self._latest: dict[tuple[str, str], int] = {}  # of a bin and shape, in solves of the bin

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = fork_safe_lock()

    def begin(self, contexts: Contexts) -> None:
        self._forget()
        if self.memory.path is None:  # a file is the user's: what it holds stays
            self.memory.clear()
        self.prior.start(contexts, self.space)

    @property
    def express_below(self) -> int:
        return self.prior.express_below

    def probes(self, free: Mapping[str, float]) -> bool:
        return self.prior.probes(free)

    def small(self, kind: str, size: int) -> str | None:
        return self.prior.small(kind, size)

    def study(self, view: StudiedOutcomes, contexts: Contexts) -> None:
        self.prior.study(view, contexts)

    def states(self, contexts: Contexts) -> Sequence[Profile | None]:
        return self.prior.states(contexts)

    def expected(self, state: Profile) -> NDArray[np.float64] | None:
        """Minus the expected seconds of each start."""
        known = self.prior.expectations(state)
        if not known:
            return None
        with self._lock:
            seconds, _ = self._estimates(state, known)
        return np.array([-seconds.get(i, np.inf) for i in range(len(self.space))])

    def why(self, state: Profile, action: int) -> str:
        return self.decide(state, may_explore=False).ranking.reason

    def update(self, state: Profile | None, action: int, reward: float) -> float:
        """Learn from the log2 speedup over FP64 of a start."""
        known = {} if state is None else self.prior.expectations(state)
        if state is None or action not in known:
            return 0.0
        unit = bandit.unit_of(known)
        priced = known[action].seconds / unit
        cost = min(2.0**-reward, bandit.OUTLIER * priced)
        with self._lock:
            before = self._estimates(state, known)[0][action] / unit
            self.memory.add(
                Observation(cell, self.space.names[action], 1, cost, priced, discount)
                for cell, discount in self._cells(state)
            )
            self._note_solve(state)
        return float(np.log2(before) + reward)

    def decide(
        self, profile: Profile, may_explore: bool = True, allowed: Collection[int] | None = None
    ) -> Decision:
        """The action that looks best or, within the budget for exploring, one to learn about."""
        known = self.prior.expectations(profile, allowed)
        with self._lock:
            seconds, scale = self._estimates(profile, known)
            order = sorted(seconds, key=lambda action: (seconds[action], -action))
            best, reserved = order[0], 0.0
            if may_explore and (
                found := self._worth_exploring(profile, known, seconds, best, scale)
            ):
                first, reserved = found
                order = [first, *(action for action in order if action != first)]
            solves = sum(arm.count for arm in self.memory.cell(profile.bin).values())
            share = self.account.share if reserved else None
            reason = bandit.reason_for(order[0], best, known, seconds, solves, share)
            ranking = self.ranking(order, reason, allowed, seconds)
            decision = Decision(profile, known, ranking, seconds[best], reserved)
            if decision.explores:
                self.account.reserved[os.getpid(), id(decision)] = reserved
        return decision

    def learn(self, decision: Decision, attempts: Sequence[Outcome], seconds: float) -> None:
        """Take the attempts of a finished solve, and its seconds."""
        with self._lock:
            account = self.account
            account.reserved.pop((os.getpid(), id(decision)), None)
            account.solves += 1
            account.seconds += seconds
            if decision.explores:
                account.explorations += 1
                account.exploring += max(0.0, seconds - decision.best_seconds)
            if attempts[-1].converged:
                self._wonder(decision, attempts, seconds)
                self.memory.add(self._observations(decision, attempts, seconds))
                self._note_solve(decision.profile)

    def release(self, decision: Decision) -> None:
        """Give back what a decision had reserved for exploring; harmless after `learn`."""
        with self._lock:
            self.account.reserved.pop((os.getpid(), id(decision)), None)

    def learned(self) -> Learned:
        """The memory: first of similar systems, then of shapes that were solved often."""
        with self._lock:
            known, account = self.memory.cells(), replace(self.account)
        cells = {name: arms for name, arms in known.items() if is_key(name)}
        solves = {name: sum(arm.count for arm in arms.values()) for name, arms in cells.items()}
        often = (name for name in sorted(cells) if "=" in name and solves[name] >= OFTEN)
        shown = [*(name for name in cells if "=" not in name), *often]
        starts = dict.fromkeys(_start(action) for name in shown for action in cells[name])
        rows = {
            bin_in_words(name): {_start(action): arm for action, arm in cells[name].items()}
            for name in shown
        }
        return Learned(tuple(starts), rows, account)

    def summary(self) -> str:
        """The memory as a table."""
        learned = self.learned()
        account = learned.account
        width = max(map(len, learned.rows), default=0)
        lines = [
            "Measured time / predicted FP64 time (number of solves), by starting format",
            " " * width + "".join(f"{start:>22}" for start in learned.starts),
        ]
        for words, arms in learned.rows.items():
            numbers = "".join(f"{_shown(arms.get(start)):>22}" for start in learned.starts)
            lines.append(f"{words:<{width}}{numbers}")
        lines.append(f"{bandit.counted(account.solves, 'solve')} here, {account.in_words}.")
        return "\n".join(lines)

    @property
    def solves_remembered(self) -> int:
        """Solves that the memory holds of this machine, also of other processes and earlier ones.

        Each solve is remembered in two cells, that of similar systems and that of its shape; the
        former are counted.
        """
        with self._lock:
            cells = self.memory.cells()
        alike = (arms for name, arms in cells.items() if is_key(name) and "=" not in name)
        return sum(arm.count for arms in alike for arm in arms.values())

    def _cells(self, profile: Profile) -> tuple[tuple[str, float], ...]:
        return (profile.bin, bandit.BIN_DISCOUNT), (profile.series, bandit.SERIES_DISCOUNT)

    def _note_solve(self, profile: Profile) -> None:
        solves = self._solves.get(profile.bin, 0) + 1
        self._latest[profile.bin, profile.series] = self._solves[profile.bin] = solves

    def _estimates(
        self, profile: Profile, known: Mapping[int, Expectation]
    ) -> tuple[dict[int, float], float]:
        """The expected seconds of each start, and how many times slower than priced work is."""
        age = self._solves.get(profile.bin, 0) - self._latest.get((profile.bin, profile.series), 0)
        near, same = (
            self.memory.cell(profile.bin),
            bandit.faded(self.memory.cell(profile.series), age),
        )
        return bandit.estimates(known, self.space.names, near, same)

    def _worth_exploring(
        self,
        profile: Profile,
        known: Mapping[int, Expectation],
        seconds: Mapping[int, float],
        best: int,
        scale: float,
    ) -> tuple[int, float] | None:
        """The action that has waited longest of those that are due, may pay, and are affordable."""
        found = []
        for action, expectation in known.items():
            curiosity = self._curiosity.get((profile.bin, action), Curiosity())
            may_pay = scale * expectation.sure < seconds[best]
            if action == best or not may_pay or curiosity.idle < curiosity.patience:
                continue
            risk = max(scale * expectation.worst - seconds[best], 1e-9)
            if self.account.affords(risk, self.explore_share):
                found.append((curiosity.idle, action, risk))
        return max(found)[1:] if found else None

    def _wonder(self, decision: Decision, attempts: Sequence[Outcome], seconds: float) -> None:
        """Record which actions were tried, and whether exploring paid."""
        tried = {self.space.find(Action.parse(attempt.action)) for attempt in attempts}
        for action in decision.expected:
            curiosity = self._curiosity.setdefault((decision.profile.bin, action), Curiosity())
            curiosity.idle = 0 if action in tried else curiosity.idle + 1
        if decision.explores:
            curiosity = self._curiosity[decision.profile.bin, decision.first]
            longer = min(max(2 * curiosity.patience, bandit.FIRST_PATIENCE), bandit.LAST_PATIENCE)
            curiosity.patience = 0 if seconds < decision.best_seconds else longer

    def _observations(
        self, decision: Decision, attempts: Sequence[Outcome], seconds: float
    ) -> list[Observation]:
        unit, starts = bandit.unit_of(decision.expected), self._starts(decision, attempts, seconds)
        found = []
        for cell, discount in self._cells(decision.profile):
            slowest = bandit.OUTLIER * bandit.scale_of(self.memory.cell(cell).values())
            for action, (count, taken, priced) in starts.items():
                cost, name = min(taken, slowest * priced) / unit, self.space.names[action]
                found.append(Observation(cell, name, count, cost, priced / unit, discount))
        return found

    def _starts(
        self, decision: Decision, attempts: Sequence[Outcome], seconds: float
    ) -> dict[int, tuple[int, float, float]]:
        """For each action that this solve tells about: count, seconds and priced seconds.

        The count is 0 where the solve did not start with the action.
        """
        expected = decision.expected
        before = seconds - sum(attempt.seconds or 0.0 for attempt in attempts)
        starts: dict[int, tuple[int, float, float]] = {}
        for i, attempt in enumerate(attempts):
            action = self.space.find(Action.parse(attempt.action))
            if action is not None and action in expected and action not in starts:
                taken = before + sum(later.seconds or 0.0 for later in attempts[i:])
                work, method = bandit.climb_of(attempts[i:]), expected[action].method
                priced = self.prior.priced(decision.profile, work, method)
                starts[action] = int(i == 0), taken, priced
        if not attempts[0].converged and decision.first in starts:
            _, taken, priced = starts[decision.first]
            method = expected[decision.first].method
            for action in list(expected)[: list(expected).index(decision.first)]:
                if expected[action].method != method:
                    continue
                wasted = expected[action].sure
                starts[action] = 0, taken + wasted, priced + wasted
        return starts

    def settings(self) -> dict[str, Any]:
        return {"explore": self.explore_share}

    def arrays(self) -> Arrays:
        """The prior's facts, every arm of the memory, and when each shape was last solved."""
        arms = [(c, a, arm) for c, arms in self.memory.cells().items() for a, arm in arms.items()]
        numbers = [[arm.count, arm.weight, arm.cost, arm.priced] for _, _, arm in arms]
        solves = {(name, ""): count for name, count in self._solves.items()} | self._latest
        learned = {
            "arm cells": np.array([cell for cell, _, _ in arms], dtype=np.str_),
            "arm actions": np.array([action for _, action, _ in arms], dtype=np.str_),
            "arm numbers": np.array(numbers, dtype=np.float64).reshape(-1, 4),
            "solve bins": np.array([name for name, _ in solves], dtype=np.str_),
            "solve shapes": np.array([shape for _, shape in solves], dtype=np.str_),
            "solve counts": np.array(list(solves.values()), dtype=np.int64),
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
            arm = Arm(int(count), *rest)
            if not arm.is_sound:
                raise ValueError(f"the saved memory of {str(cell)!r} is corrupt; save again")
            self.memory.put(str(cell), str(action), arm)
        for key, shape, count in zip(bins.tolist(), shapes.tolist(), counts.tolist(), strict=True):
            if shape:
                self._latest[key, shape] = count
            else:
                self._solves[key] = count


def _start(action: str) -> str:
    """The part of an action's text that says how a solve starts."""
    return action.partition("-")[0]


def _shown(arm: Arm | None) -> str:
    return "-" if arm is None else f"{arm.relative_time:.2f} ({arm.count})"
