"""Results as flat rows, one number with the paper's per row; for CSV, JSON and the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from roundwise_studies import paper
from roundwise_studies.evaluation.accuracy import RangeAccuracy, RangeUsage
from roundwise_studies.evaluation.tables import Interval, seed_spread
from roundwise_studies.simulated.running import METRICS, Result, range_metric
from roundwise_studies.tabulating import FlatRow, finite_mean


def performance(result: Result) -> Iterator[FlatRow]:
    """Success, errors and iterations of both policies and of all-FP64, by range and in all."""
    for tau, baseline in result.baselines.items():
        for method in ("W1", "W2", "FP64"):
            tables = (baseline,) if method == "FP64" else result.case(method, tau).accuracies
            for judged, metric in product(baseline.ranges, METRICS):
                values = [range_metric(table, judged.name, metric) for table in tables]
                theirs = paper.reported(result.experiment.name, tau, method, judged.name, metric)
                yield _row(result, tau, method, judged, {"metric": metric, "paper": theirs}, values)


def usage(result: Result) -> Iterator[FlatRow]:
    """Mean stages per solve in each format."""
    for case in result.cases:
        for used, fmt in product(case.usages[0].ranges, case.usages[0].ranges[0].formats):
            theirs = paper.reported_usage(result.experiment.name, case.tau, case.weight, fmt)
            what: FlatRow = {"format": fmt, "paper": theirs if used.name == "all" else math.nan}
            values = case.values(used.name, fmt)
            row = _row(result, case.tau, case.weight, used, what, values)
            yield {key: cell for key, cell in row.items() if key not in ("min", "max")}


def _row(
    result: Result,
    tau: float,
    method: str,
    systems: RangeAccuracy | RangeUsage,
    what: FlatRow,
    values: list[float],
) -> FlatRow:
    spread = seed_spread(values)
    return {
        "experiment": result.experiment.name,
        "tau": tau,
        "method": method,
        "range": systems.name,
        "systems": systems.count,
        **what,
        "ours": values[0],
        "mean": spread.mean,
        "std": spread.std,
        "min": spread.low,
        "max": spread.high,
        "seeds": spread.seeds,
    }


def decades(result: Result) -> Iterator[FlatRow]:
    """Mean stages per solve in each format by decade of kappa, over solves and seeds."""
    test, space = result.gathered.first[1], result.gathered.space
    stages = np.array([[fmt.name for fmt in action] for action in space])
    exponents = np.floor(np.log10(test.kappas) + 1e-6).astype(int)
    for case in result.cases:
        for exponent in sorted(set(exponents.tolist())):
            members = exponents == exponent
            chosen = stages[case.chosen[:, members]]
            yield {
                "experiment": result.experiment.name,
                "tau": case.tau,
                "method": case.weight,
                "decade": exponent,
                "systems": int(members.sum()),
                **{
                    fmt: float((chosen == fmt).sum(axis=2).mean())
                    for fmt in case.usages[0].ranges[0].formats
                },
                "seeds": len(case.chosen),
            }


def data(result: Result) -> Iterator[FlatRow]:
    """Sizes, densities and condition numbers: the halves, and the families of the test half."""
    name, gathered = result.experiment.name, result.gathered
    halves = zip(("train", "test"), gathered.first, gathered.densities, strict=True)
    for subset, half, density in halves:
        groups = {subset: np.arange(len(half.kappas))}
        if subset == "test" and len(set(half.families)) > 1:
            groups |= _members(half.families)
        columns = {"kappa": half.kappas, "n": half.sizes, "density_percent": 100 * density}
        for group, members in groups.items():
            ours: FlatRow = {"systems": len(members)}
            for column, values in columns.items():
                ours[f"{column}_min"] = values[members].min().item()
                ours[f"{column}_max"] = values[members].max().item()
            lead: FlatRow = {"experiment": name, "subset": group}
            if theirs := paper.DATA.get((name, group)):
                yield {**lead, "source": "paper", **dict(zip(ours, theirs.values(), strict=True))}
            yield {**lead, "source": "ours", **ours}


def regrets(result: Result) -> Iterator[FlatRow]:
    """Mean reward given away, with bootstrap intervals over the test systems."""
    for case in result.cases:
        for entry in case.regrets.policies:
            yield {
                "experiment": result.experiment.name,
                "tau": case.tau,
                "weights": case.weight,
                "policy": entry.policy,
                "reward": entry.reward,
                **_interval("oracle", entry.oracle),
                **_interval("best_fixed", entry.best_fixed),
                **_interval("fp64", entry.fp64),
                "std_over_seeds": entry.seeds.std,
                "seeds": entry.seeds.seeds,
            }


def families(result: Result) -> Iterator[FlatRow]:
    """Errors and iterations by family of the test systems; nothing where there is only one."""
    for tau, (_, test) in result.gathered.halves.items():
        groups = _members(test.families)
        safe = np.full((1, len(test.rows)), result.gathered.space.safe)
        for method in ("W1", "W2", "FP64") if len(groups) > 1 else ():
            chosen = safe if method == "FP64" else result.case(method, tau).chosen
            for family, members in groups.items():
                row: FlatRow = {
                    "experiment": result.experiment.name,
                    "tau": tau,
                    "method": method,
                    "family": family,
                    "systems": len(members),
                }
                for key, values in (("ferr", test.ferr), ("nbe", test.nbe), ("gmres", test.inner)):
                    of_seeds = values[members, chosen[:, members]]
                    row[key] = finite_mean(of_seeds[0])
                    row[f"{key}_mean"] = finite_mean(of_seeds)
                yield row | {"seeds": len(chosen)}


def _members(names: tuple[str, ...]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """The indices of the systems of each family."""
    each = np.array(names)
    return {name: np.flatnonzero(each == name) for name in dict.fromkeys(names)}


def _interval(name: str, interval: Interval) -> FlatRow:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
