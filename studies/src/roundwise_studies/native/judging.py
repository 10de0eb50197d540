"""The policies of the native study: how each is trained, and what its choices cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.features import KAPPA_FLOOR, NORM_FLOOR
from roundwise.outcomes import OutcomeView
from roundwise.policies import Policy, RegressionPolicy, TabularQ
from roundwise.rewards import PAPER_W1, PAPER_W2, Reward
from roundwise.tuning import Context, train, view_contexts, view_rewards
from roundwise_studies.evaluation import best_fixed_action
from roundwise_studies.evaluation.choices import climb_costs
from roundwise_studies.native.device import ActionSet, Device
from roundwise_studies.native.gather import NativeGathered

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

PAPER_STATE = Context(("kappa_est", "norm_inf"), (KAPPA_FLOOR, NORM_FLOOR))
FIXED, SAFE, ORACLE = "best fixed action", "always FP64", "oracle"


def methods(
    device: Device, time: Reward
) -> dict[str, tuple[Context, Reward, Callable[[], Policy]]]:
    """What a policy sees, what it is paid for, and how it generalises.

    The paper's learner with its two weightings; and ours, which learn the measured time, with the
    paper's state and with a cheap one.
    """
    name, cheap = device.cheap_state
    return {
        "RL(W1)": (PAPER_STATE, PAPER_W1, lambda: TabularQ(alpha=0.5)),
        "RL(W2)": (PAPER_STATE, PAPER_W2, lambda: TabularQ(alpha=0.5)),
        "time": (PAPER_STATE, time, RegressionPolicy),
        name: (cheap, time, lambda: RegressionPolicy(kappa_feature=None)),
    }


@dataclass(frozen=True, eq=False)
class Judged:
    """What a policy chose for the N validation systems, and what came of it; arrays (N,).

    `actions` are those that it starts with; `seconds`, `ferr` and `nbe` are of the runs with them.
    `met`: that run's backward error is at FP64's level, and passes the gate.
    """

    actions: tuple[str, ...]
    seconds: Floats
    features: Floats  # seconds of those that it took to choose
    total: Floats  # seconds with all costs: features, and what is tried after a miss
    ferr: Floats
    nbe: Floats
    met: Flags
    unsolved: Flags  # whether all that were tried missed


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """The policies that choose among one set of actions, by name, and the validation systems.

    `references` are seconds of the routines on these systems.
    """

    view: OutcomeView
    space: ActionSpace
    references: Mapping[str, Floats]
    judged: Mapping[str, Judged]

    @property
    def baseline(self) -> Floats:
        """Seconds of the all-FP64 run."""
        return np.asarray(self.view.seconds[:, self.space.safe])

    @property
    def kappas(self) -> Floats:
        """As the generators made them, NaN where they did not choose; no policy sees these."""
        return np.array([float(problem.meta["kappa"]) for problem in self.view.problems])


@dataclass(frozen=True, eq=False)
class NativeResult:
    """Everything about every set of actions, by its name."""

    device: Device
    gathered: NativeGathered
    sets: Mapping[str, JudgedSet]


def run(device: Device, gathered: NativeGathered) -> NativeResult:
    """Train and judge every method on the outcomes; nothing is solved."""
    sets = {}
    for name, actions in device.action_sets().items():
        training, test = gathered.halves[name]
        judged = judged_policies(device, training, test, actions)
        references = {}
        for routine, view in gathered.references.items():
            place = {problem.fingerprint: i for i, problem in enumerate(view.problems)}
            same = view.take([place[problem.fingerprint] for problem in test.problems])
            references[routine] = same.seconds[:, 0]
            if routine == actions.chooser:
                judged[routine] = timed_as_called(same)
        sets[name] = JudgedSet(test, actions.space, references, judged)
    return NativeResult(device, gathered, sets)


def judged_policies(
    device: Device, training: OutcomeView, test: OutcomeView, actions: ActionSet
) -> dict[str, Judged]:
    """The learned policies and those that need no learning."""
    space, found = actions.space, {}
    for name, (context, reward, make) in methods(device, actions.time).items():
        policy, rng = make(), np.random.default_rng(device.seed)
        rewards = view_rewards(training, reward, space)
        train(policy, view_contexts(training, context), rewards, space, device.episodes, rng)
        chosen = policy.predict(view_contexts(test, context))
        found[name] = judge(test, space, chosen, context.features)
    count = test.shape[0]
    best = best_fixed_action(view_rewards(training, actions.time, space))
    found[FIXED] = judge(test, space, np.full(count, best))
    found[SAFE] = judge(test, space, np.full(count, space.safe))
    found[ORACLE] = judge(test, space, climbs(test, space).argmin(axis=1))
    return found


def judge(
    view: OutcomeView, space: ActionSpace, chosen: NDArray[np.intp], seen: Sequence[str] = ()
) -> Judged:
    """What came of the chosen actions; `seen` are the features that it took to choose."""
    rows, passed = np.arange(view.shape[0]), met(view)
    columns = [view.feature_names.index(feature) for feature in seen]
    features = view.feature_seconds[:, columns].sum(axis=1)
    ladders = ladders_of(space)
    solved = [passed[i, list(ladders[a])].any() for i, a in enumerate(chosen)]
    return Judged(
        tuple(space.names[a] for a in chosen),
        view.seconds[rows, chosen],
        features,
        features + climbs(view, space)[rows, chosen],
        view.ferr[rows, chosen],
        view.nbe[rows, chosen],
        passed[rows, chosen],
        ~np.array(solved, dtype=np.bool_),
    )


def climbs(view: OutcomeView, space: ActionSpace) -> Floats:
    """Seconds of solving each system if an action is tried first, (N, A), without features."""
    return climb_costs(view.seconds, met(view), ladders_of(space))


def ladders_of(space: ActionSpace) -> list[tuple[int, ...]]:
    """What is tried in turn: as `ClimbReward` has it, where methods differ; else FP64 at once."""
    safe, actions = space.safe, range(len(space))
    if space.methods == ("",):
        return [(a,) if a == safe else (a, safe) for a in actions]
    return [space.climb(a) for a in actions]


def met(view: OutcomeView) -> Flags:
    """Whether each run's backward error passes the gate, (N, A)."""
    gates = np.array([default_tolerance(problem.n) for problem in view.problems])
    return np.asarray(view.nbe <= gates[:, None])


def timed_as_called(view: OutcomeView) -> Judged:
    """`roundwise.solve` as it was timed: looking, choosing and climbing are in its seconds."""
    tried = [str(reason).split(" > ") for reason in view.reasons[:, 0]]
    seconds, passed = view.seconds[:, 0], met(view)[:, 0]
    return Judged(
        tuple(actions[0] for actions in tried),
        seconds,
        np.zeros(view.shape[0]),
        seconds,
        view.ferr[:, 0],
        view.nbe[:, 0],
        passed & np.array([len(actions) == 1 for actions in tried]),
        ~passed,
    )
