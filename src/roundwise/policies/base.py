"""The policy contract: `Policy`, and what the policies share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import ActionSpace

Contexts = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]


class Policy(ABC):
    """Chooses an action index for a context; learns from (state, action, reward).

    The life of a policy: `start` with the training contexts and the action space; `encode` the
    contexts into states, once; then `explore` and `update` in turn; `choose` at any time.

    A greedy choice is never an action that was not tried, and it is the safe action where
    nothing is known: an unseen state, or a context with an infinite entry (a singular A has
    kappa = inf). A policy that departs from this says why. Among equally good actions the one
    with the highest index wins: the spaces of `roundwise.actions` run from low to high
    precision, so that a tie costs time and not digits.

    Attributes
    ----------
    name : str
        Names the kind of policy in tables and saved files.
    learns : bool
        Whether `update` changes anything; the baselines need no training.
    space : ActionSpace
        Since `start`.
    """

    name: ClassVar[str]
    learns: ClassVar[bool] = True
    space: ActionSpace

    def start(self, contexts: ArrayLike, space: ActionSpace) -> None:
        """Forget everything; take the training contexts' ranges and the action space."""
        X = check_contexts(contexts)
        finite = X[np.isfinite(X).all(axis=1)]
        if self.learns and not len(finite):
            raise ValueError(
                f"{len(X)} training contexts, none of them finite; pass at least one problem with "
                "finite features"
            )
        self.space = space
        self._features = X.shape[1]
        self._start(finite)

    @abstractmethod
    def _start(self, contexts: Contexts) -> None:
        """Reset, and fit scalers to the finite contexts; `space` is set."""

    def encode(self, contexts: ArrayLike) -> Sequence[Any]:
        """The states of the contexts, one per row; NaN is refused, infinity is not."""
        self._check_started()
        X = check_contexts(contexts)
        if X.shape[1] != self._features:
            raise ValueError(
                f"contexts have {X.shape[1]} features, training had {self._features}; pass the same"
            )
        return self._encode(X)

    @abstractmethod
    def _encode(self, contexts: Contexts) -> Sequence[Any]: ...

    @abstractmethod
    def explore(self, state: Any, rng: np.random.Generator, progress: float) -> int:
        """The action to try in training; progress is t / T, in [0, 1]."""

    @abstractmethod
    def update(self, state: Any, action: int, reward: float) -> float:
        """Learn; returns the reward minus what was predicted for it."""

    @abstractmethod
    def choose(self, state: Any) -> int:
        """The greedy action."""

    def predict(self, contexts: ArrayLike) -> NDArray[np.intp]:
        """The greedy action of each context."""
        return np.array([self.choose(state) for state in self.encode(contexts)], dtype=np.intp)

    def ladder(self, state: Any) -> Sequence[int]:
        """The actions to try in turn until one succeeds: the greedy one, then the safe one."""
        first = self.choose(state)
        return [first] if first == self.space.safe else [first, self.space.safe]

    def epsilon(self, progress: float) -> float:
        """The share of random choices in training; 0 unless the policy draws at random."""
        return 0.0

    @property
    def coverage(self) -> float:
        """The share of what could be tried in training that was tried; 1 for the baselines."""
        return 1.0

    def to_dict(self) -> dict[str, Any]:
        """All but the arrays, for JSON; with `arrays` it makes the policy again."""
        self._check_started()
        return {
            "policy": self.name,
            "version": 1,
            "features": self._features,
            "space": self.space.to_dict(),
            "settings": self._settings(),
        }

    def arrays(self) -> Arrays:
        """What was learned, for npz."""
        self._check_started()
        return {}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Policy:
        """The policy that `to_dict` and `arrays` wrote; it makes identical choices."""
        try:
            if saved["policy"] != cls.name:
                raise ValueError(f"a saved {saved['policy']!r} policy is no {cls.name!r} policy")
            if saved["version"] != 1:
                raise ValueError(
                    f"saved policy has version {saved['version']}, this Roundwise reads version 1; "
                    "install the Roundwise that saved it"
                )
            space = ActionSpace.from_dict(saved["space"])
            features = int(saved["features"])
            policy = cls._from_settings(saved["settings"])
            policy.space, policy._features = space, features
            policy._restore(saved["settings"], arrays)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"not a saved {cls.name} policy ({error!r}); save it again") from error
        return policy

    def _settings(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able, and what else `_restore` needs."""
        return {}

    @classmethod
    def _from_settings(cls, settings: Mapping[str, Any]) -> Policy:
        return cls(**settings)

    @abstractmethod
    def _restore(self, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put back what was learned."""

    def _check_started(self) -> None:
        if not hasattr(self, "space"):
            raise ValueError(f"the {self.name} policy has not started; call start or fit first")


def decayed_epsilon(progress: float, minimum: float) -> float:
    """The paper's schedule, ``max(minimum, 1 - t/T)`` with t/T = progress."""
    return max(minimum, 1.0 - progress)


def check_epsilon_min(value: float) -> float:
    """The value, if it is a probability."""
    if not 0 <= value <= 1:
        raise ValueError(f"epsilon_min = {value}; choose 0 <= epsilon_min <= 1")
    return float(value)


def check_reward(reward: float) -> None:
    """Refuse a reward that would poison every later average."""
    if not math.isfinite(reward):
        raise ValueError(f"reward = {reward}; give a failed run a finite reward")


def last_argmax(values: NDArray[np.float64]) -> int:
    """The highest index of a largest entry."""
    return len(values) - 1 - int(np.argmax(values[::-1]))


def saved_ranges(arrays: Mapping[str, NDArray[Any]], features: int) -> Contexts:
    """The saved ends of each feature's training range, as two contexts."""
    low, high = (np.asarray(arrays[key], dtype=np.float64) for key in ("low", "high"))
    if low.shape != (features,) or high.shape != (features,) or not np.all(low <= high):
        raise ValueError("the saved ranges do not fit the features; save the policy again")
    return np.array([low, high])


def check_contexts(contexts: ArrayLike) -> Contexts:
    """The contexts as an (N, d) float64 array without NaN."""
    X = np.asarray(contexts, dtype=np.float64)
    if X.ndim != 2 or not X.shape[1]:
        raise ValueError(f"contexts have shape {X.shape}; pass one row of features per problem")
    if np.isnan(X).any():
        row, column = np.argwhere(np.isnan(X))[0]
        raise ValueError(f"contexts[{row}, {column}] is NaN; compute the feature or drop the row")
    return X
