"""`TabularQ`: the paper's policy, a table of action values over discretised contexts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from roundwise.discretizer import FeatureDiscretizer
from roundwise.policies.base import Arrays, Contexts, Policy, check_epsilon_min, check_reward

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Generalise = Literal["none", "nearest", "monotone"]
Greedy = Literal["tried", "all"]
_UNTRIED = -math.inf
_PARAMETERS = "alpha", "epsilon_min", "generalise", "hard_features", "greedy"
_PLACES = {
    "nearest": "the nearest visited state",
    "monotone": "the nearest visited state that is at least as hard",
}


class TabularQ(Policy):
    """Epsilon-greedy tabular Q-learning of a contextual bandit (Carson & Chen, Algorithm 3).

    Training draws a random action with probability ``eps_t = max(eps_min, 1 - t/T)``, else the
    greedy one, and updates::

        Q(s, a) <- Q(s, a) + alpha (r - Q(s, a)),   from Q(s, a) = 0 before the first visit,

    with a constant alpha, or ``alpha = 1 / N(s, a)``, which makes Q the mean reward.

    `greedy` tells over which actions the argmax runs; of equal ones it takes the last, which is the
    highest:

    - ``"tried"``, our own choice: untried actions are never greedy, and an unseen state gets the
      safe action.
    - ``"all"``, as in the paper's text: untried actions count with their first value, 0. An unseen
      state ties in all actions, and gets the safe one.

    The discretizer, by default ten linear bins per feature, is not changed; `discretizer_` is
    fitted. `generalise` tells what an unseen state does:

    - ``"none"``: the safe action.
    - ``"nearest"``: as the nearest visited state, by Euclidean distance of bin numbers; of equally
      near ones that with the highest state index (the larger kappa, in the paper's context).
    - ``"monotone"``: as the nearest visited state that is at least as hard, that is, whose bins are
      no lower in each of the `hard_features`; the safe action if there is none. What solves the
      harder problem should solve the easier one: this errs towards time, where ``"nearest"`` may
      err towards failure.

    `hard_features` are those that make a problem harder as they grow; the first, log10 kappa, if
    not given. (The norm is none: a small one underflows, a large one overflows.)

    Parameters
    ----------
    discretizer : FeatureDiscretizer, optional
    alpha : float or "1/N"
        The learning rate.
    epsilon_min : float
        The least share of random choices in training.
    generalise : {"none", "nearest", "monotone"}
    hard_features : sequence of int
    greedy : {"tried", "all"}

    Examples
    --------
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import TabularQ
    >>> from roundwise.tuning import train
    >>> space, rng = list_space(["factor"], ["fp32", "fp64"]), np.random.default_rng(0)
    >>> policy, contexts = TabularQ(), [[1.0], [2.0], [8.0], [9.0]]
    >>> rewards = [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]
    >>> curves = train(policy, contexts, rewards, space, episodes=50, rng=rng)
    >>> policy.predict([[1.0], [9.0], [5.0]])  # an unseen state gets the safe action
    array([0, 1, 1])
    """

    name: ClassVar[str] = "tabular"
    parameters: ClassVar[tuple[str, ...]] = _PARAMETERS

    def __init__(
        self,
        discretizer: FeatureDiscretizer | None = None,
        alpha: float | Literal["1/N"] = 0.5,
        epsilon_min: float = 0.1,
        generalise: Generalise = "none",
        hard_features: Sequence[int] = (0,),
        greedy: Greedy = "tried",
    ) -> None:
        if (alpha != "1/N") if isinstance(alpha, str) else not 0 < alpha <= 1:
            raise ValueError(f"alpha = {alpha!r}; choose 0 < alpha <= 1 or '1/N'")
        if generalise not in get_args(Generalise):
            raise ValueError(
                f"generalise = {generalise!r}; choose one of {', '.join(get_args(Generalise))}"
            )
        if greedy not in get_args(Greedy):
            raise ValueError(f"greedy = {greedy!r}; choose 'tried' or 'all'")
        self.discretizer = discretizer
        self.alpha = alpha
        self.greedy = greedy
        self.epsilon_min = check_epsilon_min(epsilon_min)
        self.generalise = generalise
        self.hard_features = tuple(int(j) for j in hard_features)

    def begin(self, contexts: Contexts) -> None:
        d = contexts.shape[1]
        if self.generalise == "monotone" and not all(0 <= j < d for j in self.hard_features):
            raise ValueError(f"hard_features = {self.hard_features}; choose from 0 to {d - 1}")
        settings = self.discretizer or FeatureDiscretizer(10)
        self.discretizer_ = FeatureDiscretizer(settings.bins, settings.scale).fit(contexts)
        # Plain lists: reading one number from them is several times faster than from an array.
        self._values: dict[int, list[float]] = {}
        self._counts: dict[int, list[int]] = {}
        self._tried = 0
        self._occurring = len(set(self.states(contexts)))

    def states(self, contexts: Contexts) -> list[int | None]:
        """The discretised contexts; None where one is infinite, which clipping would hide."""
        found = self.discretizer_.transform(contexts).tolist()
        return [
            state if all(map(math.isfinite, row)) else None
            for state, row in zip(found, contexts.tolist(), strict=True)
        ]

    def update(self, state: int | None, action: int, reward: float) -> float:
        check_reward(reward)
        if state is None:
            return 0.0
        values = self._values.get(state)
        if values is None:
            values = self._values[state] = [_UNTRIED] * len(self.space)
            self._counts[state] = [0] * len(self.space)
        counts = self._counts[state]
        count = counts[action] = counts[action] + 1
        old = values[action]
        if old == _UNTRIED:
            old = 0.0
            self._tried += 1
        error = reward - old
        values[action] = old + error * (1.0 / count if self.alpha == "1/N" else self.alpha)
        return error

    def choose(self, state: int | None) -> int:
        values = self._values_of(state)
        if values is None:
            return self.space.safe
        return len(values) - 1 - values[::-1].index(max(values))

    def expected(self, state: int) -> NDArray[np.float64] | None:
        values = self._values_of(state)
        return None if values is None else np.array(values)

    def why(self, state: int, action: int) -> str:
        place = "this state" if state in self._values else _PLACES[self.generalise]
        tried = "" if self.greedy == "all" else "tried "
        return f"{self.space.names[action]} has the largest Q of the actions {tried}in {place}."

    def _values_of(self, state: int | None) -> list[float] | None:
        """Q in this state, or in the similar one that an unseen state takes after."""
        if state is None:
            return None
        values = self._values.get(state)
        if values is None and self.generalise != "none":
            similar = self._similar(state)
            values = None if similar is None else self._values[similar]
        if values is None or self.greedy == "tried":
            return values
        return [0.0 if value == _UNTRIED else value for value in values]

    def _similar(self, state: int) -> int | None:
        """The visited state whose values an unseen one takes."""
        here = self.discretizer_.coordinates(state)
        found: list[tuple[int, int]] = []  # minus the squared distance, state
        for visited in self._values:
            there = self.discretizer_.coordinates(visited)
            if self.generalise == "nearest" or all(there[j] >= here[j] for j in self.hard_features):
                found.append(
                    (-sum((i - j) ** 2 for i, j in zip(here, there, strict=True)), visited)
                )
        return max(found)[1] if found else None

    @property
    def values(self) -> NDArray[np.float64]:
        """Q as an array (states, actions), NaN where untried."""
        self.check_started()
        table = np.full((self.discretizer_.n_states_, len(self.space)), np.nan)
        for state, row in self._values.items():
            table[state] = row
        return np.where(table == _UNTRIED, np.nan, table)

    @property
    def counts(self) -> NDArray[np.int64]:
        """The visits N(s, a), as an array (states, actions)."""
        self.check_started()
        table = np.zeros((self.discretizer_.n_states_, len(self.space)), dtype=np.int64)
        for state, row in self._counts.items():
            table[state] = row
        return table

    @property
    def coverage(self) -> float:
        """Tried (state, action) pairs over those of the states that occur in training."""
        self.check_started()
        return self._tried / (max(self._occurring, len(self._values)) * len(self.space))

    def plot(self, names: Sequence[str] | None = None) -> Figure:
        """Three maps over the one or two features: values, visits, and how clear the choice is.

        Of each state the value of its best tried action, the updates that training made there, and
        the margin of the best action over the second best; empty where nothing was tried. Needs
        ``pip install "roundwise[plot]"``.

        Parameters
        ----------
        names : sequence of str, optional
            Of the features, for the axes.

        Returns
        -------
        matplotlib Figure

        Examples
        --------
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> figure = tuner.policy_.plot(["log10 kappa", "log10 norm"])
        """
        from roundwise.policies.maps import plot_table

        return plot_table(self, names)

    def settings(self) -> dict[str, Any]:
        learned = {"discretizer": self.discretizer_.to_dict(), "occurring": self._occurring}
        return super().settings() | learned

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        made = super().from_settings({"greedy": "tried", **settings})  # files of before have none
        made.discretizer = FeatureDiscretizer.from_dict(settings["discretizer"])
        return made

    def arrays(self) -> Arrays:
        self.check_started()
        shape = len(self._values), len(self.space)
        return {
            "states": np.array(list(self._values), dtype=np.int64),
            "values": np.array(list(self._values.values()), dtype=np.float64).reshape(shape),
            "counts": np.array(list(self._counts.values()), dtype=np.int64).reshape(shape),
        }

    def restore(self, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        assert self.discretizer is not None
        self.discretizer_ = self.discretizer
        self._occurring = int(settings["occurring"])
        states, values, counts = arrays["states"], arrays["values"], arrays["counts"]
        if values.shape != counts.shape or values.shape != (len(states), len(self.space)):
            raise ValueError("the saved table's arrays do not fit its action space; save it again")
        if states.dtype.kind not in "iu" or len(self.discretizer_.bins_) != self.feature_count:
            raise ValueError("the saved table's states do not fit its features; save it again")
        exists = (states >= 0) & (states < self.discretizer_.n_states_)
        if not np.array_equal(np.isfinite(values), counts > 0) or not exists.all():
            raise ValueError("the saved table is corrupt; save it again")
        self._values = dict(zip(states.tolist(), values.tolist(), strict=True))
        self._counts = dict(zip(states.tolist(), counts.tolist(), strict=True))
        self._tried = int(np.count_nonzero(counts))
