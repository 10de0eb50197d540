"""Running an experiment: policies are trained and judged on the outcomes that were gathered.

This is done for the paper's two weightings and two tolerances. Another reward or another seed
solves nothing again. The same settings give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms import GmresIR
from roundwise.policies import TabularQ
from roundwise.rewards import PaperReward
from roundwise.rewards.base import reward_matrix
from roundwise.tuning import TrainingCurves, train
from roundwise_studies.evaluation import accuracy_table, regret_table
from roundwise_studies.evaluation.accuracy import (
    AccuracyTable,
    RangeAccuracy,
    UsageTable,
    usage_table,
)
from roundwise_studies.evaluation.choices import RegretTable
from roundwise_studies.evaluation.tables import SeedSpread, seed_spread
from roundwise_studies.protocol import Bar, no_bar
from roundwise_studies.report import scientific
from roundwise_studies.simulated.experiment import WEIGHTS, Experiment, Settings
from roundwise_studies.simulated.gather import Half, SimulatedGathered

METRICS: dict[str, Callable[[RangeAccuracy], float]] = {
    "success": lambda r: 100 * r.paper_success,
    "strict": lambda r: 100 * r.strict_success,
    "ferr": lambda r: r.ferr,
    "nbe": lambda r: r.nbe,
    "outer": lambda r: r.outer_iterations,
    "gmres": lambda r: r.inner_iterations,
    "no_result": lambda r: float(r.without_result),
}
"""What is compared with the paper, by name; success rates in percent."""


@dataclass(frozen=True, eq=False)
class Case:
    """One weighting at one tau: what was learned, and what it is worth on the N test systems.

    `policy` is that of the first of the S seeds. `rewards` (N, A) are those of the test systems,
    `chosen` (S, N) the greedy actions of each seed's policy; `training_gain` (S, N) is what the
    greedy actions earn on the training systems above all-FP64. `curves`, `accuracies` and `usages`
    have an entry per seed.
    """

    weight: str
    tau: float
    reward: PaperReward
    policy: TabularQ
    rewards: NDArray[np.float64]
    chosen: NDArray[np.intp]
    training_gain: NDArray[np.float64]
    curves: tuple[TrainingCurves, ...]
    accuracies: tuple[AccuracyTable, ...]
    usages: tuple[UsageTable, ...]
    regrets: RegretTable

    @property
    def label(self) -> str:
        return f"{self.weight}, tau = {scientific(self.tau)}"

    def values(self, kappa_range: str, name: str) -> list[float]:
        """A number of `METRICS`, or the mean stages in a format, for each seed.

        Nothing if the range has no systems.
        """
        if name in METRICS:
            judged = (r for table in self.accuracies for r in table.ranges)
            return [METRICS[name](r) for r in judged if r.name == kappa_range]
        used = (r for table in self.usages for r in table.ranges)
        return [r.formats[name] for r in used if r.name == kappa_range]

    def metric(self, kappa_range: str, name: str) -> SeedSpread:
        """The same over the seeds."""
        return seed_spread(self.values(kappa_range, name))

    def low_precision(self, kappa_range: str) -> float:
        """Mean stages below fp64, over solves and seeds."""
        return len(GmresIR.stages) - self.metric(kappa_range, "fp64").mean


@dataclass(frozen=True, eq=False)
class Result:
    """An experiment's cases, and the all-FP64 baseline by tau."""

    experiment: Experiment
    settings: Settings
    gathered: SimulatedGathered
    cases: tuple[Case, ...]
    baselines: Mapping[float, AccuracyTable]

    @property
    def ranges(self) -> tuple[str, ...]:
        """The ranges of kappa that have test systems."""
        table = next(iter(self.baselines.values()))
        return tuple(r.name for r in table.ranges if r.name != "all")

    @property
    def reported_ranges(self) -> tuple[str, ...]:
        """Those that the paper has numbers for: the ranges, or all systems together."""
        return self.ranges if self.experiment.by_range else ("all",)

    def case(self, weight: str, tau: float) -> Case:
        return next(c for c in self.cases if (c.weight, c.tau) == (weight, tau))


def range_metric(table: AccuracyTable, kappa_range: str, name: str) -> float:
    """A number of `METRICS` in one range of a table."""
    return METRICS[name](next(r for r in table.ranges if r.name == kappa_range))


class Learner:
    """How policies are trained: here as the paper's text says."""

    def reward(self, w1: float, w2: float, lambda_iter: float) -> PaperReward:
        """What the policies are paid."""
        return PaperReward(w1=w1, w2=w2, lambda_iter=lambda_iter)

    def new_policy(self, settings: Settings, systems: int) -> TabularQ:
        """An untrained policy; `systems` are met in every episode."""
        return TabularQ(alpha=settings.alpha)

    def order(self, training: Half) -> NDArray[np.intp]:
        """The order of the training systems in each episode."""
        return np.arange(len(training.rows))

    def seeds(self, settings: Settings) -> Sequence[int]:
        """One training for each."""
        return range(settings.seed, settings.seed + settings.seeds)


def run(
    experiment: Experiment,
    settings: Settings,
    gathered: SimulatedGathered,
    bar: Bar = no_bar,
    learner: Learner = Learner(),  # noqa: B008 (it holds nothing)
) -> Result:
    """Train and evaluate a policy for each weighting and tau; nothing is solved."""
    cases, baselines, space = [], {}, gathered.space
    for tau, (training, test) in gathered.halves.items():
        baseline = test.picked(np.full(len(test.rows), space.safe))
        baselines[tau] = accuracy_table(baseline, baseline, test.kappas, tau)
        met = learner.order(training)
        contexts = training.contexts[met]
        for weight, weights in WEIGHTS.items():
            reward = learner.reward(*weights, experiment.lambda_iter)
            earned = reward_matrix(reward, training.rows, training.facts, space)[met]
            policies, curves = [], []
            for seed in learner.seeds(settings):
                policy, rng = learner.new_policy(settings, len(met)), np.random.default_rng(seed)
                curves.append(train(policy, contexts, earned, space, settings.episodes, rng))
                policies.append(policy)
            chosen = np.array([policy.predict(test.contexts) for policy in policies])
            accuracies = [
                accuracy_table(test.picked(c), baseline, test.kappas, tau) for c in chosen
            ]
            rewards = reward_matrix(reward, test.rows, test.facts, space)
            greedy = np.array([policy.predict(contexts) for policy in policies])
            gain = earned[np.arange(len(met)), greedy] - earned[:, space.safe]
            # The bootstrap has a stream of its own, so that it does not depend on the trainings.
            rng, named = np.random.default_rng(0), {f"RL({weight})": chosen}
            cases.append(
                Case(
                    weight,
                    tau,
                    reward,
                    policies[0],
                    rewards,
                    chosen,
                    gain,
                    tuple(curves),
                    tuple(accuracies),
                    tuple(usage_table(c, space, test.kappas) for c in chosen),
                    regret_table(rewards, named, space.safe, rng),
                )
            )
            bar(len(cases), len(settings.taus) * len(WEIGHTS))
    return Result(experiment, settings, gathered, tuple(cases), baselines)
