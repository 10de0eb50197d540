"""Stagnation at the first step, as the paper's equation has it, or after three, as its prose says.

Both on the same systems: outer steps, GMRES iterations, errors and formats chosen, beside the
paper's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundwise.actions import Action
from roundwise.algorithms import GmresIR, PaperRule
from roundwise_studies import paper
from roundwise_studies.simulated.experiment import EXPERIMENTS, Settings
from roundwise_studies.simulated.gather import Runs, gather
from roundwise_studies.simulated.running import Result, range_metric, run
from roundwise_studies.tabulating import FlatRow

METRICS = ("success", "ferr", "nbe", "outer", "gmres")


@dataclass(frozen=True)
class Patient(Runs):
    """GMRES-IR that stops after so many stagnating steps in a row."""

    patience: int = 1

    def algorithm(self, action: Action, tau: float) -> GmresIR:
        return GmresIR(tolerance=tau, stop=PaperRule(tau, patience=self.patience))


def rows(name: str, settings: Settings, cache: Path, jobs: int | None = None) -> Iterator[FlatRow]:
    """The paper's numbers, then ours with patience 1 and 3, by tau, policy and range of kappa."""
    data, experiment = EXPERIMENTS[name].data, EXPERIMENTS[name]
    found: dict[str, Result] = {}
    for patience in (1, 3):
        runs = Patient(data, settings.arithmetic, data, patience)
        found[f"patience {patience}"] = run(
            experiment, settings, gather(runs, settings, cache, jobs)
        )
    first = found["patience 1"]
    for tau in settings.taus:
        for method in ("W1", "W2", "FP64"):
            for where in first.reported_ranges:
                lead: FlatRow = {"experiment": name, "tau": tau, "policy": method, "kappa": where}
                theirs: FlatRow = {m: paper.reported(name, tau, method, where, m) for m in METRICS}
                yield lead | {"source": "paper"} | theirs
                for source, result in found.items():
                    yield lead | {"source": source} | _numbers(result, tau, method, where)


def _numbers(result: Result, tau: float, method: str, where: str) -> FlatRow:
    if method == "FP64":
        table = result.baselines[tau]
        return {metric: range_metric(table, where, metric) for metric in METRICS}
    case = result.case(method, tau)
    return {metric: float(np.mean(case.values(where, metric))) for metric in METRICS}
