"""The tables of the departure study: every variant beside the paper."""

from __future__ import annotations

from collections.abc import Mapping

from roundwise.experiments import paper
from roundwise.experiments.released.numbers import METRICS, mean_distances
from roundwise.experiments.simulated.experiment import FORMATS
from roundwise.experiments.simulated.running import Result, range_metric
from roundwise.experiments.simulated.tables import DECIMALS, METHODS
from roundwise.report import Cell, Table, scientific

COLUMNS = {
    "success": "success %",
    "strict": "strict %",
    "ferr": "ferr",
    "nbe": "nbe",
    "outer": "outer",
    "gmres": "GMRES",
}


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
    """All-FP64 at high kappa, where the paper has 2.93 GMRES iterations."""
    metrics = ("ferr", "nbe", "gmres")
    rows: list[list[Cell]] = []
    for tau in next(iter(results.values())).baselines:
        theirs = [paper.reported("dense", tau, "FP64", "high", metric) for metric in metrics]
        rows.append([scientific(tau), "paper", *theirs])
        for name, result in results.items():
            if "high" in result.ranges:
                ours = [range_metric(result.baselines[tau], "high", metric) for metric in metrics]
                rows.append([scientific(tau), name, *ours])
    return Table(
        "All-FP64 at high kappa: the paper's and ours",
        ["tau", "variant", *(COLUMNS[metric] for metric in metrics)],
        rows,
        formats={"GMRES": ".2f"},
    )


def comparison_table(results: Mapping[str, Result], tau: float, weight: str) -> Table:
    """One weighting at one tau: every variant and the paper, by range."""
    rows: list[list[Cell]] = []
    for kappa_range in next(iter(results.values())).ranges:
        reported = [paper.reported("dense", tau, weight, kappa_range, key) for key in COLUMNS]
        shares = paper.DENSE_USAGE[tau, weight, kappa_range]
        rows.append([kappa_range, "paper", *reported, *(shares[fmt] for fmt in FORMATS)])
        for name, result in results.items():
            if kappa_range in result.ranges:
                case = result.case(weight, tau)
                means = [case.metric(kappa_range, key).mean for key in COLUMNS]
                used = [case.mean_usage(kappa_range, fmt) for fmt in FORMATS]
                rows.append([kappa_range, name, *means, *used])
    places = {COLUMNS[key]: f".{digits}f" for key, digits in DECIMALS.items()}
    return Table(
        f"{METHODS[weight]}, tau = {scientific(tau)}: errors, iterations and stages per solve",
        ["range", "variant", *COLUMNS.values(), *FORMATS],
        rows,
        note="Means over the trainings.",
        formats=places | dict.fromkeys(FORMATS, ".2f"),
    )
