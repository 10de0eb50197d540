"""The paper's native study as published: its tables, and its report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roundwise.machine.identity import Machine
from roundwise_studies import departures, paper
from roundwise_studies.evaluation.tables import Interval, mean_interval
from roundwise_studies.native.device import RESTART
from roundwise_studies.native.memory_model import modelled_bytes
from roundwise_studies.native.published import (
    CHOICES,
    SWITCHES,
    Case,
    Published,
    PublishedResult,
    Systems,
    gather,
    run,
)
from roundwise_studies.protocol import Bars, Part, Study, caution, no_bars
from roundwise_studies.report import Report, Table, scientific
from roundwise_studies.tabulating import FlatRow, finite_mean, flat_tables, plain_rows, row_table
from roundwise_studies.writing import provenance

KINDS = {"unblocked": "unblocked LU", "ours": "our LU"}
"""Which LU the times are of; both precisions share it."""

MAIN = ("released, its stream", "released", "text")
"""Variants of the main table; the table of the switches has all."""

SWITCHED = ("reduced", "success", "speedup, unblocked")
"""Numbers of the table of switches."""

COUNTS = ("actions", "reduced", "success", "with fp16", "with fp32")

Floats = NDArray[np.float64]


def seconds_of(case: Case, kind: str, chosen: NDArray[np.intp]) -> Floats:
    """The time of an action on each system, LU included, without features."""
    names = case_space(case)
    factor = [case.systems[i].lu[kind][names[a].split("-")[0]] for i, a in enumerate(chosen)]
    return np.array(factor) + case.found.seconds[np.arange(len(chosen)), chosen]


def case_space(case: Case) -> list[str]:
    return list(case.systems[0].actions)


def features_of(case: Case, kind: str) -> Floats:
    """Seconds of the condition estimate: an FP64 LU of that kind, and dgecon's solves."""
    return np.array([each.lu[kind]["fp64"] + each.estimate for each in case.systems])


def numbers(case: Case, chosen: NDArray[np.intp], safe: int) -> dict[str, float]:
    """The paper's columns, and more, of one training."""
    names, rows = case_space(case), np.arange(len(chosen))
    picked = [names[a] for a in chosen]
    errors = case.found.ferr2 if "released" in case.variant else case.found.ferr
    ferr, nbe = errors[rows, chosen], case.found.nbe[rows, chosen]
    good = ferr <= case.tau
    memory = [
        modelled_bytes(each.n, action, RESTART) / modelled_bytes(each.n, names[safe], RESTART)
        for each, action in zip(case.systems, picked, strict=True)
    ]
    found: dict[str, float] = {
        "actions": len(set(picked)),
        "reduced": sum(a != safe for a in chosen),
        "with fp16": sum("fp16" in action for action in picked),
        "with fp32": sum("fp32" in action for action in picked),
        "success": int(good.sum()),
        "memory": float(np.mean(memory)),
        "ferr": finite_mean(ferr),
        "nbe": finite_mean(nbe),
    }
    always = np.full(len(chosen), safe)
    for kind in case.systems[0].lu:
        mine, fp64 = seconds_of(case, kind, chosen), seconds_of(case, kind, always)
        paid = mine + features_of(case, kind)
        found |= {
            f"speedup, {kind}": finite_mean((fp64 / mine)[good]),
            f"features paid, {kind}": finite_mean((fp64 / paid)[good]),
            f"ms, {kind}": 1e3 * float(mine.mean()),
            f"ms FP64, {kind}": 1e3 * float(fp64.mean()),
        }
    direct = np.array([each.direct for each in case.systems])
    found["against dgesv"] = finite_mean((direct / seconds_of(case, "ours", chosen))[good])
    return found


def validation_rows(result: PublishedResult) -> Iterator[FlatRow]:
    """One number a row, by split, variant, tau and policy: first training, mean and std."""
    safe = result.settings.space.safe
    for case in result.cases:
        each = [numbers(case, chosen, safe) for chosen in case.chosen]
        always = numbers(case, np.full(case.chosen.shape[1], safe), safe)
        for policy, found in ((f"RL({case.weight})", each), ("FP64", [always])):
            if policy == "FP64" and case.weight != "W1":
                continue  # it is the same beside both
            for metric in always:
                values = np.array([numbers[metric] for numbers in found])
                theirs = paper.NATIVE.get((case.tau, policy), {})
                finite = values[np.isfinite(values)]
                spread = (
                    mean_interval(finite, np.random.default_rng(0))
                    if finite.size
                    else Interval(math.nan, math.nan, math.nan)
                )
                yield {
                    "generator": result.settings.generator,
                    "split": case.split,
                    "variant": case.variant,
                    "tau": case.tau,
                    "policy": policy,
                    "systems": case.chosen.shape[1],
                    "metric": metric,
                    "paper": theirs.get(PAPER_NAMES.get(metric, metric)),
                    "ours": float(values[0]),
                    "mean": finite_mean(values),
                    "std": float(values.std(ddof=1)) if len(values) > 1 else math.nan,
                    "low": spread.low,
                    "high": spread.high,
                    "seeds": len(values),
                }


PAPER_NAMES = {
    "success": "successes",
    "speedup, unblocked": "speedup",
    "ms, unblocked": "ms",
    "ms FP64, unblocked": "ms_fp64",
}
"""What the columns of the paper's table are called in ``paper/native.csv``, where that differs."""

SHOWN = (
    "actions", "reduced", "success", "speedup, unblocked", "features paid, unblocked",
    "speedup, ours", "features paid, ours", "against dgesv", "memory", "ms, unblocked",
    "ms FP64, unblocked", "ferr", "nbe",
)  # fmt: skip


def validation_table(flat: Sequence[FlatRow]) -> Table:
    """The paper's table, and ours of both splits, with an all-FP64 row beside the policies."""
    rows: list[FlatRow] = []
    for tau, policy in paper.NATIVE:
        theirs = paper.NATIVE[tau, policy]
        row: FlatRow = {"split": "", "variant": "paper", "tau": scientific(tau), "policy": policy}
        rows.append(row | {name: theirs.get(PAPER_NAMES.get(name, name)) for name in SHOWN})
    for lead, found in grouped(flat):
        if lead["variant"] in MAIN:
            rows.append(lead | {name: _shown(found[name]) for name in SHOWN})
    return row_table(
        "The paper's native study, and ours as its text and as its released code have it",
        rows,
        "Counts are of the validation systems; mean ± std over the trainings. Speedup: mean over "
        "the successes (ferr <= tau) of all-FP64's time over the policy's, both with the same kind "
        "of LU; features paid: the condition estimate, an FP64 LU and some solves, is part of the "
        "policy's time. Against dgesv: LAPACK's time over the policy's, with our LU. Memory is "
        "modelled. Times are CPU times of one thread.",
        {
            **dict.fromkeys(SHOWN, ".2f"),
            **dict.fromkeys(("ms, unblocked", "ms FP64, unblocked"), ".1f"),
            **dict.fromkeys(("ferr", "nbe"), ".2e"),
        },
    )


def grouped(flat: Sequence[FlatRow]) -> Iterator[tuple[FlatRow, dict[str, FlatRow]]]:
    """Metrics of each split, variant, tau and policy."""
    groups: dict[tuple[Any, ...], dict[str, FlatRow]] = {}
    for row in flat:
        key = row["split"], row["variant"], scientific(float(row["tau"] or 0)), row["policy"]
        groups.setdefault(key, {})[str(row["metric"])] = row
    for key, found in groups.items():
        yield dict(zip(("split", "variant", "tau", "policy"), key, strict=True)), found


def _shown(row: FlatRow) -> float | str:
    mean, std = float(row["mean"] or 0), float(row["std"] or 0)
    if row["metric"] in COUNTS and row["seeds"] != 1:
        return f"{mean:.0f} ± {std:.0f}"
    return int(mean) if row["metric"] in COUNTS else mean


def switch_table(flat: Sequence[FlatRow]) -> Table:
    """What each switch does: systems with a reduced action, successes and speedup, W1 and W2."""
    metrics = SWITCHED
    found: dict[tuple[Any, Any], FlatRow] = {}
    for lead, by_metric in grouped(flat):
        if lead["policy"] == "FP64":
            continue
        row = found.setdefault(
            (lead["split"], lead["variant"]), {"split": lead["split"], "variant": lead["variant"]}
        )
        for metric in metrics:
            name = f"{metric.split(',')[0]} {str(lead['policy'])[3:5]} {lead['tau']}"
            row[name] = _shown(by_metric[metric])
    rows = list(found.values())
    theirs: FlatRow = {"split": "", "variant": "paper"}
    for (tau, policy), row in paper.NATIVE.items():
        for metric in metrics:
            name = f"{metric.split(',')[0]} {policy[3:5]} {scientific(tau)}"
            theirs[name] = row[PAPER_NAMES.get(metric, metric)]
    header = list(rows[-1])
    return row_table(
        "Switches of the released code, left out and added one at a time",
        [theirs, *rows],
        " ".join(f"{name}: {text}." for name, text in (SWITCHES | CHOICES).items()),
        {name: ".2f" for name in header if name.startswith("speedup")},
    )


def action_table(result: PublishedResult) -> Table:
    """How often each action, in the order (u_f, u_g, u, u_r), is chosen in all trainings."""
    rows: list[FlatRow] = []
    for case in result.cases:
        if case.variant in MAIN:
            names = case_space(case)
            chosen = Counter(case.chosen.ravel().tolist())
            for action, count in chosen.most_common():
                f, u, g, r = names[action].split("-")
                rows.append(
                    {
                        "split": case.split,
                        "variant": case.variant,
                        "tau": scientific(case.tau),
                        "policy": f"RL({case.weight})",
                        "action": f"({f}, {g}, {u}, {r})",
                        "share %": 100 * count / case.chosen.size,
                    }
                )
    return row_table(
        "Actions (u_f, u_g, u, u_r) that the policies choose",
        rows,
        "Of all trainings together.",
        {"share %": ".1f"},
    )


@dataclass(frozen=True)
class PublishedStudy(Study[Systems, PublishedResult]):
    """The study with one generator; measurements are kept in ``native-paper.jsonl``."""

    name: ClassVar[str] = "native-paper"

    settings: Published = field(default_factory=Published)

    def gather(self, cache: Path, jobs: int | None = None, bars: Bars = no_bars) -> Systems:
        """Measure what is missing, one run at a time whatever `jobs` says: the runs are timed."""
        bar = bars(f"native, {self.settings.generator} systems")
        return gather(self.settings, cache / "native-paper.jsonl", bar)

    def run(self, gathered: Systems, bars: Bars = no_bars) -> PublishedResult:
        return run(self.settings, gathered, str(Machine.this()))

    def tabulate(self, result: PublishedResult) -> list[Part]:
        flat = list(validation_rows(result))
        tables = {
            "validation": validation_table(flat),
            "switches": switch_table(flat),
            "actions": action_table(result),
        }
        title = f"Native CPU validation, {self.settings.generator} systems"
        rows = flat_tables({"numbers": flat})
        return [Part(self.name, title, "", tables, rows, lambda: ())]

    def report(self, result: PublishedResult) -> Report:
        settings = result.settings
        lines = [
            f"Carson & Chen's native study with {settings.train} training and {settings.test} "
            f"validation systems for each split ({', '.join(settings.splits)}), n = "
            f"{settings.sizes[0]} to {settings.sizes[1]}, {settings.repeats} repeats, "
            f"{settings.seeds} trainings, on {result.machine}."
        ]
        lines = caution(settings, settings.test, settings.seeds) + lines
        described = {
            "generator": settings.generator,
            "algorithm": f"GMRES-IR, tolerance 1e-4, restart {RESTART}, one cycle, ten steps",
            "actions": "of fp16, fp32, fp64, monotone in the order u_f, u_g, u, u_r",
            "reward": "the paper's with lambda_iter = 0.5",
            "greedy": "over all actions, untried ones worth 0, ties to the highest",
            "times": "CPU times of one thread, medians",
            "seed": settings.seed,
        }
        return Report(
            "Precision autotuning by contextual bandits: the paper's native study, as published",
            lines,
            settings=described,
            provenance=provenance(result.machine),
            departures=departures.NATIVE_PAPER,
        )

    def summary(self, report: Report, parts: Sequence[Part]) -> dict[str, Any]:
        shares = plain_rows({"actions": parts[0].tables["actions"]})
        return {"summary": report.summary, **plain_rows(parts[0].numbers), **shares}
