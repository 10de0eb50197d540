"""The policy contract: `Policy`, the `Ranking` that it gives, and what the policies share.

A policy of your own overrides `begin`, `expected` and `update`, and names itself; see
`examples/custom_policy.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import Action, ActionSpace, format_key
from roundwise.algorithms import Outcome
from roundwise.discretizer import matrix_of

Contexts = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
Learn = Callable[[Sequence[Outcome], float], None]
"""Takes the attempts of a solve, and its seconds."""


@dataclass(frozen=True)
class Ranking:
    """Actions in the order in which a policy prefers them.

    Parameters
    ----------
    actions : tuple of int
        Indices, the preferred one first.
    costs : tuple of float
        What each is expected to cost.
    reason : str
        Why the first is first.

    Examples
    --------
    >>> from roundwise.policies import Ranking
    >>> Ranking((1, 0), (0.5, 2.0), "it is faster").first
    1
    """

    actions: tuple[int, ...]  # indices into the space, best first
    costs: tuple[float, ...]  # minus the expected reward, or what the policy says; NaN if unknown
    reason: str  # why the first is first, in one sentence

    @property
    def first(self) -> int:
        return self.actions[0]


class StudiedOutcomes(Protocol):
    """The part of `roundwise.outcomes.OutcomeView` (problems by actions) that policies use."""

    @property
    def actions(self) -> Sequence[Action]: ...
    def outcome(self, problem: int, action: int) -> Outcome: ...
    def features_of(self, problem: int) -> dict[str, float]: ...


class Policy(ABC):
    """Ranks the actions for a state; learns from (state, action, reward).

    Training calls `start` with the training contexts and the action space, `encode` once to turn
    contexts into states, then `explore` and `update` in turn. `rank`, `choose` and `ladder` may be
    called at any time after `start`. `choose` is a faster ``rank(state).first``.

    An action that was not tried is never first, and the safe action is first where nothing is
    known: an unseen state, or a context with an infinite entry (a singular A has kappa = inf). A
    policy that departs from this says why in its `Ranking.reason`. Among equally good actions the
    one with the highest index wins: the spaces of `roundwise.actions` run from low to high
    precision, so that a tie costs time and not digits.

    Hooks, for a policy of your own: `begin`, `expected` and `update` must be written; `states`,
    `explore`, `epsilon`, `why`, `study` may be. To be saved, it overrides `arrays` and `restore`,
    and names the arguments of its constructor in `parameters` (or overrides `from_settings`).

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import TabularQ
    >>> space = list_space(["factor"], ["fp32", "fp64"])
    >>> policy = TabularQ()  # a Policy
    >>> policy.start([[1.0], [8.0]], space)
    >>> easy, hard = policy.encode([[1.0], [8.0]])
    >>> for state, rewards in ((easy, (2.0, 1.0)), (hard, (-1.0, 1.0))):
    ...     for action, reward in enumerate(rewards):
    ...         error = policy.update(state, action, reward)
    >>> [space.names[policy.choose(state)] for state in (easy, hard)]
    ['fp32', 'fp64']
    """

    name: ClassVar[str]  # of the kind of policy in tables and saved files
    learns: ClassVar[bool] = True  # whether `update` changes anything
    unknown: ClassVar[str] = (
        "No similar systems in the training data"  # the reason for the safe action
    )
    because: ClassVar[str] = "has the largest expected reward of the actions that were tried."
    parameters: ClassVar[tuple[str, ...]] = ()  # what the constructor takes and keeps, JSON-able
    study_features: ClassVar[tuple[str, ...]] = ()  # that `study` wants beyond the context's
    needs_context: ClassVar[tuple[str, ...] | None] = None  # the features it must see; None: any
    epsilon_min: float = 0.1  # the lowest share of random choices in training
    space: ActionSpace  # since `start`
    feature_count: int  # the length of a context

    def __repr__(self) -> str:
        """The constructor's arguments and, once it has started, how many actions it ranks."""
        facts = [f"{name}={getattr(self, name)!r}" for name in self.parameters]
        if hasattr(self, "space"):
            facts.append(f"{len(self.space)} actions")
        return f"{type(self).__name__}({', '.join(facts)})"

    def start(self, contexts: ArrayLike, space: ActionSpace) -> None:
        """Forget everything; take the training contexts' ranges and the action space."""
        X = matrix_of("contexts", contexts)
        finite = X[np.isfinite(X).all(axis=1)]
        if self.learns and not len(finite):
            raise ValueError(
                f"{len(X)} training contexts, none of them finite; pass at least one problem with "
                "finite features"
            )
        self.space = space
        self.feature_count = X.shape[1]
        self.begin(finite)

    @abstractmethod
    def begin(self, contexts: Contexts) -> None:
        """Forget what was learned, and fit scalers to the finite contexts.

        `space` and `feature_count` are set before this is called.
        """

    def study(self, view: StudiedOutcomes, contexts: Contexts) -> None:  # noqa: B027
        """Take the outcomes of the training problems, between `begin` and the first episode."""

    @property
    def express_below(self) -> int:
        """Dense systems with fewer unknowns are factorized in FP64 without asking the policy."""
        return 0

    def small(self, kind: str, size: int) -> str | None:
        """Why `roundwise.solve` need not compute features of such a system; None if it must.

        `kind` is one of `policies.profile.KINDS`; `size` is n, or the entries of a sparse A.
        """
        return None

    def seen(self, features: Mapping[str, float]) -> Any:
        """The state of a system with these features, where they tell it without a context.

        None if they do not; then `state` does. A policy that overrides this does not learn from
        its solves, and has `plans`.
        """
        return None

    def plans(self, state: Any) -> dict[Any, Any]:
        """Where plans are kept for systems of a state that was `seen`, and for all like them.

        They hold as long as the policy and its prices do.
        """
        return {}

    def probes(self, free: Mapping[str, float]) -> bool:
        """Whether features that read A are worth their time, from those that are free (n, ...)."""
        return True

    def encode(self, contexts: ArrayLike) -> Sequence[Any]:
        """The states of the contexts, one per row; NaN is refused, infinity is not."""
        X = matrix_of("contexts", contexts)
        self._check_count(X.shape[1])
        return self.states(X)

    def state(self, context: NDArray[np.float64]) -> Any:
        """The state of one context, as `Context.vector` makes it: without NaN."""
        self._check_count(len(context))
        return self.states(context[None])[0]

    def _check_count(self, features: int) -> None:
        self.check_started()
        if features != self.feature_count:
            raise ValueError(
                f"contexts have {features} features, training had {self.feature_count}; pass the "
                "same"
            )

    def states(self, contexts: Contexts) -> Sequence[Any]:
        """The state of each context: by default the context as a tuple, None if not finite."""
        return [tuple(row) if all(map(math.isfinite, row)) else None for row in contexts.tolist()]

    @abstractmethod
    def expected(self, state: Any) -> NDArray[np.float64] | None:
        """The expected reward of each action, -inf if it was not tried; None if nothing is known.

        It is never called with the state None.
        """

    @abstractmethod
    def update(self, state: Any, action: int, reward: float) -> float:
        """Learn; returns the reward minus what was predicted for it."""

    def explore(self, state: Any, rng: np.random.Generator, progress: float) -> int:
        """The action to try at progress t / T: random with probability `epsilon`, else greedy."""
        if rng.random() < self.epsilon(progress):
            return int(rng.random() * len(self.space.actions))
        return self.choose(state)

    def epsilon(self, progress: float) -> float:
        """The share of random choices in training: the paper's ``max(epsilon_min, 1 - t/T)``."""
        return max(self.epsilon_min, 1.0 - progress)

    def choose(self, state: Any) -> int:
        """The greedy action: the first of `rank`."""
        values = None if state is None else self.expected(state)
        if values is None:
            return self.space.safe
        best = last_argmax(values)
        return best if values[best] > -math.inf else self.space.safe

    def rank(self, state: Any, allowed: Collection[int] | None = None) -> Ranking:
        """All actions, or the allowed ones: those tried by falling expected reward, then others."""
        values = None if state is None else self.expected(state)
        if values is None:
            return self.ranking((), "", allowed)
        tried = np.flatnonzero(values > -math.inf)
        order = tried[np.lexsort((-tried, -values[tried]))].tolist()
        costs = {i: -float(values[i]) for i in order}
        best = next((i for i in order if allowed is None or i in allowed), None)
        return self.ranking(order, "" if best is None else self.why(state, best), allowed, costs)

    def decided(self, state: Any, allowed: Collection[int]) -> tuple[Ranking, Learn | None]:
        """The ranking for a solve, and what learns from the solve; None: nobody learns."""
        return self.rank(state, allowed), None

    def why(self, state: Any, action: int) -> str:
        """Why this action has the largest expected reward, in one sentence."""
        return f"{self.space.names[action]} {self.because}"

    def ranking(
        self,
        preferred: Iterable[int],
        reason: str,
        allowed: Collection[int] | None = None,
        costs: Mapping[int, float] | None = None,
    ) -> Ranking:
        """The preferred actions, then the others, those nearest to the safe one first.

        For policies that override `rank`. `reason` tells why the first preferred action is first.
        """
        self.check_started()
        count = len(self.space)
        if allowed is not None and (not allowed or not all(0 <= i < count for i in allowed)):
            raise ValueError(
                f"allowed = {allowed}; allow at least one of the indices 0 to {count - 1}"
            )
        kept = [i for i in dict.fromkeys(preferred) if allowed is None or i in allowed]
        rest = set(range(count) if allowed is None else allowed).difference(kept)
        order = (*kept, *sorted(rest, key=self._nearness, reverse=True))
        if not kept:
            is_safe = order[0] == self.space.safe
            nearest = "the safe action" if is_safe else "the safest action that is allowed"
            reason = f"{self.unknown}: starting with {self.space.names[order[0]]}, {nearest}."
        return Ranking(order, tuple((costs or {}).get(i, math.nan) for i in order), reason)

    def _nearness(self, index: int) -> tuple[Any, ...]:
        """Orders as `ActionSpace.safe` does: the safe one, its method, bits from the last stage."""
        action, safe = self.space[index], self.space.safe
        same_method = action.method == self.space[safe].method
        return index == safe, same_method, [format_key(fmt) for fmt in reversed(action)], index

    def predict(self, contexts: ArrayLike) -> NDArray[np.intp]:
        """The greedy action of each context."""
        return np.array([self.choose(state) for state in self.encode(contexts)], dtype=np.intp)

    def ladder(self, state: Any) -> Sequence[int]:
        """The actions to try in turn until one succeeds: the greedy one, then the safe one."""
        first = self.choose(state)
        return [first] if first == self.space.safe else [first, self.space.safe]

    @property
    def coverage(self) -> float:
        """Share of the training data's (state, action) pairs that were tried; 1 if undefined."""
        return 1.0

    def to_dict(self) -> dict[str, Any]:
        """Everything but the arrays, for JSON; `from_dict` needs both."""
        self.check_started()
        return {
            "policy": self.name,
            "version": 1,
            "features": self.feature_count,
            "space": self.space.to_dict(),
            "settings": self.settings(),
        }

    def arrays(self) -> Arrays:
        """The learned numbers as arrays, for npz."""
        self.check_started()
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
            policy = cls.from_settings(saved["settings"])
            policy.space = ActionSpace.from_dict(saved["space"])
            policy.feature_count = int(saved["features"])
            policy.restore(saved["settings"], arrays)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"not a saved {cls.name} policy ({error!r}); save it again") from error
        return policy

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able, and what else `restore` needs."""
        return {name: getattr(self, name) for name in self.parameters}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """An unstarted policy of these settings."""
        return cls(**{name: settings[name] for name in cls.parameters or settings})

    def restore(self, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put back what was learned; by default nothing was. `space` is set."""
        self.begin(np.empty((0, self.feature_count)))

    def check_started(self) -> None:
        """Raise unless `start` was called."""
        if not hasattr(self, "space"):
            raise ValueError(f"the {self.name} policy has not started; call start or fit first")


def method_indicators(space: ActionSpace) -> NDArray[np.float64]:
    """0/1: which method each action has, (actions, methods); no column if all have the same."""
    methods = sorted({action.method for action in space})
    shown = methods if len(methods) > 1 else []
    rows = [[float(action.method == method) for method in shown] for action in space]
    return np.array(rows).reshape(len(space), len(shown))


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
