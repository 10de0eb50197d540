"""The departure study: the dense experiment with the released code's departures, one by one.

The paper's numbers come from its released code, which departs from its text. Here the same
experiment is run on the paper's own systems as the text has it, and with each departure switched
on by itself, and with all of them, so that a number can be traced to the departure that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from roundwise.actions import Action, ActionSpace
from roundwise.algorithms import GmresIR, Outcome, PaperRule
from roundwise.evaluation.accuracy import RANGE_SLACK
from roundwise.experiments.released.code import (
    ReleasedGmresIR,
    with_released_count,
    without_last_update,
)
from roundwise.experiments.released.learning import (
    STREAM_SEED,
    ReleasedQ,
    ReleasedReward,
    training_order,
)
from roundwise.experiments.released.systems import TEST_ABOVE
from roundwise.experiments.simulated.dense import DENSE
from roundwise.experiments.simulated.experiment import (
    WEIGHTS,
    Experiment,
    Learned,
    Learner,
    Result,
    learn,
    run,
    trained,
)
from roundwise.experiments.simulated.gather import Bars, Facts, Half, gather
from roundwise.experiments.simulated.sets import make, recall, remember
from roundwise.experiments.simulated.settings import Settings
from roundwise.formats import FP64, TF32
from roundwise.outcomes import OutcomeTable, fill
from roundwise.policies import TabularQ
from roundwise.report import scientific

DATA = "released"
"""The paper's own dense systems."""

DEPARTURES = {
    "tf32": "TF32 is computed with 24 bits in update, GMRES and residual; the factors alone get 11",
    "stages": "The action's second format is used for GMRES and its third for the update, so that "
    "the order is u_f <= u_g <= u <= u_r",
    "rounding": "x stays in float64 and z alone is rounded to u; residuals are those of A and b "
    "rounded to u; GMRES applies A rounded to u, and factors in u_f to vectors in u_f",
    "tolerance": "The inner tolerance is absolute where u_g is below FP64",
    "scipy": "Where u_g is FP64, SciPy's gmres also asks for a small residual that is not "
    "preconditioned",
    "stop": "The update that triggers the stop is not applied",
    "counting": "Where u_g is below FP64, an outer step counts 0 GMRES iterations if it reached "
    "the tolerance and n if not; 0 in all is charged like 32",
    "learning": "Bins truncate; epsilon decays per step; features are at least 1; untried actions "
    "are worth 0; systems are met from low to high kappa; bits count without the implicit one",
}

STREAM = "stream"
"""The code's random numbers: one training, the paper's own as far as rounding allows."""


@dataclass(frozen=True)
class Variant:
    """One way to run the experiment.

    Attributes
    ----------
    name : str
    arithmetic : str
    departures : frozenset of str
        Keys of `DEPARTURES`, or `STREAM`.
    data : str
        Key of `roundwise.experiments.simulated.sets.DATA_SETS`.
    """

    name: str
    arithmetic: str = "storage"
    departures: frozenset[str] = frozenset()
    data: str = DATA

    def algorithm(self, action: Action, tau: float) -> GmresIR:
        """What runs an action; departures that do not touch it are off, to share its facts."""
        if self.arithmetic == "operation":
            return GmresIR.paper(tau)
        has = self.departures.__contains__
        _, update, gmres, _ = action
        if has("stages"):
            update, gmres = gmres, update
        return ReleasedGmresIR(
            tolerance=tau,
            stop=PaperRule(tau),
            tf32_as_fp32=has("tf32") and TF32 in action[1:],
            swapped_stages=has("stages") and update != gmres,
            absolute_tolerance=has("tolerance") and gmres != FP64,
            scipy_gmres=has("scipy") and gmres == FP64,
            loose_rounding=has("rounding") and any(fmt != FP64 for fmt in action),
        )

    def seen(self, outcome: Outcome, action: Action, n: int, tau: float) -> Outcome:
        """An outcome as the variant reports it."""
        if "counting" in self.departures:
            gmres = action[1 if "stages" in self.departures else 2]
            if gmres != FP64:
                outcome = with_released_count(outcome, n, tau)
        if "stop" in self.departures:
            outcome = without_last_update(outcome, measured="rounding" in self.departures)
        return outcome

    @property
    def learner(self) -> Learner:
        known = self.departures & {"learning", "counting", STREAM}
        return _released_learner(known) if known else learn


ALL = frozenset(DEPARTURES)

VARIANTS = (
    Variant("our systems", "operation", data="dense"),
    Variant("operation", "operation"),
    Variant("storage"),
    *(Variant(f"+ {name}", departures=frozenset({name})) for name in DEPARTURES),
    Variant("all", departures=ALL),
    Variant("all, its stream", departures=ALL | {STREAM}),
)


def study(
    settings: Settings,
    cache: Path,
    *,
    jobs: int | None = None,
    bars: Bars | None = None,
    variants: Sequence[Variant] = VARIANTS,
) -> dict[str, Result]:
    """The dense experiment in each variant, by its name; outcomes are kept in the cache."""
    found, learning = {}, bars("departures, learning") if bars else None
    facts = {}
    for variant in variants:
        if variant.arithmetic == "operation":
            chosen = replace(settings, arithmetic="operation")
            facts[variant.name] = gather(variant.data, chosen, cache, jobs, bars)
        else:
            facts[variant.name] = _gather(variant, settings, cache, jobs, bars)
        if variant.data == DATA and settings.sizes == Settings().sizes:
            facts[variant.name] = _in_the_papers_ranges(facts[variant.name])
    for done, variant in enumerate(variants):
        found[variant.name] = run(
            DENSE,
            replace(settings, arithmetic=variant.arithmetic),
            facts[variant.name],
            learner=variant.learner,
        )
        if learning is not None:
            learning(done + 1, len(variants))
    return found


def _gather(
    variant: Variant, settings: Settings, cache: Path, jobs: int | None, bars: Bars | None
) -> Facts:
    """As `gather`, with an algorithm for each action."""
    cache.mkdir(parents=True, exist_ok=True)
    table, space = OutcomeTable(cache / f"{variant.data}.sqlite"), settings.space
    systems, seed, sizes = settings.systems, settings.seed, settings.sizes
    key = f"systems {systems}, seed {seed}, sizes {sizes[0]} to {sizes[1]}"
    note, made = recall(cache, variant.data, key, systems, seed, sizes), None
    if note is None:
        made = make(variant.data, systems, systems, seed, sizes)
        note = remember(cache, variant.data, key, made)
    computed = 0
    for tau in settings.taus:
        groups = _groups(variant, space, tau)
        missing = {
            algorithm: actions
            for algorithm, actions in groups.items()
            if not table.stored(algorithm, note.fingerprints, actions, variant.arithmetic).all()
        }
        for k, (algorithm, actions) in enumerate(missing.items()):
            if made is None:
                made = make(variant.data, systems, systems, seed, sizes)
            part = f", part {k + 1} of {len(missing)}" if len(missing) > 1 else ""
            computed += fill(
                table,
                algorithm,
                made.train + made.test,
                actions,
                arithmetic=variant.arithmetic,
                jobs=jobs,
                progress=bars(f"{variant.name}, tau = {scientific(tau)}{part}") if bars else None,
            )
    densities = tuple(np.array(half.densities) for half in (note.train, note.test))
    halves = {
        tau: (
            _half(variant, table, space, note.train.fingerprints, tau),
            _half(variant, table, space, note.test.fingerprints, tau),
        )
        for tau in settings.taus
    }
    origins = tuple(table.origins())
    return Facts(variant.data, space, halves, (densities[0], densities[1]), origins, computed)


def _in_the_papers_ranges(facts: Facts) -> Facts:
    """With kappas of the test systems such that each is in the range that the paper has it in."""

    def moved(test: Half) -> Half:
        above = [1 + 2 * RANGE_SLACK * (i in TEST_ABOVE) for i in range(len(test.facts))]
        known = zip(test.facts, above, strict=True)
        return replace(test, facts=[replace(f, kappa=f.kappa * factor) for f, factor in known])

    halves = {tau: (train, moved(test)) for tau, (train, test) in facts.halves.items()}
    return replace(facts, halves=halves)


def _groups(variant: Variant, space: ActionSpace, tau: float) -> Mapping[GmresIR, list[Action]]:
    groups: dict[GmresIR, list[Action]] = {}
    for action in space:
        groups.setdefault(variant.algorithm(action, tau), []).append(action)
    return groups


def _half(
    variant: Variant,
    table: OutcomeTable,
    space: ActionSpace,
    fingerprints: Sequence[str],
    tau: float,
) -> Half:
    """Outcomes as the variant has them; the view is of the safe action alone."""
    columns: dict[Action, list[Outcome]] = {}
    for algorithm, actions in _groups(variant, space, tau).items():
        view = table.view(algorithm, fingerprints, actions, variant.arithmetic)
        for a, action in enumerate(actions):
            columns[action] = [
                variant.seen(view.outcome(i, a), action, problem.n, tau)
                for i, problem in enumerate(view.problems)
            ]
    safe = space[space.safe]
    base = table.view(variant.algorithm(safe, tau), fingerprints, [safe], variant.arithmetic)
    rows = [[columns[action][i] for action in space] for i in range(len(fingerprints))]
    return replace(Half.of(base), rows=rows)


def _released_learner(departures: frozenset[str]) -> Learner:
    """A learner with the departures of reward and training."""

    def learner(
        experiment: Experiment,
        settings: Settings,
        space: ActionSpace,
        halves: tuple[Half, Half],
        weight: str,
    ) -> Learned:
        w1, w2 = WEIGHTS[weight]
        reward = ReleasedReward(
            w1=w1,
            w2=w2,
            lambda_iter=experiment.lambda_iter,
            zero_penalty=5.0 if "counting" in departures else None,
            explicit_bits="learning" in departures,
        )
        if "learning" not in departures:
            return trained(settings, space, halves, reward, lambda: TabularQ(alpha=settings.alpha))
        order = training_order(halves[0].kappas)
        if STREAM in departures:
            settings = replace(settings, seeds=1)

        def new_policy() -> ReleasedQ:
            stream = Random(STREAM_SEED) if STREAM in departures else None
            return ReleasedQ(settings.episodes * len(order), settings.alpha, stream)

        return trained(settings, space, halves, reward, new_policy, order)

    return learner
