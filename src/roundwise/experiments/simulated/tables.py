"""Tables for people: the paper's value, ours for the first seed, ours over all seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from roundwise.experiments import paper
from roundwise.experiments.simulated import records
from roundwise.experiments.simulated.draws import draws_sentence
from roundwise.experiments.simulated.experiment import Result
from roundwise.experiments.simulated.records import Record
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


def tidy_tables(result: Result) -> dict[str, Table]:
    """The same numbers as flat records, all digits, for CSV."""
    kinds: dict[str, tuple[Sequence[str], Iterable[Record]]] = {
        "performance": (records.PERFORMANCE, records.performance(result)),
        "usage": (records.USAGE, records.usage(result)),
        "families": (records.FAMILIES, records.families(result)),
        "data": (records.DATA, records.data(result)),
        "regret": (records.REGRETS, records.regrets(result)),
    }
    tables = {
        name: Table(name, header, [[record[column] for column in header] for record in rows])
        for name, (header, rows) in kinds.items()
    }
    return {name: table for name, table in tables.items() if table.rows}


def comparison(result: Result, metrics: dict[str, str], what: str) -> Table:
    """Some metrics, each by the paper, of our first seed, and over all seeds."""
    found: dict[tuple[float, str, str], dict[str, Record]] = {}
    for record in records.performance(result):
        if _is_shown(result, str(record["range"])):
            key = (float(record["tau"] or 0), str(record["method"]), str(record["range"]))
            found.setdefault(key, {})[str(record["metric"])] = record
    ranged = result.experiment.by_range
    header = ["tau", "method", *(["range"] if ranged else []), "systems"]
    for label in metrics.values():
        header += [f"{label} paper", "ours", SEEDS]
    header = _unique(header)
    rows: list[list[Cell]] = []
    for (tau, method, kappa_range), by_metric in found.items():
        row: list[Cell] = [scientific(tau), METHODS[method]]
        row += [kappa_range] if ranged else []
        row.append(by_metric[next(iter(metrics))]["systems"])
        for metric in metrics:
            record = by_metric[metric]
            decimals = DECIMALS.get(metric)
            row += [record["paper"], record["ours"], spread_text(record, decimals)]
        rows.append(row)
    note = seeds_note(result)
    if "ferr" in metrics:
        note += " Runs without a finite result are left out of mean errors."
        if result.draws:
            note += f" {draws_sentence(result)}"
    source = paper.TABLES[result.experiment.name]
    formats = {
        f"{label} {column}": f".{DECIMALS[metric]}f"
        for metric, label in metrics.items()
        for column in ("paper", "ours")
        if metric in DECIMALS
    }
    return Table(f"{what}: the paper's ({source}) and ours", header, rows, note, formats)


def success_table(result: Result) -> Table:
    """Both success rates, and the threshold that makes the paper's vacuous beyond 1."""
    table = comparison(result, {"success": "success %", "strict": "strict %"}, "Success rates")
    strict = list(table.header).index("strict % paper")  # the paper has none
    thresholds: list[Cell] = [
        judged.threshold
        for baseline in result.baselines.values()
        for _ in METHODS
        for judged in baseline.ranges
        if _is_shown(result, judged.name)
    ]
    header = [*table.header[:strict], "strict % ours", *table.header[strict + 2 :], "threshold"]
    rows = [
        [*row[:strict], *row[strict + 1 :], threshold]
        for row, threshold in zip(table.rows, thresholds, strict=True)
    ]
    if not result.experiment.by_range:  # each range has its own threshold; "all" has none
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Table(
        table.caption,
        header,
        rows,
        note=f"{table.note} The paper's success: max(ferr, nbe) below a threshold, tau times the "
        "median kappa of the range; where it exceeds 1, the answer x = 0 would count. Strict "
        "success: nbe <= tau and ferr <= max(tau, 10 ferr of FP64).",
        formats={name: spec for name, spec in table.formats.items() if name in header},
    )


def seeds_note(result: Result) -> str:
    """What the columns of our numbers are."""
    count = result.settings.seeds
    return f"Ours: the first training; seeds: mean ± std over {count} (all-FP64 has none)."


def usage_table(result: Result) -> Table:
    """Mean stages (of 4) per format."""
    found: dict[tuple[float, str, str], dict[str, Record]] = {}
    for record in records.usage(result):
        if _is_shown(result, str(record["range"])):
            key = (float(record["tau"] or 0), str(record["method"]), str(record["range"]))
            found.setdefault(key, {})[str(record["format"])] = record
    formats = [fmt.name for fmt in result.facts.space.formats]
    ranged = result.experiment.by_range
    rows: list[list[Cell]] = []
    for (tau, method, kappa_range), by_format in found.items():
        lead: list[Cell] = [scientific(tau), METHODS[method], *([kappa_range] if ranged else [])]
        reported = [by_format[fmt]["paper"] for fmt in formats]
        if not all(isinstance(value, float) and math.isnan(value) for value in reported):
            rows.append([*lead, "paper", *reported])
        rows.append([*lead, "ours", *(by_format[fmt]["ours"] for fmt in formats)])
        rows.append([*lead, SEEDS, *(spread_text(by_format[fmt], 2) for fmt in formats)])
    source = paper.TABLES.get(f"{result.experiment.name} usage")
    return Table(
        "Precision usage: stages (of 4) per solve in each format"
        + (f"; the paper's from {source}" if source else ""),
        ["tau", "method", *(["range"] if ranged else []), "source", *formats],
        rows,
        note=seeds_note(result),
        formats=dict.fromkeys(formats, ".2f"),
    )


def family_table(result: Result) -> Table:
    """Errors and iterations by family."""
    rows: list[list[Cell]] = [
        [
            scientific(float(record["tau"] or 0)),
            METHODS[str(record["method"])],
            *(record[key] for key in records.FAMILIES[3:-1]),
        ]
        for record in records.families(result)
    ]
    return Table(
        "Mean errors and iterations by family",
        [
            "tau",
            "method",
            "family",
            "systems",
            "ferr",
            "ferr, all seeds",
            "nbe",
            "nbe, all seeds",
            "GMRES",
            "GMRES, all seeds",
        ],
        rows,
        note="The paper, high-contrast family: ferr "
        f"{scientific(paper.HIGH_CONTRAST_FERR, 2)} at tau = 1e-6 under both weightings, "
        f"{paper.HIGH_CONTRAST_GMRES} GMRES iterations at tau = 1e-8.",
    )


def data_table(result: Result) -> Table:
    """What the data set is like."""
    rows = [[record[key] for key in records.DATA[1:]] for record in records.data(result)]
    source = paper.TABLES.get(f"{result.experiment.name} data")
    return Table(
        "The data set" + (f"; the paper's from {source}" if source else ""),
        [
            "subset",
            "source",
            "systems",
            "kappa min",
            "kappa max",
            "n min",
            "n max",
            "density % min",
            "density % max",
        ],
        rows,
    )


def regret_table(result: Result) -> Table:
    """What each policy gives away."""
    rows: list[list[Cell]] = []
    for record in records.regrets(result):
        cells: list[Cell] = [
            scientific(float(record["tau"] or 0)),
            record["weights"],
            record["policy"],
        ]
        cells.append(record["reward"])
        cells += [_interval_text(record, key) for key in ("oracle", "best_fixed", "fp64")]
        rows.append([*cells, record["std_over_seeds"]])
    return Table(
        "Mean reward given away on the test systems, with 95 % bootstrap intervals",
        [
            "tau",
            "weights",
            "policy",
            "reward",
            "against the oracle",
            "the best fixed action",
            "all-FP64",
            "std over seeds",
        ],
        rows,
        note="Below 0 the policy is ahead of the reference. The oracle knows every outcome; the "
        "best fixed action is chosen with the test systems in view.",
    )


def spread_text(record: Record, decimals: int | None = None) -> str:
    """``mean ± std`` of a record; a dash without seeds."""
    mean, std, seeds = (record[key] for key in ("mean", "std", "seeds"))
    if not isinstance(mean, float) or not isinstance(std, float) or seeds == 1 or math.isnan(mean):
        return ""
    if decimals is None and 0 < abs(mean) < 1e-3:
        seen = scientific(std) if std > 1e-6 * abs(mean) else "0"
        return f"{scientific(mean, 2)} ± {seen}"
    places = 2 if decimals is None else decimals
    return f"{mean:.{places}f} ± {std:.{places}f}"


def _interval_text(record: Record, key: str) -> str:
    return f"{record[key]:.3g} [{record[f'{key}_low']:.3g}, {record[f'{key}_high']:.3g}]"


def _is_shown(result: Result, kappa_range: str) -> bool:
    """The paper reports either the ranges or all systems together."""
    return (kappa_range != "all") if result.experiment.by_range else (kappa_range == "all")


def _unique(header: Sequence[str]) -> list[str]:
    """Repeated headings belong to the metric before them: name it."""
    metric, found = "", []
    for heading in header:
        if heading.endswith(" paper"):
            metric = heading.removesuffix(" paper")
        found.append(f"{metric} {heading}" if heading in ("ours", SEEDS) else heading)
    return found
