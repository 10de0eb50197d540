"""
An agent from Gymnasium
=======================

An agent that knows only Gymnasium learns which precisions GMRES-IR needs.
The agent is epsilon-greedy over a table of mean rewards, one row for each decade of the condition
number; any agent for discrete actions could stand in its place. Needs roundwise[gym,tune].
"""

# sphinx_gallery_thumbnail_path = "images/thumb-gym_agent.png"

import tempfile
from pathlib import Path

import gymnasium
import numpy as np

import roundwise as rw
from roundwise.actions import monotone_space
from roundwise.costs import H200_LIKE
from roundwise.env import PrecisionEnv
from roundwise.outcomes import OutcomeTable, fill
from roundwise.rewards import CostReward

# %%
# The agent
# ---------


class EpsilonGreedy:
    """Running means of the rewards of each (decade, action); 0 where nothing was tried."""

    def __init__(self, env: gymnasium.Env, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        decades = int(env.observation_space.high[0]) + 2
        self.means = np.zeros((decades, env.action_space.n))
        self.counts = np.zeros_like(self.means)

    def row(self, observation: np.ndarray) -> int:
        return int(np.clip(round(observation[0]), 0, len(self.means) - 1))

    def choose(self, observation: np.ndarray, epsilon: float = 0.0) -> int:
        if self.rng.random() < epsilon:
            return int(self.rng.integers(self.means.shape[1]))
        return int(self.means[self.row(observation)].argmax())

    def train(self, env: gymnasium.Env, episodes: int) -> None:
        for episode in range(episodes):
            observation, _ = env.reset(seed=0 if episode == 0 else None)
            action = self.choose(observation, epsilon=1 - episode / episodes)
            _, reward, *_ = env.step(action)
            at = self.row(observation), action
            self.counts[at] += 1
            self.means[at] += (reward - self.means[at]) / self.counts[at]


# %%
# The environment: outcomes computed once, then replayed
# ------------------------------------------------------


def make_env(systems: int = 20, n: int = 40) -> PrecisionEnv:
    rng = np.random.default_rng(0)
    kappas = 10.0 ** rng.uniform(1, 10, systems)
    problems = [rw.problems.randsvd(n, kappa, mode=2, rng=rng) for kappa in kappas]
    algorithm = rw.GmresIR(stop=rw.algorithms.DeploymentRule())
    space = monotone_space(algorithm.stages, ["bf16", "tf32", "fp32", "fp64"])
    with tempfile.TemporaryDirectory() as folder:
        table = OutcomeTable(Path(folder) / "outcomes.sqlite")
        fill(table, algorithm, problems, space)
        view = table.view(algorithm, problems, space)
    return PrecisionEnv.from_view(view, CostReward(H200_LIKE))


def mean_regret(agent: EpsilonGreedy, env: PrecisionEnv) -> float:
    regrets = []
    for problem in range(len(env.contexts)):
        observation, _ = env.reset(options={"problem": problem})
        *_, info = env.step(agent.choose(observation))
        regrets.append(info["oracle_regret"])
    return float(np.mean(regrets))


# %%
# Before and after training
# -------------------------

env = make_env()
agent = EpsilonGreedy(env, seed=0)
print(f"{len(env.contexts)} systems, {env.action_space.n} actions; reward: log2 of the speedup")
print("mean regret on these systems")
print(f"  before training  {mean_regret(agent, env):.3f}")
agent.train(env, episodes=5000)
print(f"  after training   {mean_regret(agent, env):.3f}")
