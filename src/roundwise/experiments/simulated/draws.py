"""All-FP64 on other draws of a test set: how far its mean errors are a matter of luck.

Where a few hard systems carry a mean, as the high-contrast ones do among the PDEs, two draws of
100 systems by the same rules may differ by orders of magnitude. A comparison with the paper's one
draw must know that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from roundwise.algorithms import GmresIR
from roundwise.experiments import paper
from roundwise.experiments.simulated.experiment import Result
from roundwise.experiments.simulated.sets import make
from roundwise.experiments.simulated.settings import Settings
from roundwise.outcomes import OutcomeTable, fill
from roundwise.report import scientific

DRAWS = 10
"""Test sets, the experiment's own among them."""


def fp64_ferr_draws(
    data: str,
    settings: Settings,
    cache: Path,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[float, ...]:
    """Mean ferr of all-FP64 on each of `DRAWS` test sets, at the first tau."""
    algorithm, space = GmresIR.paper(settings.taus[0]), settings.space
    safe = [space[space.safe]]
    sets = [
        make(data, 0, settings.systems, settings.seed + draw, settings.sizes).test
        for draw in range(DRAWS)
    ]
    table = OutcomeTable(cache / f"{data}.sqlite")
    everything = [problem for problems in sets for problem in problems]
    fill(
        table,
        algorithm,
        everything,
        safe,
        arithmetic=settings.arithmetic,
        features=(),
        jobs=jobs,
        progress=progress,
    )
    views = (table.view(algorithm, problems, safe, settings.arithmetic, ()) for problems in sets)
    errors = [view.ferr.ravel() for view in views]
    return tuple(float(ferr[np.isfinite(ferr)].mean()) for ferr in errors)


def draws_sentence(result: Result) -> str:
    """How to judge the mean errors of a result that has draws."""
    name, tau = result.experiment.name, next(iter(result.baselines))
    low, middle, high = min(result.draws), float(np.median(result.draws)), max(result.draws)
    theirs = paper.reported(name, tau, "FP64", "all", "ferr")
    return (
        f"A few systems carry the means of the {name.upper()} errors: over {len(result.draws)} "
        f"draws of the test set all-FP64 has a mean ferr of {scientific(low, 1)} to "
        f"{scientific(high, 1)}, median {scientific(middle, 1)} (paper {scientific(theirs, 1)}, "
        f"this draw {scientific(result.draws[0], 1)})."
    )
