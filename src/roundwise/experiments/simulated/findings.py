"""The paper's findings, checked one by one on our numbers.

A finding is looked at in several places (ranges, tolerances, weightings): it is confirmed if it
holds in all of them, partly if in some, refuted if in none. Numbers are means over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from roundwise.experiments import paper
from roundwise.experiments.simulated.running import Case, Result, range_metric
from roundwise.experiments.simulated.tables import draws_sentence
from roundwise.report import Finding, Verdict, scientific

ERROR_FACTOR = 3.0
"""FP64 errors agree with the paper's within this factor."""

ITERATION_SLACK = 0.1
"""FP64 iterations agree with the paper's to this."""

SAME_ORDER = 10.0
"""Forward errors up to this factor above FP64's are at FP64 accuracy: the same order of magnitude,
as the paper says."""

DOMINANT = 3.0
"""FP64 dominates where at least so many of the 4 stages use it."""

Results = Mapping[str, Result]
Places = Iterator[tuple[str, bool, str]]
"""Where a finding is looked at, whether it holds there, and the numbers."""


def check(results: Results) -> list[Finding]:
    """All findings that these results say something about."""
    found = []
    for claim, places in CLAIMS.items():
        if looked_at := list(places(results)):
            evidence = _evidence(looked_at)
            pde = results.get("pde")
            if places is _fp64_errors and pde is not None and pde.gathered.draws:
                evidence += f" {draws_sentence(pde)}"
            found.append(Finding(claim, verdict([held for _, held, _ in looked_at]), evidence))
    return found


def verdict(holds: Sequence[bool]) -> Verdict:
    """Confirmed if everywhere, refuted if nowhere, else partly."""
    return "confirmed" if all(holds) else "partly" if any(holds) else "refuted"


def _evidence(looked_at: Sequence[tuple[str, bool, str]]) -> str:
    true, false = (
        [f"{place}: {text}" for place, held, text in looked_at if held == wanted]
        for wanted in (True, False)
    )
    if not true or not false:
        return f"{'; '.join(true or false)}."
    missed = f"Not true in {len(false)} of {len(looked_at)} cases: {'; '.join(false)}."
    return f"{missed} True in the others: {'; '.join(true)}."


def _fp64_errors(results: Results) -> Places:
    for place, pairs in _fp64_pairs(results, ("ferr", "nbe")):
        ratios = {metric: ours / theirs for metric, (ours, theirs) in pairs.items()}
        held = all(1 / ERROR_FACTOR <= ratio <= ERROR_FACTOR for ratio in ratios.values())
        yield place, held, ", ".join(f"{metric} {r:.2g} times" for metric, r in ratios.items())


def _fp64_iterations(results: Results) -> Places:
    slack = ITERATION_SLACK + 1e-9  # 2.1 - 2.0 > 0.1 in float64
    for place, pairs in _fp64_pairs(results, ("outer", "gmres")):
        held = all(abs(ours - theirs) <= slack for ours, theirs in pairs.values())
        labels = {"outer": "outer", "gmres": "GMRES"}
        texts = [
            f"{labels[m]} {ours:.2f} (paper {theirs:.2f})" for m, (ours, theirs) in pairs.items()
        ]
        yield place, held, ", ".join(texts)


def _fp64_pairs(
    results: Results, metrics: Sequence[str]
) -> Iterator[tuple[str, dict[str, tuple[float, float]]]]:
    """Our numbers of all-FP64 and the paper's, by place and metric, where the paper has some."""
    for name, result in results.items():
        if name == "ablation":  # its FP64 rows are those of dense
            continue
        for tau, baseline in result.baselines.items():
            for kappa_range in result.reported_ranges:
                pairs = {}
                for metric in metrics:
                    theirs = paper.reported(name, tau, "FP64", kappa_range, metric)
                    if not math.isnan(theirs):
                        pairs[metric] = range_metric(baseline, kappa_range, metric), theirs
                if pairs:
                    yield _place(result, tau, kappa_range), pairs


def _w1_accuracy(results: Results) -> Places:
    for result in _named(results, "dense", "sparse"):  # for PDEs the paper does not claim it
        for tau, baseline in result.baselines.items():
            case = result.case("W1", tau)
            for kappa_range in result.reported_ranges:
                ours = case.metric(kappa_range, "ferr").mean
                fp64 = range_metric(baseline, kappa_range, "ferr")
                lost = case.metric(kappa_range, "no_result").mean
                single = case.values(kappa_range, "ferr")
                count = sum(ferr <= SAME_ORDER * fp64 for ferr in single)
                yield (
                    _place(result, tau, kappa_range),
                    ours <= SAME_ORDER * fp64 and not lost,  # NaN, no result at all, fails
                    f"{scientific(ours, 1)}, FP64 {scientific(fp64, 1)}, true of {count} of "
                    f"{len(single)} trainings",
                )


def _w2_uses_more(results: Results) -> Places:
    for result in results.values():
        for tau in result.baselines:
            w1, w2 = (result.case(weight, tau).low_precision("all") for weight in ("W1", "W2"))
            text = f"{w2:.2f} stages below FP64 under W2, {w1:.2f} under W1"
            yield _place(result, tau), w2 >= w1, text


def _falls_with_kappa(results: Results) -> Places:
    for result in _named(results, "dense"):
        for case in result.cases if len(result.ranges) > 1 else ():
            used = {name: case.low_precision(name) for name in result.ranges}
            stages = list(used.values())
            held = all(low >= high for low, high in pairwise(stages)) and stages[0] > stages[-1]
            texts = [f"{count:.2f} {name}" for name, count in used.items()]
            yield case.label, held, ", ".join(texts)


def _w1_avoids_half(results: Results) -> Places:
    for result in _named(results, "dense"):
        for tau in result.baselines:
            case = result.case("W1", tau)
            used = np.add(case.usage("all", "bf16"), case.usage("all", "tf32"))
            yield (
                f"tau = {scientific(tau)}",
                not used.any(),
                f"{used.mean():.3f} stages in BF16 or TF32, none in {np.count_nonzero(used == 0)} "
                f"of {used.size} trainings",
            )


def _w2_iterates_more(results: Results) -> Places:
    for result in _named(results, "dense"):
        for tau in result.baselines if "low" in result.ranges else ():
            w1, w2 = (result.case(w, tau).metric("low", "gmres").mean for w in ("W1", "W2"))
            yield f"tau = {scientific(tau)}", w2 > w1, f"{w2:.2f} under W2, {w1:.2f} under W1"


def _success(results: Results) -> Places:
    for name, result in results.items():
        ours, missed = [], []
        for case in result.cases:
            for kappa_range in result.reported_ranges:
                rate = case.metric(kappa_range, "success").mean
                theirs = paper.reported(name, case.tau, case.weight, kappa_range, "success")
                ours.append(rate)
                if rate < theirs - 1:  # never for a range that the paper does not have (NaN)
                    where = "" if kappa_range == "all" else f" {kappa_range}"
                    missed.append(f"{case.label}{where} {rate:.1f} % (paper {theirs:g} %)")
        strict = [case.metric("all", "strict").mean for case in result.cases]
        text = "below: " + ", ".join(missed) if missed else f"at least {min(ours):.1f} %"
        yield name, not missed, f"{text}; strict success {min(strict):.1f} to {max(strict):.1f} %"


def _sparse_dominated(results: Results) -> Places:
    for result in _named(results, "sparse"):
        for case in result.cases:
            used = case.mean_usage("all", "fp64")
            theirs = paper.reported_usage("sparse", case.tau, case.weight, "fp64")
            yield case.label, used >= DOMINANT, f"{used:.2f} stages (paper {theirs:.2f})"


def _pde_alike(results: Results) -> Places:
    for result in _named(results, "pde"):
        if 1e-8 in result.baselines:
            w1, w2 = (result.case(w, 1e-8).mean_usage("all", "fp64") for w in ("W1", "W2"))
            yield "FP64 stages", abs(w1 - w2) <= 0.1, f"{w1:.2f} under W1, {w2:.2f} under W2"


def _ablation(unit: str, number: Callable[[Case], float]) -> Callable[[Results], Places]:
    """Whether a number is higher without the iteration penalty than with it."""

    def places(results: Results) -> Places:
        for dense in _named(results, "dense"):
            for case in results["ablation"].cases if "ablation" in results else ():
                before, after = number(dense.case(case.weight, case.tau)), number(case)
                yield case.label, after > before, f"{before:.2f} to {after:.2f} {unit}"

    return places


def _named(results: Results, *names: str) -> list[Result]:
    return [results[name] for name in names if name in results]


def _place(result: Result, tau: float, kappa_range: str = "all") -> str:
    where = "" if kappa_range == "all" else f" {kappa_range}"
    return f"{result.experiment.name}{where}, tau = {scientific(tau)}"


CLAIMS: dict[str, Callable[[Results], Places]] = {
    f"All-FP64: mean errors within a factor {ERROR_FACTOR:g} of the paper's": _fp64_errors,
    f"All-FP64: iterations equal to the paper's, to {ITERATION_SLACK:g}": _fp64_iterations,
    "W1 stays at FP64 accuracy: mean ferr of the order of FP64's": _w1_accuracy,
    "W2 uses at least as much low precision as W1": _w2_uses_more,
    "Dense: the use of low precision falls with the condition number": _falls_with_kappa,
    "Dense: W1 never goes below FP32": _w1_avoids_half,
    "Dense: at low kappa, W2 takes more GMRES iterations than W1": _w2_iterates_more,
    "Success, by the paper's criterion, is as frequent as reported (to 1 point)": _success,
    f"Sparse: FP64 dominates, with at least {DOMINANT:g} of 4 stages": _sparse_dominated,
    "PDE, tau = 1e-8: W1 and W2 choose alike (FP64 stages equal to 0.1)": _pde_alike,
    "Removing the iteration penalty raises the GMRES iterations": _ablation(
        "iterations", lambda case: case.metric("all", "gmres").mean
    ),
    "Removing the iteration penalty raises the use of low precision": _ablation(
        "stages below FP64", lambda case: case.low_precision("all")
    ),
}
"""What the paper says, and where it is looked at."""
