"""The files of every study: report, tables, figures, and all numbers as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from roundwise_studies.protocol import Bar, Gathered, Part, Result, Study, no_bar
from roundwise_studies.report import (
    Figure,
    Report,
    Section,
    format_markdown,
    write_csv,
    write_figure,
    write_html,
    write_markdown,
)

SCHEMA_VERSION = 1
PAGE_DPI = 110


@dataclass(frozen=True, eq=False)
class Written:
    """What `write` has written: the parts, the report, the content of results.json, the files."""

    parts: list[Part]
    report: Report
    summary: dict[str, Any]
    files: list[Path]


def write(
    study: Study[Any, Result], result: Result, out: Path, *, draw: bool = True, bar: Bar = no_bar
) -> Written:
    """Write everything about a result into a folder.

    ``report.html`` and ``report.md`` for people; ``tables/<part>-<table>.csv`` with one number per
    line; ``figures/*.svg``; ``results.json`` with all numbers. A part that is for pages also gets
    ``tables/<part>-<table>.md`` and ``figures/*.png``.
    """
    (out / "tables").mkdir(parents=True, exist_ok=True)
    parts, report = study.tabulate(result), study.report(result)
    files, sections = [out / "report.html", out / "report.md", out / "results.json"], []
    for done, part in enumerate(parts):
        for name, table in part.numbers.items():
            files.append(out / "tables" / f"{part.name}-{name}.csv")
            write_csv(table, files[-1])
        for name, table in part.tables.items() if part.for_pages else ():
            files.append(out / "tables" / f"{part.name}-{name}.md")
            files[-1].write_text(format_markdown(table) + "\n", encoding="utf-8")
        figures: list[Figure] = []
        for figure in part.figures() if draw else ():
            files.append(write_figure(figure, out / "figures"))
            figures.append(replace(figure, image=files[-1]))
            if part.for_pages:
                files.append(write_figure(figure, out / "figures", "png", dpi=PAGE_DPI))
        tables, anchor = list(part.tables.values()), part.anchor or part.name
        sections.append(Section(part.title, anchor, part.about, tables, figures))
        bar(done + 1, len(parts))
    report = replace(report, sections=sections)
    write_html(report, files[0])
    write_markdown(report, files[1])
    summary = {
        "schema_version": SCHEMA_VERSION,
        "settings": asdict(study.settings),
        "provenance": report.provenance,
        **study.summary(report, parts),
    }
    text = json.dumps(summary, indent=1, allow_nan=False)
    files[2].write_text(text + "\n", encoding="utf-8")
    return Written(parts, report, summary, files)


def provenance(machine: str, gathered: Iterable[Gathered[Any, Any]] = ()) -> dict[str, object]:
    """When, on what and with which versions files were written, and their outcomes computed."""
    written: dict[str, object] = {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "roundwise": version("roundwise"),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "machine": machine,
    }
    text = "{node} ({platform}, {simd}), roundwise {roundwise}, numpy {numpy}"
    computed = {text.format(**origin) for each in gathered for origin in each.origins}
    return written | ({"outcomes computed on": sorted(computed)} if computed else {})
