"""The paper's native CPU study, again: real low precision, measured, beside LAPACK.

Reproduces: 50 training systems (low and medium kappa) and 100 validation systems (low, medium and
high), `randsvd` mode 2, n uniform in 1000..1500; every monotone action of {fp16, fp32, fp64} runs
three times on each, with at most ten outer steps, GMRES restarted after 30, one cycle, tolerance
1e-4; the policy sees a Hager-Higham estimate of kappa and ||A||_inf.

Departs: see `NATIVE` in departures.py.

Facts come first, into an `OutcomeTable`; learning replays them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace, list_space, monotone_space
from roundwise.algorithms import DeploymentRule, GmresIR, modelled_bytes
from roundwise.backends import native_formats
from roundwise.evaluation import best_fixed_action
from roundwise.experiments.native.direct import DirectSolve, has_dsgesv
from roundwise.features import KAPPA_FLOOR, NORM_FLOOR
from roundwise.outcomes import OutcomeTable, OutcomeView, fill
from roundwise.policies import Policy, RegressionPolicy, TabularQ
from roundwise.problems import LinearSystem, one_blas_thread, randsvd
from roundwise.rewards import (
    PAPER_W1,
    PAPER_W2,
    BackwardErrorTarget,
    CostReward,
    MeasuredTime,
    Reward,
)
from roundwise.tuning import Context, train, view_contexts, view_rewards

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]

RESTART = 30
RULE = DeploymentRule(max_steps=10)
ALGORITHM = GmresIR(tolerance=1e-4, restart=RESTART, cycles=1, stop=RULE)
"""The paper's budget; it stops at FP64-level backward error, which needs no true solution."""

FORMAT_SETS = {"fp16": ("fp16", "fp32", "fp64"), "bf16": ("bf16", "fp32", "fp64")}
"""By their lowest format: the paper's set, and the one that this CPU computes in."""

FEATURE_FORMAT = "fp32"
"""Of the factorization that the estimate of kappa takes; its time is part of the feature's."""

PAPER_STATE = Context(("kappa_est", "norm_inf"), (KAPPA_FLOOR, NORM_FLOOR))
CHEAP_STATE = Context(("n", "norm_inf"), (1.0, NORM_FLOOR))
"""Needs no factorization: the size, and a norm that the solver computes anyway."""

FEATURES = ("n", "norm_inf", "kappa_est")
ORDERS = {"stages": GmresIR.stages, "paper": ("factor", "gmres", "update", "residual")}
"""(u_f, u, u_g, u_r) as everywhere here, or (u_f, u_g, u, u_r) as in the paper's native study."""

EXPONENTS = {"train": (1, 6), "test": (1, 9)}
"""kappa = 10**j: up to the end of the medium range, and up to the end of the high one."""

PEAKS = 10
"""Validation systems whose peak memory is measured: it takes one more run of every action."""

REFERENCES = ("dgesv", "dsgesv", "scipy.linalg.solve", "numpy.linalg.solve")
"""NumPy's BLAS threads spin after a call: it comes last, before the next system is made."""

TARGET = BackwardErrorTarget()


@dataclass(frozen=True)
class NativeSettings:
    """Everything but the machine that a result depends on; the defaults are the paper's.

    Parameters
    ----------
    train, test : int
        Training and validation systems.
    sizes : (int, int)
    seed : int
        Of the systems and of the trainings.
    repeats, episodes : int
    taus : tuple of float
        Success is ``ferr <= tau``. They judge; no run depends on them.
    order : str
        Of the stages in which actions are monotone, a key of `ORDERS`.
    """

    train: int = 50
    test: int = 100
    sizes: tuple[int, int] = (1000, 1500)
    seed: int = 0
    repeats: int = 3
    episodes: int = 100
    taus: tuple[float, ...] = (1e-6, 1e-8)
    order: str = "stages"

    def __post_init__(self) -> None:
        for name in ("train", "test", "repeats", "episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; choose at least 1")
        if not 2 <= self.sizes[0] <= self.sizes[1]:
            raise ValueError(f"sizes = {self.sizes}; choose 2 <= smallest <= largest")
        if self.order not in ORDERS:
            raise ValueError(f"order = {self.order!r}; choose one of {', '.join(ORDERS)}")


@dataclass(frozen=True)
class Method:
    """A way to learn: what the policy sees, what it is paid for, and how it generalises."""

    name: str
    context: Context
    reward: Reward
    make: Callable[[], Policy] = field(repr=False)


METHODS = (
    Method("RL(W1)", PAPER_STATE, PAPER_W1, lambda: TabularQ(alpha=0.5)),
    Method("RL(W2)", PAPER_STATE, PAPER_W2, lambda: TabularQ(alpha=0.5)),
    Method("time", PAPER_STATE, CostReward(MeasuredTime(), TARGET), RegressionPolicy),
    Method(
        "time, cheap state",
        CHEAP_STATE,
        CostReward(MeasuredTime(), TARGET),
        lambda: RegressionPolicy(kappa_feature=None),
    ),
)
"""The paper's two weightings; and measured time, with the paper's state and with a cheap one."""


@dataclass(frozen=True, eq=False)
class NativeFacts:
    """All outcomes: by set of formats the training and validation views; LAPACK's runs by name."""

    views: Mapping[str, tuple[OutcomeView, OutcomeView]]
    references: Mapping[str, OutcomeView]
    origins: tuple[Mapping[str, str], ...]
    computed: int

    @property
    def test(self) -> OutcomeView:
        """A validation view; systems and features are the same in each."""
        return next(iter(self.views.values()))[1]

    @cached_property
    def kappas(self) -> Floats:
        """Of the validation systems, as their generator made them; no policy sees these."""
        return np.array([float(problem.meta["kappa"]) for problem in self.test.problems])


@dataclass(frozen=True, eq=False)
class Choice:
    """What a policy chose for the validation systems, and what came of it; N systems.

    Attributes
    ----------
    formats, policy : str
        Key of `FORMAT_SETS`, and a name.
    space : ActionSpace
    chosen : int array (N,)
    seconds, baseline, features : float arrays (N,)
        Median seconds of the chosen run, of the all-FP64 run, and of the features it took.
    ferr, nbe : float arrays (N,)
    met : bool array (N,)
        Whether the backward error is at FP64's level.
    memory, peak : float arrays (N,)
        Modelled and measured bytes over those of all-FP64; not finite where not measured.
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
        """Seconds with everything: features, and all-FP64 after a run that missed the target."""
        again = np.where(self.met | (self.chosen == self.space.safe), 0.0, self.baseline)
        return np.asarray(self.features + self.seconds + again)


@dataclass(frozen=True, eq=False)
class NativeResult:
    """The choices of every method, and of references that need no learning."""

    settings: NativeSettings
    facts: NativeFacts
    choices: tuple[Choice, ...]

    def choice(self, formats: str, policy: str) -> Choice:
        return next(c for c in self.choices if (c.formats, c.policy) == (formats, policy))


def systems(settings: NativeSettings, half: str) -> Iterator[LinearSystem]:
    """The training or validation systems, one at a time: all at once they would fill 2 GB."""
    stream = ("train", "test").index(half)
    for index in range(getattr(settings, half)):
        seed = np.random.SeedSequence(settings.seed, spawn_key=(stream, index))
        rng = np.random.default_rng(seed)
        n, exponent = (
            int(rng.integers(*ends, endpoint=True)) for ends in (settings.sizes, EXPONENTS[half])
        )
        with one_blas_thread():
            problem = randsvd(n, 10.0**exponent, mode=2, rng=rng)
        yield problem  # outside: what is done with it has all threads


def format_sets() -> dict[str, tuple[str, ...]]:
    """The sets of formats that this machine runs; bf16 needs a processor with instructions."""
    known = {fmt.name for fmt in native_formats()}
    return {name: formats for name, formats in FORMAT_SETS.items() if set(formats) <= known}


def spaces(order: str = "stages") -> dict[str, ActionSpace]:
    """The actions of each set: significand bits do not decrease in that order of the stages."""
    places = [ORDERS[order].index(stage) for stage in GmresIR.stages]
    found = {}
    for name, formats in format_sets().items():
        actions = monotone_space(ORDERS[order], formats)
        found[name] = list_space(GmresIR.stages, [[a[i] for i in places] for a in actions])
    return found


def gather(
    settings: NativeSettings, table: OutcomeTable, progress: Progress | None = None
) -> NativeFacts:
    """Run every action on every system, and LAPACK on the validation systems, what is missing.

    One system after the other: its own runs and LAPACK's are neighbours in time.
    """
    known = spaces(settings.order)
    names = dict.fromkeys(name for space in known.values() for name in space.names)
    everything = list_space(GmresIR.stages, list(names))
    references = [name for name in REFERENCES if name != "dsgesv" or has_dsgesv()]
    fingerprints: dict[str, list[str]] = {"train": [], "test": []}
    computed, total = 0, settings.train + settings.test
    for half, found in fingerprints.items():
        for problem in systems(settings, half):
            computed += fill(
                table,
                ALGORITHM,
                [problem],
                everything,
                arithmetic="native",
                features=FEATURES,
                feature_format=FEATURE_FORMAT,
                repeats=settings.repeats,
                memory=None if half == "test" and len(found) < PEAKS else False,
            )
            for name in references if half == "test" else ():
                fill(
                    table,
                    DirectSolve(name),
                    [problem],
                    ["fp64"],
                    arithmetic="native",
                    features=(),
                    repeats=settings.repeats,
                    memory=False,
                )
            found.append(problem.fingerprint)
            if progress is not None:
                progress(sum(map(len, fingerprints.values())), total)

    def view(half: str, space: ActionSpace) -> OutcomeView:
        return table.view(ALGORITHM, fingerprints[half], space, "native", FEATURES, FEATURE_FORMAT)

    return NativeFacts(
        {name: (view("train", space), view("test", space)) for name, space in known.items()},
        {
            name: table.view(DirectSolve(name), fingerprints["test"], ["fp64"], "native", ())
            for name in references
        },
        tuple(table.origins()),
        computed,
    )


def run(settings: NativeSettings, facts: NativeFacts) -> NativeResult:
    """Train and judge every method on the outcomes; nothing is solved."""
    choices = []
    for name, (learn, test) in facts.views.items():
        space = spaces(settings.order)[name]
        for method in METHODS:
            policy = method.make()
            rewards = view_rewards(learn, method.reward, space)
            rng = np.random.default_rng(settings.seed)
            contexts = view_contexts(learn, method.context)
            train(policy, contexts, rewards, space, settings.episodes, rng)
            chosen = policy.predict(view_contexts(test, method.context))
            seen = method.context.features
            choices.append(judge(name, method.name, test, space, chosen, seen))
        choices += _without_learning(name, learn, test, space)
    return NativeResult(settings, facts, tuple(choices))


def reproduce_native(
    settings: NativeSettings, cache: Path, progress: Progress | None = None
) -> NativeResult:
    """The whole study; outcomes are taken from and kept in ``cache/native.sqlite``."""
    cache.mkdir(parents=True, exist_ok=True)
    return run(settings, gather(settings, OutcomeTable(cache / "native.sqlite"), progress))


def _without_learning(
    name: str, learn: OutcomeView, test: OutcomeView, space: ActionSpace
) -> list[Choice]:
    """The best single action by the training systems' times, and the fastest that will do."""
    reward = CostReward(MeasuredTime(), TARGET)
    best = best_fixed_action(view_rewards(learn, reward, space))
    oracle = view_rewards(test, reward, space).argmax(axis=1)
    return [
        judge(name, "best fixed action", test, space, np.full(test.shape[0], best), ()),
        judge(name, "oracle", test, space, oracle, ()),
    ]


def judge(
    name: str,
    policy: str,
    view: OutcomeView,
    space: ActionSpace,
    chosen: NDArray[np.intp],
    seen: Sequence[str],
) -> Choice:
    """What came of the chosen actions; `seen` are the features that it took to choose."""
    rows = np.arange(view.shape[0])
    columns = [view.feature_names.index(feature) for feature in seen]
    sizes = [problem.n for problem in view.problems]
    stored = [modelled_bytes(n, space[a], RESTART) for n, a in zip(sizes, chosen, strict=True)]
    highest = [modelled_bytes(n, space[space.safe], RESTART) for n in sizes]
    with np.errstate(divide="ignore", invalid="ignore"):  # a small system may not fill a new page
        peak = view.peak_bytes[rows, chosen] / view.peak_bytes[:, space.safe]
    return Choice(
        name,
        policy,
        space,
        np.asarray(chosen, dtype=np.intp),
        seconds=view.seconds[rows, chosen],
        baseline=view.seconds[:, space.safe],
        features=view.feature_seconds[:, columns].sum(axis=1),
        ferr=view.ferr[rows, chosen],
        nbe=view.nbe[rows, chosen],
        met=view.nbe[rows, chosen] <= [RULE.target(n) for n in sizes],
        memory=np.array(stored) / np.array(highest),
        peak=peak,
    )
