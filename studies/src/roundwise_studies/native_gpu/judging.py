"""The policies of the study on a GPU: how each is trained, and what its choices cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.evaluation import best_fixed_action
from roundwise.evaluation.climbs import climb_costs
from roundwise.outcomes import OutcomeView
from roundwise.policies import Policy, RegressionPolicy, TabularQ
from roundwise.rewards import PAPER_W1, PAPER_W2, ClimbReward, Reward
from roundwise.tuning import Context, train, view_contexts, view_rewards
from roundwise_studies.native.judging import PAPER_STATE, TIME
from roundwise_studies.native_gpu.gather import OURS, PAPERS_SPACE, DeviceGathered
from roundwise_studies.native_gpu.runs import CUSOLVER, FRONT_DOOR, LOOK, SPACE
from roundwise_studies.native_gpu.settings import DeviceSettings

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LOOK_STATE = Context(("n", *LOOK), (1.0, None, 0.01, 1e-8))
"""What the front door looks at on a GPU: 64 rows, no factorization."""

FIXED, SAFE, ORACLE = "best fixed action", "always FP64", "oracle"

Methods = Mapping[str, tuple[Context, Reward, Callable[[], Policy]]]


def methods(time: Reward) -> Methods:
    """What a policy sees, what it is paid for, and how it generalises.

    The paper's learner with its two weightings; and ours, which learn the measured time, with the
    paper's state and with a cheap one.
    """
    return {
        "RL(W1)": (PAPER_STATE, PAPER_W1, lambda: TabularQ(alpha=0.5)),
        "RL(W2)": (PAPER_STATE, PAPER_W2, lambda: TabularQ(alpha=0.5)),
        "time": (PAPER_STATE, time, RegressionPolicy),
        "time, look": (LOOK_STATE, time, lambda: RegressionPolicy(kappa_feature=None)),
    }


@dataclass(frozen=True, eq=False)
class Judged:
    """What a policy chose for N systems, and what came of it; arrays (N,)."""

    actions: tuple[str, ...]
    total: Floats  # seconds with all costs: features, and what is tried after a miss
    features: Floats  # seconds of them
    missed: Flags  # whether the first action missed the gate
    unsolved: Flags  # whether all that were tried did


@dataclass(frozen=True, eq=False)
class JudgedSet:
    """The policies that choose among one set of actions, by name, and the validation systems."""

    view: OutcomeView
    cusolver: Floats  # seconds of cupy.linalg.solve
    judged: Mapping[str, Judged]


@dataclass(frozen=True, eq=False)
class DeviceResult:
    """Everything about every set of actions, by its name."""

    settings: DeviceSettings
    gathered: DeviceGathered
    sets: Mapping[str, JudgedSet]


def run(settings: DeviceSettings, gathered: DeviceGathered) -> DeviceResult:
    """Train and judge every method on the outcomes; nothing is solved."""
    reference = gathered.references[CUSOLVER]
    seconds = {
        problem.fingerprint: float(taken)
        for problem, taken in zip(reference.problems, reference.seconds[:, 0], strict=True)
    }
    sets = {}
    for name, (training, test) in gathered.halves.items():
        space = SPACE if name == OURS else PAPERS_SPACE
        time = ClimbReward() if name == OURS else TIME
        judged = judged_policies(settings, training, test, space, time)
        if name == OURS:
            judged[FRONT_DOOR] = _front_door(gathered.references[FRONT_DOOR])
        base = np.array([seconds[problem.fingerprint] for problem in test.problems])
        sets[name] = JudgedSet(test, base, judged)
    return DeviceResult(settings, gathered, sets)


def judged_policies(
    settings: DeviceSettings,
    training: OutcomeView,
    test: OutcomeView,
    space: ActionSpace,
    time: Reward,
) -> dict[str, Judged]:
    """The learned policies and those that need no learning."""
    found = {}
    for name, (context, reward, make) in methods(time).items():
        policy, rng = make(), np.random.default_rng(settings.seed)
        rewards = view_rewards(training, reward, space)
        train(policy, view_contexts(training, context), rewards, space, settings.episodes, rng)
        chosen = policy.predict(view_contexts(test, context))
        found[name] = judge(test, space, chosen, context.features)
    count = test.shape[0]
    best = best_fixed_action(view_rewards(training, time, space))
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
        features + climbs(view, space)[rows, chosen],
        features,
        ~passed[rows, chosen],
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


def _front_door(view: OutcomeView) -> Judged:
    """`roundwise.solve` as it was timed: looking, choosing and climbing are in its seconds."""
    tried = [str(reason).split(" > ") for reason in view.reasons[:, 0]]
    return Judged(
        tuple(actions[0] for actions in tried),
        view.seconds[:, 0],
        np.zeros(view.shape[0]),
        np.array([len(actions) > 1 for actions in tried]),
        ~met(view)[:, 0],
    )
