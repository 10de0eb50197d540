"""All-FP64 on other draws of a test set: how much its mean errors depend on the draw.

Where a few hard systems dominate a mean, as the high-contrast ones do among the PDEs, two draws of
100 systems by the same rules may differ by orders of magnitude; so may the paper's draw and ours.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from roundwise.algorithms import GmresIR
from roundwise.experiments import paper
from roundwise.experiments.protocol import Bar
from roundwise.experiments.simulated.running import Result
from roundwise.experiments.simulated.sets import make
from roundwise.experiments.simulated.settings import Settings
from roundwise.experiments.tabulating import finite_mean
from roundwise.outcomes import OutcomeTable, fill
from roundwise.report import scientific

DRAWS = 10
"""Test sets, the experiment's own among them."""


def fp64_ferr_draws(
    data: str, settings: Settings, cache: Path, jobs: int | None, bar: Bar
) -> tuple[float, ...]:
    """Mean ferr of all-FP64 on each of `DRAWS` test sets, at the first tau."""
    algorithm, model = GmresIR.paper(settings.taus[0]), settings.arithmetic
    safe = [settings.space[settings.space.safe]]
    sets = [
        make(data, replace(settings, seed=settings.seed + draw), 0, settings.systems).test
        for draw in range(DRAWS)
    ]
    table = OutcomeTable(cache / f"{data}.sqlite")
    everything = [problem for problems in sets for problem in problems]
    fill(table, algorithm, everything, safe, arithmetic=model, features=(), jobs=jobs, progress=bar)
    return tuple(
        finite_mean(table.view(algorithm, problems, safe, model, ()).ferr) for problems in sets
    )


def draws_sentence(result: Result) -> str:
    """How to judge the mean errors of a result that has draws."""
    name, tau, draws = result.experiment.name, next(iter(result.baselines)), result.gathered.draws
    low, middle, high = min(draws), float(np.median(draws)), max(draws)
    theirs = paper.reported(name, tau, "FP64", "all", "ferr")
    return (
        f"A few systems carry the means of the {name.upper()} errors: over {len(draws)} "
        f"draws of the test set all-FP64 has a mean ferr of {scientific(low, 1)} to "
        f"{scientific(high, 1)}, median {scientific(middle, 1)} (paper {scientific(theirs, 1)}, "
        f"this draw {scientific(draws[0], 1)})."
    )
