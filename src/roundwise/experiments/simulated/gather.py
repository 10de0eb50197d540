"""The facts of an experiment: every action once on every system, kept in a cache folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms import GmresIR, Outcome
from roundwise.experiments.simulated.sets import make, recall, remember
from roundwise.experiments.simulated.settings import Settings
from roundwise.outcomes import OutcomeTable, OutcomeView, fill
from roundwise.report import scientific
from roundwise.rewards import ProblemFacts
from roundwise.tuning import PAPER_CONTEXT, view_contexts

KAPPA = "kappa_exact"
"""The feature that the paper's state and reward take for kappa."""

Bars = Callable[[str], Callable[[int, int], None]]
"""Makes the progress callback of a task from its description."""


@dataclass(frozen=True, eq=False)
class Half:
    """The outcomes of the training or of the test systems at one tau."""

    view: OutcomeView
    contexts: NDArray[np.float64]
    rows: Sequence[Sequence[Outcome]] = field(repr=False)
    facts: Sequence[ProblemFacts] = field(repr=False)

    @classmethod
    def of(cls, view: OutcomeView) -> Half:
        kappas = view.features[:, view.feature_names.index(KAPPA)]
        return cls(
            view,
            view_contexts(view, PAPER_CONTEXT),
            [view.row(i) for i in range(view.shape[0])],
            [
                ProblemFacts.from_stored(problem, kappa)
                for problem, kappa in zip(view.problems, kappas.tolist(), strict=True)
            ],
        )

    @cached_property
    def kappas(self) -> NDArray[np.float64]:
        return np.array([facts.kappa for facts in self.facts])

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        return np.array([facts.n for facts in self.facts])

    @cached_property
    def families(self) -> tuple[str, ...]:
        return tuple(str(problem.meta.get("family", "")) for problem in self.view.problems)

    def picked(self, chosen: NDArray[np.intp]) -> list[Outcome]:
        """The outcome of the chosen action of each system."""
        return [row[action] for row, action in zip(self.rows, chosen.tolist(), strict=True)]


@dataclass(frozen=True, eq=False)
class Facts:
    """All outcomes of a data set: by tau, of both halves."""

    data: str
    space: ActionSpace
    halves: Mapping[float, tuple[Half, Half]]
    densities: tuple[NDArray[np.float64], NDArray[np.float64]]
    origins: tuple[Mapping[str, str], ...]
    computed: int

    @property
    def first(self) -> tuple[Half, Half]:
        """The halves at the first tau; systems and features are the same at each."""
        return next(iter(self.halves.values()))


def gather(
    data: str,
    settings: Settings,
    cache: Path,
    jobs: int | None = None,
    bars: Bars | None = None,
) -> Facts:
    """Run every action on every system that ``cache/<data>.sqlite`` lacks; read all outcomes."""
    cache.mkdir(parents=True, exist_ok=True)
    table = OutcomeTable(cache / f"{data}.sqlite")
    systems, seed, sizes = settings.systems, settings.seed, settings.sizes
    key = f"systems {systems}, seed {seed}, sizes {sizes[0]} to {sizes[1]}"
    note, computed = recall(cache, data, key, systems, seed, sizes), 0
    if note is None or not _is_complete(table, note.fingerprints, settings):
        made = make(data, systems, systems, seed, sizes)
        note = remember(cache, data, key, made)
        for tau in settings.taus:
            computed += fill(
                table,
                GmresIR.paper(tau),
                made.train + made.test,
                settings.space,
                arithmetic=settings.arithmetic,
                jobs=jobs,
                progress=bars(f"{data}, tau = {scientific(tau)}") if bars is not None else None,
            )

    def half(tau: float, fingerprints: Sequence[str]) -> Half:
        algorithm, space = GmresIR.paper(tau), settings.space
        return Half.of(table.view(algorithm, fingerprints, space, settings.arithmetic))

    return Facts(
        data,
        settings.space,
        {
            tau: (half(tau, note.train.fingerprints), half(tau, note.test.fingerprints))
            for tau in settings.taus
        },
        (np.array(note.train.densities), np.array(note.test.densities)),
        tuple(table.origins()),
        computed,
    )


def _is_complete(table: OutcomeTable, fingerprints: Sequence[str], settings: Settings) -> bool:
    features = table.stored_features(fingerprints).values()
    return all(set(PAPER_CONTEXT.features) <= known for known in features) and all(
        table.stored(GmresIR.paper(tau), fingerprints, settings.space, settings.arithmetic).all()
        for tau in settings.taus
    )
