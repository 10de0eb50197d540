"""The steps of the paper's native study, and the sentences of its report.

`processor` and `gpu` say what is reproduced on each device, and where that departs from the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from roundwise.outcomes import OutcomeTable
from roundwise_studies.native.device import Device
from roundwise_studies.native.gather import NativeGathered, gather
from roundwise_studies.native.judging import Judged, JudgedSet, NativeResult, run
from roundwise_studies.native.processor import Processor
from roundwise_studies.native.tables import (
    all_tables,
    median_ratio,
    outcome_rows,
    policy_row,
    shown,
    size_rows,
    system_rows,
)
from roundwise_studies.protocol import Bars, Part, Study, caution, no_bars
from roundwise_studies.report import Figure, Report
from roundwise_studies.report.timing import ratios_against_kappa, ratios_against_size
from roundwise_studies.tabulating import flat_tables, plain_rows
from roundwise_studies.writing import provenance


@dataclass(frozen=True)
class NativeStudy(Study[NativeGathered, NativeResult]):
    """The native study on a device; outcomes and their times are kept in ``<name>.sqlite``."""

    settings: Device = field(default_factory=Processor)

    @property
    def name(self) -> str:
        return self.settings.name

    def gather(self, cache: Path, jobs: int | None = None, bars: Bars = no_bars) -> NativeGathered:
        """Run what is missing, one run at a time whatever `jobs` says: the runs are timed."""
        table = OutcomeTable(cache / f"{self.name}.sqlite")
        return gather(self.settings, table, bars(f"{self.name}, systems"))

    def run(self, gathered: NativeGathered, bars: Bars = no_bars) -> NativeResult:
        return run(self.settings, gathered)

    def tabulate(self, result: NativeResult) -> list[Part]:
        tables = all_tables(result)
        rows = {"systems": system_rows(result), "outcomes": outcome_rows(result)}
        numbers, title = tables | flat_tables(rows), self.settings.title
        return [
            Part(self.name, title, "", tables, numbers, partial(figures, result), for_pages=True)
        ]

    def report(self, result: NativeResult) -> Report:
        return Report(
            "Precision autotuning by contextual bandits: the paper's native study, again",
            overview(result),
            settings=self.settings.described(),
            provenance=provenance(result.gathered.machine),
            departures=self.settings.departures,
        )

    def summary(self, report: Report, parts: Sequence[Part]) -> dict[str, Any]:
        return {"summary": report.summary, "tables": plain_rows(parts[0].numbers)}


def figures(result: NativeResult) -> Iterator[Figure]:
    """Times faster than the reference: medians by size, or every validation system by kappa."""
    reference = result.device.reference
    draw = by_size if result.device.by_size else by_kappa
    yield Figure(
        f"Times faster than {reference} on the validation systems, with all costs of the policies.",
        result.device.name,
        draw(result, reference),
    )


def by_kappa(result: NativeResult, reference: str) -> Any:
    """A panel for each set of actions: some policies, and the other references."""
    cases = {}
    for name, judged in result.sets.items():
        seconds = {f"policy {p!r}": judged.judged[p].total for p in result.device.said}
        seconds |= {other: s for other, s in judged.references.items() if other != reference}
        base = judged.references[reference]
        cases[name] = {label: base / s for label, s in seconds.items()}
    return ratios_against_kappa(next(iter(result.sets.values())).kappas, cases, reference)


def by_size(result: NativeResult, reference: str) -> Any:
    """A panel for each group of systems, with the first set of actions."""
    judged, cases = next(iter(result.sets.values())), dict[str, Any]()
    for group, n, which in size_rows(judged):
        curves = cases.setdefault(group, {policy: ([], []) for policy in shown(result)})
        for policy, (sizes, ratios) in curves.items():
            sizes.append(n)
            ratios.append(median_ratio(judged, policy, reference, which))
    return ratios_against_size(cases, reference)


def overview(result: NativeResult) -> list[str]:
    device = result.device
    train, test = result.gathered.first
    sizes = [problem.n for problem in test.problems]
    lines = [
        f"Carson & Chen's native study with {train.shape[0]} training and {test.shape[0]} "
        f"validation systems, n = {min(sizes)} to {max(sizes)}, {device.repeats} "
        f"repeats, on {result.gathered.machine}."
    ]
    lines = caution(device, test.shape[0]) + lines
    return lines + [
        sentence(name, policy, judged, judged.judged[policy], device.reference)
        for name, judged in result.sets.items()
        for policy in device.said
        if policy in judged.judged
    ]


def sentence(name: str, policy: str, judged: JudgedSet, found: Judged, reference: str) -> str:
    row = policy_row(judged, found, reference)
    ratios = {
        other: seconds / found.total
        for other, seconds in judged.references.items()
        if other != policy
    }
    medians = [f"{np.median(r):.2f} ({r.min():.2f}) against {other}" for other, r in ratios.items()]
    return (
        f"Actions {name!r}, policy {policy!r}, with all costs: total time "
        f"{row[f'times faster than {reference}']} times faster than {reference}, "
        f"{row['times faster than FP64']} than always FP64, {row['times faster than best fixed']} "
        f"than the best fixed action; regret {row['regret']} (log2); median (worst) times faster "
        f"{', '.join(medians)}; {row['missed']} of {row['systems']} first runs missed FP64-level "
        f"backward error, {row['unsolved']} unsolved."
    )
