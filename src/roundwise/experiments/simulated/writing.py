"""The files that a reproduction writes: report, tables, figures, and all numbers as JSON."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from roundwise.experiments.simulated.experiment import Result
from roundwise.experiments.simulated.figures import figures
from roundwise.experiments.simulated.findings import check
from roundwise.experiments.simulated.settings import Settings
from roundwise.experiments.simulated.tables import all_tables, tidy_tables
from roundwise.machine.threads import get_simd_level
from roundwise.report import (
    Figure,
    Finding,
    Report,
    Section,
    Table,
    scientific,
    write_csv,
    write_figure,
    write_html,
    write_markdown,
)

SCHEMA_VERSION = 1


def write_results(
    results: Mapping[str, Result],
    out: Path,
    *,
    draw: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write everything about some results into a folder; returns the files.

    ``report.html`` and ``report.md`` for people; ``tables/<experiment>-<table>.csv`` with one
    number per line; ``figures/*.svg``; ``results.json`` with all of it.
    """
    findings = check(results)
    written, sections = [], []
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for done, (name, result) in enumerate(results.items()):
        for kind, table in tidy_tables(result).items():
            written.append(out / "tables" / f"{name}-{kind}.csv")
            write_csv(table, written[-1])
        drawn = []
        for figure in figures(result) if draw else ():
            written.append(write_figure(figure, out / "figures"))
            drawn.append(replace(figure, image=written[-1]))
        sections.append(section(result, drawn))
        if progress is not None:
            progress(done + 1, len(results))
    report = document(results, findings, sections)
    pages = out / "report.html", out / "report.md"
    write_html(report, pages[0])
    write_markdown(report, pages[1])
    numbers = out / "results.json"
    text = json.dumps(summary(results, findings), indent=1, allow_nan=False)
    numbers.write_text(text + "\n", encoding="utf-8")
    return [*pages, numbers, *written]


def section(result: Result, drawn: Sequence[Figure]) -> Section:
    """An experiment's part of the report."""
    experiment = result.experiment
    return Section(
        experiment.title,
        experiment.name,
        experiment.about,
        list(all_tables(result).values()),
        drawn,
    )


def document(
    results: Mapping[str, Result], findings: Sequence[Finding], sections: Sequence[Section]
) -> Report:
    """The report."""
    some = next(iter(results.values()))
    departures = dict(d for result in results.values() for d in result.experiment.departures)
    return Report(
        "Precision autotuning by contextual bandits: the paper's simulated experiments, again",
        overview(results, findings),
        findings,
        sections,
        describe(some.settings),
        provenance(results),
        list(departures.items()),
    )


def overview(results: Mapping[str, Result], findings: Sequence[Finding]) -> list[str]:
    """What a reader in a hurry needs."""
    settings = next(iter(results.values())).settings
    lines = [
        f"Carson & Chen's experiments ({', '.join(results)}) with {settings.systems} training and "
        f"{settings.systems} test systems, {settings.seeds} trainings each, {settings.actions} "
        f"actions, {settings.arithmetic} arithmetic."
    ]
    if settings != Settings(seed=settings.seed, seeds=settings.seeds):
        lines.append("These are not the paper's settings: read the numbers as a taste.")
    for verdict in ("confirmed", "partly", "refuted"):
        claims = [f.claim for f in findings if f.verdict == verdict]
        if claims:
            title = {"confirmed": "Confirmed", "partly": "Partly true", "refuted": "Refuted"}
            lines.append(f"{title[verdict]} ({len(claims)}): {'; '.join(claims)}.")
    lines += [reward_sentence(result) for result in results.values()]
    return lines


def reward_sentence(result: Result) -> str:
    """Whether learning beat the choice of all-FP64 for every system, under the paper's reward."""
    gains = [-case.regrets[f"RL({case.weight})"].fp64.value for case in result.cases]
    best = [case.regrets["all-FP64"].oracle.value for case in result.cases]
    ahead = sum(gain > 0 for gain in gains)
    return (
        f"{result.experiment.title}: the learned policy earns more reward than all-FP64 in {ahead} "
        f"of {len(gains)} cases (difference {min(gains):.2g} to {max(gains):.2g}); knowing every "
        f"outcome would earn {min(best):.2g} to {max(best):.2g} more than all-FP64."
    )


def describe(settings: Settings) -> dict[str, object]:
    """The settings in words."""
    return {
        "systems": f"{settings.systems} training, {settings.systems} test",
        "sizes": f"{settings.sizes[0]} to {settings.sizes[1]}",
        "tau": [scientific(tau) for tau in settings.taus],
        "weights (w1, w2)": "W1 = (1, 0.1), W2 = (1, 1)",
        "formats": "bf16, tf32, fp32, fp64",
        "actions": f"the highest {settings.actions} of 35 monotone ones",
        "policy": f"tabular Q, alpha = {settings.alpha:g}, epsilon = max(0.1, 1 - t/T)",
        "state": "log10 kappa and log10 norm_inf, 10 x 10 bins",
        "episodes": settings.episodes,
        "arithmetic": settings.arithmetic,
        "seed of the data sets": settings.seed,
        "seeds of the trainings": f"{settings.seed} to {settings.seed + settings.seeds - 1}",
    }


def provenance(results: Mapping[str, Result]) -> dict[str, object]:
    """On what, when, with which versions; and where the outcomes were computed."""
    origins = {
        "{node} ({platform}, {simd}), roundwise {roundwise}, numpy {numpy}".format(**origin)
        for result in results.values()
        for origin in result.facts.origins
    }
    return {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "roundwise": version("roundwise"),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "machine": f"{platform.machine()}, kernels {get_simd_level()}",
        "outcomes computed on": sorted(origins),
    }


def summary(results: Mapping[str, Result], findings: Sequence[Finding]) -> dict[str, Any]:
    """All numbers, for programs; NaN and infinity become null."""
    some = next(iter(results.values()))
    return {
        "schema_version": SCHEMA_VERSION,
        "settings": asdict(some.settings),
        "provenance": provenance(results),
        "findings": [asdict(finding) for finding in findings],
        "experiments": {
            name: {kind: plain_records(table) for kind, table in tidy_tables(result).items()}
            for name, result in results.items()
        },
    }


def plain_records(table: Table) -> list[dict[str, Any]]:
    """A table as records for JSON, which has neither NaN nor infinity."""
    return [
        {
            key: None if isinstance(cell, float) and not math.isfinite(cell) else cell
            for key, cell in zip(table.header, row, strict=True)
        }
        for row in table.rows
    ]
