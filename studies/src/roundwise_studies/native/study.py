"""The paper's native CPU study, again: real low precision, measured, beside LAPACK.

Reproduces: 50 training systems (low and medium kappa) and 100 validation systems (low, medium and
high), `randsvd` mode 2, n uniform in 1000..1500; every monotone action of {fp16, fp32, fp64} runs
three times on each, with at most ten outer steps, GMRES restarted after 30, one cycle, tolerance
1e-4; the policy sees a Hager-Higham estimate of kappa and ||A||_inf.

Departs: see `NATIVE` in departures.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from roundwise.machine.identity import Machine
from roundwise.outcomes import OutcomeTable
from roundwise_studies import departures
from roundwise_studies.native.gather import FEATURE_FORMAT, NativeGathered, gather
from roundwise_studies.native.judging import JudgedPolicy, NativeResult, run
from roundwise_studies.native.settings import ALGORITHM, ORDERS, RESTART, RULE, NativeSettings
from roundwise_studies.native.tables import all_tables, reference_seconds, system_rows
from roundwise_studies.protocol import TASTE, Bars, Part, Study, no_bars
from roundwise_studies.report import Figure, Report
from roundwise_studies.report.timing import ratios_against_kappa
from roundwise_studies.tabulating import flat_tables, plain_rows
from roundwise_studies.writing import provenance

REFERENCE = "numpy.linalg.solve"
LAPACK = ("dgesv", "dsgesv")
DRAWN = ("time", "time, cheap state")


@dataclass(frozen=True)
class NativeStudy(Study[NativeGathered, NativeResult]):
    """The native study on this machine; outcomes and their times are kept in ``native.sqlite``."""

    name: ClassVar[str] = "native"

    settings: NativeSettings = field(default_factory=NativeSettings)

    def gather(self, cache: Path, jobs: int | None = None, bars: Bars = no_bars) -> NativeGathered:
        """Run what is missing, one run at a time whatever `jobs` says: the runs are timed."""
        return gather(self.settings, OutcomeTable(cache / "native.sqlite"), bars("native, systems"))

    def run(self, gathered: NativeGathered, bars: Bars = no_bars) -> NativeResult:
        return run(self.settings, gathered)

    def tabulate(self, result: NativeResult) -> list[Part]:
        tables, drawn = all_tables(result), partial(figures, result)
        numbers = tables | flat_tables({"systems": system_rows(result)})
        title = "Native CPU validation"
        return [Part("native", title, "", tables, numbers, drawn, for_pages=True)]

    def report(self, result: NativeResult) -> Report:
        return Report(
            "Precision autotuning by contextual bandits: the paper's native CPU study, again",
            _overview(result),
            settings=_describe(self.settings),
            provenance=provenance(str(Machine.this())),
            departures=departures.NATIVE,
        )

    def summary(self, report: Report, parts: Sequence[Part]) -> dict[str, Any]:
        return {"summary": report.summary, "tables": plain_rows(parts[0].numbers)}


def figures(result: NativeResult) -> Iterator[Figure]:
    """Every validation system: learned policies with all costs, dgesv and dsgesv."""
    references = reference_seconds(result)
    base, cases = references[REFERENCE], {}
    for formats in result.gathered.halves:
        seconds = {f"policy {name!r}": result.policy(formats, name).total for name in DRAWN}
        seconds |= {name: references[name] for name in LAPACK if name in references}
        cases[f"{{{formats}, fp32, fp64}}"] = {name: base / s for name, s in seconds.items()}
    yield Figure(
        f"Times faster than {REFERENCE} on each validation system, all costs of the policies "
        "included.",
        "native",
        ratios_against_kappa(result.gathered.kappas, cases, REFERENCE),
    )


def _overview(result: NativeResult) -> list[str]:
    settings = result.settings
    lines = [
        f"Carson & Chen's native study with {settings.train} training and {settings.test} "
        f"validation systems, n = {settings.sizes[0]} to {settings.sizes[1]}, "
        f"{settings.repeats} repeats, on {Machine.this()}."
    ]
    if not settings.are_the_papers:
        lines.append(TASTE)
    return lines + [_sentence(result, judged) for judged in result.judged if judged.policy in DRAWN]


def _sentence(result: NativeResult, judged: JudgedPolicy) -> str:
    parts, references = [], reference_seconds(result)
    for name in (REFERENCE, *LAPACK):
        if name in references:
            ratios = references[name] / judged.total
            parts.append(f"{np.median(ratios):.2f} ({ratios.min():.2f}) against {name}")
    return (
        f"Formats with {judged.formats}, policy {judged.policy!r}: median (worst) times faster "
        f"with all costs {', '.join(parts)}; {int((~judged.met).sum())} of {len(judged.met)} runs "
        "missed FP64-level backward error."
    )


def _describe(settings: NativeSettings) -> dict[str, object]:
    """The settings in words."""
    return {
        "systems": f"{settings.train} training (kappa 1e1 to 1e6), {settings.test} validation "
        "(kappa 1e1 to 1e9), randsvd mode 2",
        "sizes": f"{settings.sizes[0]} to {settings.sizes[1]}",
        "algorithm": f"GMRES-IR, tolerance {ALGORITHM.tolerance:g}, restart {RESTART}, one cycle",
        "stop": f"backward error <= sqrt(n) u, or hopeless, or {RULE.max_steps} outer steps",
        "actions": f"monotone in the order {', '.join(ORDERS[settings.order])}",
        "state": f"kappa_est from an {FEATURE_FORMAT} LU, and norm_inf; cheap: n and norm_inf",
        "repeats": settings.repeats,
        "episodes": settings.episodes,
        "tau": [f"{tau:.0e}" for tau in settings.taus],
        "seed": settings.seed,
    }
