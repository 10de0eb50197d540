"""What the experiments share: facts -> training -> evaluation -> result.

An experiment is run for the paper's two weightings and two tolerances. Facts come first,
see `roundwise.experiments.simulated.gather`. Everything after that is replay: a second run, another reward or
another seed solves nothing again. The same settings give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms import Outcome
from roundwise.evaluation import (
    AccuracyTable,
    RangeAccuracy,
    RegretTable,
    SeedSpread,
    UsageTable,
    accuracy_table,
    regret_table,
    seed_spread,
    usage_table,
)
from roundwise.experiments.simulated.gather import Facts, Half
from roundwise.experiments.simulated.settings import Settings
from roundwise.policies import TabularQ
from roundwise.rewards import PaperReward, reward_matrix
from roundwise.tuning import TrainingCurves, train

WEIGHTS = {"W1": (1.0, 0.1), "W2": (1.0, 1.0)}
"""(w1, w2): the weights of accuracy and of precision."""

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


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Attributes
    ----------
    name, title : str
    data : str
        Which data set it runs on, see `roundwise.experiments.simulated.sets`.
    lambda_iter : float
        Weight of the iteration penalty.
    by_range : bool
        Whether the paper reports it by range of the condition number.
    about : str
        What it reproduces, for the report.
    departures : tuple of (title, text)
        Where it departs from the paper, or the paper's numbers from its text.
    heavy_tailed : bool
        Whether a few systems carry the mean errors, so that other draws of them are looked at.
    """

    name: str
    title: str
    data: str
    lambda_iter: float
    by_range: bool
    about: str
    departures: tuple[tuple[str, str], ...] = ()
    heavy_tailed: bool = False


@dataclass(frozen=True, eq=False)
class Case:
    """One weighting at one tau: what was learned, and what it is worth on the test systems.

    Attributes
    ----------
    weight : str
        ``W1`` or ``W2``.
    tau : float
    policy : TabularQ
        Of the first seed.
    rewards : array (N, A)
        Of the test systems.
    chosen : array (S, N)
        The greedy action of each seed's policy on each test system.
    curves, accuracies, usages : tuples
        One per seed.
    regrets : RegretTable
    """

    weight: str
    tau: float
    reward: PaperReward
    policy: TabularQ
    rewards: NDArray[np.float64]
    chosen: NDArray[np.intp]
    curves: tuple[TrainingCurves, ...]
    accuracies: tuple[AccuracyTable, ...]
    usages: tuple[UsageTable, ...]
    regrets: RegretTable

    def values(self, kappa_range: str, name: str) -> list[float]:
        """A number of `METRICS` in a range, one per seed."""
        return [range_metric(table, kappa_range, name) for table in self.accuracies]

    def metric(self, kappa_range: str, name: str) -> SeedSpread:
        """The same over the seeds."""
        return seed_spread(self.values(kappa_range, name))

    def first(self, kappa_range: str, name: str) -> float:
        """The same of the first seed."""
        return range_metric(self.accuracies[0], kappa_range, name)

    def usage(self, kappa_range: str, fmt: str) -> list[float]:
        """Mean stages per solve in that format, one number per seed."""
        return [
            next(r for r in table.ranges if r.name == kappa_range).formats[fmt]
            for table in self.usages
        ]

    def low_precision(self, kappa_range: str) -> float:
        """Mean stages below fp64, over solves and seeds."""
        stages = len(self.policy.space.stages)
        return stages - float(np.mean(self.usage(kappa_range, "fp64")))


@dataclass(frozen=True, eq=False)
class Result:
    """An experiment's cases, and the all-FP64 baseline by tau.

    `draws` holds the baseline's mean ferr on other test sets, where that was asked for.
    """

    experiment: Experiment
    settings: Settings
    facts: Facts
    cases: tuple[Case, ...]
    baselines: Mapping[float, AccuracyTable]
    draws: tuple[float, ...] = ()

    @property
    def ranges(self) -> tuple[str, ...]:
        """The ranges of kappa that have test systems."""
        table = next(iter(self.baselines.values()))
        return tuple(r.name for r in table.ranges if r.name != "all")

    def case(self, weight: str, tau: float) -> Case:
        return next(c for c in self.cases if (c.weight, c.tau) == (weight, tau))


def range_metric(table: AccuracyTable, kappa_range: str, name: str) -> float:
    """A number of `METRICS` in one range of a table."""
    return METRICS[name](next(r for r in table.ranges if r.name == kappa_range))


@dataclass(frozen=True, eq=False)
class Learned:
    """What the trainings of one weighting gave: the policies, one per seed, and their rewards."""

    reward: PaperReward
    rewards: NDArray[np.float64]
    policies: Sequence[TabularQ]
    curves: Sequence[TrainingCurves]


Learner = Callable[[Experiment, Settings, ActionSpace, tuple[Half, Half], str], Learned]
"""From experiment, settings, actions, training and test half, and weighting."""


def learn(
    experiment: Experiment,
    settings: Settings,
    space: ActionSpace,
    halves: tuple[Half, Half],
    weight: str,
) -> Learned:
    """As the paper's text has it."""
    w1, w2 = WEIGHTS[weight]
    reward = PaperReward(w1=w1, w2=w2, lambda_iter=experiment.lambda_iter)
    return trained(settings, space, halves, reward, lambda: TabularQ(alpha=settings.alpha))


def trained(
    settings: Settings,
    space: ActionSpace,
    halves: tuple[Half, Half],
    reward: PaperReward,
    new_policy: Callable[[], TabularQ],
    order: NDArray[np.intp] | None = None,
) -> Learned:
    """A new policy trained for each seed; `order` is that of the systems in an episode."""
    training, rewards = (reward_matrix(reward, h.rows, h.facts, space) for h in halves)
    met = np.arange(len(training)) if order is None else order
    contexts = halves[0].contexts[met]
    policies, curves = [], []
    for seed in range(settings.seed, settings.seed + settings.seeds):
        policy, rng = new_policy(), np.random.default_rng(seed)
        curves.append(train(policy, contexts, training[met], space, settings.episodes, rng))
        policies.append(policy)
    return Learned(reward, rewards, policies, curves)


def run(
    experiment: Experiment,
    settings: Settings,
    facts: Facts,
    progress: Callable[[int, int], None] | None = None,
    learner: Learner = learn,
) -> Result:
    """Train and evaluate a policy for each weighting and tau; nothing is solved."""
    total, cases, baselines = len(settings.taus) * len(WEIGHTS), [], {}
    for tau, halves in facts.halves.items():
        test = halves[1]
        baseline = test.picked(np.full(len(test.rows), facts.space.safe, dtype=np.intp))
        baselines[tau] = accuracy_table(baseline, baseline, test.kappas, tau)
        for weight in WEIGHTS:
            learned = learner(experiment, settings, facts.space, halves, weight)
            cases.append(_judged(learned, facts.space, test, baseline, weight, tau))
            if progress is not None:
                progress(len(cases), total)
    return Result(experiment, settings, facts, tuple(cases), baselines)


def _judged(
    learned: Learned,
    space: ActionSpace,
    test: Half,
    baseline: Sequence[Outcome],
    weight: str,
    tau: float,
) -> Case:
    chosen = np.array([policy.predict(test.contexts) for policy in learned.policies])
    return Case(
        weight,
        tau,
        learned.reward,
        learned.policies[0],
        learned.rewards,
        chosen,
        tuple(learned.curves),
        tuple(accuracy_table(test.picked(c), baseline, test.kappas, tau) for c in chosen),
        tuple(usage_table(c, space, test.kappas) for c in chosen),
        # The bootstrap gets a stream of its own, so that it does not depend on the trainings.
        regret_table(
            learned.rewards, {f"RL({weight})": chosen}, space.safe, np.random.default_rng(0)
        ),
    )
