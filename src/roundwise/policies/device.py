"""`DevicePolicy`: the prices of a GPU, for the formats that 64 rows of A leave open.

What 64 rows tell says which formats may suffice (`bits_that_may_suffice`); prices rank the actions
in them, and a `DeviceLearner` corrects prices by what solves have taken. The safe action is
cuSOLVER's LU in FP64.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.costs.prices import DevicePrices
from roundwise.formats import FP16, FP16X2, FP64
from roundwise.policies.base import Contexts, Learn, Ranking
from roundwise.policies.baselines import Baseline

LEAST_N = 3000
"""Below this n panels and launches take most of the time in every format: FP64 at once gains more
than a probe of A and more corrections cost. A price, in unknowns:
``python benchmarks/bench_gpu.py`` times formats by n."""

HEAVY = 0.8
"""The share of the diagonal from which on 11 bits are expected to suffice, without pivoting:
singular values are close together then. A taste, until solves are learned from."""

NEARLY_ORTHOGONAL = 0.3
"""A coherence up to that is of rows that are nearly orthogonal: 11 bits are expected to suffice. A
taste, as HEAVY."""

MOST_COHERENT, LEAST_REMAINDER = 11.5, 4e-6
"""Above this coherence, or below this remainder, fp16x2 is not tried: singular values that fall
geometrically fall below ``exp(-12.5)`` of the largest. (docs/gpu.md: at ``exp(-6.9)`` it pays.) A
taste, as HEAVY."""

HARD_COHERENCE, HARD_UP_TO, HARD_STEPS = 13.0, 24000, 20
"""Up to this coherence (``exp(-14)`` of the largest singular value) and n, fp16x2 suffices for
GMRES, whose iterations take about as long as so many corrections. A taste, as HEAVY."""

STEPS, LOW_STEPS = {"fp64": 1, "fp32": 2, "bf16x3": 2, "fp16x2": 3}, 4
"""Expected corrections by format of the factors; LOW_STEPS for all other formats. A taste
to begin with: a `DeviceLearner` corrects what follows from it."""

DEVICE_FEATURES = (
    "n",
    "columns",
    "looks_positive_definite",
    "diagonal_share",
    "coherence",
    "remainder",
)
"""The features that the policy sees."""

Key = tuple[str, int, int]  # kind of system, size, bits that may suffice


@dataclass(frozen=True)
class DeviceProfile:
    """A dense system on a GPU, as the policy sees it."""

    n: int
    columns: int
    definite: bool
    heavy: bool  # diagonal: pivots are expected to stay there
    bits: int  # of factors that may suffice
    least_steps: int  # corrections that they take at least

    @property
    def key(self) -> Key:
        """A key that systems share which count as alike."""
        kind = "definite" if self.definite else "heavy" if self.heavy else "general"
        return kind, round(2 * math.log2(self.n)), self.bits

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods worth a try."""
        on_diagonal = ("lu/diagonal",) if self.definite or self.heavy else ()
        return ("lu", "lu/local", *on_diagonal, *(("cholesky",) if self.definite else ()))


class DeviceLearner:
    """Measured seconds of solves on a GPU over their prices, by kind and size of system.

    Each price counts as one measurement. So an action whose measured time exceeds the price of
    another one gives way to it. Threads may share the object; of two that learn at the same moment,
    one may be lost.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[Key, str], tuple[int, float]] = {}  # solves, sum of the ratios

    def ratio(self, key: Key, action: Action) -> float:
        """The mean of measured over priced seconds."""
        count, total = self._seen.get((key, str(action)), (0, 0.0))
        return (1.0 + total) / (1 + count)

    def learn(
        self, key: Key, action: Action, price: float, attempts: Sequence[Outcome], seconds: float
    ) -> None:
        """A solve that began with this action took so many seconds, all attempts together."""
        count, total = self._seen.get((key, str(action)), (0, 0.0))
        self._seen[key, str(action)] = count + 1, total + seconds / price


class DevicePolicy(Baseline):
    """Ranks the actions of a GPU by their prices. Costs in its rankings are seconds.

    Parameters
    ----------
    prices : DevicePrices
    learner : DeviceLearner, optional
        Corrects the prices.
    """

    name: ClassVar[str] = "device prices"
    unknown: ClassVar[str] = "No action has a price"
    needs_context: ClassVar[tuple[str, ...] | None] = DEVICE_FEATURES

    def __init__(self, prices: DevicePrices, learner: DeviceLearner | None = None) -> None:
        self.prices, self.learner = prices, learner

    def probes(self, free: Mapping[str, float]) -> bool:
        return free["n"] >= LEAST_N

    def states(self, contexts: Contexts) -> list[DeviceProfile]:
        return [_profile(*row) for row in contexts.tolist()]

    def price(self, profile: DeviceProfile, action: Action) -> float:
        """The seconds of an action with the expected corrections, before anything was learned."""
        fmt, n = action[0].name, profile.n
        steps = STEPS.get(fmt, LOW_STEPS)
        steps = 1 + (steps if fmt == FP64.name else max(steps, profile.least_steps))
        return self.prices.factor_seconds(action.method, fmt, n) + steps * (
            self.prices.step_seconds(fmt, n, profile.columns)
        )

    def expected(self, state: DeviceProfile) -> NDArray[np.float64]:
        """Minus the expected seconds of each action; minus infinity where it is not worth a try."""
        return np.array([-self._seconds(state, action) for action in self.space])

    def _seconds(self, profile: DeviceProfile, action: Action) -> float:
        if not (
            action.method in profile.methods
            and action[0].p >= profile.bits
            and tuple(action[1:]) == (FP64, FP64, FP64)
            and self.prices.prices(action.method, action[0].name)
        ):
            return math.inf
        learned = 1.0 if self.learner is None else self.learner.ratio(profile.key, action)
        return self.price(profile, action) * learned

    def rank(self, state: DeviceProfile, allowed: Collection[int] | None = None) -> Ranking:
        """The actions by expected seconds; among equals the safe one is first."""
        seconds = {i: -value for i, value in enumerate(self.expected(state)) if value > -math.inf}
        safe = self.space.safe
        order = sorted(seconds, key=lambda i: (seconds[i], i != safe, -i))
        order = [i for i in order if allowed is None or i in allowed]
        reason = self._told(state, order, seconds) if order else ""
        return self.ranking(order, reason, allowed, seconds)

    def decided(
        self, state: DeviceProfile, allowed: Collection[int]
    ) -> tuple[Ranking, Learn | None]:
        """The ranking, and the learner of prices if there is one."""
        ranking = self.rank(state, allowed)
        if self.learner is None:
            return ranking, None
        first = self.space[ranking.first]
        return ranking, partial(self.learner.learn, state.key, first, self.price(state, first))

    def _told(
        self, profile: DeviceProfile, order: Sequence[int], seconds: Mapping[int, float]
    ) -> str:
        first = self.space[order[0]]
        text = f"On the GPU {first.method} in {first[0]} is priced {1e3 * seconds[order[0]]:.3g} ms"
        text += f", the next best choice {1e3 * seconds[order[1]]:.3g} ms." if order[1:] else "."
        if profile.n < LEAST_N:
            return f"{text} Below n = {LEAST_N} no lower format gains time there."
        if profile.bits < FP64.p:
            return f"{text} By 64 of its rows, {profile.bits} bits may suffice."
        return f"{text} By 64 of its rows, no lower format suffices."


def _profile(n: float, columns: float, definite: float, *rows: float) -> DeviceProfile:
    features = dict(zip(DEVICE_FEATURES[3:], rows, strict=True))
    bits, steps = bits_that_may_suffice(features, round(n))
    heavy = features["diagonal_share"] >= HEAVY
    return DeviceProfile(round(n), round(columns), bool(definite), heavy, bits, steps)


def bits_that_may_suffice(features: Mapping[str, float], n: int) -> tuple[int, int]:
    """The bits of factors that refinement may get along with: FP16's, FP16X2's or FP64's.

    With them, how many corrections it takes at least. A rule of thumb about what 64 rows tell,
    until solves are learned from.
    """
    share, coherence, remainder = (
        features[name] for name in ("diagonal_share", "coherence", "remainder")
    )
    if remainder >= 0.02 and (share >= HEAVY or coherence <= NEARLY_ORTHOGONAL):
        return FP16.p, 0
    if coherence <= MOST_COHERENT and remainder >= LEAST_REMAINDER:
        return FP16X2.p, 0
    if coherence <= HARD_COHERENCE and remainder >= LEAST_REMAINDER and n < HARD_UP_TO:
        return FP16X2.p, HARD_STEPS
    return FP64.p, 0
