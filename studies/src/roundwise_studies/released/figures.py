"""The figures of the departure study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from roundwise.algorithms.base import PAPER_FORMATS
from roundwise_studies import paper
from roundwise_studies.released.tables import METRICS, mean_distances
from roundwise_studies.report import Figure
from roundwise_studies.report import figures as draw
from roundwise_studies.simulated.running import Case, Result

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
    shares, low = {}, PAPER_FORMATS[:-1]
    for case in _cases(results):
        for kappa_range in _first(results).reported_ranges:
            theirs = paper.stages(
                _first(results).experiment.name, case.tau, case.weight, kappa_range
            )
            rows = [[theirs[fmt] for fmt in low]]
            for result in results.values():
                ours = result.case(case.weight, case.tau)
                has_systems = kappa_range in result.reported_ranges
                rows.append(
                    [ours.metric(kappa_range, f).mean if has_systems else np.nan for f in low]
                )
            shares[f"{case.label}, {kappa_range}"] = np.array(rows)
    return Figure(
        "Stages (of 4) below FP64 that the policies choose, beside the paper's; mean over the "
        "trainings.",
        "departures-usage",
        draw.stacked_bars(shares, ["paper", *results], low, len(PAPER_FORMATS)),
    )


def numbers(results: Mapping[str, Result], metrics: Sequence[str] = tuple(NUMBERS)) -> Figure:
    """Errors and iterations of every variant, each training a dot, against the paper's."""
    experiment = _first(results).experiment.name
    panels = {
        (NUMBERS[metric], case.label): {
            kappa_range: (
                paper.reported(experiment, case.tau, case.weight, kappa_range, metric),
                [
                    result.case(case.weight, case.tau).values(kappa_range, metric)
                    for result in results.values()
                ],
            )
            for kappa_range in _first(results).reported_ranges
        }
        for metric in metrics
        for case in _cases(results)
    }
    return Figure(
        "Mean errors and iterations by range of kappa: each dot is a training, each line is the "
        "paper's number.",
        "departures-numbers",
        draw.dots_against(panels, list(results)),
    )


def _cases(results: Mapping[str, Result]) -> list[Case]:
    """Those of the first variant, W1 at both tau first."""
    return sorted(_first(results).cases, key=lambda case: case.weight)


def _first(results: Mapping[str, Result]) -> Result:
    return next(iter(results.values()))
