"""The variants of the departure study: which departures of the released code each switches on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action
from roundwise.algorithms import GmresIR, Outcome, PaperRule
from roundwise.formats import FP64, TF32
from roundwise.policies import TabularQ
from roundwise.rewards import PaperReward
from roundwise_studies import departures
from roundwise_studies.released.code import (
    ReleasedGmresIR,
    with_released_count,
    without_last_update,
)
from roundwise_studies.released.learning import ReleasedQ, ReleasedReward, order_of, training_order
from roundwise_studies.simulated.experiment import Settings
from roundwise_studies.simulated.gather import Half, Runs
from roundwise_studies.simulated.running import Learner

DATA = {
    "dense": "released",
    "ablation": "released",
    "sparse": "released-sparse",
    "pde": "released-pde",
}
"""The paper's own systems, by experiment."""

STREAM = "stream"
"""Takes the code's random numbers: one training, the paper's own as far as rounding allows."""

STREAM_SEED = 42

DEPARTURES = dict(departures.RELEASED)
"""What each departure is, by its short name."""


@dataclass(frozen=True)
class Variant(Runs, Learner):
    """One way to run an experiment; `departures` are keys of `DEPARTURES`, or `STREAM`."""

    arithmetic: str = "storage"
    data: str = DATA["dense"]
    departures: frozenset[str] = frozenset()

    def algorithm(self, action: Action, tau: float) -> GmresIR:
        """What runs an action. Departures that do not change it are off, to share its outcomes."""
        if self.arithmetic == "operation":
            return GmresIR.paper(tau)
        has = self.departures.__contains__
        _, update, gmres, _ = action
        if has("stages"):
            update, gmres = gmres, update
        return ReleasedGmresIR(
            tolerance=tau,
            stop=PaperRule(tau),
            tf32_as_fp32=has("tf32") and TF32 in action[1:],
            swapped_stages=has("stages") and update != gmres,
            absolute_tolerance=has("tolerance") and gmres != FP64,
            scipy_gmres=has("scipy") and gmres == FP64,
            loose_rounding=has("rounding") and any(fmt != FP64 for fmt in action),
        )

    def seen(self, outcome: Outcome, action: Action, n: int, tau: float) -> Outcome:
        gmres = action[1 if "stages" in self.departures else 2]
        if "counting" in self.departures and gmres != FP64:
            outcome = with_released_count(outcome, n, tau)
        if "stop" in self.departures:
            outcome = without_last_update(outcome, measured="rounding" in self.departures)
        return outcome

    def reward(self, w1: float, w2: float, lambda_iter: float) -> PaperReward:
        return ReleasedReward(
            w1=w1,
            w2=w2,
            lambda_iter=lambda_iter,
            zero_penalty=5.0 if "counting" in self.departures else None,
            explicit_bits="learning" in self.departures,
        )

    def new_policy(self, settings: Settings, systems: int) -> TabularQ:
        if "learning" not in self.departures:
            return super().new_policy(settings, systems)
        stream = Random(STREAM_SEED) if STREAM in self.departures else None
        return ReleasedQ(settings.episodes * systems, settings.alpha, stream)

    def order(self, training: Half) -> NDArray[np.intp]:
        if "learning" not in self.departures:
            return super().order(training)
        return (training_order if self.data == DATA["dense"] else order_of)(training.kappas)

    def seeds(self, settings: Settings) -> Sequence[int]:
        return super().seeds(settings)[: 1 if STREAM in self.departures else None]


ALL = frozenset(DEPARTURES)


def variants(experiment: str = "dense") -> tuple[Variant, ...]:
    """Those of an experiment: none, each departure added, each left out, all of them."""
    data = DATA[experiment]
    ours = {"ablation": "dense"}.get(experiment, experiment)

    def switched(name: str, on: frozenset[str]) -> Variant:
        return Variant(name, "storage", data, on)

    return (
        Variant("our systems", "operation", ours),
        Variant("operation", "operation", data),
        switched("storage", frozenset()),
        *(switched(f"+ {name}", frozenset({name})) for name in DEPARTURES),
        *(switched(f"all - {name}", ALL - {name}) for name in DEPARTURES),
        switched("all", ALL),
        switched("all, its stream", ALL | {STREAM}),
    )
