"""How a row of these studies is judged: what its choices are worth on the test systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.policies import Policy
from roundwise.rewards.base import reward_matrix, strict_success
from roundwise.rewards.paper import PaperReward
from roundwise.tuning import train
from roundwise_studies.evaluation import regret_table
from roundwise_studies.simulated.experiment import EXPERIMENTS, WEIGHTS, Settings
from roundwise_studies.simulated.gather import Half, Runs, gather
from roundwise_studies.tabulating import FlatRow

TAU = 1e-6
EVERY = Settings(actions=35, taus=(TAU,))
"""All 35 monotone actions at one tau: the reference of every row is the best of them."""

Choices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Replay:
    """The outcomes of an experiment with all 35 actions; test systems are no training systems."""

    name: str
    space: ActionSpace
    train: Half
    test: Half

    def reward(self, weight: str, c1: float = 1.0) -> PaperReward:
        w1, w2 = WEIGHTS[weight]
        return PaperReward(w1=w1, w2=w2, c1=c1, lambda_iter=EXPERIMENTS[self.name].lambda_iter)

    def rewards(self, half: str, reward: PaperReward) -> NDArray[np.float64]:
        of: Half = getattr(self, half)
        return reward_matrix(reward, of.rows, of.facts, self.space)

    @property
    def top(self) -> list[int]:
        """The indices of the paper's 25 actions."""
        return list(range(len(self.space) - 25, len(self.space)))


def replayed(name: str, cache: Path, jobs: int | None = None, settings: Settings = EVERY) -> Replay:
    """Read the outcomes of an experiment, and solve what the cache lacks."""
    data = EXPERIMENTS[name].data
    found = gather(Runs(data, "operation", data), settings, cache, jobs)
    training, test = found.halves[TAU]
    known = {problem.fingerprint for problem in training.problems}
    kept = [i for i, problem in enumerate(test.problems) if problem.fingerprint not in known]
    held_out = replace(
        test,
        problems=[test.problems[i] for i in kept],
        contexts=test.contexts[kept],
        facts=[test.facts[i] for i in kept],
        rows=[test.rows[i] for i in kept],
        ferr=test.ferr[kept],
        nbe=test.nbe[kept],
        inner=test.inner[kept],
    )
    return Replay(name, found.space, training, held_out)


def trained(
    policy: Policy,
    contexts: tuple[NDArray[np.float64], NDArray[np.float64]],
    rewards: NDArray[np.float64],
    space: ActionSpace,
    columns: Sequence[int],
    seed: int,
    episodes: int = 100,
) -> Choices:
    """What a policy that learns among some actions chooses on the test systems."""
    some = ActionSpace(space.stages, tuple(space[i] for i in columns))
    rng = np.random.default_rng(seed)
    train(policy, contexts[0], rewards[:, list(columns)], some, episodes, rng)
    return np.array(columns)[policy.predict(contexts[1])]


def judged(replay: Replay, weight: str, chosen: Choices) -> FlatRow:
    """Regret under the paper's reward, strict success and low precision; `chosen` is (S, N)."""
    rewards = replay.rewards("test", replay.reward(weight))
    chosen = np.atleast_2d(chosen)
    table = regret_table(rewards, {"row": chosen}, replay.space.safe, np.random.default_rng(0))
    row = table["row"]
    places = np.arange(chosen.shape[1])
    ferr, nbe = replay.test.ferr[places, chosen], replay.test.nbe[places, chosen]
    fp64 = replay.test.ferr[:, replay.space.safe]
    strict = strict_success(ferr, nbe, np.broadcast_to(fp64, ferr.shape), TAU)
    low = np.array([sum(fmt.name != "fp64" for fmt in action) for action in replay.space])
    return {
        "weights": weight,
        "regret": row.oracle.value,
        "low": row.oracle.low,
        "high": row.oracle.high,
        "std": row.seeds.std,
        "against FP64": row.fp64.value,
        "strict %": 100 * float(np.mean(strict)),
        "stages below FP64": float(low[chosen].mean()),
        "seeds": len(chosen),
    }
