"""The paper's simulated experiments, with one call per experiment.

>>> results = reproduce(["dense"], Settings(), Path("out"))     # doctest: +SKIP
>>> write_results(results, Path("out/reproduce"))               # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from roundwise.experiments.simulated.ablation import ABLATION
from roundwise.experiments.simulated.dense import DENSE
from roundwise.experiments.simulated.draws import fp64_ferr_draws
from roundwise.experiments.simulated.experiment import Case, Experiment, Result, run
from roundwise.experiments.simulated.findings import check
from roundwise.experiments.simulated.gather import Bars, Facts, gather
from roundwise.experiments.simulated.pde import PDE
from roundwise.experiments.simulated.settings import Settings
from roundwise.experiments.simulated.sparse import SPARSE
from roundwise.experiments.simulated.tables import all_tables
from roundwise.experiments.simulated.writing import summary, write_results

EXPERIMENTS = {e.name: e for e in (DENSE, SPARSE, PDE, ABLATION)}

__all__ = [
    "EXPERIMENTS",
    "Case",
    "Experiment",
    "Facts",
    "Result",
    "Settings",
    "all_tables",
    "check",
    "gather",
    "reproduce",
    "run",
    "summary",
    "write_results",
]


def reproduce(
    names: Iterable[str],
    settings: Settings,
    cache: Path,
    *,
    jobs: int | None = None,
    bars: Bars | None = None,
) -> dict[str, Result]:
    """Run experiments by name; outcomes are taken from and kept in ``cache/<data set>.sqlite``."""
    facts: dict[str, Facts] = {}
    results = {}
    for name in names:
        experiment = EXPERIMENTS[name]
        if experiment.data not in facts:
            facts[experiment.data] = gather(experiment.data, settings, cache, jobs, bars)
        learning: Callable[[int, int], None] | None = bars(f"{name}, learning") if bars else None
        result = run(experiment, settings, facts[experiment.data], learning)
        if experiment.heavy_tailed:
            bar = bars(f"{name}, other draws") if bars else None
            draws = fp64_ferr_draws(experiment.data, settings, cache, jobs, bar)
            result = replace(result, draws=draws)
        results[name] = result
    return results
