"""How `OnlinePolicy` weighs its solves: expected seconds of starts, and the cost of exploring."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.costs import Work
from roundwise.formats import FP64
from roundwise.methods import DEFAULT_METHOD, SAFE
from roundwise.policies.memory import Arm
from roundwise.policies.neighbours import Expectation, milliseconds, told

BIN_DISCOUNT, SERIES_DISCOUNT = 0.85, 0.6
"""Weight of an observation after the next one, among systems of a bin and of one shape."""

BIN_PRIOR, SERIES_PRIOR, PRIOR_DISCOUNT = 3.0, 1.0, 0.9
"""Observations that the expectation of the level above is worth; a tenth less after each one."""

FADING, FADED = 0.9, 0.05
"""What remains of the solves of a shape after one of another shape in the same bin, and how little
counts as nothing."""

OUTLIER = 4.0
"""Clip measured times at this many times the priced ones: other programs may have been running."""

FIRST_PATIENCE, LAST_PATIENCE = 8, 1024
"""Solves of a bin between two tries of an action: doubled each time that it does not pay."""


@dataclass
class Curiosity:
    """When to try an action again."""

    idle: int = 0
    patience: int = FIRST_PATIENCE


@dataclass
class Account:
    """Seconds spent solving, the part spent exploring, and those reserved for exploring."""

    solves: int = 0
    seconds: float = 0.0
    exploring: float = 0.0
    explorations: int = 0
    reserved: dict[tuple[int, int], float] = field(default_factory=dict)  # by process and decision

    def affords(self, seconds: float, share: float) -> bool:
        here = os.getpid()  # what threads of a parent reserved before a fork is theirs
        reserved = sum(cost for (process, _), cost in self.reserved.items() if process == here)
        planned = self.exploring + reserved + seconds
        return planned <= share * self.seconds

    @property
    def share(self) -> float:
        return self.exploring / self.seconds

    @property
    def in_words(self) -> str:
        """The seconds, and what exploring cost of them."""
        spent = "no time spent exploring"
        if self.explorations:
            solves = counted(self.explorations, "solve")
            spent = f"{self.exploring:.2g} s of them lost by exploring ({solves})"
        return f"{self.seconds:.3g} s; {spent}"


def counted(number: int, noun: str) -> str:
    """``1 solve``, ``2 solves``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def climb_of(attempts: Sequence[Outcome]) -> dict[str, Work]:
    """The work of a solve's attempts, by format of the factors."""
    climb: dict[str, Work] = {}
    for attempt in attempts:
        fmt = Action.parse(attempt.action)[0].name
        work = Work(1, attempt.outer_iterations, attempt.inner_iterations)
        climb[fmt] = climb.get(fmt, Work()) + work
    return climb


def unit_of(known: Mapping[int, Expectation]) -> float:
    """The expected seconds of FP64 at once by the safest method, which costs are relative to."""
    exact = [e for e in known.values() if e.fmt == FP64.name]
    safe = DEFAULT_METHOD, SAFE
    return next((e.seconds for e in exact if e.method in safe), exact[-1].seconds)


def estimates(
    known: Mapping[int, Expectation],
    names: Sequence[str],
    near: Mapping[str, Arm],
    same: Mapping[str, Arm],
) -> tuple[dict[int, float], float]:
    """The expected seconds of each start, and how many times slower than priced work is here.

    `near` and `same` are what is remembered of the bin and of the shape, by the names of actions.
    """
    unit, scale = unit_of(known), 1.0
    costs = {action: e.seconds / unit for action, e in known.items()}
    for cell, prior in ((near, BIN_PRIOR), (same, SERIES_PRIOR)):
        arms = {action: cell[names[action]] for action in known if names[action] in cell}
        if arms:
            factor = scale_of(arms.values()) / scale
            scale *= factor
            costs = {a: _blended(factor * costs[a], prior, arms.get(a, Arm())) for a in costs}
    return {action: cost * unit for action, cost in costs.items()}, scale


def _blended(expected: float, prior: float, arm: Arm) -> float:
    """The mean of what was expected, worth `prior` solves at first, and what was observed."""
    trust = prior * PRIOR_DISCOUNT**arm.count
    return (trust * expected + arm.cost) / (trust + arm.weight)


def scale_of(arms: Collection[Arm]) -> float:
    """Seconds taken over seconds priced, of all solves of a cell; 1 if there are none."""
    priced = sum(arm.priced for arm in arms)
    return sum(arm.cost for arm in arms) / priced if priced > 0 else 1.0


def faded(arms: Mapping[str, Arm], age: int) -> dict[str, Arm]:
    """The memory of a shape after `age` solves of other shapes in its bin."""
    remains = FADING**age
    return {name: arm.faded(remains) for name, arm in arms.items()} if remains >= FADED else {}


def reason_for(
    first: int,
    best: int,
    known: Mapping[int, Expectation],
    seconds: Mapping[int, float],
    solves: int,
    explored: float | None,
) -> str:
    """Why a solve starts where it does, in words.

    `solves` counts those of the bin; `explored` is exploration's share of the time so far, and None
    if the solve does not explore.
    """
    if not solves:
        return told(known[first], list(known.values()))
    names = {action: e.label for action, e in known.items()}
    times = {action: milliseconds(expected) for action, expected in seconds.items()}
    if explored is not None:
        return (
            f"Trying {names[first]} to learn: expected {times[first]}, against {times[best]} "
            f"starting with {names[best]}; exploring took {100 * explored:.1f} % of the time so "
            "far."
        )
    learned = f"from {counted(solves, 'solve')} of similar systems"
    others = [action for action in seconds if action != first]
    if not others:
        return f"Chose {names[first]}, {learned}: expected {times[first]}."
    is_fp64 = known[first].fmt == FP64.name
    rival = min(others, key=lambda a: (is_fp64 or known[a].fmt != FP64.name, seconds[a]))
    return (
        f"Chose {names[first]}, {learned}: expected {times[first]}, against {times[rival]} "
        f"starting with {names[rival]}."
    )
