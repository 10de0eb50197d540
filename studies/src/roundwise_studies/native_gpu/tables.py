"""Tables and the figure of the study on a GPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from roundwise.evaluation.intervals import mean_interval, ratio_interval
from roundwise.outcomes.records import StoredProblem
from roundwise_studies.native_gpu.judging import (
    FIXED,
    ORACLE,
    SAFE,
    DeviceResult,
    Judged,
    JudgedSet,
)
from roundwise_studies.native_gpu.runs import CUSOLVER, FRONT_DOOR
from roundwise_studies.report import Figure, Table
from roundwise_studies.report.timing import ratios_against_size
from roundwise_studies.tabulating import FlatRow, row_table

Floats = NDArray[np.float64]
SHOWN = (FRONT_DOOR, "RL(W1)", "time, look", FIXED, SAFE, ORACLE)
"""The policies of the table by size and of the figure; sets without the front door lack one."""


def all_tables(result: DeviceResult) -> dict[str, Table]:
    """The tables by a short name, in reading order."""
    return {
        "policies": policy_table(result),
        "sizes": size_table(result),
        "actions": action_table(result),
    }


def policy_table(result: DeviceResult) -> Table:
    """Total time and regret of each policy over all validation systems, with intervals."""
    rows = [
        {"actions": name, "policy": policy, **policy_row(judged, found)}
        for name, judged in result.sets.items()
        for policy, found in judged.judged.items()
    ]
    return row_table(
        "Policies on the validation systems",
        rows,
        note=f"Seconds: the total over all systems, features and fallbacks included. Times faster: "
        f"total of the reference over the policy's ({CUSOLVER} has no gate), with 95 % bootstrap "
        "intervals over the systems. Regret: mean over the systems of log2 of the policy's "
        "time over the oracle's, the fastest way through the gate, which pays for no features. "
        "Median and worst: of a system's ratio. Missed: systems whose first action did not pass; "
        f"the next ones of its ladder are paid for. {FRONT_DOOR} is timed as users call it, so "
        "that noise, and its own budget of GMRES iterations, may even bring its regret below zero.",
        formats={"seconds": ".3f", "median": ".2f", "worst": ".2f"},
    )


def policy_row(judged: JudgedSet, found: Judged) -> FlatRow:
    """The numbers of one policy; every row is bootstrapped with the same resamples."""
    references = {
        "cuSOLVER": judged.cusolver,
        "FP64": judged.judged[SAFE].total,
        "best fixed": judged.judged[FIXED].total,
    }
    regret = np.log2(found.total / judged.judged[ORACLE].total)
    ratios = judged.cusolver / found.total
    return {
        "seconds": float(found.total.sum()),
        **{
            f"times faster than {name}": str(
                ratio_interval(seconds, found.total, np.random.default_rng(0))
            )
            for name, seconds in references.items()
        },
        "regret": str(mean_interval(regret, np.random.default_rng(0))),
        "median": float(np.median(ratios)),
        "worst": float(ratios.min()),
        "missed": int(found.missed.sum()),
        "unsolved": int(found.unsolved.sum()),
        "systems": len(regret),
    }


def group_of(problem: StoredProblem) -> str:
    """The panel of a system: its family, or the range of kappa if its singular values are given."""
    kappa = float(problem.meta["kappa"])
    if math.isnan(kappa):
        return str(problem.meta["family"])
    return next(text for most, text in RANGES.items() if kappa <= most)


RANGES = {
    1e3: "kappa 1e1 to 1e3",
    1e6: "kappa 1e4 to 1e6",
    math.inf: "kappa 1e7 to 1e9",
}
GROUPS = (*RANGES.values(), "gaussian", "heavy diagonal")


def size_rows(judged: JudgedSet) -> Iterator[tuple[str, int, NDArray[np.intp]]]:
    """Group, n, and the indices of the systems; groups without systems are left out."""
    problems = judged.view.problems
    for group in GROUPS:
        for n in sorted({problem.n for problem in problems}):
            which = [i for i, p in enumerate(problems) if p.n == n and group_of(p) == group]
            if which:
                yield group, n, np.array(which)


def size_table(result: DeviceResult) -> Table:
    """How many times faster than cuSOLVER, by kind and size of system."""
    rows: list[FlatRow] = []
    for name, judged in result.sets.items():
        shown = [policy for policy in SHOWN if policy in judged.judged]
        for group, n, which in size_rows(judged):
            row: FlatRow = {"actions": name, "systems of": group, "n": n, "count": len(which)}
            row["cuSOLVER, ms"] = 1e3 * float(np.median(judged.cusolver[which]))
            for policy in SHOWN:
                row[policy] = _median_ratio(judged, policy, which) if policy in shown else None
            rows.append(row)
    return row_table(
        f"Times faster than {CUSOLVER} (below 1: slower), medians",
        rows,
        note="With all costs: features, the gate, and fallbacks.",
        formats={"cuSOLVER, ms": ".2f"} | dict.fromkeys(SHOWN, ".2f"),
    )


def _median_ratio(judged: JudgedSet, policy: str, which: NDArray[np.intp]) -> float:
    return float(np.median((judged.cusolver / judged.judged[policy].total)[which]))


def action_table(result: DeviceResult) -> Table:
    rows: list[FlatRow] = [
        {"actions": name, "policy": policy, "first action": action, "systems": count}
        for name, judged in result.sets.items()
        for policy, found in judged.judged.items()
        for action, count in Counter(found.actions).most_common()
    ]
    return row_table("First actions (method: factor, update, gmres, residual)", rows)


def system_rows(result: DeviceResult) -> list[FlatRow]:
    """Every policy on every system; for CSV."""
    return [
        {
            "actions": name,
            "policy": policy,
            "system": problem.name,
            "n": problem.n,
            "family": str(problem.meta["family"]),
            "kappa": float(problem.meta["kappa"]),
            "action": found.actions[i],
            "total_seconds": float(found.total[i]),
            "feature_seconds": float(found.features[i]),
            "missed": int(found.missed[i]),
            "unsolved": int(found.unsolved[i]),
            "cusolver_seconds": float(judged.cusolver[i]),
        }
        for name, judged in result.sets.items()
        for policy, found in judged.judged.items()
        for i, problem in enumerate(judged.view.problems)
    ]


def outcome_rows(result: DeviceResult) -> list[FlatRow]:
    """Every action on every validation system; for CSV."""
    return [
        {
            "actions": name,
            "system": problem.name,
            "n": problem.n,
            "action": action,
            "seconds": float(judged.view.seconds[i, a]),
            "nbe": float(judged.view.nbe[i, a]),
            "ferr": float(judged.view.ferr[i, a]),
            "steps": int(judged.view.outer[i, a]),
            "gmres": int(judged.view.inner[i, a]),
        }
        for name, judged in result.sets.items()
        for i, problem in enumerate(judged.view.problems)
        for a, action in enumerate(judged.view.action_names)
    ]


def figures(judged: JudgedSet) -> Iterator[Figure]:
    """Medians by size, a panel for each group of systems."""
    cases: dict[str, Mapping[str, tuple[list[int], list[float]]]] = {}
    policies = [policy for policy in SHOWN if policy in judged.judged]
    for group, n, which in size_rows(judged):
        curves = cases.setdefault(group, {policy: ([], []) for policy in policies})
        for policy, (sizes, ratios) in curves.items():
            sizes.append(n)
            ratios.append(_median_ratio(judged, policy, which))
    caption = f"Times faster than {CUSOLVER}, medians over the validation systems, with all costs."
    yield Figure(caption, "native-gpu", ratios_against_size(cases, CUSOLVER))
