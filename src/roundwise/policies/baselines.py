"""Policies that do not learn: what a learned one must beat."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import Action, ActionLike, action_key, format_key
from roundwise.policies.base import Arrays, Contexts, Policy, Ranking

Limit = Literal["five-precision", "three-precision", "lu-ir"]


class Baseline(Policy):
    """A policy that ignores rewards; it explores as it chooses and predicts nothing."""

    learns: ClassVar[bool] = False

    def begin(self, contexts: Contexts) -> None:
        pass

    def states(self, contexts: Contexts) -> Sequence[Any]:
        return contexts.tolist()  # type: ignore[no-any-return]

    def explore(self, state: Any, rng: np.random.Generator, progress: float) -> int:
        return self.choose(state)

    def epsilon(self, progress: float) -> float:
        return 0.0

    def update(self, state: Any, action: int, reward: float) -> float:
        return 0.0


class Rule(Baseline):
    """A baseline that knows an order of actions, and no rewards."""

    costs: Sequence[float] | None = None  # of each action, where the rule was told

    @abstractmethod
    def preferred(self, state: Any) -> Iterable[int]:
        """The actions that the rule prefers to the safe one, best first; may be empty."""

    def expected(self, state: Any) -> None:
        """A rule expects no reward."""

    def choose(self, state: Any) -> int:
        return next(iter(self.preferred(state)), self.space.safe)

    def rank(self, state: Any, allowed: Collection[int] | None = None) -> Ranking:
        self.check_started()
        order = [i for i in self.preferred(state) if allowed is None or i in allowed]
        reason = self.why(state, order[0]) if order else ""
        return self.ranking(order, reason, allowed, dict(enumerate(self.costs or ())))


class FixedAction(Rule):
    """Always the same action, given as text, formats or index; the safe one if not given.

    Parameters
    ----------
    action : str, formats or int, optional

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import FixedAction
    >>> policy = FixedAction("fp32")
    >>> policy.start([[1.0]], list_space(["factor"], ["bf16", "fp32", "fp64"]))
    >>> policy.predict([[1.0], [8.0]])
    array([1, 1])
    """

    name: ClassVar[str] = "fixed"
    unknown: ClassVar[str] = "The fixed action is not allowed"
    because: ClassVar[str] = "is the action that was fixed."

    def __init__(self, action: ActionLike | int | None = None) -> None:
        self.action = action

    def begin(self, contexts: Contexts) -> None:
        if self.action is None:
            self._index = self.space.safe
        elif not isinstance(self.action, (int, np.integer)):
            self._index = self.space.index(self.action)
        elif 0 <= self.action < len(self.space):
            self._index = int(self.action)
        else:
            raise ValueError(f"action = {self.action}; choose an index below {len(self.space)}")

    def preferred(self, state: Any) -> Iterable[int]:
        return (self._index,)

    def settings(self) -> dict[str, Any]:
        return {"action": self.space.names[self._index]}


class TheoryRule(Rule):
    """The cheapest action for which rounding error analysis promises convergence at this kappa.

    The limits on the condition number, with unit roundoffs u_f (factor), u_g (gmres or cg),
    u (update) and u_r (residual), and constants and the growth with n left out:

    - ``"five-precision"``: ``(u_g + kappa u_p) (1 + kappa^2 u_f^2) < 1`` with u_p = u_g, as the
      preconditioned products of `GmresIR` run in u_g: about ``kappa < u_g^(-1/3) u_f^(-2/3)``
      (Amestoy, Buttari, Higham, L'Excellent, Mary & Vieublé, SIAM J. Matrix Anal. Appl. 45,
      2024, whose forward error condition this is).
    - ``"three-precision"``: the same with ``u_p = u_g^2``, products in twice the precision:
      about ``kappa < u^(-1/2) u_f^(-1)`` with u_g = u (Carson & Higham, SIAM J. Sci. Comput.
      40, 2018). `GmresIR` has no such products: the limit is optimistic for it.
    - ``"lu-ir"``: ``kappa u_f < 1`` (the same paper, for LU-IR).

    The limiting accuracy must do as well: backward error ``max(u, u_r) <= target`` and, in
    either case, ``u_r <= u``; forward error ``kappa u_r <= target`` unless u_r is that of the
    safe action, which is then the best to be had. Without any such action: the safe one.

    `target`, the accuracy asked for, is by default the safe action's update unit roundoff; `limit`
    is ``"five-precision"`` for stages with an inner solver, else ``"lu-ir"``; `kappa_feature` tells
    which feature is log10 kappa; `costs` has a number for each action of the space. Without costs
    the cheapest is the lowest in the order of `action_key`: the factorization counts first. The
    analysis does not tell methods apart; of equal actions the one with the safe action's method
    counts as cheaper.

    Parameters
    ----------
    target : float, optional
        The accuracy asked for.
    limit : {"five-precision", "three-precision", "lu-ir"}, optional
    kappa_feature : int
        Which feature is log10 kappa.
    costs : sequence of float, optional
        One for each action.

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import TheoryRule
    >>> space = list_space(rw.LuIR.stages, ["bf16-fp64-fp64", "fp32-fp64-fp64", "fp64-fp64-fp64"])
    >>> policy = TheoryRule()  # for LU-IR: kappa u_f < 1
    >>> policy.start([[1.0], [9.0]], space)
    >>> [space.names[a] for a in policy.predict([[1.0], [5.0], [9.0]])]
    ['bf16-fp64-fp64', 'fp32-fp64-fp64', 'fp64-fp64-fp64']
    """

    name: ClassVar[str] = "theory"
    unknown: ClassVar[str] = "The analysis promises convergence of no action"
    parameters: ClassVar[tuple[str, ...]] = ("target", "limit", "kappa_feature", "costs")

    def __init__(
        self,
        target: float | None = None,
        limit: Limit | None = None,
        kappa_feature: int = 0,
        costs: Sequence[float] | None = None,
    ) -> None:
        if target is not None and not target > 0:
            raise ValueError(f"target = {target}; choose a number > 0")
        if limit is not None and limit not in get_args(Limit):
            raise ValueError(f"limit = {limit!r}; choose one of {', '.join(get_args(Limit))}")
        self.target = target
        self.limit = limit
        self.kappa_feature = kappa_feature
        self.costs = None if costs is None else [float(c) for c in costs]

    def begin(self, contexts: Contexts) -> None:
        place = {stage: i for i, stage in enumerate(self.space.stages)}
        if missing := {"factor", "update", "residual"} - place.keys():
            raise ValueError(
                f"stages {self.space.stages} lack {min(missing)!r}, which the theory needs"
            )
        if not 0 <= self.kappa_feature < self.feature_count:
            raise ValueError(
                f"kappa_feature = {self.kappa_feature}; choose from 0 to {self.feature_count - 1}"
            )
        inner = place.get("gmres", place.get("cg"))
        self._limit = self.limit or ("lu-ir" if inner is None else "five-precision")
        if inner is None and self._limit != "lu-ir":
            raise ValueError(f"stages {self.space.stages} have no inner solver; use limit='lu-ir'")
        if self.costs is not None and len(self.costs) != len(self.space):
            raise ValueError(
                f"{len(self.costs)} costs, {len(self.space)} actions; pass one cost per action"
            )
        self._places = place["factor"], place["update"], place["residual"]
        self._inner = inner
        self._cheapest_first = sorted(
            range(len(self.space)),
            key=lambda i: (
                self.costs[i] if self.costs else 0.0,
                action_key(self.space[i]),
                self.space[i].method != self.space[self.space.safe].method,
            ),
        )

    def preferred(self, state: Sequence[float]) -> Iterable[int]:
        digits = state[self.kappa_feature]
        kappa = 10.0 ** max(digits, 0.0) if digits < 300 else math.inf
        return (i for i in self._cheapest_first if self.promises(self.space[i], kappa))

    def why(self, state: Sequence[float], action: int) -> str:
        return (
            "It is the cheapest allowed action for which the analysis promises convergence at "
            f"kappa = 1e{state[self.kappa_feature]:.1f}."
        )

    def promises(self, action: Action, kappa: float) -> bool:
        """Whether the analysis promises convergence to the target."""
        _, update, residual = self._places
        u_f, u, u_r = (action[i].unit_roundoff for i in self._places)
        safe = self.space[self.space.safe]
        target = safe[update].unit_roundoff if self.target is None else self.target
        best_residual = u_r <= safe[residual].unit_roundoff
        accurate = max(u, u_r) <= target and u_r <= u and (best_residual or kappa * u_r <= target)
        if self._limit == "lu-ir" or self._inner is None:
            return accurate and kappa * u_f < 1
        u_g = action[self._inner].unit_roundoff
        u_p = u_g if self._limit == "five-precision" else u_g**2
        return accurate and (u_g + kappa * u_p) * (1 + kappa * u_f * kappa * u_f) < 1


class Escalation(Rule):
    """Start cheapest, step up on failure; it looks at no feature.

    `ladder` gives the actions in the order in which to try them, `choose` the first. The default
    ladder keeps to the safe action's method and has for each format of the first stage, low to
    high, the lowest and the highest action with it: the second reuses the factors of the first (in
    the spirit of multistage refinement, Oktay & Carson, Numer. Linear Algebra Appl. 29, 2022).
    Every ladder ends with the safe action.

    A ladder of your own is given by its actions, as text or formats.

    Parameters
    ----------
    actions : iterable of actions, optional
        The ladder.

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import Escalation
    >>> space = list_space(["factor"], ["bf16", "fp32", "fp64"])
    >>> policy = Escalation()
    >>> policy.start([[1.0]], space)
    >>> [space.names[a] for a in policy.ladder(policy.encode([[1.0]])[0])]
    ['bf16', 'fp32', 'fp64']
    """

    name: ClassVar[str] = "escalation"
    unknown: ClassVar[str] = "No action of the ladder is allowed"
    because: ClassVar[str] = "is the first allowed rung of the ladder."

    def __init__(self, actions: Iterable[ActionLike] | None = None) -> None:
        if isinstance(actions, str):
            raise TypeError(f"actions is the text {actions!r}; pass a list of actions")
        self.actions = None if actions is None else tuple(actions)

    def begin(self, contexts: Contexts) -> None:
        if self.actions is None:
            rungs = []
            method = self.space[self.space.safe].method
            usual = [i for i, action in enumerate(self.space) if action.method == method]
            usual.sort(key=lambda i: (format_key(self.space[i][0]), action_key(self.space[i])))
            for _, those in groupby(usual, key=lambda i: self.space[i][0]):
                first, *others = those
                rungs += [first, *others[-1:]]
        else:
            rungs = [self.space.index(action) for action in self.actions]
        safe = self.space.safe
        self._rungs = [*dict.fromkeys(rung for rung in rungs if rung != safe), safe]

    def preferred(self, state: Any) -> Iterable[int]:
        return self._rungs

    def ladder(self, state: Any) -> Sequence[int]:
        return list(self._rungs)

    def settings(self) -> dict[str, Any]:
        return {"actions": [self.space.names[i] for i in self._rungs]}


class Oracle(Baseline):
    """Knows the reward of every action on every problem: the bound that regret is measured from.

    The rows of `rewards`, (problems, actions), belong to those of the contexts that are encoded; a
    state is a row number.

    Parameters
    ----------
    rewards : array_like, (N, A)

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import Oracle
    >>> policy = Oracle([[1.0, 0.0], [-2.0, 0.0]])
    >>> policy.start([[1.0], [8.0]], list_space(["factor"], ["fp32", "fp64"]))
    >>> policy.predict([[1.0], [8.0]])
    array([0, 1])
    """

    name: ClassVar[str] = "oracle"
    because: ClassVar[str] = "has the largest true reward."

    def __init__(self, rewards: ArrayLike) -> None:
        self.rewards = np.array(rewards, dtype=np.float64)
        if self.rewards.ndim != 2 or np.isnan(self.rewards).any():
            raise ValueError("rewards must be a (problems, actions) array without NaN")

    def begin(self, contexts: Contexts) -> None:
        if self.rewards.shape[1] != len(self.space):
            raise ValueError(
                f"rewards have {self.rewards.shape[1]} columns, the space has {len(self.space)} "
                "actions; pass one column per action"
            )

    def states(self, contexts: Contexts) -> Sequence[Any]:
        if len(contexts) != len(self.rewards):
            raise ValueError(
                f"{len(contexts)} contexts, {len(self.rewards)} rows of rewards; an oracle "
                "answers for the problems it was made with"
            )
        return range(len(contexts))

    def expected(self, state: int) -> NDArray[np.float64]:
        return np.asarray(self.rewards[state])

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(np.empty((0, 0)))

    def arrays(self) -> Arrays:
        self.check_started()
        return {"rewards": self.rewards}

    def restore(self, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.rewards = np.array(arrays["rewards"], dtype=np.float64)
        super().restore(settings, arrays)
