"""The files that the departure study writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from roundwise.experiments.released.figures import figures
from roundwise.experiments.released.records import METRICS, all_tables, distances, tidy_tables
from roundwise.experiments.released.study import DEPARTURES
from roundwise.experiments.simulated.experiment import Result
from roundwise.experiments.simulated.settings import Settings
from roundwise.experiments.simulated.writing import (
    SCHEMA_VERSION,
    describe,
    plain_records,
    provenance,
)
from roundwise.report import (
    Report,
    Section,
    write_csv,
    write_figure,
    write_html,
    write_markdown,
)


def write_study(
    results: Mapping[str, Result],
    out: Path,
    *,
    draw: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write the study into a folder; returns the files, `write_results` says which."""
    (out / "tables").mkdir(parents=True, exist_ok=True)
    written, drawn = [], []
    for kind, table in tidy_tables(results).items():
        written.append(out / "tables" / f"departures-{kind}.csv")
        write_csv(table, written[-1])
    for figure in figures(results) if draw else ():
        written.append(write_figure(figure, out / "figures"))
        drawn.append(replace(figure, image=written[-1]))
    section = Section(
        "Dense systems, departure by departure",
        "departure-study",
        "The dense experiment on the paper's own systems: in `operation` arithmetic, in `storage` "
        "arithmetic, with each departure of the released code by itself, and with all of them; "
        "and first, for the luck of the draw, in `operation` arithmetic on our systems.",
        list(all_tables(results).values()),
        drawn,
    )
    report = Report(
        "Where the paper's numbers come from: the departures of its released code",
        overview(results),
        [],
        [section],
        _described(results),
        provenance(results),
        [(f"+ {name}", text + ".") for name, text in DEPARTURES.items()],
    )
    pages = out / "report.html", out / "report.md"
    write_html(report, pages[0])
    write_markdown(report, pages[1])
    numbers = out / "results.json"
    text = json.dumps(summary(results), indent=1, allow_nan=False)
    numbers.write_text(text + "\n", encoding="utf-8")
    if progress is not None:
        progress(1, 1)
    return [*pages, numbers, *written]


def overview(results: Mapping[str, Result]) -> list[str]:
    """Which variant is nearest to the paper, number by number."""
    found: dict[str, dict[str, list[float]]] = {metric: {} for metric in METRICS}
    for record in distances(results):
        by_variant = found[str(record["metric"])]
        by_variant.setdefault(str(record["variant"]), []).append(float(record["distance"] or 0))
    lines = []
    if _settings(results) != Settings(seed=_settings(results).seed, seeds=_settings(results).seeds):
        lines.append("These are not the paper's settings: read the numbers as a taste.")
    for metric, by_variant in found.items():
        means = {name: sum(values) / len(values) for name, values in by_variant.items()}
        nearest = min(means, key=means.__getitem__)
        known = [f"{name} {means[name]:.2f}" for name in ("storage", "all") if name in means]
        lines.append(
            f"{metric}: the nearest variant is `{nearest}`, {means[nearest]:.2f} {METRICS[metric]} "
            f"from the paper's on average ({', '.join(known)})."
        )
    return lines


def summary(results: Mapping[str, Result]) -> dict[str, Any]:
    """All numbers, for programs; NaN and infinity become null."""
    return {
        "schema_version": SCHEMA_VERSION,
        "settings": asdict(_settings(results)),
        "provenance": provenance(results),
        "variants": list(results),
        "departures": {kind: plain_records(t) for kind, t in tidy_tables(results).items()},
    }


def _settings(results: Mapping[str, Result]) -> Settings:
    """What all variants share; the arithmetic is each one's own."""
    return replace(next(iter(results.values())).settings, arithmetic=Settings().arithmetic)


def _described(results: Mapping[str, Result]) -> dict[str, object]:
    return {
        **describe(_settings(results)),
        "arithmetic": "of each variant",
        "seed of the data sets": "the paper's",
    }
