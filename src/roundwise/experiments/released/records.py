"""The numbers of the departure study: flat records, tables for people, distances to the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from roundwise.evaluation import seed_spread
from roundwise.experiments import paper
from roundwise.experiments.simulated import records
from roundwise.experiments.simulated.experiment import Case, Result
from roundwise.experiments.simulated.records import Record
from roundwise.experiments.simulated.settings import FORMATS
from roundwise.experiments.simulated.tables import METHODS
from roundwise.report import Cell, Table, scientific

RANGES = ("low", "medium", "high")

PERFORMANCE = ("variant", *records.PERFORMANCE[1:])
USAGE = ("variant", *records.USAGE[1:])
DISTANCES = ("variant", "tau", "method", "range", "metric", "distance", "std", "seeds")

METRICS = {
    "usage": "stages",
    "ferr": "decades",
    "nbe": "decades",
    "outer": "steps",
    "gmres": "octaves",
    "success": "points",
}
"""What a distance is taken of, and its unit."""


def performance(results: Mapping[str, Result]) -> Iterator[Record]:
    """As `records.performance`, for every variant."""
    for name, result in results.items():
        for record in records.performance(result):
            yield {"variant": name, **{key: record[key] for key in records.PERFORMANCE[1:]}}


def usage(results: Mapping[str, Result]) -> Iterator[Record]:
    """As `records.usage`, with the numbers behind the paper's figure."""
    for name, result in results.items():
        for record in records.usage(result):
            key = float(record["tau"] or 0), str(record["method"]), str(record["range"])
            reported = paper.DENSE_USAGE.get(key, {}).get(str(record["format"]), math.nan)
            kept = {key: record[key] for key in records.USAGE[1:]}
            yield {"variant": name, **kept, "paper": reported}


def distances(results: Mapping[str, Result]) -> Iterator[Record]:
    """How far each number is from the paper's: the mean over the trainings of their distances."""
    for name, result in results.items():
        for case in result.cases:
            for kappa_range in (r for r in RANGES if r in result.ranges):
                for metric in METRICS:
                    found = seed_spread(_distances(case, kappa_range, metric))
                    yield dict(
                        zip(
                            DISTANCES,
                            (name, case.tau, case.weight, kappa_range, metric, found.mean,
                             found.std, found.seeds),
                            strict=True,
                        )
                    )  # fmt: skip


def distance(metric: str, ours: float, theirs: float) -> float:
    """The distance of two numbers of a metric of `METRICS` other than usage.

    Errors: |log10| of their ratio. GMRES iterations: |log2| of their ratio, counts below 1 taken
    as 1, as the reward does. Outer steps and success: the difference.
    """
    if metric in ("ferr", "nbe"):
        return abs(math.log10(ours / theirs))
    if metric == "gmres":
        return abs(math.log2(max(ours, 1.0) / max(theirs, 1.0)))
    return abs(ours - theirs)


def usage_distance(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """The mean number of stages (of 4) that another format has."""
    return sum(abs(ours[fmt] - theirs[fmt]) for fmt in theirs) / 2


def _distances(case: Case, kappa_range: str, metric: str) -> list[float]:
    if metric == "usage":
        theirs = paper.DENSE_USAGE[case.tau, case.weight, kappa_range]
        each = [case.usage(kappa_range, fmt) for fmt in FORMATS]
        return [
            usage_distance(dict(zip(FORMATS, shares, strict=True)), theirs)
            for shares in zip(*each, strict=True)
        ]
    reported = paper.reported("dense", case.tau, case.weight, kappa_range, metric)
    return [distance(metric, ours, reported) for ours in case.values(kappa_range, metric)]


def distance_table(results: Mapping[str, Result]) -> Table:
    """The mean distance of each variant, by metric."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in distances(results):
        by_metric = found.setdefault(str(record["variant"]), {})
        by_metric.setdefault(str(record["metric"]), []).append(float(record["distance"] or 0))
    header = ["variant", *(f"{metric} ({unit})" for metric, unit in METRICS.items())]
    return Table(
        "Distance to the paper's numbers: mean over W1 and W2, both tau and the ranges of kappa",
        header,
        [
            [name, *(float(np.mean(by_metric[m])) for m in METRICS)]
            for name, by_metric in found.items()
        ],
        note="usage: mean number of stages (of 4) with another format than the paper's. ferr, nbe: "
        "|log10| of the ratio. outer, success: difference. gmres: |log2| of the ratio. Means over "
        "the trainings.",
        formats=dict.fromkeys(header[1:], ".2f"),
    )


def fp64_table(results: Mapping[str, Result]) -> Table:
    """All-FP64 at high kappa, where the paper has 2.93 GMRES iterations."""
    rows: list[list[Cell]] = []
    for tau in next(iter(results.values())).baselines:
        theirs = [paper.reported("dense", tau, "FP64", "high", m) for m in ("ferr", "nbe", "gmres")]
        rows.append([scientific(tau), "paper", *theirs])
        for record in performance(results):
            key = record["tau"], record["method"], record["range"], record["metric"]
            if key == (tau, "FP64", "high", "ferr"):
                rows.append([scientific(tau), record["variant"], record["ours"]])
            elif key[:3] == (tau, "FP64", "high") and record["metric"] in ("nbe", "gmres"):
                rows[-1].append(record["ours"])
    return Table(
        "All-FP64 at high kappa: the paper's and ours",
        ["tau", "variant", "ferr", "nbe", "GMRES"],
        rows,
        formats={"GMRES": ".2f"},
    )


def comparison_table(results: Mapping[str, Result], tau: float, weight: str) -> Table:
    """One weighting at one tau: every variant and the paper, by range."""
    header = [
        "range",
        "variant",
        "success %",
        "strict %",
        "ferr",
        "nbe",
        "outer",
        "GMRES",
        *FORMATS,
    ]
    keys = ("success", "strict", "ferr", "nbe", "outer", "gmres")
    rows: list[list[Cell]] = []
    present = next(iter(results.values())).ranges
    for kappa_range in (r for r in RANGES if r in present):
        reported = [paper.reported("dense", tau, weight, kappa_range, key) for key in keys]
        shares = paper.DENSE_USAGE[tau, weight, kappa_range]
        rows.append([kappa_range, "paper", *reported, *(shares[fmt] for fmt in FORMATS)])
        for name, result in results.items():
            if kappa_range not in result.ranges:
                continue
            case = result.case(weight, tau)
            means = [case.metric(kappa_range, key).mean for key in keys]
            used = [float(np.mean(case.usage(kappa_range, fmt))) for fmt in FORMATS]
            rows.append([kappa_range, name, *means, *used])
    return Table(
        f"{METHODS[weight]}, tau = {scientific(tau)}: errors, iterations and stages per solve",
        header,
        rows,
        note="Means over the trainings.",
        formats={
            "success %": ".1f", "strict %": ".1f", "outer": ".2f", "GMRES": ".2f",
            **dict.fromkeys(FORMATS, ".2f"),
        },
    )  # fmt: skip


def all_tables(results: Mapping[str, Result]) -> dict[str, Table]:
    """For people, in reading order."""
    some = next(iter(results.values()))
    cases = [(tau, weight) for tau in some.baselines for weight in ("W1", "W2")]
    return {
        "distances": distance_table(results),
        "fp64": fp64_table(results),
        **{
            f"{weight.lower()}-{scientific(tau)}": comparison_table(results, tau, weight)
            for tau, weight in cases
        },
    }


def tidy_tables(results: Mapping[str, Result]) -> dict[str, Table]:
    """The same numbers as flat records, for CSV."""
    kinds: dict[str, tuple[Sequence[str], Iterator[Record]]] = {
        "performance": (PERFORMANCE, performance(results)),
        "usage": (USAGE, usage(results)),
        "distances": (DISTANCES, distances(results)),
    }
    return {
        name: Table(name, header, [[record[column] for column in header] for record in rows])
        for name, (header, rows) in kinds.items()
    }
