"""The figures of the departure study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from roundwise.experiments import paper
from roundwise.experiments.released.numbers import METRICS, RANGES, mean_distances
from roundwise.experiments.simulated.running import Result
from roundwise.experiments.simulated.settings import FORMATS
from roundwise.report import Figure, scientific
from roundwise.report import figures as draw

NUMBERS = {"ferr": "ferr", "nbe": "nbe", "gmres": "GMRES iterations"}


def figures(results: Mapping[str, Result]) -> Iterator[Figure]:
    """All of them, drawn as they are asked for."""
    yield distances(results)
    yield usage(results)
    yield numbers(results)


def distances(results: Mapping[str, Result]) -> Figure:
    means = mean_distances(results)
    labels = [f"{metric}\n({unit})" for metric, unit in METRICS.items()]
    values = np.array([list(by_metric.values()) for by_metric in means.values()])
    return Figure(
        "Mean distance of each variant to the paper's numbers; darker is farther, each column on "
        "a scale of its own.",
        "departures-distances",
        draw.heat_table(list(means), labels, values),
    )


def usage(results: Mapping[str, Result]) -> Figure:
    """Stages below FP64, by variant; W1 and W2 at both tau."""
    shares, low, some = {}, FORMATS[:-1], next(iter(results.values()))
    for weight in ("W1", "W2"):
        for tau in some.baselines:
            for kappa_range in (r for r in RANGES if r in some.ranges):
                theirs = paper.DENSE_USAGE[tau, weight, kappa_range]
                rows = [[theirs[fmt] for fmt in low]]
                for result in results.values():
                    used = [np.nan] * len(low)
                    if kappa_range in result.ranges:
                        case = result.case(weight, tau)
                        used = [float(np.mean(case.usage(kappa_range, fmt))) for fmt in low]
                    rows.append(used)
                shares[f"{weight}, tau = {scientific(tau)}, {kappa_range}"] = np.array(rows)
    return Figure(
        "Stages (of 4) below FP64 that the policies choose, beside the paper's; mean over the "
        "trainings.",
        "departures-usage",
        draw.stacked_bars(shares, ["paper", *results], low, len(FORMATS)),
    )


def numbers(results: Mapping[str, Result], metrics: Sequence[str] = tuple(NUMBERS)) -> Figure:
    """Errors and iterations of every variant, each training a dot, against the paper's."""
    some = next(iter(results.values()))
    columns = [(weight, tau) for weight in ("W1", "W2") for tau in some.baselines]
    panels = {}
    for metric, label in ((metric, NUMBERS[metric]) for metric in metrics):
        for weight, tau in columns:
            panels[label, f"{weight}, tau = {scientific(tau)}"] = {
                kappa_range: (
                    paper.reported("dense", tau, weight, kappa_range, metric),
                    [
                        result.case(weight, tau).values(kappa_range, metric)
                        if kappa_range in result.ranges
                        else []
                        for result in results.values()
                    ],
                )
                for kappa_range in RANGES
                if kappa_range in some.ranges
            }
    return Figure(
        "Mean errors and iterations by range of kappa: each dot is a training, each line is the "
        "paper's number.",
        "departures-numbers",
        draw.dots_against(panels, list(results)),
    )
