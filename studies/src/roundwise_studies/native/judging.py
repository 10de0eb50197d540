"""The policies of the native study: how each is trained, and what its choices cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms import modelled_bytes
from roundwise.costs import MeasuredTime
from roundwise.evaluation import best_fixed_action
from roundwise.features import KAPPA_FLOOR, NORM_FLOOR
from roundwise.outcomes import OutcomeView
from roundwise.policies import Policy, RegressionPolicy, TabularQ
from roundwise.rewards import PAPER_W1, PAPER_W2, BackwardErrorTarget, CostReward, Reward
from roundwise.tuning import Context, train, view_contexts, view_rewards
from roundwise_studies.native.gather import NativeGathered
from roundwise_studies.native.settings import RESTART, RULE, NativeSettings, spaces

Floats = NDArray[np.float64]

PAPER_STATE = Context(("kappa_est", "norm_inf"), (KAPPA_FLOOR, NORM_FLOOR))
CHEAP_STATE = Context(("n", "norm_inf"), (1.0, NORM_FLOOR))
"""Needs no factorization: the size, and a norm that the solver computes anyway."""

TIME = CostReward(MeasuredTime(), BackwardErrorTarget())


METHODS: dict[str, tuple[Context, Reward, Callable[[], Policy]]] = {
    "RL(W1)": (PAPER_STATE, PAPER_W1, lambda: TabularQ(alpha=0.5)),
    "RL(W2)": (PAPER_STATE, PAPER_W2, lambda: TabularQ(alpha=0.5)),
    "time": (PAPER_STATE, TIME, RegressionPolicy),
    "time, cheap state": (CHEAP_STATE, TIME, lambda: RegressionPolicy(kappa_feature=None)),
}
"""What a policy sees, what it is paid for, and how it generalises: the paper's two weightings; and
measured time, with the paper's state and with a cheap one."""


@dataclass(frozen=True, eq=False)
class JudgedPolicy:
    """What a policy chose for the N validation systems, and what came of it; arrays (N,).

    `formats` is a key of `FORMAT_SETS`. `seconds`, `baseline` and `features` are median seconds of
    the chosen run, of the all-FP64 run, and of the features that it took to choose. `met`: the
    backward error is at FP64's level. `memory` and `peak` are modelled and measured bytes over
    those of all-FP64, not finite where not measured.
    """

    formats: str
    policy: str
    space: ActionSpace
    chosen: NDArray[np.intp]
    seconds: Floats
    baseline: Floats
    features: Floats
    ferr: Floats
    nbe: Floats
    met: NDArray[np.bool_]
    memory: Floats
    peak: Floats

    @property
    def actions(self) -> tuple[str, ...]:
        """The chosen action of each system, as text."""
        return tuple(self.space.names[i] for i in self.chosen)

    @property
    def reduced(self) -> int:
        """Systems whose action is not all-FP64."""
        return int((self.chosen != self.space.safe).sum())

    @property
    def total(self) -> Floats:
        """Seconds with all costs: features, and all-FP64 after a run that missed the target."""
        again = np.where(self.met | (self.chosen == self.space.safe), 0.0, self.baseline)
        return np.asarray(self.features + self.seconds + again)


@dataclass(frozen=True, eq=False)
class NativeResult:
    """The judged policies: those of `METHODS`, and references that need no learning."""

    settings: NativeSettings
    gathered: NativeGathered
    judged: tuple[JudgedPolicy, ...]

    def policy(self, formats: str, name: str) -> JudgedPolicy:
        return next(j for j in self.judged if (j.formats, j.policy) == (formats, name))


def run(settings: NativeSettings, gathered: NativeGathered) -> NativeResult:
    """Train and judge every method on the outcomes; nothing is solved."""
    judged = []
    for formats, (training, test) in gathered.halves.items():
        space = spaces(settings.order)[formats]
        for name, (context, reward, make) in METHODS.items():
            policy, rng = make(), np.random.default_rng(settings.seed)
            rewards = view_rewards(training, reward, space)
            train(policy, view_contexts(training, context), rewards, space, settings.episodes, rng)
            chosen = policy.predict(view_contexts(test, context))
            judged.append(judge(formats, name, test, space, chosen, context.features))
        best = best_fixed_action(view_rewards(training, TIME, space))
        fixed, oracle = np.full(test.shape[0], best), view_rewards(test, TIME, space).argmax(axis=1)
        judged.append(judge(formats, "best fixed action", test, space, fixed, ()))
        judged.append(judge(formats, "oracle", test, space, oracle, ()))
    return NativeResult(settings, gathered, tuple(judged))


def judge(
    formats: str,
    policy: str,
    view: OutcomeView,
    space: ActionSpace,
    chosen: NDArray[np.intp],
    seen: Sequence[str],
) -> JudgedPolicy:
    """What came of the chosen actions; `seen` are the features that it took to choose."""
    rows, safe = np.arange(view.shape[0]), space.safe
    columns = [view.feature_names.index(feature) for feature in seen]
    sizes = [problem.n for problem in view.problems]
    memory = [
        modelled_bytes(n, space[a], RESTART) / modelled_bytes(n, space[safe], RESTART)
        for n, a in zip(sizes, chosen, strict=True)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):  # a small system may not fill a new page
        peak = view.peak_bytes[rows, chosen] / view.peak_bytes[:, safe]
    return JudgedPolicy(
        formats,
        policy,
        space,
        np.asarray(chosen, dtype=np.intp),
        seconds=view.seconds[rows, chosen],
        baseline=view.seconds[:, safe],
        features=view.feature_seconds[:, columns].sum(axis=1),
        ferr=view.ferr[rows, chosen],
        nbe=view.nbe[rows, chosen],
        met=view.nbe[rows, chosen] <= [RULE.target(n) for n in sizes],
        memory=np.array(memory),
        peak=peak,
    )
