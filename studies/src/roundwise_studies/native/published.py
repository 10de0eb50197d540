"""The paper's native study as it was published: settings, measurements, and learning.

Reproduces: 50 training and 100 validation systems, n uniform in 1000..1500; every action of
{fp16, fp32, fp64} that is monotone in the order (u_f, u_g, u, u_r), three times on each system, at
most ten outer steps, GMRES restarted after 30, one cycle, tolerance 1e-4; lambda_iter = 0.5. The
policy sees a Hager-Higham estimate of kappa_1 and ||A||_inf. A solve is accepted by ferr <= tau,
for each tau by itself: four policies, W1 and W2 at two tau.

The text and the released code differ; `SWITCHES` turn what the code does on, one by one. No run
looks at the true solution: what the released stopping rule would have returned is read off the
trajectories (`trajectories`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms import Outcome, OutcomeStatus
from roundwise.backends import get_backend
from roundwise.features import KAPPA_FLOOR, NORM_FLOOR
from roundwise.policies import TabularQ
from roundwise.rewards import PAPER_W1, PAPER_W2, ProblemFacts
from roundwise.tuning import train
from roundwise_studies.datasets import one_blas_thread
from roundwise_studies.native.device import FORMAT_SETS, RULE, space_of
from roundwise_studies.native.published_systems import GENERATORS, SPLITS, Recipe, recipes, system
from roundwise_studies.native.trajectories import Measured, Step, Trajectory, measured
from roundwise_studies.protocol import Bar, no_bar
from roundwise_studies.released.learning import ReleasedReward, TruncatingDiscretizer

SWITCHES = {
    "stop": "a run ends as soon as ferr <= tau, which takes the true solution; else by the sizes "
    "of the corrections, as the text has it",
    "zero": "0 GMRES iterations are charged like 32, so that x_0 of all-FP64 loses 2.5 points",
    "updates": "100 episodes are 100 single updates, two a system, not 100 passes over all systems",
    "norms": "the reward's errors are ferr in the 2-norm and the backward error, not e_ref and "
    "e_scaled",
    "missed": "a run that ends with ferr > tau earns what a failure earns, -5 for accuracy; so tau "
    "is in the reward, too",
    "learning": "bins truncate, features are at least 1, and bits count without the implicit one",
}
"""What the released code of the native study does otherwise than the text."""

CHOICES = {
    "untried": "untried actions are never greedy: our own choice; else they are worth 0",
    "lowest": "ties go to the lowest action, as a plain argmax over actions from low to high has "
    "it; else to the highest, which an unseen state then gets, too",
}
"""What the text leaves open, beside the switches."""

RELEASED = frozenset(SWITCHES)

STREAM = "stream"
"""Explores with the code's own random numbers (Python's, seed 42): one training."""

STREAM_SEED = 42

VARIANTS: dict[str, frozenset[str]] = {
    "released": RELEASED,
    "released, its stream": RELEASED | {STREAM},
    **{f"released, without {name}": RELEASED - {name} for name in SWITCHES},
    "text": frozenset(),
    **{f"text, with {name}": frozenset({name}) for name in SWITCHES},
    **{f"released, {name}": RELEASED | {name} for name in CHOICES},
}
"""The switches that are on, by the name of the variant."""

WEIGHTS = {"W1": (PAPER_W1.w1, PAPER_W1.w2), "W2": (PAPER_W2.w1, PAPER_W2.w2)}
LAMBDA_ITER = 0.5
ZERO_PENALTY = 5.0


@dataclass(frozen=True)
class Published:
    """Everything but the machine that a result depends on; the defaults are the paper's.

    `generator` is a key of `GENERATORS`; systems of the `splits`, keys of `SPLITS`, are measured.
    `seeds` trainings differ in their exploration; the paper has one.
    """

    generator: str = "released"
    train: int = 50
    test: int = 100
    sizes: tuple[int, int] = (1000, 1500)
    seed: int = 20260912
    repeats: int = 3
    episodes: int = 100
    seeds: int = 10
    taus: tuple[float, ...] = (1e-6, 1e-8)
    splits: tuple[str, ...] = tuple(SPLITS)

    def __post_init__(self) -> None:
        for name in ("train", "test", "repeats", "episodes", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; choose at least 1")
        if not 2 <= self.sizes[0] <= self.sizes[1]:
            raise ValueError(f"sizes = {self.sizes}; choose 2 <= smallest <= largest")
        if self.generator not in GENERATORS:
            raise ValueError(
                f"generator = {self.generator!r}; choose one of {', '.join(GENERATORS)}"
            )

    @property
    def are_the_papers(self) -> bool:
        """Whether only the seeds differ from the paper's."""
        return self == Published(seed=self.seed, seeds=self.seeds)

    @property
    def space(self) -> ActionSpace:
        """Monotone in the order of the paper's native study; names are in the order of ours."""
        return space_of(FORMAT_SETS["fp16"], "paper")

    def recipes(self, split: str, half: str) -> list[Recipe]:
        return recipes(self.generator, split, half, getattr(self, half))

    def key(self, recipe: Recipe) -> str:
        """Names a measured system in the file of measurements."""
        low, high = self.sizes
        lead = f"{self.generator} {low}-{high} seed {self.seed} repeats {self.repeats}"
        return " ".join(filter(None, (lead, *map(str, recipe))))


Systems = Mapping[Recipe, Measured]


def gather(settings: Published, file: Path, bar: Bar = no_bar) -> dict[Recipe, Measured]:
    """Measure the systems that the file lacks, line by line, and read all; one thread."""
    found = {}
    if file.exists():
        with file.open(encoding="utf-8") as lines:
            found = dict(json.loads(line) for line in lines if line.endswith("\n"))
    wanted = list(
        dict.fromkeys(
            recipe
            for split in settings.splits
            for half in ("train", "test")
            for recipe in settings.recipes(split, half)
        )
    )
    backend, space = get_backend("native"), settings.space
    with one_blas_thread():
        for done, recipe in enumerate(wanted, start=1):
            key = settings.key(recipe)
            if key not in found:
                problem = system(settings.generator, recipe, settings.sizes, settings.seed)
                found[key] = measured(problem, space, backend, settings.repeats).to_dict()
                with file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps([key, found[key]]) + "\n")
            bar(done, len(wanted))
    return {recipe: Measured.from_dict(found[settings.key(recipe)]) for recipe in wanted}


# What came of an action, by a rule


def ended(trajectory: Trajectory, tau: float, by_error: bool, roundoff: float) -> Step | None:
    """The step that a stopping rule returns; None if the run gave no result.

    `by_error` is the released rule: the first step with ferr <= tau in the 2-norm. Else it is the
    text's: converged if ``||z|| <= u ||x||``, stagnated if ``||z_i|| >= tau ||z_{i-1}||``.
    """
    steps = trajectory.steps
    if by_error:
        return next((step for step in steps if step.ferr2 <= tau), steps[-1] if steps else None)
    for k, step in enumerate(steps[1 : RULE.max_steps + 1], start=1):
        stagnated = k > 1 and step.correction >= tau * steps[k - 1].correction
        if step.correction <= roundoff or stagnated:
            return step
    return steps[-1] if steps else None


@dataclass(frozen=True, eq=False)
class Judged:
    """What ended runs of N systems with A actions came to; arrays (N, A), inf without a result.

    `seconds` are those of the run without its LU.
    """

    tau: float
    ferr: NDArray[np.float64]
    ferr2: NDArray[np.float64]
    nbe: NDArray[np.float64]
    gmres: NDArray[np.int64]
    seconds: NDArray[np.float64]


def judged(systems: Sequence[Measured], space: ActionSpace, tau: float, by_error: bool) -> Judged:
    """All runs of all systems, ended by a rule."""
    nothing = Step(math.inf, math.inf, math.inf, 0, 1.0, 0.0)
    ends = [
        [
            ended(each.actions[name], tau, by_error, action[1].unit_roundoff) or nothing
            for name, action in zip(space.names, space, strict=True)
        ]
        for each in systems
    ]

    def column(name: str) -> NDArray[Any]:
        return np.array([[getattr(step, name) for step in row] for row in ends])

    return Judged(tau, *(column(name) for name in ("ferr", "ferr2", "nbe", "gmres", "seconds")))


# Learning


@dataclass(frozen=True)
class NativeReward(ReleasedReward):
    """The paper's reward with the switches of the released code.

    `by_backward`: the two errors are the outcome's ferr, then that of the 2-norm, and its backward
    error.
    """

    by_backward: bool = False

    def errors(self, outcome: Outcome, facts: ProblemFacts) -> tuple[float, float]:
        return (outcome.ferr, outcome.nbe) if self.by_backward else super().errors(outcome, facts)


def contexts(systems: Sequence[Measured]) -> NDArray[np.float64]:
    return np.array(
        [
            [
                math.log10(max(each.kappa_est, KAPPA_FLOOR)),
                math.log10(max(each.norm_inf, NORM_FLOOR)),
            ]
            for each in systems
        ]
    )


def rewards(
    systems: Sequence[Measured], found: Judged, space: ActionSpace, weight: str, on: frozenset[str]
) -> NDArray[np.float64]:
    """What the actions earn, (N, A); kappa is what the policy sees."""
    w1, w2 = WEIGHTS[weight]
    reward = NativeReward(
        w1=w1,
        w2=w2,
        lambda_iter=LAMBDA_ITER,
        zero_penalty=ZERO_PENALTY if "zero" in on else None,
        explicit_bits="learning" in on,
        by_backward="norms" in on,
    )
    table = np.empty((len(systems), len(space)))
    errors = found.ferr2 if "norms" in on else found.ferr
    if "missed" in on:
        errors = np.where(errors <= found.tau, errors, math.inf)
    for i, each in enumerate(systems):
        facts = ProblemFacts(
            n=each.n,
            kappa=each.kappa_est,
            norm_A=each.norm_inf,
            norm_x_true=each.norm_x,
            norm_b=each.norm_b,
        )
        for a, action in enumerate(space):
            outcome = Outcome(
                OutcomeStatus.CONVERGED,
                None,
                ferr=float(errors[i, a]),
                nbe=float(found.nbe[i, a]),
                inner_iterations=int(found.gmres[i, a]),
            )
            table[i, a] = reward(outcome, facts, action)
    return table


class NativeQ(TabularQ):
    """The paper's policy with the switches ``learning``, ``untried`` and ``lowest``."""

    def __init__(self, on: frozenset[str]) -> None:
        super().__init__(alpha=0.5, greedy="tried" if "untried" in on else "all")
        self.on = on

    def begin(self, contexts: NDArray[np.float64]) -> None:
        super().begin(contexts)
        if "learning" in self.on:
            self.discretizer_ = TruncatingDiscretizer(10).fit(np.maximum(contexts, 0.0))
            self._occurring = len(set(self.states(contexts)))

    def states(self, contexts: NDArray[np.float64]) -> list[int | None]:
        return super().states(np.maximum(contexts, 0.0) if "learning" in self.on else contexts)

    def choose(self, state: int | None) -> int:
        if "lowest" not in self.on:
            return super().choose(state)
        values = self._values_of(state)
        return 0 if values is None else values.index(max(values))


def learned(
    seen: NDArray[np.float64],
    earned: NDArray[np.float64],
    space: ActionSpace,
    episodes: int,
    on: frozenset[str],
    seed: int,
) -> TabularQ:
    """A policy after its training: passes over all systems, or as many single updates."""
    policy, rng = NativeQ(on), np.random.default_rng(seed)
    if "updates" not in on:
        train(policy, seen, earned, space, episodes, rng)
        return policy
    policy.start(seen, space)
    states, stream = list(policy.encode(seen)), Random(STREAM_SEED)
    for t in range(episodes):
        i = t % len(states)
        if STREAM not in on:
            action = policy.explore(states[i], rng, t / episodes)
        elif stream.random() < policy.epsilon(t / episodes):
            action = len(space) - 1 - stream.randrange(len(space))  # it counts from high to low
        else:
            action = policy.choose(states[i])
        policy.update(states[i], action, float(earned[i, action]))
    return policy


@dataclass(frozen=True, eq=False)
class Case:
    """One policy, W1 or W2 at one tau, of a split and a variant; `chosen` is (seeds, N)."""

    split: str
    variant: str
    weight: str
    tau: float
    systems: Sequence[Measured]
    found: Judged
    chosen: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class PublishedResult:
    """All policies of all variants and splits."""

    settings: Published
    machine: str
    cases: tuple[Case, ...]

    def case(self, split: str, variant: str, weight: str, tau: float) -> Case:
        wanted = (split, variant, weight, tau)
        return next(c for c in self.cases if (c.split, c.variant, c.weight, c.tau) == wanted)


def run(settings: Published, systems: Systems, machine: str) -> PublishedResult:
    """Train and judge every policy; nothing is solved."""
    cases, space = [], settings.space
    for split in settings.splits:
        training, test = (
            [systems[recipe] for recipe in settings.recipes(split, half)]
            for half in ("train", "test")
        )
        seen, asked = contexts(training), contexts(test)
        for variant, on in VARIANTS.items():
            for tau in settings.taus:
                by_error = "stop" in on
                learnt = judged(training, space, tau, by_error)
                found = judged(test, space, tau, by_error)
                for weight in WEIGHTS:
                    earned = rewards(training, learnt, space, weight, on)
                    chosen = [
                        learned(seen, earned, space, settings.episodes, on, seed).predict(asked)
                        for seed in range(1 if STREAM in on else settings.seeds)
                    ]
                    cases.append(Case(split, variant, weight, tau, test, found, np.array(chosen)))
    return PublishedResult(settings, machine, tuple(cases))
