"""The paper's findings, checked one by one on our numbers.

A finding holds in several places (ranges, tolerances, weightings): it is confirmed if it holds in
all of them, partly if in some, refuted if in none. Numbers are means over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from roundwise.evaluation import seed_spread
from roundwise.experiments import paper
from roundwise.experiments.simulated.draws import draws_sentence
from roundwise.experiments.simulated.experiment import Result, range_metric
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

Places = dict[str, tuple[bool, str]]
"""Where a finding was looked at: whether it holds there, and the numbers."""


def check(results: Mapping[str, Result]) -> list[Finding]:
    """All findings that these results say something about."""
    found: list[Finding | None] = [
        _finding(
            f"All-FP64: mean errors within a factor {ERROR_FACTOR:g} of the paper's",
            _fp64_errors(results.values()),
            _remark(results.get("pde")),
        ),
        _finding(
            f"All-FP64: iterations equal to the paper's, to {ITERATION_SLACK:g}",
            _fp64_iterations(results.values()),
        ),
        _finding(
            "W1 stays at FP64 accuracy: mean ferr of the order of FP64's",
            _w1_accuracy(results),
        ),
        _finding(
            "W2 uses at least as much low precision as W1",
            _w2_uses_more(results.values()),
        ),
        _finding(
            "Dense: the use of low precision falls with the condition number",
            _falls_with_kappa(results.get("dense")),
        ),
        _finding(
            "Dense: W1 never goes below FP32",
            _w1_avoids_half(results.get("dense")),
        ),
        _finding(
            "Dense: at low kappa, W2 takes more GMRES iterations than W1",
            _w2_iterates_more(results.get("dense")),
        ),
        _finding(
            "Success, by the paper's criterion, is as frequent as reported (to 1 point)",
            _success(results.values()),
        ),
        _finding(
            f"Sparse: FP64 dominates, with at least {DOMINANT:g} of 4 stages",
            _sparse_dominated(results.get("sparse")),
        ),
        _finding(
            "PDE, tau = 1e-8: W1 and W2 choose alike (FP64 stages equal to 0.1)",
            _pde_alike(results.get("pde")),
        ),
        _finding(
            "Removing the iteration penalty raises the GMRES iterations",
            _ablation(results, "iterations"),
        ),
        _finding(
            "Removing the iteration penalty raises the use of low precision",
            _ablation(results, "usage"),
        ),
    ]
    return [finding for finding in found if finding is not None]


def verdict(holds: Sequence[bool]) -> Verdict:
    """Confirmed if everywhere, refuted if nowhere, else partly."""
    return "confirmed" if all(holds) else "partly" if any(holds) else "refuted"


def _finding(claim: str, places: Places, remark: str = "") -> Finding | None:
    if not places:
        return None
    holds = [held for held, _ in places.values()]
    true, false = (
        "; ".join(f"{place}: {text}" for place, (held, text) in places.items() if held == wanted)
        for wanted in (True, False)
    )
    if all(holds) or not any(holds):
        evidence = f"{true or false}."
    else:
        missed = f"Not true in {holds.count(False)} of {len(holds)} cases: {false}."
        evidence = f"{missed} True in the others: {true}."
    return Finding(claim, verdict(holds), evidence + remark)


def _remark(result: Result | None) -> str:
    """How far one draw of the PDE test set may be from another; it changes no verdict."""
    return f" {draws_sentence(result)}" if result is not None and result.draws else ""


def _fp64_rows(results: Iterable[Result]) -> Iterator[tuple[Result, float, str]]:
    for result in results:
        if result.experiment.name != "ablation":  # its FP64 rows are those of dense
            for tau in result.baselines:
                for kappa_range in _reported_ranges(result):
                    yield result, tau, kappa_range


def _fp64_errors(results: Iterable[Result]) -> Places:
    places: Places = {}
    for result, tau, kappa_range in _fp64_rows(results):
        ratios = {}
        for metric in ("ferr", "nbe"):
            ours, theirs = _fp64_pair(result, tau, kappa_range, metric)
            if not math.isnan(theirs):
                ratios[metric] = ours / theirs
        if ratios:
            held = all(1 / ERROR_FACTOR <= ratio <= ERROR_FACTOR for ratio in ratios.values())
            text = ", ".join(f"{metric} {ratio:.2g} times" for metric, ratio in ratios.items())
            places[_place(result, tau, kappa_range)] = held, text
    return places


def _fp64_iterations(results: Iterable[Result]) -> Places:
    places: Places = {}
    for result, tau, kappa_range in _fp64_rows(results):
        texts, held = [], True
        for metric, label in (("outer", "outer"), ("gmres", "GMRES")):
            ours, theirs = _fp64_pair(result, tau, kappa_range, metric)
            if not math.isnan(theirs):
                held &= abs(ours - theirs) <= ITERATION_SLACK + 1e-9  # 2.1 - 2.0 > 0.1 in float64
                texts.append(f"{label} {ours:.2f} (paper {theirs:.2f})")
        if texts:
            places[_place(result, tau, kappa_range)] = held, ", ".join(texts)
    return places


def _w1_accuracy(results: Mapping[str, Result]) -> Places:
    places: Places = {}
    for name in ("dense", "sparse"):  # for PDEs the paper does not claim it
        if (result := results.get(name)) is None:
            continue
        for tau, baseline in result.baselines.items():
            case = result.case("W1", tau)
            for kappa_range in _reported_ranges(result):
                ours = case.metric(kappa_range, "ferr").mean
                fp64 = range_metric(baseline, kappa_range, "ferr")
                # Without a result there is no accuracy: NaN fails.
                lost = case.metric(kappa_range, "no_result").mean
                held = ours <= SAME_ORDER * fp64 and not lost
                single = [range_metric(a, kappa_range, "ferr") for a in case.accuracies]
                count = sum(ferr <= SAME_ORDER * fp64 for ferr in single)
                text = (
                    f"{scientific(ours, 1)}, FP64 {scientific(fp64, 1)}, true of {count} of "
                    f"{len(single)} trainings"
                )
                places[_place(result, tau, kappa_range)] = held, text
    return places


def _w2_uses_more(results: Iterable[Result]) -> Places:
    places: Places = {}
    for result in results:
        for tau in result.baselines:
            w1, w2 = (result.case(weight, tau).low_precision("all") for weight in ("W1", "W2"))
            text = f"{w2:.2f} stages below FP64 under W2, {w1:.2f} under W1"
            places[_place(result, tau)] = w2 >= w1, text
    return places


def _falls_with_kappa(result: Result | None) -> Places:
    places: Places = {}
    if result is None or len(result.ranges) < 2:
        return places
    for case in result.cases:
        used = [case.low_precision(kappa_range) for kappa_range in result.ranges]
        held = all(low >= high for low, high in pairwise(used)) and used[0] > used[-1]
        texts = [f"{stages:.2f} {name}" for stages, name in zip(used, result.ranges, strict=True)]
        places[f"{case.weight}, tau = {scientific(case.tau)}"] = held, ", ".join(texts)
    return places


def _w1_avoids_half(result: Result | None) -> Places:
    places: Places = {}
    if result is None:
        return places
    for tau in result.baselines:
        case = result.case("W1", tau)
        used = np.add(case.usage("all", "bf16"), case.usage("all", "tf32"))
        places[f"tau = {scientific(tau)}"] = (
            not used.any(),
            f"{used.mean():.3f} stages in BF16 or TF32, none in {np.count_nonzero(used == 0)} of "
            f"{used.size} trainings",
        )
    return places


def _w2_iterates_more(result: Result | None) -> Places:
    places: Places = {}
    if result is None or "low" not in result.ranges:
        return places
    for tau in result.baselines:
        w1, w2 = (result.case(weight, tau).metric("low", "gmres").mean for weight in ("W1", "W2"))
        places[f"tau = {scientific(tau)}"] = w2 > w1, f"{w2:.2f} under W2, {w1:.2f} under W1"
    return places


def _success(results: Iterable[Result]) -> Places:
    places: Places = {}
    for result in results:
        name, ranges = result.experiment.name, _reported_ranges(result)
        ours, missed = [], []
        for case in result.cases:
            for kappa_range in ranges:
                rate = case.metric(kappa_range, "success").mean
                theirs = paper.reported(name, case.tau, case.weight, kappa_range, "success")
                ours.append(rate)
                if rate < theirs - 1:  # never for a range that the paper does not have (NaN)
                    where = "" if kappa_range == "all" else f" {kappa_range}"
                    missed.append(
                        f"{case.weight}, tau = {scientific(case.tau)}{where} {rate:.1f} % "
                        f"(paper {theirs:g} %)"
                    )
        strict = [case.metric("all", "strict").mean for case in result.cases]
        text = "below: " + ", ".join(missed) if missed else f"at least {min(ours):.1f} %"
        places[name] = (
            not missed,
            f"{text}; strict success {min(strict):.1f} to {max(strict):.1f} %",
        )
    return places


def _sparse_dominated(result: Result | None) -> Places:
    places: Places = {}
    for case in result.cases if result is not None else ():
        used = seed_spread(case.usage("all", "fp64")).mean
        reported = paper.USAGE["sparse"].get((case.tau, case.weight), {}).get("fp64", math.nan)
        text = f"{used:.2f} stages (paper {reported:.2f})"
        places[f"{case.weight}, tau = {scientific(case.tau)}"] = used >= DOMINANT, text
    return places


def _pde_alike(result: Result | None) -> Places:
    if result is None or 1e-8 not in result.baselines:
        return {}
    w1, w2 = (
        seed_spread(result.case(weight, 1e-8).usage("all", "fp64")).mean for weight in ("W1", "W2")
    )
    return {"FP64 stages": (abs(w1 - w2) <= 0.1, f"{w1:.2f} under W1, {w2:.2f} under W2")}


def _ablation(results: Mapping[str, Result], what: str) -> Places:
    places: Places = {}
    dense, ablation = results.get("dense"), results.get("ablation")
    if dense is None or ablation is None:
        return places
    for case in ablation.cases:
        with_penalty = dense.case(case.weight, case.tau)
        if what == "iterations":
            before, after = (c.metric("all", "gmres").mean for c in (with_penalty, case))
        else:
            before, after = (c.low_precision("all") for c in (with_penalty, case))
        unit = "iterations" if what == "iterations" else "stages below FP64"
        text = f"{before:.2f} to {after:.2f} {unit}"
        places[f"{case.weight}, tau = {scientific(case.tau)}"] = after > before, text
    return places


def _fp64_pair(result: Result, tau: float, kappa_range: str, metric: str) -> tuple[float, float]:
    ours = range_metric(result.baselines[tau], kappa_range, metric)
    return ours, paper.reported(result.experiment.name, tau, "FP64", kappa_range, metric)


def _reported_ranges(result: Result) -> tuple[str, ...]:
    return result.ranges if result.experiment.by_range else ("all",)


def _place(result: Result, tau: float, kappa_range: str = "all") -> str:
    where = "" if kappa_range == "all" else f" {kappa_range}"
    return f"{result.experiment.name}{where}, tau = {scientific(tau)}"
