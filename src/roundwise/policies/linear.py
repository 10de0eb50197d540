"""`LinearUCB` and `ThompsonSampling`: linear models that generalise over contexts and actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.policies.base import (
    Arrays,
    Contexts,
    Policy,
    check_reward,
    last_argmax,
    method_indicators,
    saved_ranges,
)

Model = Literal["stages", "hybrid"]
State = NDArray[np.float64] | None


class LinearPolicy(Policy):
    """A Bayesian linear model of the reward; subclasses say how to explore with it.

    The reward of action a in context x is modelled as a sum over stages,

        sum_s b(x)' theta[s, a_s]      (one vector theta for each stage and format),

    so that a format tried in a stage tells about every action that has it there. Where actions
    have several methods, each method adds a vector of its own. The model
    ``"hybrid"`` adds ``b(x)' theta[a]``, for what formats do together (Li et al. 2010, WWW:
    hybrid linear models). b(x) is 1 and, for each feature, a piecewise linear function over the
    training range with `knots` inner knots, outside of which x is clipped.

    All thetas are found together by recursive least squares with the penalty
    ``ridge ||theta||^2``. The greedy action has the largest prediction among the actions tried
    in some context, this one or not: that is the point of the model. A context with an
    infinite entry gets the safe action and teaches nothing.
    """

    because: ClassVar[str] = "has the largest predicted reward of the actions tried in any context."
    parameters: ClassVar[tuple[str, ...]] = ("ridge", "knots", "model")
    _learned: ClassVar[tuple[str, ...]] = ("theta", "covariance", "counts")

    def __init__(self, ridge: float = 1.0, knots: int = 4, model: Model = "stages") -> None:
        if not 0 < ridge < np.inf:
            raise ValueError(f"ridge = {ridge}; choose a number > 0")
        if isinstance(knots, bool) or not isinstance(knots, int) or knots < 0:
            raise ValueError(f"knots = {knots!r}; choose a whole number >= 0")
        if model not in get_args(Model):
            raise ValueError(f"model = {model!r}; choose one of {', '.join(get_args(Model))}")
        self.ridge = float(ridge)
        self.knots = knots
        self.model = model

    def begin(self, contexts: Contexts) -> None:
        self._low, self._high = contexts.min(axis=0), contexts.max(axis=0)
        self._design = design_matrix(self.space, self.model == "hybrid")
        size = self._design.shape[1] * (1 + self.feature_count * (1 + self.knots))
        self._theta = np.zeros(size)
        self._covariance = np.eye(size) / self.ridge
        self._counts = np.zeros(len(self.space), dtype=np.int64)

    def states(self, contexts: Contexts) -> list[State]:
        """b(x) of each context; None where x is infinite."""
        span = self._high / 2 - self._low / 2  # halves, so that no difference overflows
        Z = np.clip(contexts, self._low, self._high) / 2 - self._low / 2
        Z = np.where(span > 0, Z / np.where(span > 0, span, 1.0), 0.0)
        inner = np.arange(1, self.knots + 1) / (self.knots + 1)
        hinges = np.maximum(Z[:, :, None] - inner, 0.0).reshape(len(Z), -1)
        basis = np.hstack([np.ones((len(Z), 1)), Z, hinges])
        return [b if np.isfinite(x).all() else None for b, x in zip(basis, contexts, strict=True)]

    def _predict(self, b: NDArray[np.float64]) -> NDArray[np.float64]:
        """The expected reward of each action."""
        return self._design @ (self._theta.reshape(-1, len(b)) @ b)

    def _part_covariance(self, b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Posterior covariance, in units of the noise, of the parts that the design adds up."""
        parts = self._design.shape[1]
        half = (self._covariance.reshape(-1, len(b)) @ b).reshape(parts, len(b), parts)
        return np.asarray(b @ half)

    def update(self, state: State, action: int, reward: float) -> float:
        check_reward(reward)
        if state is None:
            return 0.0
        phi = np.outer(self._design[action], state).ravel()
        gain = self._covariance @ phi
        error = float(reward - phi @ self._theta)
        scale = 1.0 / (1.0 + phi @ gain)
        self._theta += gain * (error * scale)
        self._covariance -= np.outer(gain, gain * scale)
        self._counts[action] += 1
        return error

    @abstractmethod
    def bonus(self, b: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        """The amount that exploration adds to the predicted reward of each action."""

    def explore(self, state: State, rng: np.random.Generator, progress: float) -> int:
        if state is None:
            return self.space.safe
        return last_argmax(self._predict(state) + self.bonus(state, rng))

    def expected(self, state: NDArray[np.float64]) -> NDArray[np.float64] | None:
        if not self._counts.any():
            return None
        return np.where(self._counts > 0, self._predict(state), -np.inf)

    def epsilon(self, progress: float) -> float:
        return 0.0

    @property
    def coverage(self) -> float:
        """The share of actions that were tried."""
        self.check_started()
        return float(np.mean(self._counts > 0))

    def arrays(self) -> Arrays:
        self.check_started()
        learned = {name: getattr(self, f"_{name}") for name in self._learned}
        return {"low": self._low, "high": self._high} | learned

    def restore(self, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.begin(saved_ranges(arrays, self.feature_count))
        for key in self._learned:
            fresh = getattr(self, "_" + key)
            if arrays[key].shape != fresh.shape or not np.isfinite(arrays[key]).all():
                raise ValueError(f"the saved {key} is corrupt; save the policy again")
            setattr(self, "_" + key, np.array(arrays[key], dtype=fresh.dtype))


class LinearUCB(LinearPolicy):
    """Explores by optimism: the largest ``prediction + alpha * standard deviation``.

    The deviation is ``sqrt(phi' (ridge I + sum phi phi')^-1 phi)`` (Li et al. 2010, WWW,
    "LinUCB"); no randomness enters. `alpha` is in units of the reward; see `LinearPolicy` for
    the model and the other parameters.

    Parameters
    ----------
    alpha : float
        How optimistic.
    ridge, knots, model
        Of the model, see `LinearPolicy`.

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import LinearUCB
    >>> from roundwise.tuning import train
    >>> space, rng = list_space(["factor"], ["fp32", "fp64"]), np.random.default_rng(0)
    >>> policy, contexts = LinearUCB(), [[1.0], [2.0], [8.0], [9.0]]
    >>> rewards = [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]
    >>> curves = train(policy, contexts, rewards, space, episodes=20, rng=rng)
    >>> policy.predict([[1.0], [9.0]])
    array([0, 1])
    """

    name: ClassVar[str] = "linear_ucb"
    parameters: ClassVar[tuple[str, ...]] = ("alpha", *LinearPolicy.parameters)

    def __init__(
        self, alpha: float = 1.0, ridge: float = 1.0, knots: int = 4, model: Model = "stages"
    ) -> None:
        super().__init__(ridge, knots, model)
        if not 0 <= alpha < np.inf:
            raise ValueError(f"alpha = {alpha}; choose a number >= 0")
        self.alpha = float(alpha)

    def bonus(self, b: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        weighted = self._design @ self._part_covariance(b)
        variance = np.einsum("ij,ij->i", weighted, self._design)
        # Rounding may leave a tiny negative number.
        return np.asarray(self.alpha * np.sqrt(np.maximum(variance, 0.0)))


class ThompsonSampling(LinearPolicy):
    """Explores by sampling: the best action of a model drawn from the posterior.

    ``theta ~ N(mean, noise^2 (ridge I + sum phi phi')^-1)`` (Agrawal & Goyal 2013, ICML). Only
    the predictions of this context are drawn, jointly, which has the same distribution and is
    cheaper. `noise` is the rewards' standard deviation around the model; see `LinearPolicy`
    for the model and the other parameters.

    Parameters
    ----------
    noise : float
        The rewards' standard deviation around the model.
    ridge, knots, model
        Of the model, see `LinearPolicy`.

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import ThompsonSampling
    >>> from roundwise.tuning import train
    >>> space, rng = list_space(["factor"], ["fp32", "fp64"]), np.random.default_rng(0)
    >>> policy, contexts = ThompsonSampling(), [[1.0], [2.0], [8.0], [9.0]]
    >>> rewards = [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]
    >>> curves = train(policy, contexts, rewards, space, episodes=50, rng=rng)
    >>> policy.predict([[1.0], [9.0]])
    array([0, 1])
    """

    name: ClassVar[str] = "thompson"
    parameters: ClassVar[tuple[str, ...]] = ("noise", *LinearPolicy.parameters)

    def __init__(
        self, noise: float = 1.0, ridge: float = 1.0, knots: int = 4, model: Model = "stages"
    ) -> None:
        super().__init__(ridge, knots, model)
        if not 0 <= noise < np.inf:
            raise ValueError(f"noise = {noise}; choose a number >= 0")
        self.noise = float(noise)

    def bonus(self, b: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        covariance = self._part_covariance(b)
        # The parts' covariance is positive definite; after many updates only up to rounding.
        covariance[np.diag_indices_from(covariance)] += 1e-12 * covariance.trace()
        root = np.linalg.cholesky(covariance)
        return self.noise * (self._design @ (root @ rng.standard_normal(len(root))))


def design_matrix(space: ActionSpace, hybrid: bool) -> NDArray[np.float64]:
    """0/1: which parts add up to an action's reward; a part is a (stage, format) pair that occurs.

    Methods are parts too, if there are several. With `hybrid`, so is each action.
    """
    parts = sorted(
        {(s, space.formats.index(fmt)) for action in space for s, fmt in enumerate(action)}
    )
    design = np.array(
        [[float(space.formats.index(action[s]) == f) for s, f in parts] for action in space]
    )
    actions = np.eye(len(space)) if hybrid else np.empty((len(space), 0))
    return np.hstack([design, method_indicators(space), actions])
