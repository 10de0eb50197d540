"""Tables for people: the paper's value, ours for the first seed, ours over all seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable

from roundwise.experiments import paper
from roundwise.experiments.simulated import numbers
from roundwise.experiments.simulated.draws import draws_sentence
from roundwise.experiments.simulated.running import Result
from roundwise.experiments.tabulating import FlatRow
from roundwise.report import Cell, Table, scientific

METHODS = {"W1": "RL(W1)", "W2": "RL(W2)", "FP64": "FP64"}
DECIMALS = {"success": 1, "strict": 1, "outer": 2, "gmres": 2}
SEEDS = "seeds"
"""Heading of ``mean ± std`` over the trainings."""


def all_tables(result: Result) -> dict[str, Table]:
    """The tables of an experiment by a short name, in reading order."""
    found = {
        "success": success_table(result),
        "errors": comparison(result, {"ferr": "ferr", "nbe": "nbe"}, "Mean errors"),
        "iterations": comparison(
            result, {"outer": "outer", "gmres": "GMRES"}, "Mean iterations per solve"
        ),
        "usage": usage_table(result),
        "families": family_table(result),
        "data": data_table(result),
        "regret": regret_table(result),
    }
    return {name: table for name, table in found.items() if table.rows}


def comparison(result: Result, metrics: dict[str, str], what: str) -> Table:
    """Some metrics, each by the paper, of our first seed, and over all seeds."""
    ranged = result.experiment.by_range
    header = ["tau", "method", *(["range"] if ranged else []), "systems"]
    formats: dict[str, str] = {}
    for metric, label in metrics.items():
        sources = ("ours",) if metric == "strict" else ("paper", "ours")  # the paper has no strict
        header += [f"{label} {source}" for source in (*sources, SEEDS)]
        if metric in DECIMALS:
            places = f".{DECIMALS[metric]}f"
            formats |= dict.fromkeys([f"{label} {source}" for source in sources], places)
    rows: list[list[Cell]] = []
    found = _shown(result, numbers.performance(result), "metric")
    for (tau, method, kappa_range), by_metric in found.items():
        row: list[Cell] = [scientific(tau), METHODS[method], *([kappa_range] if ranged else [])]
        row.append(by_metric[next(iter(metrics))]["systems"])
        for metric in metrics:
            number = by_metric[metric]
            row += [] if metric == "strict" else [number["paper"]]
            row += [number["ours"], spread_text(number, DECIMALS.get(metric))]
        rows.append(row)
    note = seeds_note(result)
    if "ferr" in metrics:
        note += " Runs without a finite result are left out of mean errors."
        if result.gathered.draws:
            note += f" {draws_sentence(result)}"
    source = paper.TABLES[result.experiment.name]
    return Table(f"{what}: the paper's ({source}) and ours", header, rows, note, formats)


def success_table(result: Result) -> Table:
    """Both success rates, and the threshold that makes the paper's vacuous beyond 1."""
    table = comparison(result, {"success": "success %", "strict": "strict %"}, "Success rates")
    header, rows = list(table.header), [list(row) for row in table.rows]
    if result.experiment.by_range:  # each range has its own threshold; "all" has none
        header.append("threshold")
        thresholds = [
            judged.threshold
            for baseline in result.baselines.values()
            for _ in METHODS
            for judged in baseline.ranges
            if judged.name in result.reported_ranges
        ]
        rows = [[*row, limit] for row, limit in zip(rows, thresholds, strict=True)]
    return Table(
        table.caption,
        header,
        rows,
        note=f"{table.note} The paper's success: max(ferr, nbe) below a threshold, tau times the "
        "median kappa of the range; where it exceeds 1, the answer x = 0 would count. Strict "
        "success: nbe <= tau and ferr <= max(tau, 10 ferr of FP64).",
        formats=table.formats,
    )


def seeds_note(result: Result) -> str:
    """What the columns of our numbers are."""
    count = result.settings.seeds
    return f"Ours: the first training; seeds: mean ± std over {count} (all-FP64 has none)."


def usage_table(result: Result) -> Table:
    """Mean stages (of 4) per format."""
    formats = [fmt.name for fmt in result.gathered.space.formats]
    ranged = result.experiment.by_range
    rows: list[list[Cell]] = []
    found = _shown(result, numbers.usage(result), "format")
    for (tau, method, kappa_range), by_format in found.items():
        lead: list[Cell] = [scientific(tau), METHODS[method], *([kappa_range] if ranged else [])]
        reported = [by_format[fmt]["paper"] for fmt in formats]
        if not all(isinstance(value, float) and math.isnan(value) for value in reported):
            rows.append([*lead, "paper", *reported])
        rows.append([*lead, "ours", *(by_format[fmt]["ours"] for fmt in formats)])
        rows.append([*lead, SEEDS, *(spread_text(by_format[fmt], 2) for fmt in formats)])
    return Table(
        "Precision usage: stages (of 4) per solve in each format" + _source(result, "usage"),
        ["tau", "method", *(["range"] if ranged else []), "source", *formats],
        rows,
        note=seeds_note(result),
        formats=dict.fromkeys(formats, ".2f"),
    )


def family_table(result: Result) -> Table:
    """Errors and iterations by family."""
    columns = ("ferr", "ferr_mean", "nbe", "nbe_mean", "gmres", "gmres_mean")
    headings = [column.replace("_mean", ", all seeds") for column in columns]
    rows: list[list[Cell]] = [
        [*_lead(row, "method"), row["family"], row["systems"], *(row[key] for key in columns)]
        for row in numbers.families(result)
    ]
    return Table(
        "Mean errors and iterations by family",
        ["tau", "method", "family", "systems", *(h.replace("gmres", "GMRES") for h in headings)],
        rows,
        note="The paper, high-contrast family: ferr "
        f"{scientific(paper.HIGH_CONTRAST_FERR, 2)} at tau = 1e-6 under both weightings, "
        f"{paper.HIGH_CONTRAST_GMRES} GMRES iterations at tau = 1e-8.",
    )


def data_table(result: Result) -> Table:
    """What the data set is like."""
    found = list(numbers.data(result))
    header = [column for column in found[0] if column != "experiment"]
    return Table(
        "The data set" + _source(result, "data"),
        [column.replace("_percent", " %").replace("_", " ") for column in header],
        [[row[column] for column in header] for row in found],
    )


def regret_table(result: Result) -> Table:
    """What each policy gives away."""
    references = {
        "oracle": "against the oracle",
        "best_fixed": "the best fixed action",
        "fp64": "all-FP64",
    }
    rows: list[list[Cell]] = [
        [
            *_lead(row, "weights"),
            row["policy"],
            row["reward"],
            *(_interval_text(row, key) for key in references),
            row["std_over_seeds"],
        ]
        for row in numbers.regrets(result)
    ]
    return Table(
        "Mean reward given away on the test systems, with 95 % bootstrap intervals",
        ["tau", "weights", "policy", "reward", *references.values(), "std over seeds"],
        rows,
        note="Below 0 the policy is ahead of the reference. The oracle knows every outcome; the "
        "best fixed action is chosen with the test systems in view.",
    )


def spread_text(row: FlatRow, decimals: int | None = None) -> str:
    """``mean ± std`` of a row; nothing for a single seed."""
    mean, std, seeds = (row[key] for key in ("mean", "std", "seeds"))
    if not isinstance(mean, float) or not isinstance(std, float) or seeds == 1 or math.isnan(mean):
        return ""
    if decimals is None and 0 < abs(mean) < 1e-3:
        seen = scientific(std) if std > 1e-6 * abs(mean) else "0"
        return f"{scientific(mean, 2)} ± {seen}"
    places = 2 if decimals is None else decimals
    return f"{mean:.{places}f} ± {std:.{places}f}"


def _shown(
    result: Result, rows: Iterable[FlatRow], column: str
) -> dict[tuple[float, str, str], dict[str, FlatRow]]:
    """Rows of the ranges that the paper reports, by (tau, method, range) and by a column."""
    found: dict[tuple[float, str, str], dict[str, FlatRow]] = {}
    for row in rows:
        if row["range"] in result.reported_ranges:
            key = (float(row["tau"] or 0), str(row["method"]), str(row["range"]))
            found.setdefault(key, {})[str(row[column])] = row
    return found


def _lead(row: FlatRow, column: str) -> list[Cell]:
    name = str(row[column])
    return [scientific(float(row["tau"] or 0)), METHODS[name] if column == "method" else name]


def _source(result: Result, what: str) -> str:
    source = paper.TABLES.get(f"{result.experiment.name} {what}")
    return f"; the paper's from {source}" if source else ""


def _interval_text(row: FlatRow, key: str) -> str:
    return f"{row[key]:.3g} [{row[f'{key}_low']:.3g}, {row[f'{key}_high']:.3g}]"
