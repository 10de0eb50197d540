"""How much the paper's choices of learning matter, and what other learners make of the outcomes.

All rows are trained on the training systems of an experiment and judged on those test systems that
are no training systems, under the paper's reward with its own constants, against the best of all 35
actions of each system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from roundwise._lazy import require
from roundwise.actions import Action, ActionSpace
from roundwise.algorithms import GmresIR
from roundwise.discretizer import FeatureDiscretizer
from roundwise.policies import LinearUCB, Policy, TabularQ, ThompsonSampling
from roundwise.problems import LinearSystem
from roundwise.rewards.base import strict_success
from roundwise_studies.beyond.judging import TAU, Choices, Replay, judged, trained
from roundwise_studies.simulated.experiment import WEIGHTS
from roundwise_studies.tabulating import FlatRow


@dataclass(frozen=True)
class Change:
    """One setting of the paper's learner that is not the paper's."""

    parameter: str
    value: str
    policy: Callable[[], Policy] = TabularQ
    episodes: int = 100
    c1: float = 1.0
    all_actions: bool = False


def changes() -> Iterator[Change]:
    """The paper's settings first, then one changed at a time."""
    yield Change("the paper's", "")
    for alpha in (0.1, 0.25, 0.75, 1.0, "1/N"):
        yield Change("alpha", str(alpha), partial(TabularQ, alpha=alpha))
    for bins in (5, 20, 40):
        yield Change("bins", str(bins), partial(TabularQ, FeatureDiscretizer(bins)))
    for least in (0.01, 0.3, 1.0):
        yield Change("least epsilon", str(least), partial(TabularQ, epsilon_min=least))
    for episodes in (10, 30, 300, 1000):
        yield Change("episodes", str(episodes), episodes=episodes)
    for c1 in (0.3, 3.0, 10.0):
        yield Change("C1", f"{c1:g}", c1=c1)
    yield Change("actions", "35", all_actions=True)
    yield Change("greedy over", "all actions", partial(TabularQ, greedy="all"))


def sensitivity(replay: Replay, seeds: int = 10) -> Iterator[FlatRow]:
    """One row for each change and weighting."""
    contexts = replay.train.contexts, replay.test.contexts
    for change in changes():
        columns = range(len(replay.space)) if change.all_actions else replay.top
        for weight in WEIGHTS:
            earned = replay.rewards("train", replay.reward(weight, change.c1))
            chosen = np.array(
                [
                    trained(
                        change.policy(), contexts, earned, replay.space, columns, seed,
                        change.episodes,
                    )
                    for seed in range(seeds)
                ]
            )  # fmt: skip
            lead: FlatRow = {
                "experiment": replay.name,
                "parameter": change.parameter,
                "value": change.value,
            }
            yield lead | judged(replay, weight, chosen)


# Learners


STEPS = 10_000
"""Steps of a learner of the library, as many as the paper's makes: 100 systems, 100 episodes."""


def library_choices(
    kind: str, replay: Replay, weight: str, columns: Sequence[int], seed: int
) -> Choices:
    """What DQN or PPO of Stable-Baselines3 choose after `STEPS` steps; states are continuous.

    Features are scaled to [-1, 1] by the training systems' range. DQN keeps its defaults but for
    gamma = 0 (an episode has one step) and exploration over the first half; PPO but for gamma = 0
    and 250 steps a batch. Networks have two layers of 64.
    """
    agents = require("stable_baselines3", "rl", "roundwise-studies")
    require("torch", "rl", "roundwise-studies").set_num_threads(1)
    from roundwise.env import PrecisionEnv

    low, high = replay.train.contexts.min(axis=0), replay.train.contexts.max(axis=0)
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-12)
    seen, asked = ((half_.contexts - middle) / half for half_ in (replay.train, replay.test))
    earned = replay.rewards("train", replay.reward(weight))[:, list(columns)]
    some = ActionSpace(replay.space.stages, tuple(replay.space[i] for i in columns))
    scale = max(1.0, float(np.abs(earned).max()))
    env = PrecisionEnv(np.clip(seen, -1, 1), earned / scale, some)
    shared = {"gamma": 0.0, "seed": seed, "device": "cpu", "policy_kwargs": {"net_arch": [64, 64]}}
    if kind == "DQN":
        agent = agents.DQN(
            "MlpPolicy", env, learning_starts=200, exploration_fraction=0.5,
            exploration_final_eps=0.1, train_freq=4, **shared,
        )  # fmt: skip
    else:
        agent = agents.PPO("MlpPolicy", env, n_steps=250, batch_size=50, **shared)
    agent.learn(STEPS)
    observed = np.clip(asked, -1, 1)
    actions, _ = agent.predict(observed, deterministic=True)
    return np.array(columns)[np.asarray(actions, dtype=np.intp)]


def learners(
    replay: Replay, library: Sequence[str] = ("DQN", "PPO"), seeds: int = 10, library_seeds: int = 3
) -> Iterator[FlatRow]:
    """The paper's learner beside others, all with the same actions and as many steps."""
    contexts = replay.train.contexts, replay.test.contexts
    ours: Mapping[str, Callable[[], Policy]] = {
        "tabular Q, the paper's": TabularQ,
        "tabular Q, alpha = 1/N": partial(TabularQ, alpha="1/N"),
        "linear UCB": LinearUCB,
        "Thompson sampling": ThompsonSampling,
    }
    for weight in WEIGHTS:
        earned = replay.rewards("train", replay.reward(weight))
        choices: dict[str, Choices] = {
            name: np.array(
                [
                    trained(make(), contexts, earned, replay.space, replay.top, seed)
                    for seed in range(seeds)
                ]
            )
            for name, make in ours.items()
        }
        for kind in library:
            choices[f"{kind} (Stable-Baselines3)"] = np.array(
                [library_choices(kind, replay, weight, replay.top, s) for s in range(library_seeds)]
            )
        fixed = int(earned.mean(axis=0).argmax())
        choices["best fixed action in training"] = np.full((1, len(contexts[1])), fixed)
        choices["all-FP64"] = np.full((1, len(contexts[1])), replay.space.safe)
        choices["oracle"] = replay.rewards("test", replay.reward(weight)).argmax(axis=1)[None]
        for name, chosen in choices.items():
            lead: FlatRow = {"experiment": replay.name, "learner": name}
            yield lead | judged(replay, weight, chosen)


# Configurations of the literature


LITERATURE = {
    "LU-IR with FP32 factors (dsgesv), as GMRES-IR": "fp32-fp64-fp64-fp64",
    "three precisions, bf16 / fp32 / fp64": "bf16-fp32-fp64-fp64",
    "three precisions, bf16 / fp64 / fp64": "bf16-fp64-fp64-fp64",
    "five precisions, bf16, GMRES in fp64": "bf16-fp64-fp64-fp64",
    "five precisions, bf16, GMRES in fp32": "bf16-fp64-fp32-fp64",
    "five precisions, fp32, GMRES in fp32": "fp32-fp64-fp32-fp64",
    "all-FP64": "fp64-fp64-fp64-fp64",
}
"""Fixed actions (u_f, u, u_g, u_r). Carson & Higham (SIAM J. Sci. Comput. 40, 2018) have three
precisions, (u_f, u, u_r), GMRES applying A and the factors as precisely as the residual; FP128 has
no place here. Amestoy, Buttari, Higham, L'Excellent, Mary & Vieuble (SIAM J. Matrix Anal. Appl. 45,
2024) have five: GMRES in u_g, its products with A and the factors in u_p, here equal. bf16 stands
for their half precision. GMRES below the update is not monotone in the paper's order: the policies
here cannot choose it."""


def fixed_rows(replay: Replay, problems: Sequence[LinearSystem]) -> Iterator[FlatRow]:
    """Each configuration on the held-out test systems, given as problems in the same order."""
    algorithm = GmresIR.paper(TAU)
    n = len(problems)
    fp64 = replay.test.ferr[:, replay.space.safe]
    rewards = {w: replay.rewards("test", replay.reward(w)) for w in WEIGHTS}
    for name, action in LITERATURE.items():
        parsed = Action.parse(action)
        if parsed in list(replay.space):
            column = replay.space.index(parsed)
            outcomes = [row[column] for row in replay.test.rows]
        else:
            outcomes = [algorithm.run(problem, action, "operation") for problem in problems]
        ferr = np.array([outcome.ferr for outcome in outcomes])
        nbe = np.array([outcome.nbe for outcome in outcomes])
        row: FlatRow = {
            "experiment": replay.name,
            "configuration": name,
            "action": action,
            "systems": n,
            "strict %": 100 * float(strict_success(ferr, nbe, fp64, TAU).mean()),
            "median ferr": float(np.median(ferr)),
            "median nbe": float(np.median(nbe)),
            "GMRES": float(np.mean([outcome.inner_iterations for outcome in outcomes])),
        }
        for weight, table in rewards.items():
            reward = replay.reward(weight)
            mine = [
                reward(outcome, facts, parsed)
                for outcome, facts in zip(outcomes, replay.test.facts, strict=True)
            ]
            row[f"regret {weight}"] = float(np.mean(table.max(axis=1) - np.array(mine)))
        yield row
