"""The paper's native study on a GPU: real low precision, measured, beside cuSOLVER.

Reproduces: systems with given singular values from kappa = 1e1 to 1e9; a policy that sees a
condition estimate and ||A||_inf learns which formats to use, and is judged on other systems.

Departs: see `NATIVE_GPU` in departures.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from roundwise.outcomes import OutcomeTable
from roundwise_studies import departures
from roundwise_studies.native_gpu.gather import OURS, DeviceGathered, gather
from roundwise_studies.native_gpu.judging import DeviceResult, run
from roundwise_studies.native_gpu.runs import FEATURE_FORMAT, FRONT_DOOR
from roundwise_studies.native_gpu.settings import EXPONENTS, DeviceSettings
from roundwise_studies.native_gpu.systems import FAMILIES
from roundwise_studies.native_gpu.tables import (
    all_tables,
    figures,
    outcome_rows,
    policy_row,
    system_rows,
)
from roundwise_studies.protocol import TASTE, Bars, Part, Study, no_bars
from roundwise_studies.report import Report
from roundwise_studies.tabulating import flat_tables, plain_rows
from roundwise_studies.writing import provenance

SAID = (FRONT_DOOR, "time, look", "RL(W1)")


@dataclass(frozen=True)
class DeviceStudy(Study[DeviceGathered, DeviceResult]):
    """The native study on a GPU; outcomes and their times are kept in ``native-gpu.sqlite``."""

    name: ClassVar[str] = "native-gpu"

    settings: DeviceSettings = field(default_factory=DeviceSettings)

    def gather(self, cache: Path, jobs: int | None = None, bars: Bars = no_bars) -> DeviceGathered:
        """Run what is missing, one run at a time whatever `jobs` says: the runs are timed."""
        table = OutcomeTable(cache / "native-gpu.sqlite")
        return gather(self.settings, table, bars("native on the GPU, systems"))

    def run(self, gathered: DeviceGathered, bars: Bars = no_bars) -> DeviceResult:
        return run(self.settings, gathered)

    def tabulate(self, result: DeviceResult) -> list[Part]:
        tables, drawn = all_tables(result), partial(figures, result.sets[OURS])
        rows = {"systems": system_rows(result), "outcomes": outcome_rows(result)}
        numbers = tables | flat_tables(rows)
        return [Part(self.name, "On a GPU", "", tables, numbers, drawn, for_pages=True)]

    def report(self, result: DeviceResult) -> Report:
        return Report(
            "Precision autotuning by contextual bandits: the paper's native study on a GPU",
            _overview(result),
            settings=_describe(self.settings),
            provenance=provenance(result.gathered.device),
            departures=departures.NATIVE_GPU,
        )

    def summary(self, report: Report, parts: Sequence[Part]) -> dict[str, Any]:
        return {"summary": report.summary, "tables": plain_rows(parts[0].numbers)}


def _overview(result: DeviceResult) -> list[str]:
    settings, judged = result.settings, result.sets[OURS]
    lines = [
        f"{sum(settings.train) * len(FAMILIES)} training and "
        f"{sum(settings.test) * len(FAMILIES)} validation systems, n = {min(settings.sizes)} to "
        f"{max(settings.sizes)}, {settings.repeats} repeats, on {result.gathered.device}."
    ]
    if settings != DeviceSettings(seed=settings.seed):
        lines.append(TASTE)
    for policy in SAID:
        row = policy_row(judged, judged.judged[policy])
        lines.append(
            f"Policy {policy!r}, with all costs: total time {row['times faster than cuSOLVER']} "
            f"times faster than cuSOLVER's FP64, {row['times faster than FP64']} than always FP64 "
            f"through the gate, {row['times faster than best fixed']} than the best fixed action; "
            f"regret {row['regret']} (log2); {row['unsolved']} of {row['systems']} unsolved."
        )
    return lines


def _describe(settings: DeviceSettings) -> dict[str, object]:
    """The settings in words."""
    low, high = EXPONENTS
    return {
        "systems": f"{', '.join(FAMILIES)}; kappa 1e{low} to 1e{high} where it is given",
        "sizes": list(settings.sizes),
        "rounds of training": list(settings.train),
        "rounds of validation": list(settings.test),
        "actions": "the front door's on a GPU; up to n = "
        f"{settings.papers_up_to} also GMRES-IR's 15 monotone ones of fp16, fp32, fp64",
        "state": f"kappa_est from an {FEATURE_FORMAT} LU, and norm_inf; look: n and 64 rows",
        "repeats": settings.repeats,
        "episodes": settings.episodes,
        "seed": settings.seed,
    }
