"""`PrecisionEnv`: the choice of precisions as a Gymnasium environment, for agents of any library.

It is an adapter. Roundwise's own policies train without it, by replaying a table of rewards (see
`roundwise.tuning.train`), which is much faster.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms import Algorithm
from roundwise.algorithms.base import Shared
from roundwise.backends import Backend, get_backend
from roundwise.features.definitions import compute_with_factors
from roundwise.outcomes import OutcomeView
from roundwise.problems import Problem
from roundwise.rewards import ProblemFacts, Reward
from roundwise.tuning import PAPER_CONTEXT, Context, view_contexts, view_rewards
from roundwise.tuning.context import kappa_for
from roundwise.tuning.training import checked_rewards

try:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
except ModuleNotFoundError as error:
    raise ImportError(
        "roundwise.env needs gymnasium; pip install roundwise[gym] brings it"
    ) from error

__all__ = ["PrecisionEnv"]

Vector = NDArray[np.float64]


class PrecisionEnv(gymnasium.Env[Vector, np.int64]):
    """Choose the format of each stage for one problem after the other.

    ## Description
    A contextual bandit (Carson & Chen, Algorithm 1) as episodes of one step. `reset` draws a
    problem, uniformly, and shows its context; `step` runs one action on it, or looks up what a
    run gave. ``reset(options={"problem": i})`` takes the problem with index i instead.

    ## Action Space
    ``Discrete(A)``: the index of an action of `space`.

    ## Observation Space
    ``Box`` of shape (d,), float64: the context of the problem, by default
    ``[log10 kappa, log10 ||A||_inf]``. The bounds are the ranges over all problems; that of a
    feature that is constant reaches 1 to either side of it. `step` returns the same observation.

    ## Reward
    The reward of the action on the problem. ``info`` holds ``problem``, the index of the problem;
    `step` adds ``action``, the name of the action, and ``oracle_regret``, the reward of the best
    action on this problem less this one; not where problems are solved live, since the best action
    is known only after running all.

    ## Episode End
    Every episode is terminated by its first step, and none is truncated.

    `contexts` are (N, d), `rewards` (N, A) for a space of A actions; or a function
    ``rewards(problem, action)`` of two indices, called at each step, that returns the same each
    time.

    Parameters
    ----------
    contexts : array_like, (N, d)
    rewards : array_like, (N, A), or callable
    space : ActionSpace

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.env import PrecisionEnv
    >>> space = list_space(["factor"], ["fp32", "fp64"])
    >>> env = PrecisionEnv([[1.0], [9.0]], [[1.0, 0.0], [-1.0, 0.0]], space)
    >>> observation, info = env.reset(options={"problem": 1})
    >>> observation, reward, *_ = env.step(0)
    >>> float(observation[0]), float(reward)
    (9.0, -1.0)
    """

    def __init__(
        self,
        contexts: ArrayLike,
        rewards: ArrayLike | Callable[[int, int], float],
        space: ActionSpace,
    ) -> None:
        X = np.array(contexts, dtype=np.float64)
        if X.ndim != 2 or not X.size:
            raise ValueError(f"contexts have shape {X.shape}; pass one row for each problem")
        if not np.isfinite(X).all():
            raise ValueError("contexts hold NaN or inf; leave out problems that are singular")
        self.contexts, self.space = X, space
        self.observation_space = _bounding_box(X)
        self.action_space = gymnasium.spaces.Discrete(len(space))
        self._problem: int | None = None
        self._best: Vector | None = None
        self._reward_of: Callable[[int, int], float]
        if callable(rewards):
            self._reward_of = rewards
        else:
            rewards = table = checked_rewards(rewards, len(X), len(space))
            self._best = table.max(axis=1)
            self._reward_of = lambda problem, action: float(table[problem, action])
        # With a specification, Gymnasium can check all of an environment, and make copies of it.
        self.spec = EnvSpec(
            "roundwise/Precision-v0",
            entry_point="roundwise.env:PrecisionEnv",
            kwargs={"contexts": X, "rewards": rewards, "space": space},
        )

    @classmethod
    def from_view(
        cls, view: OutcomeView, reward: Reward, context: Context = PAPER_CONTEXT
    ) -> PrecisionEnv:
        """Replay the outcomes of a table; see `OutcomeTable.view`."""
        space = ActionSpace(view.stages, view.actions)
        return cls(view_contexts(view, context), view_rewards(view, reward, space), space)

    @classmethod
    def from_problems(
        cls,
        problems: Sequence[Problem],
        algorithm: Algorithm,
        space: ActionSpace,
        reward: Reward,
        context: Context = PAPER_CONTEXT,
        arithmetic: str | Backend = "operation",
    ) -> PrecisionEnv:
        """Solve live: an action is run when an agent first chooses it for a problem.

        Features are computed here, with factors of the same arithmetic. The first step on a
        problem also runs the safe action, with which rewards may compare. Rewards are remembered,
        and factorizations shared between the actions of a problem until all have been tried.
        """
        if space.stages != algorithm.stages:
            raise ValueError(
                f"the space has stages {', '.join(space.stages)}; make one for those of "
                f"{type(algorithm).__name__}: {', '.join(algorithm.stages)}"
            )
        names = context.features
        features = [compute_with_factors(problem, names, arithmetic) for problem in problems]
        kappas = [kappa_for(reward, values) for values in features]
        solves = _LiveSolves(problems, kappas, algorithm, space, reward, get_backend(arithmetic))
        return cls([context.vector(values) for values in features], solves, space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Draw the next problem; returns its context and an info with its index."""
        super().reset(seed=seed)
        if options and "problem" in options:
            self._problem = _index("problem", options["problem"], len(self.contexts))
        else:
            self._problem = int(self.np_random.integers(len(self.contexts)))
        return self.contexts[self._problem].copy(), {"problem": self._problem}

    def step(self, action: np.int64 | int) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Take an action on the problem; returns observation, reward, True, False, info."""
        if self._problem is None:
            raise gymnasium.error.ResetNeeded("the episode is over; call reset() before step()")
        problem, index = self._problem, _index("action", action, len(self.space))
        reward = self._reward_of(problem, index)
        info: dict[str, Any] = {"problem": problem, "action": self.space.names[index]}
        if self._best is not None:
            info["oracle_regret"] = float(self._best[problem]) - reward
        self._problem = None
        return self.contexts[problem].copy(), reward, True, False, info


@dataclass
class _LiveSolves:
    """Rewards from runs, each done once."""

    problems: Sequence[Problem]
    kappas: Sequence[float]
    algorithm: Algorithm
    space: ActionSpace
    reward: Reward
    backend: Backend
    known: dict[int, dict[int, float]] = field(default_factory=dict)
    facts: dict[int, ProblemFacts] = field(default_factory=dict)
    shared: dict[int, Shared] = field(default_factory=dict)

    def __call__(self, problem: int, action: int) -> float:
        known = self.known.setdefault(problem, {})
        for index in (self.space.safe, action):  # the safe action is the baseline of the problem
            if index not in known:
                known[index] = self._run(problem, index)
        if len(known) == len(self.space):
            self.shared.pop(problem, None)  # the factors are large, and of no further use
        return known[action]

    def _run(self, problem: int, action: int) -> float:
        system, formats = self.problems[problem], self.space[action]
        shared = self.shared.setdefault(problem, Shared())
        outcome = self.algorithm.run(system, formats, self.backend, shared)
        if problem not in self.facts:
            self.facts[problem] = ProblemFacts.from_problem(system, self.kappas[problem], outcome)
        return self.reward(outcome, self.facts[problem], formats)


def _bounding_box(X: Vector) -> gymnasium.spaces.Box[np.float64]:
    low, high = X.min(axis=0), X.max(axis=0)
    # Gymnasium wants low < high. Around 1e300, where 1 is nothing, take the next number.
    below = np.minimum(low - 1, np.nextafter(low, -np.inf))
    above = np.maximum(high + 1, np.nextafter(high, np.inf))
    constant = low == high
    return gymnasium.spaces.Box(
        np.where(constant, below, low), np.where(constant, above, high), dtype=np.float64
    )


def _index(what: str, value: Any, count: int) -> int:
    try:
        index = operator.index(value)  # agents choose ints, NumPy scalars, or arrays of shape ()
    except TypeError:
        raise TypeError(f"{what} = {value!r}; pass a whole number") from None
    if not 0 <= index < count:
        raise ValueError(f"{what} = {index}; choose 0 to {count - 1}")
    return index
