"""The numbers of the departure study: flat rows, distances to the paper's, tables for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product

from roundwise.algorithms.base import PAPER_FORMATS
from roundwise_studies import paper
from roundwise_studies.evaluation.tables import seed_spread
from roundwise_studies.report import Cell, Table, scientific
from roundwise_studies.simulated import numbers
from roundwise_studies.simulated.running import Case, Result, range_metric
from roundwise_studies.simulated.tables import DECIMALS, METHODS
from roundwise_studies.tabulating import FlatRow

METRICS = {
    "usage": "stages",
    "ferr": "decades",
    "nbe": "decades",
    "outer": "steps",
    "gmres": "octaves",
    "success": "points",
}
"""What a distance is taken of, and its unit."""

EXACT = 2.0**-60
"""What an error of 0 counts as: a hundredth of FP64's unit roundoff."""

COLUMNS = {
    "success": "success %",
    "strict": "strict %",
    "ferr": "ferr",
    "nbe": "nbe",
    "outer": "outer",
    "gmres": "GMRES",
}


def performance(results: Mapping[str, Result]) -> Iterator[FlatRow]:
    """As for the simulated experiments, for every variant."""
    for name, result in results.items():
        for row in numbers.performance(result):
            del row["experiment"]
            yield {"variant": name, **row}


def usage(results: Mapping[str, Result]) -> Iterator[FlatRow]:
    """As for the simulated experiments, with the numbers behind the paper's figure."""
    for name, result in results.items():
        for row in numbers.usage(result):
            del row["experiment"]
            theirs = math.nan
            if row["range"] in result.reported_ranges:
                key = float(row["tau"] or 0), str(row["method"]), str(row["range"])
                theirs = paper.stages(result.experiment.name, *key)[str(row["format"])]
            yield {"variant": name, **row, "paper": theirs}


def distances(results: Mapping[str, Result]) -> Iterator[FlatRow]:
    """How far each number is from the paper's: the mean over the trainings of their distances."""
    for name, result in results.items():
        for case, kappa_range, metric in product(result.cases, result.reported_ranges, METRICS):
            found = seed_spread(_distances(result.experiment.name, case, kappa_range, metric))
            yield {
                "variant": name,
                "tau": case.tau,
                "method": case.weight,
                "range": kappa_range,
                "metric": metric,
                "distance": found.mean,
                "std": found.std,
                "seeds": found.seeds,
            }


def mean_distances(results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    """The mean distance over W1 and W2, both tau and the ranges, by variant and metric."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in distances(results):
        by_metric = found.setdefault(str(row["variant"]), {metric: [] for metric in METRICS})
        by_metric[str(row["metric"])].append(float(row["distance"] or 0))
    return {
        name: {metric: sum(values) / len(values) for metric, values in by_metric.items()}
        for name, by_metric in found.items()
    }


def distance(metric: str, ours: float, theirs: float) -> float:
    """The distance of two numbers of a metric of `METRICS` other than usage.

    Errors: |log10| of their ratio. GMRES iterations: |log2| of their ratio, counts below 1 taken
    as 1, as the reward does. Outer steps and success: the difference.
    """
    if metric in ("ferr", "nbe"):
        return abs(math.log10(max(ours, EXACT) / theirs))
    if metric == "gmres":
        return abs(math.log2(max(ours, 1.0) / max(theirs, 1.0)))
    return abs(ours - theirs)


def usage_distance(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """The mean number of stages (of 4) that another format has."""
    return sum(abs(ours[fmt] - theirs[fmt]) for fmt in theirs) / 2


def _distances(experiment: str, case: Case, kappa_range: str, metric: str) -> list[float]:
    if metric == "usage":
        theirs = paper.stages(experiment, case.tau, case.weight, kappa_range)
        each = [case.values(kappa_range, fmt) for fmt in PAPER_FORMATS]
        return [
            usage_distance(dict(zip(PAPER_FORMATS, shares, strict=True)), theirs)
            for shares in zip(*each, strict=True)
        ]
    reported = paper.reported(experiment, case.tau, case.weight, kappa_range, metric)
    return [distance(metric, ours, reported) for ours in case.values(kappa_range, metric)]


def all_tables(results: Mapping[str, Result]) -> dict[str, Table]:
    """The tables by a short name, in reading order."""
    tables = {"distances": distance_table(results), "fp64": fp64_table(results)}
    for case in next(iter(results.values())).cases:
        name = f"{case.weight.lower()}-{scientific(case.tau)}"
        tables[name] = comparison_table(results, case.tau, case.weight)
    return tables


def distance_table(results: Mapping[str, Result]) -> Table:
    """The mean distance of each variant, by metric."""
    header = ["variant", *(f"{metric} ({unit})" for metric, unit in METRICS.items())]
    return Table(
        "Distance to the paper's numbers: mean over W1 and W2, both tau and the ranges of kappa",
        header,
        [[name, *means.values()] for name, means in mean_distances(results).items()],
        note="usage: mean number of stages (of 4) with another format than the paper's. ferr, nbe: "
        "|log10| of the ratio. outer, success: difference. gmres: |log2| of the ratio. Means over "
        "the trainings.",
        formats=dict.fromkeys(header[1:], ".2f"),
    )


def fp64_table(results: Mapping[str, Result]) -> Table:
    """All-FP64; of dense systems those at high kappa, where the paper has 2.93 iterations."""
    metrics = ("ferr", "nbe", "gmres")
    first = next(iter(results.values()))
    experiment, where = first.experiment.name, first.reported_ranges[-1]
    rows: list[list[Cell]] = []
    for tau in first.baselines:
        theirs = [paper.reported(experiment, tau, "FP64", where, metric) for metric in metrics]
        rows.append([scientific(tau), "paper", *theirs])
        for name, result in results.items():
            if where in result.reported_ranges:
                ours = [range_metric(result.baselines[tau], where, metric) for metric in metrics]
                rows.append([scientific(tau), name, *ours])
    return Table(
        f"All-FP64{' at high kappa' if where == 'high' else ''}: the paper's and ours",
        ["tau", "variant", *(COLUMNS[metric] for metric in metrics)],
        rows,
        formats={"GMRES": ".2f"},
    )


def comparison_table(results: Mapping[str, Result], tau: float, weight: str) -> Table:
    """One weighting at one tau: every variant and the paper, by range."""
    rows: list[list[Cell]] = []
    first = next(iter(results.values()))
    experiment = first.experiment.name
    for kappa_range in first.reported_ranges:
        reported = [paper.reported(experiment, tau, weight, kappa_range, key) for key in COLUMNS]
        shares = paper.stages(experiment, tau, weight, kappa_range)
        rows.append([kappa_range, "paper", *reported, *(shares[fmt] for fmt in PAPER_FORMATS)])
        for name, result in results.items():
            if kappa_range in result.reported_ranges:
                case = result.case(weight, tau)
                means = [case.metric(kappa_range, key).mean for key in COLUMNS]
                used = [case.metric(kappa_range, fmt).mean for fmt in PAPER_FORMATS]
                rows.append([kappa_range, name, *means, *used])
    places = {COLUMNS[key]: f".{digits}f" for key, digits in DECIMALS.items()}
    return Table(
        f"{METHODS[weight]}, tau = {scientific(tau)}: errors, iterations and stages per solve",
        ["range", "variant", *COLUMNS.values(), *PAPER_FORMATS],
        rows,
        note="Means over the trainings.",
        formats=places | dict.fromkeys(PAPER_FORMATS, ".2f"),
    )
