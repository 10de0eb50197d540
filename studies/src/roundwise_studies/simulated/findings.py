"""The paper's findings, checked one by one on our numbers.

A finding is looked at in several places (ranges, tolerances, weightings): it is confirmed if it
holds in all of them, partly if in some, refuted if in none. Numbers are means over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product

import numpy as np

from roundwise_studies import paper
from roundwise_studies.report import Finding, Verdict, scientific
from roundwise_studies.simulated.running import Case, Result, range_metric
from roundwise_studies.simulated.tables import draws_sentence

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
    for place, pairs in _fp64_pairs(results, "ferr", "nbe"):
        ratios = {metric: ours / theirs for metric, (ours, theirs) in pairs.items()}
        held = all(1 / ERROR_FACTOR <= ratio <= ERROR_FACTOR for ratio in ratios.values())
        yield place, held, ", ".join(f"{metric} {r:.2g} times" for metric, r in ratios.items())


def _fp64_iterations(results: Results) -> Places:
    slack = ITERATION_SLACK + 1e-9  # 2.1 - 2.0 > 0.1 in float64
    for place, pairs in _fp64_pairs(results, "outer", "gmres"):
        held = all(abs(ours - theirs) <= slack for ours, theirs in pairs.values())
        texts = [f"{m} {ours:.2f} (paper {theirs:.2f})" for m, (ours, theirs) in pairs.items()]
        yield place, held, ", ".join(texts).replace("gmres", "GMRES")


def _fp64_pairs(
    results: Results, *metrics: str
) -> Iterator[tuple[str, dict[str, tuple[float, float]]]]:
    """Our numbers of all-FP64 and the paper's, by place and metric, where the paper has some."""
    for result in _named(results, "dense", "sparse", "pde"):  # ablation's are those of dense
        for (tau, baseline), kappa_range in product(
            result.baselines.items(), result.reported_ranges
        ):
            pairs = {}
            for metric in metrics:
                theirs = paper.reported(result.experiment.name, tau, "FP64", kappa_range, metric)
                if not math.isnan(theirs):
                    pairs[metric] = range_metric(baseline, kappa_range, metric), theirs
            if pairs:
                yield _place(result, tau, kappa_range), pairs


def _w1_accuracy(results: Results) -> Places:
    for result in _named(results, "dense", "sparse"):  # for PDEs the paper does not claim it
        for tau, kappa_range in product(result.baselines, result.reported_ranges):
            case = result.case("W1", tau)
            ours, lost = (case.metric(kappa_range, m).mean for m in ("ferr", "no_result"))
            limit = SAME_ORDER * (fp64 := range_metric(result.baselines[tau], kappa_range, "ferr"))
            single = case.values(kappa_range, "ferr")
            yield (
                _place(result, tau, kappa_range),
                ours <= limit and not lost,  # NaN, no result at all, fails
                f"{scientific(ours, 1)}, FP64 {scientific(fp64, 1)}, true of "
                f"{sum(ferr <= limit for ferr in single)} of {len(single)} trainings",
            )


def _w2_uses_more(results: Results) -> Places:
    for result, tau, *cases in _both_weights(results, *results):
        w1, w2 = (case.low_precision("all") for case in cases)
        text = f"{w2:.2f} stages below FP64 under W2, {w1:.2f} under W1"
        yield _place(result, tau), w2 >= w1, text


def _falls_with_kappa(results: Results) -> Places:
    for result in _named(results, "dense"):
        for case in result.cases if len(result.ranges) > 1 else ():
            used = {name: case.low_precision(name) for name in result.ranges}
            stages = list(used.values())
            held = all(low >= high for low, high in pairwise(stages)) and stages[0] > stages[-1]
            yield case.label, held, ", ".join(f"{n:.2f} {name}" for name, n in used.items())


def _w1_avoids_half(results: Results) -> Places:
    for _, tau, case, _ in _both_weights(results, "dense"):
        used = np.add(case.values("all", "bf16"), case.values("all", "tf32"))
        yield (
            f"tau = {scientific(tau)}",
            not used.any(),
            f"{used.mean():.3f} stages in BF16 or TF32, none in {np.count_nonzero(used == 0)} "
            f"of {used.size} trainings",
        )


def _w2_iterates_more(results: Results) -> Places:
    for result, tau, *cases in _both_weights(results, "dense"):
        if "low" in result.ranges:
            w1, w2 = (case.metric("low", "gmres").mean for case in cases)
            yield f"tau = {scientific(tau)}", w2 > w1, f"{w2:.2f} under W2, {w1:.2f} under W1"


def _success(results: Results) -> Places:
    for name, result in results.items():
        ours, missed = [], []
        for case, kappa_range in product(result.cases, result.reported_ranges):
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
            used = case.metric("all", "fp64").mean
            theirs = paper.reported_usage("sparse", case.tau, case.weight, "fp64")
            yield case.label, used >= DOMINANT, f"{used:.2f} stages (paper {theirs:.2f})"


def _pde_alike(results: Results) -> Places:
    for _, tau, *cases in _both_weights(results, "pde"):
        if tau == 1e-8:
            w1, w2 = (case.metric("all", "fp64").mean for case in cases)
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


def _both_weights(results: Results, *names: str) -> Iterator[tuple[Result, float, Case, Case]]:
    for result in _named(results, *names):
        for tau in result.baselines:
            yield result, tau, result.case("W1", tau), result.case("W2", tau)


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
