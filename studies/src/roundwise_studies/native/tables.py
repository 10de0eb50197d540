"""Tables of the native study: the paper's columns, totals, ratios of times, actions, systems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from roundwise.outcomes.records import StoredProblem
from roundwise_studies import paper
from roundwise_studies.evaluation.tables import mean_interval, ratio_interval
from roundwise_studies.native.device import RESTART
from roundwise_studies.native.judging import (
    FIXED,
    ORACLE,
    SAFE,
    Floats,
    Judged,
    JudgedSet,
    NativeResult,
)
from roundwise_studies.native.memory_model import modelled_bytes
from roundwise_studies.native.processor import PEAKS
from roundwise_studies.report import Table
from roundwise_studies.tabulating import FlatRow, finite_mean, row_table


def all_tables(result: NativeResult) -> dict[str, Table]:
    """The tables by a short name, in reading order."""
    device = result.device
    return {
        **({"validation": validation_table(result)} if device.taus else {}),
        "policies": policy_table(result),
        **({"sizes": size_table(result)} if device.by_size else {}),
        "ratios": ratio_table(result),
        "actions": action_table(result),
    }


def judged_of(result: NativeResult) -> Iterator[tuple[str, str, JudgedSet, Judged]]:
    """Every policy: the name of its set of actions, its own, and what came of its choices."""
    for name, judged in result.sets.items():
        for policy, found in judged.judged.items():
            yield name, policy, judged, found


# The paper's columns


def validation_table(result: NativeResult) -> Table:
    """The columns of the paper's table and a few more; its rows first."""
    rows = [_papers_row(tau, policy) for tau, policy in paper.NATIVE]  # they lack some columns
    rows += [
        {"set": name, "policy": policy, "source": "ours", **_validation(judged, found, tau)}
        for name, policy, judged, found in judged_of(result)
        for tau in result.device.taus
    ]
    places = dict.fromkeys(("speedup", "with features", "memory", "peak"), ".2f")
    return row_table(
        "Validation systems: the paper's native study, and ours",
        rows,
        note="Success: ferr <= tau. FP64 level: backward error <= sqrt(n) u. Speedup over the "
        "all-FP64 run of the same algorithm, mean over the successes, as in the paper; then with "
        "the time of the features. Memory: modelled, and the peak, measured on the first "
        f"{PEAKS} systems, over all-FP64's. "
        "Means of ms and errors are over all systems with a result. No run looks at the true "
        "solution, and tau only judges: its rows are of one policy.",
        formats=places | dict.fromkeys(("ms", "ms FP64", "ms features"), ".1f"),
    )


def _papers_row(tau: float, policy: str) -> FlatRow:
    renamed = {"successes": "success", "ms_fp64": "ms FP64"}
    numbers = {renamed.get(key, key): cell for key, cell in paper.NATIVE[tau, policy].items()}
    lead = {"set": "fp16", "policy": policy, "source": "paper", "tau": f"{tau:.0e}"}
    return {**lead, "systems": 100, **numbers}


def _validation(judged: JudgedSet, found: Judged, tau: float) -> FlatRow:
    good, baseline = found.ferr <= tau, judged.baseline
    memory, peak = memory_ratios(judged, found)
    return {
        "tau": f"{tau:.0e}",
        "actions": len(set(found.actions)),
        "reduced": sum(action != judged.space.names[judged.space.safe] for action in found.actions),
        "success": int(good.sum()),
        "FP64 level": int(found.met.sum()),
        "systems": len(good),
        "speedup": finite_mean((baseline / found.seconds)[good]),
        "with features": finite_mean((baseline / (found.seconds + found.features))[good]),
        "memory": finite_mean(memory),
        "peak": finite_mean(peak),
        "ms": 1e3 * finite_mean(found.seconds),
        "ms FP64": 1e3 * finite_mean(baseline),
        "ms features": 1e3 * finite_mean(found.features),
        "ferr": finite_mean(found.ferr),
        "nbe": finite_mean(found.nbe),
    }


def memory_ratios(judged: JudgedSet, found: Judged) -> tuple[Floats, Floats]:
    """Modelled and measured bytes over those of all-FP64, not finite where not measured."""
    view, space = judged.view, judged.space
    chosen = [space.names.index(action) for action in found.actions]
    modelled = [
        modelled_bytes(problem.n, space[a], RESTART)
        / modelled_bytes(problem.n, space[space.safe], RESTART)
        for problem, a in zip(view.problems, chosen, strict=True)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):  # a small system may not fill a new page
        peak = view.peak_bytes[np.arange(len(chosen)), chosen] / view.peak_bytes[:, space.safe]
    return np.array(modelled), peak


# Times


def policy_table(result: NativeResult) -> Table:
    """Total time and regret of each policy over all validation systems, with intervals."""
    reference = result.device.reference
    rows = [
        {"set": name, "policy": policy, **policy_row(judged, found, reference)}
        for name, policy, judged, found in judged_of(result)
    ]
    return row_table(
        "Policies on the validation systems",
        rows,
        note="Seconds: the total over all systems, features and fallbacks included. Times faster: "
        f"total of the reference over the policy's ({reference} has no gate), with 95 % bootstrap "
        "intervals over the systems. Regret: mean over the systems of log2 of the policy's "
        "time over the oracle's, the fastest way through the gate, which pays for no features. "
        "Median and worst: of a system's ratio. Missed: systems whose first action did not pass; "
        "the next ones of its ladder are paid for. roundwise.solve is timed as users call it, so "
        "that noise, and its own budget of GMRES iterations, may even bring its regret below zero.",
        formats={"seconds": ".3f", "median": ".2f", "worst": ".2f"},
    )


def policy_row(judged: JudgedSet, found: Judged, reference: str) -> FlatRow:
    """The numbers of one policy; every row is bootstrapped with the same resamples."""
    references = {
        reference: judged.references[reference],
        "FP64": judged.judged[SAFE].total,
        "best fixed": judged.judged[FIXED].total,
    }
    regret = np.log2(found.total / judged.judged[ORACLE].total)
    ratios = judged.references[reference] / found.total
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
        "missed": int((~found.met).sum()),
        "unsolved": int(found.unsolved.sum()),
        "systems": len(regret),
    }


def ratio_table(result: NativeResult) -> Table:
    """How many times faster, against all-FP64 and the references: mean, median and worst."""
    rows = []
    for name, policy, judged, found in judged_of(result):
        missed = int((~found.met).sum())
        for other, seconds in ({"all-FP64": judged.baseline} | dict(judged.references)).items():
            if other != policy:
                bare, total = seconds / found.seconds, seconds / found.total
                rows.append(_ratios((name, policy, other), bare, total, missed))
    references = next(iter(result.sets.values())).references
    for name, other in permutations(references, 2):
        ratios = references[other] / references[name]
        rows.append(_ratios(("references", name, other), ratios, ratios, 0))
    return row_table(
        "Times faster (below 1: slower) on the validation systems",
        rows,
        note="Ratios of median times on the same systems, measured one after the other. All costs: "
        "the features, and what is tried next where the run missed FP64-level backward error."
        + _gave_up(result),
        formats=dict.fromkeys(list(rows[0])[3:9], ".2f"),
    )


def _ratios(lead: tuple[str, str, str], bare: Floats, total: Floats, missed: int) -> FlatRow:
    row: FlatRow = dict(zip(("set", "policy", "against"), lead, strict=True))
    for costs, ratios in (("", bare), (", all costs", total)):
        row[f"mean{costs}"] = float(ratios.mean())
        row[f"median{costs}"] = float(np.median(ratios))
        row[f"worst{costs}"] = float(ratios.min())
    return row | {"missed": missed}


def _gave_up(result: NativeResult) -> str:
    view = result.gathered.references.get("dsgesv")
    if view is None:
        return ""
    systems = f"{sum(map(bool, view.reasons[:, 0]))} of {view.shape[0]} systems"
    return f" dsgesv gave up its FP32 factors and started again in FP64 on {systems}."


# By size

RANGES = {1e3: "kappa 1e1 to 1e3", 1e6: "kappa 1e4 to 1e6", math.inf: "kappa 1e7 to 1e9"}
GROUPS = (*RANGES.values(), "gaussian", "heavy diagonal")


def group_of(problem: StoredProblem) -> str:
    """The panel of a system: its family, or the range of kappa if its singular values are given."""
    kappa = float(problem.meta["kappa"])
    if math.isnan(kappa):
        return str(problem.meta["family"])
    return next(text for most, text in RANGES.items() if kappa <= most)


def size_rows(judged: JudgedSet) -> Iterator[tuple[str, int, NDArray[np.intp]]]:
    """Group, n, and the indices of the systems; groups without systems are left out."""
    problems = judged.view.problems
    for group in GROUPS:
        for n in sorted({problem.n for problem in problems}):
            which = [i for i, p in enumerate(problems) if p.n == n and group_of(p) == group]
            if which:
                yield group, n, np.array(which)


def shown(result: NativeResult) -> list[str]:
    """The policies of the table by size and of the figure; some sets lack one."""
    return list(dict.fromkeys([*result.device.said, FIXED, SAFE, ORACLE]))


def median_ratio(
    judged: JudgedSet, policy: str, reference: str, which: NDArray[np.intp]
) -> float | None:
    """Of systems, with all costs; None if the set has no such policy."""
    if policy not in judged.judged:
        return None
    return float(np.median((judged.references[reference] / judged.judged[policy].total)[which]))


def size_table(result: NativeResult) -> Table:
    """How many times faster than the reference, by kind and size of system."""
    reference, policies, rows = result.device.reference, shown(result), list[FlatRow]()
    for name, judged in result.sets.items():
        for group, n, which in size_rows(judged):
            row: FlatRow = {"set": name, "systems of": group, "n": n, "count": len(which)}
            row[f"{reference}, ms"] = 1e3 * float(np.median(judged.references[reference][which]))
            row |= {policy: median_ratio(judged, policy, reference, which) for policy in policies}
            rows.append(row)
    return row_table(
        f"Times faster than {reference} (below 1: slower), medians",
        rows,
        note="With all costs: features, the gate, and fallbacks.",
        formats=dict.fromkeys([f"{reference}, ms", *policies], ".2f"),
    )


# What was chosen, and every system


def action_table(result: NativeResult) -> Table:
    rows: list[FlatRow] = [
        {"set": name, "policy": policy, "first action": action, "systems": count}
        for name, policy, _, found in judged_of(result)
        for action, count in Counter(found.actions).most_common()
    ]
    return row_table("First actions (factor, update, gmres, residual)", rows)


def system_rows(result: NativeResult) -> list[FlatRow]:
    """Every policy on every system, and the seconds of the references; for CSV."""
    return [
        {
            "set": name,
            "policy": policy,
            "system": i,
            "name": problem.name,
            "n": problem.n,
            "kappa": float(problem.meta["kappa"]),
            "action": found.actions[i],
            "ferr": float(found.ferr[i]),
            "nbe": float(found.nbe[i]),
            "met": int(found.met[i]),
            "unsolved": int(found.unsolved[i]),
            "seconds": float(found.seconds[i]),
            "feature_seconds": float(found.features[i]),
            "total_seconds": float(found.total[i]),
            "fp64_seconds": float(judged.baseline[i]),
            **{f"{other} seconds": float(s[i]) for other, s in judged.references.items()},
        }
        for name, policy, judged, found in judged_of(result)
        for i, problem in enumerate(judged.view.problems)
    ]


def outcome_rows(result: NativeResult) -> list[FlatRow]:
    """Every action on every validation system; for CSV."""
    return [
        {
            "set": name,
            "system": i,
            "name": problem.name,
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
