"""Tables for people: the paper's value, ours for the first seed, ours over all seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np

from roundwise.algorithms.base import PAPER_FORMATS
from roundwise_studies import paper
from roundwise_studies.report import Table, scientific
from roundwise_studies.simulated import numbers
from roundwise_studies.simulated.running import Result
from roundwise_studies.tabulating import FlatRow, row_table

METHODS = {"W1": "RL(W1)", "W2": "RL(W2)", "FP64": "FP64"}
DECIMALS = {"success": 1, "strict": 1, "outer": 2, "gmres": 2}


def all_tables(result: Result) -> dict[str, Table]:
    """The tables of an experiment by a short name, in reading order."""
    tables = {
        "success": comparison(
            result,
            {"success": "success %", "strict": "strict %"},
            "Success rates",
            "The paper's success: max(ferr, nbe) below a threshold, tau times the median kappa of "
            "the range; where it exceeds 1, the answer x = 0 would count. Strict success: "
            "nbe <= tau and ferr <= max(tau, 10 ferr of FP64).",
        ),
        "errors": comparison(
            result,
            {"ferr": "ferr", "nbe": "nbe"},
            "Mean errors",
            "Runs without a finite result are left out of mean errors."
            + (f" {draws_sentence(result)}" if result.gathered.draws else ""),
        ),
        "iterations": comparison(
            result, {"outer": "outer", "gmres": "GMRES"}, "Mean iterations per solve"
        ),
        "usage": usage_table(result),
    }
    if found := list(numbers.families(result)):
        tables["families"] = family_table(found)
    return {**tables, "data": data_table(result), "regret": regret_table(result)}


def comparison(result: Result, metrics: dict[str, str], what: str, note: str = "") -> Table:
    """Some metrics, each by the paper, of our first seed, and over all seeds."""
    rows: list[FlatRow] = []
    for lead, by_metric in _shown(result, numbers.performance(result), "metric"):
        row = lead | {"systems": by_metric["ferr"]["systems"]}
        for metric, label in metrics.items():
            number = by_metric[metric]
            if metric != "strict":  # the paper has no strict success
                row[f"{label} paper"] = number["paper"]
            row[f"{label} ours"] = number["ours"]
            row[f"{label} seeds"] = spread_text(number, DECIMALS.get(metric))
        if "success" in metrics and "range" in row:  # "all" has no threshold
            ranges = result.baselines[float(by_metric["ferr"]["tau"] or 0)].ranges
            row["threshold"] = next(r.threshold for r in ranges if r.name == row["range"])
        rows.append(row)
    return row_table(
        f"{what}: the paper's ({paper.TABLES[result.experiment.name]}) and ours",
        rows,
        f"{seeds_note(result)} {note}".rstrip(),
        {
            f"{metrics[metric]} {source}": f".{places}f"
            for metric, places in DECIMALS.items()
            if metric in metrics
            for source in ("paper", "ours")
        },
    )


def draws_sentence(result: Result) -> str:
    """How to judge the mean errors of a result that has draws."""
    name, tau, draws = result.experiment.name, next(iter(result.baselines)), result.gathered.draws
    low, middle, high = min(draws), float(np.median(draws)), max(draws)
    theirs = paper.reported(name, tau, "FP64", "all", "ferr")
    return (
        f"A few systems carry the means of the {name.upper()} errors: over {len(draws)} "
        f"draws of the test set all-FP64 has a mean ferr of {scientific(low, 1)} to "
        f"{scientific(high, 1)}, median {scientific(middle, 1)} (paper {scientific(theirs, 1)}, "
        f"this draw {scientific(draws[0], 1)})."
    )


def seeds_note(result: Result) -> str:
    """What the columns of our numbers are."""
    count = result.settings.seeds
    return f"Ours: the first training; seeds: mean ± std over {count} (all-FP64 has none)."


def usage_table(result: Result) -> Table:
    rows: list[FlatRow] = []
    for lead, by_format in _shown(result, numbers.usage(result), "format"):
        sources: dict[str, FlatRow] = {
            "paper": {fmt: row["paper"] for fmt, row in by_format.items()},
            "ours": {fmt: row["ours"] for fmt, row in by_format.items()},
            "seeds": {fmt: spread_text(row, 2) for fmt, row in by_format.items()},
        }
        if all(math.isnan(float(cell or 0)) for cell in sources["paper"].values()):
            del sources["paper"]
        rows += [{**lead, "source": source, **cells} for source, cells in sources.items()]
    return row_table(
        "Precision usage: stages (of 4) per solve in each format" + _source(result, "usage"),
        rows,
        seeds_note(result),
        dict.fromkeys(PAPER_FORMATS, ".2f"),
    )


def family_table(found: list[FlatRow]) -> Table:
    keys = {"ferr": "ferr", "nbe": "nbe", "gmres": "GMRES"}
    rows: list[FlatRow] = []
    for row in found:
        shown = _lead(row) | {"family": row["family"], "systems": row["systems"]}
        for key, label in keys.items():
            shown |= {label: row[key], f"{label}, all seeds": row[f"{key}_mean"]}
        rows.append(shown)
    return row_table(
        "Mean errors and iterations by family",
        rows,
        "The paper, high-contrast family: ferr "
        f"{scientific(paper.HIGH_CONTRAST_FERR, 2)} at tau = 1e-6 under both weightings, "
        f"{paper.HIGH_CONTRAST_GMRES} GMRES iterations at tau = 1e-8.",
    )


def data_table(result: Result) -> Table:
    rows = [
        {key.replace("_percent", " %").replace("_", " "): cell for key, cell in row.items()}
        for row in numbers.data(result)
    ]
    for row in rows:
        del row["experiment"]
    return row_table("The data set" + _source(result, "data"), rows)


def regret_table(result: Result) -> Table:
    rows: list[FlatRow] = [
        {
            "tau": scientific(case.tau),
            "weights": case.weight,
            "policy": entry.policy,
            "reward": entry.reward,
            "against the oracle": str(entry.oracle),
            "the best fixed action": str(entry.best_fixed),
            "all-FP64": str(entry.fp64),
            "std over seeds": entry.seeds.std,
        }
        for case in result.cases
        for entry in case.regrets.policies
    ]
    return row_table(
        "Mean reward given away on the test systems, with 95 % bootstrap intervals",
        rows,
        "Negative: the policy beats the reference. The oracle knows every outcome; the "
        "best fixed action is chosen with the test systems in view.",
    )


def spread_text(row: FlatRow, decimals: int | None = None) -> str:
    """``mean ± std`` of a row; nothing for a single seed."""
    mean, std = float(row["mean"] or 0), float(row["std"] or 0)
    if row["seeds"] == 1 or math.isnan(mean):
        return ""
    if decimals is None and 0 < abs(mean) < 1e-3:
        seen = scientific(std) if std > 1e-6 * abs(mean) else "0"
        return f"{scientific(mean, 2)} ± {seen}"
    places = 2 if decimals is None else decimals
    if 0 < abs(mean) < 0.5 * 10.0**-places:
        return f"< {10.0**-places:.{places}f}"  # "0.00" would say that there was none
    return f"{mean:.{places}f} ± {std:.{places}f}"


def _shown(
    result: Result, rows: Iterable[FlatRow], column: str
) -> Iterator[tuple[FlatRow, dict[str, FlatRow]]]:
    """Rows of the ranges that the paper reports, by a column; tau, method and range come first."""
    reported = (row for row in rows if row["range"] in result.reported_ranges)
    for _, group in groupby(reported, lambda row: (row["tau"], row["method"], row["range"])):
        found = {str(row[column]): row for row in group}
        first = next(iter(found.values()))
        kappa_range: FlatRow = {"range": first["range"]} if result.experiment.by_range else {}
        yield _lead(first) | kappa_range, found


def _lead(row: FlatRow) -> FlatRow:
    return {"tau": scientific(float(row["tau"] or 0)), "method": METHODS[str(row["method"])]}


def _source(result: Result, what: str) -> str:
    source = paper.TABLES.get(f"{result.experiment.name} {what}")
    return f"; the paper's from {source}" if source else ""
