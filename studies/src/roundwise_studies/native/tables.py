"""Tables of the native study: the paper's columns, ratios of times, actions, every system."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from roundwise_studies import paper
from roundwise_studies.native.gather import PEAKS
from roundwise_studies.native.judging import JudgedPolicy, NativeResult
from roundwise_studies.report import Table
from roundwise_studies.tabulating import FlatRow, finite_mean, row_table

Floats = NDArray[np.float64]


def all_tables(result: NativeResult) -> dict[str, Table]:
    """The tables by a short name, in reading order."""
    return {
        "validation": validation_table(result),
        "ratios": ratio_table(result),
        "actions": action_table(result),
    }


def validation_table(result: NativeResult) -> Table:
    """The columns of the paper's table and a few more; its rows first."""
    rows = [_papers_row(tau, policy) for tau, policy in paper.NATIVE]  # they lack some columns
    rows += [_row(judged, tau) for judged in result.judged for tau in result.settings.taus]
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
    lead = {"formats": "fp16", "policy": policy, "source": "paper", "tau": f"{tau:.0e}"}
    return {**lead, "systems": 100, **numbers}


def _row(judged: JudgedPolicy, tau: float) -> FlatRow:
    good = judged.ferr <= tau
    with_features = judged.baseline / (judged.seconds + judged.features)
    return {
        "formats": judged.formats,
        "policy": judged.policy,
        "source": "ours",
        "tau": f"{tau:.0e}",
        "actions": len(set(judged.actions)),
        "reduced": judged.reduced,
        "success": int(good.sum()),
        "FP64 level": int(judged.met.sum()),
        "systems": len(good),
        "speedup": finite_mean((judged.baseline / judged.seconds)[good]),
        "with features": finite_mean(with_features[good]),
        "memory": finite_mean(judged.memory),
        "peak": finite_mean(judged.peak),
        "ms": 1e3 * finite_mean(judged.seconds),
        "ms FP64": 1e3 * finite_mean(judged.baseline),
        "ms features": 1e3 * finite_mean(judged.features),
        "ferr": finite_mean(judged.ferr),
        "nbe": finite_mean(judged.nbe),
    }


def ratio_table(result: NativeResult) -> Table:
    """How many times faster, against all-FP64 and LAPACK: mean, median and worst."""
    references = reference_seconds(result)
    rows = []
    for judged in result.judged:
        missed = int((~judged.met).sum())
        for name, seconds in ({"all-FP64": judged.baseline} | references).items():
            lead = judged.formats, judged.policy, name
            rows.append(_ratios(lead, seconds / judged.seconds, seconds / judged.total, missed))
    for name in references:
        for other in ("numpy.linalg.solve", "dgesv"):
            if name != other:
                ratios = references[other] / references[name]
                rows.append(_ratios(("LAPACK", name, other), ratios, ratios, 0))
    return row_table(
        "Times faster (below 1: slower) on the validation systems",
        rows,
        note="Ratios of median times on the same systems, measured one after the other. All costs: "
        "the features, and all-FP64 again where the run missed FP64-level backward error. "
        + _gave_up(result),
        formats=dict.fromkeys(list(rows[0])[3:9], ".2f"),
    )


def _ratios(lead: tuple[str, str, str], bare: Floats, total: Floats, missed: int) -> FlatRow:
    row: FlatRow = dict(zip(("formats", "policy", "against"), lead, strict=True))
    for costs, ratios in (("", bare), (", all costs", total)):
        row[f"mean{costs}"] = float(ratios.mean())
        row[f"median{costs}"] = float(np.median(ratios))
        row[f"worst{costs}"] = float(ratios.min())
    return row | {"missed": missed}


def action_table(result: NativeResult) -> Table:
    rows: list[FlatRow] = [
        {"formats": judged.formats, "policy": judged.policy, "action": action, "systems": count}
        for judged in result.judged
        for action, count in Counter(judged.actions).most_common()
    ]
    return row_table("Chosen actions (factor, update, gmres, residual)", rows)


def system_rows(result: NativeResult) -> list[FlatRow]:
    """Every policy on every system, and the seconds of LAPACK's solvers; for CSV."""
    references = reference_seconds(result)
    problems = result.gathered.first[1].problems
    return [
        {
            "formats": judged.formats,
            "policy": judged.policy,
            "system": i,
            "n": problem.n,
            "kappa": float(result.gathered.kappas[i]),
            "action": judged.actions[i],
            "ferr": float(judged.ferr[i]),
            "nbe": float(judged.nbe[i]),
            "met": int(judged.met[i]),
            "seconds": float(judged.seconds[i]),
            "feature_seconds": float(judged.features[i]),
            "total_seconds": float(judged.total[i]),
            "fp64_seconds": float(judged.baseline[i]),
            **{f"{name} seconds": float(values[i]) for name, values in references.items()},
        }
        for judged in result.judged
        for i, problem in enumerate(problems)
    ]


def reference_seconds(result: NativeResult) -> dict[str, Floats]:
    """Median seconds of LAPACK's solvers on each validation system, by name."""
    return {name: view.seconds[:, 0] for name, view in result.gathered.references.items()}


def _gave_up(result: NativeResult) -> str:
    view = result.gathered.references.get("dsgesv")
    if view is None:
        return "dsgesv is left out: SciPy's BLAS here is not the wheel's OpenBLAS."
    systems = f"{sum(map(bool, view.reasons[:, 0]))} of {view.shape[0]} systems"
    return f"dsgesv gave up its FP32 factors and started again in FP64 on {systems}."
