"""How the released code learns: its reward, its bins, its exploration, its order of systems.

`roundwise_studies.released.code` says where this was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.discretizer import FeatureDiscretizer
from roundwise.formats import FP64
from roundwise.policies import TabularQ
from roundwise.rewards import PaperReward, ProblemFacts
from roundwise_studies.paper.systems import TRAINING_BELOW

BUCKETS = (1e4, 1e7)
"""Training meets the systems with kappa below the first, then below the second, then the others."""


@dataclass(frozen=True)
class ReleasedReward(PaperReward):
    """The paper's reward with the released code's departures.

    With a `zero_penalty`, a count of 0 iterations costs that times lambda_iter. `explicit_bits`
    counts the significand bits without the implicit one: 52, 23, 10, 7.
    """

    zero_penalty: float | None = None
    explicit_bits: bool = False

    def components(self, outcome: Outcome, facts: ProblemFacts, action: Action) -> dict[str, float]:
        found = super().components(outcome, facts, action)
        if self.zero_penalty is not None and outcome.inner_iterations == 0:
            found["iterations"] = -self.lambda_iter * self.zero_penalty
        if self.explicit_bits:
            all_bits = sum(FP64.p / fmt.p for fmt in action)
            explicit = sum((FP64.p - 1) / (fmt.p - 1) for fmt in action)
            found["precision"] *= explicit / all_bits
        return found


class TruncatingDiscretizer(FeatureDiscretizer):
    """Takes the grid point below a value, not the nearest: only the maximum is in the last bin."""

    def bin_indices(self, X: ArrayLike) -> NDArray[np.intp]:
        X = np.clip(self._checked(X), *self._ends)
        n = np.array(self.bins_)
        span = np.where(n > 1, self._high - self._low, 1.0)
        position = (self._scaled(X) - self._low) / span * (n - 1)
        return np.asarray(np.clip(np.trunc(position), 0, n - 1), dtype=np.intp)


class ReleasedQ(TabularQ):
    """`TabularQ` with truncated bins, an epsilon that decays per step, and untried actions at 0.

    Epsilon is ``max(0.1, 1 - step / steps)``, from step 0. Features, which are logarithms, are at
    least 0. Draws as in the released code come from `stream`, if given, instead of the generator of
    `explore`.
    """

    def __init__(self, steps: int, alpha: float = 0.5, stream: Random | None = None) -> None:
        super().__init__(alpha=alpha, greedy="all")
        self.steps, self.stream = steps, stream

    def begin(self, contexts: NDArray[np.float64]) -> None:
        super().begin(contexts)
        self.discretizer_ = TruncatingDiscretizer(10).fit(np.maximum(contexts, 0.0))
        self._occurring = len(set(self.states(contexts)))
        self._step = 0

    def states(self, contexts: NDArray[np.float64]) -> list[int | None]:
        return super().states(np.maximum(contexts, 0.0))

    def explore(self, state: int, rng: np.random.Generator, progress: float) -> int:
        done, self._step = self._step, self._step + 1
        if self.stream is None:
            return super().explore(state, rng, done / self.steps)
        if self.stream.random() < self.epsilon(done / self.steps):
            last = len(self.space) - 1
            return last - self.stream.randint(0, last)  # the code numbers from high to low
        return self.choose(state)


def order_of(kappas: NDArray[np.float64]) -> NDArray[np.intp]:
    """The order in which training systems are met in each episode."""
    return np.argsort(np.searchsorted(BUCKETS, kappas, side="right"), kind="stable")


def training_order(kappas: NDArray[np.float64]) -> NDArray[np.intp]:
    """That of the paper's dense systems, whose kappas are powers of ten up to rounding."""
    decades = 10.0 ** np.round(np.log10(kappas))
    seen = np.where([i in TRAINING_BELOW for i in range(len(kappas))], 0.5 * decades, decades)
    return order_of(seen)
