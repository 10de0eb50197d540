"""Results as flat records, one number with its reference per line; for CSV, JSON and the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from roundwise.evaluation import Interval, seed_spread
from roundwise.experiments import paper
from roundwise.experiments.simulated.experiment import METRICS, Result, range_metric

Record = dict[str, str | int | float | None]

PERFORMANCE = (
    "experiment", "tau", "method", "range", "systems", "metric", "paper", "ours", "mean", "std",
    "min", "max", "seeds",
)  # fmt: skip
USAGE = (
    "experiment", "tau", "method", "range", "systems", "format", "paper", "ours", "mean", "std",
    "seeds",
)  # fmt: skip
DATA = (
    "experiment", "subset", "source", "systems", "kappa_min", "kappa_max", "n_min", "n_max",
    "density_percent_min", "density_percent_max",
)  # fmt: skip
REGRETS = (
    "experiment", "tau", "weights", "policy", "reward",
    "oracle", "oracle_low", "oracle_high", "best_fixed", "best_fixed_low", "best_fixed_high",
    "fp64", "fp64_low", "fp64_high", "std_over_seeds", "seeds",
)  # fmt: skip
FAMILIES = (
    "experiment", "tau", "method", "family", "systems", "ferr", "ferr_mean", "nbe", "nbe_mean",
    "gmres", "gmres_mean", "seeds",
)  # fmt: skip


def performance(result: Result) -> Iterator[Record]:
    """Success, errors and iterations of both policies and of all-FP64, by range and in all."""
    name = result.experiment.name
    for tau, baseline in result.baselines.items():
        for method in ("W1", "W2", "FP64"):
            for judged in baseline.ranges:
                for metric in METRICS:
                    if method == "FP64":
                        values = [range_metric(baseline, judged.name, metric)]
                    else:
                        tables = result.case(method, tau).accuracies
                        values = [range_metric(table, judged.name, metric) for table in tables]
                    yield {
                        "experiment": name,
                        "tau": tau,
                        "method": method,
                        "range": judged.name,
                        "systems": judged.count,
                        "metric": metric,
                        "paper": paper.reported(name, tau, method, judged.name, metric),
                        **_over_seeds(values),
                    }


def usage(result: Result) -> Iterator[Record]:
    """Mean stages per solve in each format."""
    name = result.experiment.name
    for case in result.cases:
        reported = paper.USAGE.get(name, {}).get((case.tau, case.weight), {})
        for used in case.usages[0].ranges:
            for fmt in used.formats:
                over_seeds = _over_seeds(case.usage(used.name, fmt))
                yield {
                    "experiment": name,
                    "tau": case.tau,
                    "method": case.weight,
                    "range": used.name,
                    "systems": used.count,
                    "format": fmt,
                    "paper": reported.get(fmt, math.nan) if used.name == "all" else math.nan,
                    **{key: over_seeds[key] for key in ("ours", "mean", "std", "seeds")},
                }


def data(result: Result) -> Iterator[Record]:
    """Sizes, densities and condition numbers: the halves, and the families of the test half."""
    name, facts = result.experiment.name, result.facts
    for subset, half, density in zip(("train", "test"), facts.first, facts.densities, strict=True):
        everything = np.arange(len(half.kappas))
        groups = {subset: everything}
        families = np.array(half.families)
        if subset == "test" and len(set(half.families)) > 1:
            groups |= {
                family: everything[families == family] for family in dict.fromkeys(half.families)
            }
        for group, members in groups.items():
            reported = paper.DATA.get(name, {}).get(group)
            if reported is not None:
                ends = (*reported.kappa, *reported.n, *reported.density)
                yield _data_record(name, group, "paper", reported.count, ends)
            n, kappas, percent = half.sizes[members], half.kappas[members], 100 * density[members]
            found = (
                *(float(end) for end in (kappas.min(), kappas.max())),
                *(int(end) for end in (n.min(), n.max())),
                *(float(end) for end in (percent.min(), percent.max())),
            )
            yield _data_record(name, group, "ours", len(members), found)


def regrets(result: Result) -> Iterator[Record]:
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


def families(result: Result) -> Iterator[Record]:
    """Errors and iterations by family of the test systems; nothing where there is only one."""
    for tau, (_, test) in result.facts.halves.items():
        names = list(dict.fromkeys(test.families))
        if len(names) < 2:
            continue
        safe = np.full((1, len(test.rows)), result.facts.space.safe)
        for method in ("W1", "W2", "FP64"):
            chosen = safe if method == "FP64" else result.case(method, tau).chosen
            for family in names:
                members = np.flatnonzero(np.array(test.families) == family)
                numbers = {
                    "ferr": test.view.ferr[members, chosen[:, members]],
                    "nbe": test.view.nbe[members, chosen[:, members]],
                    "gmres": test.view.inner[members, chosen[:, members]],
                }
                record: Record = {
                    "experiment": result.experiment.name,
                    "tau": tau,
                    "method": method,
                    "family": family,
                    "systems": len(members),
                }
                for key, values in numbers.items():
                    record[key] = _finite_mean(values[0])
                    record[f"{key}_mean"] = _finite_mean(values)
                yield record | {"seeds": len(chosen)}


def _over_seeds(values: list[float]) -> Record:
    spread = seed_spread(values)
    return {
        "ours": values[0],
        "mean": spread.mean,
        "std": spread.std,
        "min": spread.low,
        "max": spread.high,
        "seeds": spread.seeds,
    }


def _interval(name: str, interval: Interval) -> Record:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _data_record(
    experiment: str, subset: str, source: str, count: int, ends: tuple[float, ...]
) -> Record:
    return dict(zip(DATA, (experiment, subset, source, count, *ends), strict=True))


def _finite_mean(values: NDArray[np.float64] | NDArray[np.int64]) -> float:
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else math.nan
