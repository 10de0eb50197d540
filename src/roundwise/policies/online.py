"""A bandit over first formats, from measured solves.

Costs are relative: seconds over the priced seconds of FP64 at once, so that systems of different
size share what they teach. What is expected of starting in a format is, in turn,

1. the default policy's expectation, worth a few solves, scaled by how far prices are off here;
2. what solves of the same bin took;
3. what solves of the same shape took, which counts most: steps of one Newton iteration, say.

Older solves count less at each level, so that a change is noticed within a few solves; those of a
shape also fade with every solve of another shape in their bin, as what these tell is newer. A solve
that climbs teaches about every format that it tried: its last part is what a start there would have
taken. And where a format did not suffice, a lower one would not have done either.

Exploration: a format other than the best is tried only if the worst that can come of it, added to
what exploring has cost already, is at most `explore` times the seconds spent solving so far. What
it cost is the seconds beyond those expected of the best. If one costs more than the worst that was
foreseen, the next must wait until the account is balanced again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from roundwise.formats import FP64
from roundwise.policies.facts import climb_of
from roundwise.policies.look import Context
from roundwise.policies.memory import Arm, Memory, Observation
from roundwise.policies.neighbours import (
    DefaultPolicy,
    Expectation,
    cheapest,
    ladder_from,
    milliseconds,
    told,
)
from roundwise.solver.solution import Attempt

BIN_DISCOUNT, SERIES_DISCOUNT = 0.85, 0.6
"""What an observation counts after the next one, among systems of a bin and of one shape."""

BIN_PRIOR, SERIES_PRIOR = 3.0, 1.0
"""Observations that the expectation of the level above is worth; a tenth less after each one."""

PRIOR_DISCOUNT = 0.9
FADING, FADED = 0.9, 0.05
"""What remains of the solves of a shape after one of another shape in the same bin, and how little
counts as nothing."""

OUTLIER = 4.0
"""A solve counts as at most this many times as slow as its work is priced: others use the machine,
too."""

OFTEN = 5
"""Solves of one shape that are worth a line in the summary."""

FIRST_PATIENCE, LAST_PATIENCE = 8, 1024
"""Solves of a bin between two tries of a format: doubled each time that it does not pay."""


@dataclass(frozen=True, eq=False)
class Decision:
    """Where to start, why, and what was expected."""

    context: Context
    expected: Mapping[str, Expectation]
    first: str
    best_seconds: float  # expected of the format that looks best
    reserved: float  # seconds that this may cost beyond it, if it explores
    reason: str

    @property
    def formats(self) -> tuple[str, ...]:
        return ladder_from(self.first)

    @property
    def explores(self) -> bool:
        return self.reserved > 0


@dataclass
class Curiosity:
    """When to try a format again."""

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


class Learner:
    """Decides where solves start, and learns from how long they took; safe to share by threads."""

    def __init__(self, policy: DefaultPolicy, memory: Memory, explore: float) -> None:
        self.policy, self.memory, self.explore = policy, memory, explore
        self.account = Account()
        self._curiosity: dict[tuple[str, str], Curiosity] = {}
        self._solves: dict[str, int] = {}  # by bin
        self._latest: dict[tuple[str, str], int] = {}  # of a bin and shape, in solves of the bin
        self._lock = Lock()

    def decide(self, context: Context, may_explore: bool = True) -> Decision:
        """The format that looks best or, if the account affords it, another one to learn about."""
        expected = self.policy.expectations(context)
        with self._lock:
            near, same = self.memory.cell(context.bin), self._of_this_shape(context)
            costs, scale = estimates(expected, near, same)
            best = cheapest(costs)
            unit = expected[FP64.name].seconds
            curious = None
            if may_explore:
                curious = self._worth_exploring(context, expected, costs, best, scale)
            first, reserved = curious or (best, 0.0)
            reason = _reason((first, reserved), best, expected, costs, near, self.account)
            decision = Decision(context, expected, first, costs[best] * unit, reserved, reason)
            if decision.explores:
                self.account.reserved[id(decision)] = reserved
        return decision

    def learn(self, decision: Decision, attempts: Sequence[Attempt], seconds: float) -> None:
        """Take the attempts of a finished solve, and its seconds."""
        with self._lock:
            self._book(decision, seconds)
            if attempts[-1].accepted:
                self._wonder(decision, attempts, seconds)
                self.memory.add(self._observations(decision, attempts, seconds))
                bin, series = decision.context.bin, decision.context.series
                self._latest[bin, series] = self._solves[bin] = self._solves.get(bin, 0) + 1

    def release(self, decision: Decision) -> None:
        """Nothing came of a decision; harmless after `learn`."""
        with self._lock:
            self.account.reserved.pop(id(decision), None)

    def summary(self) -> str:
        """A table of what is remembered: similar systems, then shapes that were solved often."""
        with self._lock:
            cells, account = self.memory.cells(), replace(self.account)
        similar = [name for name in cells if " = " not in name]
        often = [
            name
            for name, arms in cells.items()
            if name not in similar and sum(arm.count for arm in arms.values()) >= OFTEN
        ]
        width = max([len(name) for name in (*similar, *often)], default=0)
        formats = ladder_from("bf16")
        lines = [
            "time over FP64's priced time (solves), by first format",
            " " * width + "".join(f"{fmt.upper():>14}" for fmt in formats),
        ]
        for name in (*similar, *often):
            shown = "".join(f"{_shown(cells[name].get(fmt)):>14}" for fmt in formats)
            lines.append(f"{name:<{width}}{shown}")
        lines.append(
            f"{account.solves} solves took {account.seconds:.3g} s; {account.explorations} to "
            f"explore took {account.exploring:.2g} s more than expected of the best"
        )
        return "\n".join(lines)

    def _of_this_shape(self, context: Context) -> dict[str, Arm]:
        """What is remembered of it, faded by what has been solved since."""
        age = self._solves.get(context.bin, 0) - self._latest.get((context.bin, context.series), 0)
        remains = FADING**age
        if remains < FADED:
            return {}
        return {fmt: arm.faded(remains) for fmt, arm in self.memory.cell(context.series).items()}

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
        context: Context,
        expected: Mapping[str, Expectation],
        costs: Mapping[str, float],
        best: str,
        scale: float,
    ) -> tuple[str, float] | None:
        """The format that has waited longest of those that are due, may pay, and are affordable."""
        unit = expected[FP64.name].seconds
        found = []
        for fmt, known in expected.items():
            curiosity = self._curiosity.get((context.bin, fmt), Curiosity())
            may_pay = scale * known.sure / unit < costs[best]
            if fmt == best or not may_pay or curiosity.idle < curiosity.patience:
                continue
            risk = max(scale * known.worst - costs[best] * unit, 1e-9)
            if self.account.affords(risk, self.explore):
                found.append((curiosity.idle, fmt, risk))
        return max(found)[1:] if found else None

    def _wonder(self, decision: Decision, attempts: Sequence[Attempt], seconds: float) -> None:
        """Note which formats were tried, and whether exploring paid."""
        tried = set(climb_of(attempts))
        for fmt in decision.expected:
            key = decision.context.bin, fmt
            curiosity = self._curiosity.setdefault(key, Curiosity())
            curiosity.idle = 0 if fmt in tried else curiosity.idle + 1
        if decision.explores:
            curiosity = self._curiosity[decision.context.bin, decision.first]
            paid = seconds < decision.best_seconds
            curiosity.patience = (
                0 if paid else min(max(2 * curiosity.patience, FIRST_PATIENCE), LAST_PATIENCE)
            )

    def _observations(
        self, decision: Decision, attempts: Sequence[Attempt], seconds: float
    ) -> list[Observation]:
        context, unit = decision.context, decision.expected[FP64.name].seconds
        starts = self._starts(decision, attempts, seconds)
        found = []
        for cell, discount in ((context.bin, BIN_DISCOUNT), (context.series, SERIES_DISCOUNT)):
            slowest = OUTLIER * scale_of(self.memory.cell(cell))
            for start in starts:
                cost = min(start.seconds, slowest * start.priced) / unit
                found.append(
                    Observation(cell, start.fmt, start.count, cost, start.priced / unit, discount)
                )
        return found

    def _starts(
        self, decision: Decision, attempts: Sequence[Attempt], seconds: float
    ) -> list[StartTime]:
        """What this solve tells about starting in each format."""
        context, expected = decision.context, decision.expected
        before = seconds - sum(attempt.seconds for attempt in attempts)
        starts: dict[str, StartTime] = {}
        for i, attempt in enumerate(attempts):
            fmt = attempt.action.split("-")[0]
            if fmt in expected and fmt not in starts:
                rest = attempts[i:]
                taken = before + sum(later.seconds for later in rest)
                priced = self.policy.price(context, climb_of(rest))
                starts[fmt] = StartTime(fmt, int(i == 0), taken, priced)
        if not attempts[0].accepted:
            first = starts[decision.first]
            for fmt in list(expected)[: list(expected).index(decision.first)]:
                wasted = expected[fmt].sure
                starts[fmt] = StartTime(fmt, 0, first.seconds + wasted, first.priced + wasted)
        return list(starts.values())


@dataclass(frozen=True)
class StartTime:
    """What a start in a format took, or would have taken if `count` is 0."""

    fmt: str
    count: int
    seconds: float
    priced: float


def estimates(
    expected: Mapping[str, Expectation], near: Mapping[str, Arm], same: Mapping[str, Arm]
) -> tuple[dict[str, float], float]:
    """The expected cost of each first format, and how many times slower than priced work is here.

    `near` and `same` are what is remembered of the bin and of the shape.
    """
    unit = expected[FP64.name].seconds
    scale = scale_of(near)
    costs = {fmt: scale * known.seconds / unit for fmt, known in expected.items()}
    costs = {fmt: blended(costs[fmt], BIN_PRIOR, near.get(fmt, Arm())) for fmt in costs}
    if same:
        factor = scale_of(same) / scale
        scale *= factor
        costs = {
            fmt: blended(factor * costs[fmt], SERIES_PRIOR, same.get(fmt, Arm())) for fmt in costs
        }
    return costs, scale


def blended(prior: float, prior_weight: float, arm: Arm) -> float:
    """The mean of what was expected and what was observed."""
    trust = prior_weight * PRIOR_DISCOUNT**arm.count
    return (trust * prior + arm.cost) / (trust + arm.weight)


def scale_of(cell: Mapping[str, Arm]) -> float:
    """Seconds taken over seconds priced, of all solves of a cell; 1 if there are none."""
    priced = sum(arm.priced for arm in cell.values())
    return sum(arm.cost for arm in cell.values()) / priced if priced > 0 else 1.0


def _shown(arm: Arm | None) -> str:
    return "-" if arm is None else f"{arm.cost / arm.weight:.2f} ({arm.count})"


def _reason(
    decided: tuple[str, float],
    best: str,
    expected: Mapping[str, Expectation],
    costs: Mapping[str, float],
    near: Mapping[str, Arm],
    account: Account,
) -> str:
    """Why a solve starts where it does, in words."""
    first, reserved = decided
    solves = sum(arm.count for arm in near.values())
    if not solves:
        return told(first, expected)
    unit = expected[FP64.name].seconds
    times = {fmt: milliseconds(cost * unit) for fmt, cost in costs.items()}
    if reserved:
        share = 100 * account.exploring / account.seconds
        return (
            f"{first.upper()} first, to learn: expected {times[first]} against {times[best]} with "
            f"{best.upper()} first; exploring took {share:.1f} % of the time so far."
        )
    others = {fmt: cost for fmt, cost in costs.items() if fmt != first}
    rival = FP64.name if first != FP64.name else cheapest(others)
    how = f"{first.upper()} first" if first != FP64.name else "FP64"
    return (
        f"{how}, from {solves} solves like this: expected {times[first]} against {times[rival]} "
        f"with {rival.upper()} first."
    )
