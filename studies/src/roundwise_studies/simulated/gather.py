"""The outcomes of an experiment: every action once on every system, kept in a cache folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.actions import Action, ActionSpace
from roundwise.algorithms import GmresIR, Outcome
from roundwise.outcomes import OutcomeTable, fill
from roundwise.outcomes.records import StoredProblem
from roundwise.rewards import ProblemFacts
from roundwise.tuning import PAPER_CONTEXT, view_contexts
from roundwise_studies.datasets import Dataset
from roundwise_studies.protocol import Bar, Bars, Gathered, no_bars
from roundwise_studies.report import scientific
from roundwise_studies.simulated.experiment import Settings
from roundwise_studies.simulated.sets import make, noted, recall, remember, remember_draws
from roundwise_studies.tabulating import finite_mean

KAPPA = "kappa_exact"
"""The feature that the paper's state and reward take for kappa."""

DRAWS = 10
"""Test sets whose mean errors are compared, the experiment's own among them."""


@dataclass(frozen=True)
class Runs:
    """How actions are run on a data set, a key of `DATA_SETS`: here as the paper's text says."""

    name: str
    arithmetic: str
    data: str

    def algorithm(self, action: Action, tau: float) -> GmresIR:
        """What runs an action."""
        return GmresIR.paper(tau)

    def seen(self, outcome: Outcome, action: Action, n: int, tau: float) -> Outcome:
        """An outcome of a system of size n as it is reported and learned from."""
        return outcome

    def groups(self, space: ActionSpace, tau: float) -> Mapping[GmresIR, list[Action]]:
        """The actions that each algorithm runs."""
        groups: dict[GmresIR, list[Action]] = {}
        for action in space:
            groups.setdefault(self.algorithm(action, tau), []).append(action)
        return groups


@dataclass(frozen=True, eq=False)
class Half:
    """The outcomes of N training or test systems at one tau, and what policies see of them.

    Forward errors, normwise backward errors and GMRES iterations are arrays (N, A), too.
    """

    problems: Sequence[StoredProblem]
    contexts: NDArray[np.float64]
    facts: Sequence[ProblemFacts]
    rows: Sequence[Sequence[Outcome]]
    ferr: NDArray[np.float64]
    nbe: NDArray[np.float64]
    inner: NDArray[np.int64]

    @cached_property
    def kappas(self) -> NDArray[np.float64]:
        return np.array([facts.kappa for facts in self.facts])

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        return np.array([facts.n for facts in self.facts])

    @cached_property
    def families(self) -> tuple[str, ...]:
        return tuple(str(problem.meta.get("family", "")) for problem in self.problems)

    def picked(self, chosen: NDArray[np.intp]) -> list[Outcome]:
        """The outcome of the chosen action of each system."""
        return [row[action] for row, action in zip(self.rows, chosen.tolist(), strict=True)]


@dataclass(frozen=True, eq=False)
class SimulatedGathered(Gathered[float, Half]):
    """All outcomes of a data set by tau; `densities` are those of both halves.

    `draws` holds the mean ferr of all-FP64 on `DRAWS` test sets, where an experiment asks for it.
    """

    space: ActionSpace
    densities: tuple[NDArray[np.float64], NDArray[np.float64]]
    draws: tuple[float, ...] = ()


def gather(
    runs: Runs,
    settings: Settings,
    cache: Path,
    jobs: int | None = None,
    bars: Bars = no_bars,
    replay: bool = False,
) -> SimulatedGathered:
    """Run every action on every system that ``cache/<data>.sqlite`` lacks; read all outcomes.

    With `replay` nothing is solved: the note of the data set is believed, and missing outcomes are
    an error.
    """
    table, space = OutcomeTable(cache / f"{runs.data}.sqlite"), settings.space
    made: Dataset | None = None
    note = (noted if replay else recall)(cache, runs.data, settings)
    if note is None:
        made = make(runs.data, settings, settings.systems, settings.systems)
        note = remember(cache, runs.data, settings, made)
    train, test = (note[half]["fingerprints"] for half in ("train", "test"))
    known = table.stored_features(train + test).values()
    has_features = all(set(PAPER_CONTEXT.features) <= features for features in known)
    computed = 0
    for tau in () if replay else settings.taus:
        missing = [
            (algorithm, actions)
            for algorithm, actions in runs.groups(space, tau).items()
            if not has_features
            or not table.stored(algorithm, train + test, actions, runs.arithmetic).all()
        ]
        for k, (algorithm, actions) in enumerate(missing):
            if made is None:
                made = make(runs.data, settings, settings.systems, settings.systems)
            part = f", part {k + 1} of {len(missing)}" if len(missing) > 1 else ""
            computed += fill(
                table,
                algorithm,
                made.train + made.test,
                actions,
                arithmetic=runs.arithmetic,
                jobs=jobs,
                progress=bars(f"{runs.name}, tau = {scientific(tau)}{part}"),
            )
    halves = {
        tau: (_half(runs, table, space, train, tau), _half(runs, table, space, test, tau))
        for tau in settings.taus
    }
    densities = np.array(note["train"]["densities"]), np.array(note["test"]["densities"])
    return SimulatedGathered(halves, tuple(table.origins()), computed, space, densities)


def _half(
    runs: Runs, table: OutcomeTable, space: ActionSpace, fingerprints: Sequence[str], tau: float
) -> Half:
    columns: dict[Action, list[Outcome]] = {}
    for algorithm, actions in runs.groups(space, tau).items():
        view = table.view(algorithm, fingerprints, actions, runs.arithmetic)
        for a, action in enumerate(actions):
            columns[action] = [
                runs.seen(view.outcome(i, a), action, problem.n, tau)
                for i, problem in enumerate(view.problems)
            ]
    rows = list(zip(*(columns[action] for action in space), strict=True))
    ferr, nbe, inner = (
        np.array([[getattr(outcome, name) for outcome in row] for row in rows])
        for name in ("ferr", "nbe", "inner_iterations")
    )
    kappas = view.features[:, view.feature_names.index(KAPPA)]  # any view has the features
    facts = list(map(ProblemFacts.from_stored, view.problems, kappas.tolist()))
    contexts = view_contexts(view, PAPER_CONTEXT)
    return Half(view.problems, contexts, facts, rows, ferr, nbe, inner)


def fp64_ferr_draws(
    data: str, settings: Settings, cache: Path, jobs: int | None, bar: Bar, replay: bool = False
) -> tuple[float, ...]:
    """Mean ferr of all-FP64 on each of `DRAWS` test sets, at the first tau.

    Where a few hard systems dominate a mean, as the high-contrast ones do among the PDEs, two draws
    of 100 systems by the same rules may differ by orders of magnitude; so may the paper's and ours.
    """
    algorithm, model = GmresIR.paper(settings.taus[0]), settings.arithmetic
    safe, table = [settings.space[settings.space.safe]], OutcomeTable(cache / f"{data}.sqlite")
    if not replay:
        sets = [
            make(data, replace(settings, seed=settings.seed + draw), 0, settings.systems).test
            for draw in range(DRAWS)
        ]
        every = list(chain(*sets))
        fill(table, algorithm, every, safe, arithmetic=model, features=(), jobs=jobs, progress=bar)
        names = [[problem.fingerprint for problem in problems] for problems in sets]
        remember_draws(cache, data, settings, names)
    drawn = noted(cache, data, settings)["draws"]["fingerprints"]
    return tuple(finite_mean(table.view(algorithm, names, safe, model, ()).ferr) for names in drawn)
