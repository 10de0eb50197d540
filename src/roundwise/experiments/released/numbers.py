"""The numbers of the departure study as flat rows, and their distances to the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product

from roundwise.evaluation import seed_spread
from roundwise.experiments import paper
from roundwise.experiments.simulated import numbers
from roundwise.experiments.simulated.experiment import FORMATS
from roundwise.experiments.simulated.running import Case, Result
from roundwise.experiments.tabulating import FlatRow

METRICS = {
    "usage": "stages",
    "ferr": "decades",
    "nbe": "decades",
    "outer": "steps",
    "gmres": "octaves",
    "success": "points",
}
"""What a distance is taken of, and its unit."""


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
            key = float(row["tau"] or 0), str(row["method"]), str(row["range"])
            theirs = paper.DENSE_USAGE.get(key, {}).get(str(row["format"]), math.nan)
            yield {"variant": name, **row, "paper": theirs}


def distances(results: Mapping[str, Result]) -> Iterator[FlatRow]:
    """How far each number is from the paper's: the mean over the trainings of their distances."""
    for name, result in results.items():
        for case, kappa_range, metric in product(result.cases, result.ranges, METRICS):
            found = seed_spread(_distances(case, kappa_range, metric))
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
