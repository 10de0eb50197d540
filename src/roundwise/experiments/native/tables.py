"""Tables of the native study: the paper's columns, ratios of times, actions, every system."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from roundwise.experiments import paper
from roundwise.experiments.native.study import PEAKS, Choice, NativeResult
from roundwise.report import Cell, Table

Floats = NDArray[np.float64]

VALIDATION = (
    "formats", "policy", "source", "tau", "actions", "reduced", "success", "FP64 level", "systems",
    "speedup", "with features", "memory", "peak", "ms", "ms FP64", "ms features", "ferr", "nbe",
)  # fmt: skip
RATIOS = (
    "formats", "policy", "against", "mean", "median", "worst", "mean, all costs",
    "median, all costs", "worst, all costs", "missed",
)  # fmt: skip
ACTIONS = ("formats", "policy", "action", "systems")
SYSTEMS = (
    "formats", "policy", "system", "n", "kappa", "action", "ferr", "nbe", "met", "seconds",
    "feature_seconds", "total_seconds", "fp64_seconds",
)  # fmt: skip


def all_tables(result: NativeResult) -> dict[str, Table]:
    """The tables by a short name, in reading order."""
    return {
        "validation": validation_table(result),
        "ratios": ratio_table(result),
        "actions": action_table(result),
    }


def validation_table(result: NativeResult) -> Table:
    """The columns of the paper's table and a few more; its rows first."""
    rows: list[list[Cell]] = []
    for (tau, policy), row in paper.NATIVE.items():
        counts = (row.actions, row.reduced, row.successes, None, 100)
        ratios = (row.speedup, None, row.memory, None)
        times = (row.ms, row.ms_fp64, None)
        lead = ("fp16", policy, "paper", f"{tau:.0e}")
        rows.append([*lead, *counts, *ratios, *times, row.ferr, row.nbe])
    taus = result.settings.taus
    rows += [_validation_row(choice, tau) for choice in result.choices for tau in taus]
    places = dict.fromkeys(("speedup", "with features", "memory", "peak"), ".2f")
    return Table(
        "Validation systems: the paper's native study, and ours",
        VALIDATION,
        rows,
        note="Success: ferr <= tau. FP64 level: backward error <= sqrt(n) u. Speedup over the "
        "all-FP64 run of the same algorithm, mean over the successes, as in the paper; then with "
        "the time of the features. Memory: modelled, and the peak, measured on the first "
        f"{PEAKS} systems, over all-FP64's. "
        "Means of ms and errors are over all systems with a result. No run looks at the true "
        "solution, and tau only judges: its rows are of one policy.",
        formats=places | dict.fromkeys(("ms", "ms FP64", "ms features"), ".1f"),
    )


def _validation_row(choice: Choice, tau: float) -> list[Cell]:
    good = choice.ferr <= tau
    speedup = choice.baseline / choice.seconds
    with_features = choice.baseline / (choice.seconds + choice.features)
    return [
        choice.formats,
        choice.policy,
        "ours",
        f"{tau:.0e}",
        len(set(choice.actions)),
        choice.reduced,
        int(good.sum()),
        int(choice.met.sum()),
        len(good),
        _mean(speedup[good]),
        _mean(with_features[good]),
        _mean(choice.memory),
        _mean(choice.peak),
        1e3 * _mean(choice.seconds),
        1e3 * _mean(choice.baseline),
        1e3 * _mean(choice.features),
        _mean(choice.ferr),
        _mean(choice.nbe),
    ]


def ratio_table(result: NativeResult) -> Table:
    """How many times faster, against all-FP64 and LAPACK: mean, median and worst."""
    references = reference_seconds(result)
    rows: list[list[Cell]] = []
    for choice in result.choices:
        missed = int((~choice.met).sum())
        against = {"all-FP64": choice.baseline} | dict(references)
        for name, seconds in against.items():
            bare, total = _spread(seconds / choice.seconds), _spread(seconds / choice.total)
            rows.append([choice.formats, choice.policy, name, *bare, *total, missed])
    for name in references:
        for other in ("numpy.linalg.solve", "dgesv"):
            if name != other:
                ratios = _spread(references[other] / references[name])
                rows.append(["LAPACK", name, other, *ratios, *ratios, 0])
    return Table(
        "Times faster (below 1: slower) on the validation systems",
        RATIOS,
        rows,
        note="Ratios of median times on the same systems, measured one after the other. All costs: "
        "the features, and all-FP64 again where the run missed FP64-level backward error. "
        + _gave_up(result),
        formats=dict.fromkeys(RATIOS[3:9], ".2f"),
    )


def action_table(result: NativeResult) -> Table:
    """Which actions were chosen how often."""
    rows: list[list[Cell]] = [
        [choice.formats, choice.policy, action, count]
        for choice in result.choices
        for action, count in Counter(choice.actions).most_common()
    ]
    return Table("Chosen actions (factor, update, gmres, residual)", ACTIONS, rows)


def system_table(result: NativeResult) -> Table:
    """Every choice on every system, and the seconds of LAPACK's solvers; for CSV."""
    references = reference_seconds(result)
    problems = result.facts.test.problems
    rows: list[list[Cell]] = []
    for choice in result.choices:
        for i, problem in enumerate(problems):
            numbers = (choice.seconds, choice.features, choice.total, choice.baseline)
            errors = float(choice.ferr[i]), float(choice.nbe[i]), int(choice.met[i])
            seconds = [float(values[i]) for values in (*numbers, *references.values())]
            lead = (choice.formats, choice.policy, i, problem.n, float(result.facts.kappas[i]))
            rows.append([*lead, choice.actions[i], *errors, *seconds])
    header = (*SYSTEMS, *(f"{name} seconds" for name in references))
    return Table("Every choice on every system", header, rows)


def reference_seconds(result: NativeResult) -> Mapping[str, Floats]:
    """Median seconds of LAPACK's solvers on each validation system, by name."""
    return {name: view.seconds[:, 0] for name, view in result.facts.references.items()}


def _gave_up(result: NativeResult) -> str:
    view = result.facts.references.get("dsgesv")
    if view is None:
        return "dsgesv is left out: SciPy's BLAS here is not the wheel's OpenBLAS."
    count = sum(bool(reason) for reason in view.reasons[:, 0])
    systems = f"{count} of {view.shape[0]} systems"
    return f"dsgesv gave up its FP32 factors and started again in FP64 on {systems}."


def _mean(values: Floats) -> float:
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else math.nan


def _spread(ratios: Floats) -> tuple[float, float, float]:
    return float(ratios.mean()), float(np.median(ratios)), float(ratios.min())
