"""The files of the native study: report, tables, a figure, and all numbers as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from roundwise.experiments import departures
from roundwise.experiments.native.study import (
    ALGORITHM,
    FEATURE_FORMAT,
    ORDERS,
    RESTART,
    RULE,
    Choice,
    NativeResult,
    NativeSettings,
)
from roundwise.experiments.native.tables import all_tables, reference_seconds, system_table
from roundwise.experiments.simulated.writing import plain_records
from roundwise.machine.identity import Machine
from roundwise.report import (
    Figure,
    Report,
    Section,
    Table,
    format_markdown,
    write_csv,
    write_figure,
    write_html,
    write_markdown,
)
from roundwise.report.timing import ratios_against_kappa

SCHEMA_VERSION = 1
REFERENCE = "numpy.linalg.solve"
DRAWN = ("time", "time, cheap state")


def write_native(result: NativeResult, out: Path, *, draw: bool = True) -> list[Path]:
    """Write everything about a result into a folder; returns the files.

    ``report.html`` and ``report.md`` for people; ``tables/native-*.csv`` with all digits and
    ``tables/native-*.md``; ``figures/native.svg`` and ``.png``; ``results.json``.
    """
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    tables = all_tables(result)
    for name, table in (tables | {"systems": system_table(result)}).items():
        written.append(folder / f"native-{name}.csv")
        write_csv(table, written[-1])
    for name, table in tables.items():
        written.append(folder / f"native-{name}.md")
        written[-1].write_text(format_markdown(table) + "\n", encoding="utf-8")
    figures = []
    if draw:
        drawn = ratio_figure(result)
        written += [
            write_figure(drawn, out / "figures", ending, dpi=110) for ending in ("svg", "png")
        ]
        figures = [replace(drawn, image=written[-2])]
    report = document(result, tables, figures)
    pages = out / "report.html", out / "report.md"
    write_html(report, pages[0])
    write_markdown(report, pages[1])
    numbers = out / "results.json"
    text = json.dumps(summary(result), indent=1, allow_nan=False)
    numbers.write_text(text + "\n", encoding="utf-8")
    return [*pages, numbers, *written]


def document(
    result: NativeResult, tables: Mapping[str, Table], figures: Sequence[Figure]
) -> Report:
    """The report."""
    return Report(
        "Precision autotuning by contextual bandits: the paper's native CPU study, again",
        overview(result),
        (),
        [Section("Native CPU validation", "native", "", list(tables.values()), figures)],
        describe(result.settings),
        provenance(),
        departures.NATIVE,
    )


def ratio_figure(result: NativeResult) -> Figure:
    """Every validation system: learned policies with all costs, dgesv and dsgesv."""
    references = reference_seconds(result)
    base = references[REFERENCE]
    cases = {}
    for formats in result.facts.views:
        methods = {f"policy {name!r}": base / result.choice(formats, name).total for name in DRAWN}
        methods |= {
            name: base / references[name] for name in ("dgesv", "dsgesv") if name in references
        }
        cases["{" + f"{formats}, fp32, fp64" + "}"] = methods
    return Figure(
        f"Times faster than {REFERENCE} on each validation system, all costs of the policies "
        "included.",
        "native",
        ratios_against_kappa(result.facts.kappas, cases, REFERENCE),
    )


def overview(result: NativeResult) -> list[str]:
    """What a reader in a hurry needs."""
    settings = result.settings
    lines = [
        f"Carson & Chen's native study with {settings.train} training and {settings.test} "
        f"validation systems, n = {settings.sizes[0]} to {settings.sizes[1]}, "
        f"{settings.repeats} repeats, on {Machine.this()}."
    ]
    if replace(settings, seed=0, order="stages") != NativeSettings():
        lines.append("These are not the paper's settings: read the numbers as a taste.")
    lines += [_sentence(result, choice) for choice in result.choices if choice.policy in DRAWN]
    return lines


def _sentence(result: NativeResult, choice: Choice) -> str:
    parts = []
    for name in (REFERENCE, "dgesv", "dsgesv"):
        if name in result.facts.references:
            ratios = reference_seconds(result)[name] / choice.total
            parts.append(f"{np.median(ratios):.2f} ({ratios.min():.2f}) against {name}")
    return (
        f"Formats with {choice.formats}, policy {choice.policy!r}: median (worst) times faster "
        f"with all costs {', '.join(parts)}; {int((~choice.met).sum())} of {len(choice.met)} runs "
        "missed FP64-level backward error."
    )


def describe(settings: NativeSettings) -> dict[str, object]:
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


def provenance() -> dict[str, object]:
    """On what, when, with which versions."""
    return {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "roundwise": version("roundwise"),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "machine": str(Machine.this()),
    }


def summary(result: NativeResult) -> dict[str, Any]:
    """All numbers, for programs; NaN and infinity become null."""
    tables = all_tables(result) | {"systems": system_table(result)}
    return {
        "schema_version": SCHEMA_VERSION,
        "settings": asdict(result.settings),
        "provenance": provenance(),
        "summary": overview(result),
        "tables": {name: plain_records(table) for name, table in tables.items()},
    }
