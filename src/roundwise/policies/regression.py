"""`RegressionPolicy`: any scikit-learn regressor as the model of the reward."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roundwise.policies.base import (
    Arrays,
    Contexts,
    Policy,
    check_epsilon_min,
    check_reward,
    last_argmax,
    method_indicators,
    saved_ranges,
)

State = tuple[float, ...]

# What a saved file may name: classes that fit numbers. A pipeline is not among them, as its
# cache folder would be a file path, and unpickling, under the file's control.
_MODULES = "ensemble linear_model neural_network neighbors tree svm kernel_ridge dummy"
SAVED_MODULES = tuple(f"sklearn.{name}" for name in _MODULES.split())

# The first fit needs a few numbers; the next ones come when the data have doubled.
FIRST_FIT = 32


class RegressionPolicy(Policy):
    """Epsilon-greedy over a regression of the reward on continuous contexts.

    The regressor sees the context, each stage's significand in decimal digits (``p log10 2``) and
    exponent range (``log10 max``), and the margin of each stage, ``digits - log10 kappa``: the
    digits that stage has left, by which a tree can learn one rule for all formats. Where actions
    have several methods, it sees which one. All are scaled to [-1, 1] by the training data. The
    target is the mean reward of each (context, action) that was tried; all count the same, however
    often they were tried.

    Training draws at random with probability ``max(epsilon_min, 1 - t/T)`` and is else greedy
    by the last fit, renewed whenever the distinct data have doubled. `choose` fits all data
    first, if there are new ones: one fit after training; in online use one per solve.

    The greedy action has the largest prediction among the actions tried in some context: like
    every regression it says something about unseen states, that is its reason not to give the
    safe action there. Contexts are clipped to the training range, so that it does not
    extrapolate. A context with an infinite entry gets the safe action and teaches nothing.

    Saving: fitted scikit-learn models can only be pickled, so the file holds the data, the
    regressor's class and its parameters, and loading fits again. The class must come from
    `SAVED_MODULES`. A ``random_state`` of None is set to 0, so that the fit is the same; another
    version of scikit-learn may still fit differently, which the file's ``sklearn`` entry tells.

    The regressor is cloned; ``GradientBoostingRegressor`` if not given. `kappa_feature` says which
    feature is log10 kappa; None leaves the margins out.

    Parameters
    ----------
    regressor : scikit-learn regressor, optional
    epsilon_min : float
        The least share of random choices in training.
    kappa_feature : int, optional
        Which feature is log10 kappa.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from roundwise.actions import list_space
    >>> from roundwise.policies import RegressionPolicy
    >>> from roundwise.tuning import train
    >>> space, rng = list_space(["factor"], ["fp32", "fp64"]), np.random.default_rng(0)
    >>> policy, contexts = RegressionPolicy(DecisionTreeRegressor()), [[1.0], [2.0], [8.0], [9.0]]
    >>> rewards = [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]
    >>> curves = train(policy, contexts, rewards, space, episodes=20, rng=rng)
    >>> policy.predict([[1.0], [9.0]])
    array([0, 1])
    """

    name: ClassVar[str] = "regression"
    because: ClassVar[str] = "has the largest predicted reward of the actions tried in any context."

    def __init__(
        self, regressor: Any = None, epsilon_min: float = 0.1, kappa_feature: int | None = 0
    ) -> None:
        methods = (getattr(regressor, name, None) for name in ("fit", "predict"))
        if regressor is not None and not all(map(callable, methods)):
            raise TypeError(f"regressor {regressor!r} lacks fit or predict; pass a regressor")
        self.regressor = regressor
        self.epsilon_min = check_epsilon_min(epsilon_min)
        self.kappa_feature = kappa_feature

    def begin(self, contexts: Contexts) -> None:
        if self.kappa_feature is not None and not 0 <= self.kappa_feature < self.feature_count:
            raise ValueError(
                f"kappa_feature = {self.kappa_feature}; choose None, or from 0 to "
                f"{self.feature_count - 1}"
            )
        self._low, self._high = contexts.min(axis=0), contexts.max(axis=0)
        self._distinct = max(len(np.unique(contexts, axis=0)), 1)
        self._model = _fresh(self.regressor)
        self._digits = np.array([[f.p * math.log10(2) for f in action] for action in self.space])
        ranges = np.array([[math.log10(f.max) for f in action] for action in self.space])
        self._action_features = np.hstack([self._digits, ranges, method_indicators(self.space)])
        self._sums: dict[tuple[State, int], list[float]] = {}  # [visits, sum of rewards]
        self._tried = np.zeros(len(self.space), dtype=bool)
        self._fitted_to = 0  # distinct data in the last fit
        self._changed = False  # new data since
        self._predictions: dict[State, NDArray[np.float64]] = {}

    def states(self, contexts: Contexts) -> list[State | None]:
        clipped = np.clip(contexts, self._low, self._high)
        return list(super().states(np.where(np.isfinite(contexts), clipped, contexts)))

    def explore(self, state: State | None, rng: np.random.Generator, progress: float) -> int:
        if state is None:
            return self.space.safe
        if rng.random() < self.epsilon(progress):
            return int(rng.random() * len(self.space))
        if len(self._sums) >= max(2 * self._fitted_to, FIRST_FIT):
            self._fit()
        return last_argmax(self._predicted(state)) if self._fitted_to else self.space.safe

    def update(self, state: State | None, action: int, reward: float) -> float:
        check_reward(reward)
        if state is None:
            return 0.0
        entry = self._sums.setdefault((state, action), [0.0, 0.0])
        predicted = self._predictions.get(state)
        known = entry[1] / entry[0] if entry[0] else 0.0
        error = reward - (known if predicted is None else float(predicted[action]))
        entry[0] += 1
        entry[1] += reward
        self._tried[action] = True
        self._changed = True
        return error

    def expected(self, state: State) -> NDArray[np.float64] | None:
        if not self._sums:
            return None
        if self._changed:
            self._fit()
        return self._predicted(state)

    def _predicted(self, state: State) -> NDArray[np.float64]:
        """The prediction of the last fit for each action, -inf where it was tried nowhere."""
        if state not in self._predictions:
            actions = np.arange(len(self.space))
            rows = self._rows(np.tile(state, (len(actions), 1)), actions)
            predicted = self._model.predict((rows - self._middle) / self._scale)
            self._predictions[state] = np.asarray(predicted, dtype=np.float64)
        return np.where(self._tried, self._predictions[state], -np.inf)

    def _rows(self, X: Contexts, actions: NDArray[np.intp]) -> NDArray[np.float64]:
        """The regressor's input for each (context, action), before scaling."""
        parts = [X, self._action_features[actions]]
        if self.kappa_feature is not None:
            parts.append(self._digits[actions] - X[:, self.kappa_feature, None])
        return np.hstack(parts)

    def _fit(self) -> None:
        X = np.array([state for state, _ in self._sums])
        visits, sums = np.array(list(self._sums.values())).T
        rows = self._rows(X, np.array([action for _, action in self._sums]))
        # To [-1, 1], by halves, so that nothing overflows; a constant feature,
        # whose rounding errors must not be blown up, to 0.
        low, high = rows.min(axis=0), rows.max(axis=0)
        self._middle, spread = low / 2 + high / 2, high / 2 - low / 2
        self._scale = np.where(spread > 1e-9 * (1 + np.abs(self._middle)), spread, np.inf)
        self._model = _fresh(self._model)
        self._model.fit((rows - self._middle) / self._scale, sums / visits)
        self._fitted_to, self._changed = len(self._sums), False
        self._predictions = {}

    @property
    def coverage(self) -> float:
        """Tried (context, action) pairs over those of the training contexts."""
        self.check_started()
        return min(1.0, len(self._sums) / (self._distinct * len(self.space)))

    def settings(self) -> dict[str, Any]:
        return {
            "regressor": describe_estimator(self._model),
            "epsilon_min": self.epsilon_min,
            "kappa_feature": self.kappa_feature,
            "distinct": self._distinct,
            "sklearn": _sklearn().__version__,
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        regressor = make_estimator(settings["regressor"])
        return cls(regressor, settings["epsilon_min"], settings["kappa_feature"])

    def arrays(self) -> Arrays:
        self.check_started()
        data = np.array(list(self._sums.values())).reshape(-1, 2)
        return {
            "low": self._low,
            "high": self._high,
            "contexts": np.array([s for s, _ in self._sums]).reshape(-1, self.feature_count),
            "actions": np.array([a for _, a in self._sums], dtype=np.int64),
            "visits": data[:, 0],
            "sums": data[:, 1],
        }

    def restore(self, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.begin(saved_ranges(arrays, self.feature_count))
        self._distinct = int(settings["distinct"])
        X, actions, visits, sums = (
            np.asarray(arrays[key]) for key in ("contexts", "actions", "visits", "sums")
        )
        shapes = [(len(actions), self.feature_count)] + 3 * [(len(actions),)]
        if (
            [array.shape for array in (X, actions, visits, sums)] != shapes
            or not (np.isfinite(X).all() and np.isfinite(sums).all())
            or not np.all((visits > 0) & (visits < np.inf))
            or not np.all((actions >= 0) & (actions < len(self.space)))
        ):
            raise ValueError("the saved training data are corrupt; save the policy again")
        numbers = np.column_stack([visits, sums])
        for x, action, entry in zip(X.tolist(), actions.tolist(), numbers.tolist(), strict=True):
            self._sums[tuple(x), action] = entry
            self._tried[action] = True
        if self._sums:
            self._fit()  # parameters that scikit-learn refuses are errors of the file


def describe_estimator(estimator: Any) -> dict[str, Any]:
    """A scikit-learn estimator's class and parameters, for JSON."""
    kind = type(estimator)
    module = ".".join(kind.__module__.split(".")[:2])
    if module not in SAVED_MODULES or not hasattr(_sklearn(module), kind.__name__):
        raise ValueError(
            f"{kind.__module__}.{kind.__name__} cannot be saved without pickle; use a regressor of "
            f"{', '.join(SAVED_MODULES)}"
        )
    parameters = estimator.get_params(deep=False)
    return {
        "class": f"{module}.{kind.__name__}",
        "parameters": {key: _plain(value, key) for key, value in parameters.items()},
    }


def make_estimator(saved: Mapping[str, Any]) -> Any:
    """The unfitted estimator that `describe_estimator` wrote; only from `SAVED_MODULES`."""
    module, _, kind = str(saved["class"]).rpartition(".")
    if module not in SAVED_MODULES:
        raise ValueError(f"saved regressor {saved['class']!r} is not of {', '.join(SAVED_MODULES)}")
    made, base = getattr(_sklearn(module), kind, None), _sklearn("sklearn.base").BaseEstimator
    if not (isinstance(made, type) and issubclass(made, base)):
        raise ValueError(f"scikit-learn has no {saved['class']!r}; install the version that saved")
    return made(**{key: _rebuilt(value) for key, value in saved["parameters"].items()})


def _plain(value: Any, key: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        return {type(value).__name__: [_plain(item, key) for item in value]}
    if hasattr(value, "get_params"):
        return describe_estimator(value)
    raise ValueError(
        f"parameter {key} = {value!r} cannot be saved; use numbers, texts and estimators"
    )


def _rebuilt(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "class" in value:
        return make_estimator(value)
    if "tuple" in value:
        return tuple(_rebuilt(item) for item in value["tuple"])
    return [_rebuilt(item) for item in value["list"]]


def _fresh(regressor: Any) -> Any:
    """An unfitted copy, with its randomness fixed; the default regressor for None."""
    if regressor is None:
        ensemble = _sklearn("sklearn.ensemble")
        return ensemble.GradientBoostingRegressor(n_estimators=200, max_depth=4, random_state=0)
    copy = _sklearn("sklearn.base").clone(regressor)
    if copy.get_params().get("random_state", 0) is None:
        copy.set_params(random_state=0)
    return copy


def _sklearn(module: str = "sklearn") -> Any:
    try:
        importlib.import_module("sklearn")
    except ImportError as error:
        raise ImportError("RegressionPolicy needs scikit-learn; install roundwise[tune]") from error
    return importlib.import_module(module)
