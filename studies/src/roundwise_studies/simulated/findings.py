"""What the paper says about its simulated experiments, tested on our numbers and on its own.

A claim is a number that lies between two bounds, looked at in several places (ranges of kappa,
tolerances, weightings). Both bounds count: a policy that does better than reported does not agree
with the report. The same test is applied to our results, with a 95 % bootstrap interval over
trainings and test systems, and to the paper's own released numbers, which have no spread.

A claim is confirmed if our number is within its bounds in all places, partly if in some, and not
reproduced from the text if in none.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roundwise_studies import paper
from roundwise_studies.evaluation.accuracy import PAPER_RANGES, paper_success
from roundwise_studies.report import Finding, Verdict, scientific
from roundwise_studies.simulated.running import Result
from roundwise_studies.simulated.tables import draws_sentence

RESAMPLES = 400
CONFIDENCE = 0.95

# The bounds are tastes: what a reader would call "the same", "close to" or "much more".
ERROR_FACTOR = 3.0
ITERATION_SLACK = 0.1
SAME_ORDER = 10.0
A_STAGE_IN_TEN = 0.1
DOMINANT = 3.0
A_POINT = 1.0
NONE_AT_ALL = 0.005  # what a table with two decimals shows as 0.00

Floats = NDArray[np.float64]
Results = Mapping[str, Result]


class Numbers(ABC):
    """Means over test systems by experiment, tau, method (W1, W2, FP64), range and name.

    Names are success (in percent), ferr, nbe, outer, gmres, the formats (stages of 4), and ``half``
    for stages in BF16 or TF32 together. NaN where there is no number.
    """

    @abstractmethod
    def mean(self, experiment: str, tau: float, method: str, where: str, name: str) -> float: ...


class PaperNumbers(Numbers):
    """The tables of the paper, and the usage by range that was released with it."""

    def mean(self, experiment: str, tau: float, method: str, where: str, name: str) -> float:
        if name == "half":
            parts = (self.mean(experiment, tau, method, where, fmt) for fmt in ("bf16", "tf32"))
            return sum(parts)
        if experiment == "dense" and name in ("bf16", "tf32", "fp32", "fp64"):
            return paper.DENSE_USAGE.get((tau, method, where), {}).get(name, math.nan)
        if where == "high_contrast_2d":
            known = {(1e-6, "ferr"): paper.HIGH_CONTRAST_FERR, (1e-8, "gmres"): HIGH_CONTRAST_GMRES}
            return known.get((tau, name), math.nan) if method != "FP64" else math.nan
        if name in ("bf16", "tf32", "fp32", "fp64"):
            return paper.reported_usage(experiment, tau, method, name)
        return paper.reported(experiment, tau, method, where, name)


HIGH_CONTRAST_GMRES = paper.HIGH_CONTRAST_GMRES


@dataclass(frozen=True)
class OurNumbers(Numbers):
    """Means over trainings and test systems, or over a resample of both.

    `trainings` and `systems` (by data set) are indices with repetitions; none: each once.
    """

    results: Results
    tables: Mapping[tuple[str, float, str], Mapping[str, Floats]]
    trainings: NDArray[np.intp] | None = None
    systems: Mapping[str, NDArray[np.intp]] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Results) -> OurNumbers:
        tables = {
            (name, tau, method): _runs(result, tau, method)
            for name, result in results.items()
            for tau in result.baselines
            for method in ("W1", "W2", "FP64")
        }
        return cls(results, tables)

    def resampled(self, rng: np.random.Generator) -> OurNumbers:
        first = next(iter(self.results.values()))
        count = first.settings.seeds
        systems: dict[str, NDArray[np.intp]] = {}
        for result in self.results.values():
            total = len(result.gathered.first[1].rows)
            data = result.experiment.data
            systems.setdefault(data, rng.integers(total, size=total))
        return OurNumbers(self.results, self.tables, rng.integers(count, size=count), systems)

    def mean(self, experiment: str, tau: float, method: str, where: str, name: str) -> float:
        table = self.tables.get((experiment, tau, method))
        if table is None or name not in table:
            return math.nan
        values, member = table[name], self._members[experiment].get(where)
        if member is None:
            return math.nan
        chosen = self.systems.get(self.results[experiment].experiment.data)
        if chosen is not None:
            values, member = values[:, chosen], member[chosen]
        if self.trainings is not None and len(values) > 1:
            values = values[self.trainings]
        kept = values[:, member]
        kept = kept[np.isfinite(kept)]
        return float(kept.mean()) if kept.size else math.nan

    @cached_property
    def _members(self) -> dict[str, dict[str, NDArray[np.bool_]]]:
        found = {}
        for name, result in self.results.items():
            test = result.gathered.first[1]
            members = {r.name: r.contains(test.kappas) for r in PAPER_RANGES}
            families = np.array(test.families)
            members |= {str(family): families == family for family in set(test.families)}
            members["all"] = np.ones(len(test.rows), dtype=np.bool_)
            found[name] = {place: member for place, member in members.items() if member.any()}
        return found


def _runs(result: Result, tau: float, method: str) -> dict[str, Floats]:
    """What was chosen, (trainings, systems) each."""
    test, space = result.gathered.halves[tau][1], result.gathered.space
    count = len(test.rows)
    chosen = (
        np.full((1, count), space.safe) if method == "FP64" else result.case(method, tau).chosen
    )
    rows = np.arange(count)
    ferr, nbe, gmres = (x[rows, chosen] for x in (test.ferr, test.nbe, test.inner))
    outer = np.array([[outcome.outer_iterations for outcome in row] for row in test.rows])
    stages = np.array([[fmt.name for fmt in action] for action in space])
    found = {
        "ferr": ferr,
        "nbe": nbe,
        "gmres": gmres.astype(float),
        "outer": outer[rows, chosen].astype(float),
        "success": np.array(
            [100.0 * paper_success(f, b, test.kappas, tau) for f, b in zip(ferr, nbe, strict=True)]
        ),
    }
    for fmt in ("bf16", "tf32", "fp32", "fp64"):
        found[fmt] = (stages == fmt).sum(axis=1)[chosen].astype(float)
    return found | {"half": found["bf16"] + found["tf32"]}


# Claims


@dataclass(frozen=True)
class Place:
    """A number of a claim, and the bounds that it must lie within (both included)."""

    where: str
    number: Callable[[Numbers], float]
    low: float
    high: float
    spec: str = ".2f"


@dataclass(frozen=True)
class Tested:
    """What a place came to: our number with its interval, and the paper's (NaN: it has none)."""

    place: Place
    ours: float
    interval: tuple[float, float]
    theirs: float

    @property
    def holds(self) -> bool:
        return self.place.low <= self.ours <= self.place.high

    @property
    def is_clear(self) -> bool:
        """Whether the whole interval is on the side of the bounds that our number is on."""
        inside = [self.place.low <= end <= self.place.high for end in self.interval]
        return all(inside) if self.holds else not any(inside)

    @property
    def holds_for_the_paper(self) -> bool | None:
        return (
            None if math.isnan(self.theirs) else (self.place.low <= self.theirs <= self.place.high)
        )

    def __str__(self) -> str:
        text = [_number(x, self.place.spec) for x in (self.ours, *self.interval, self.theirs)]
        theirs = "" if math.isnan(self.theirs) else f", paper {text[3]}"
        return f"{self.place.where}: {text[0]} [{text[1]}, {text[2]}]{theirs}"


def _number(value: float, spec: str) -> str:
    return scientific(value, 1) if spec == "e" else format(value, spec)


Claims = dict[str, Callable[[Results], Iterator[Place]]]


def examine(results: Results) -> dict[str, list[Tested]]:
    """Every claim that these results say something about, in all its places."""
    ours, theirs = OurNumbers.of(results), PaperNumbers()
    rng = np.random.default_rng(0)
    resamples = [ours.resampled(rng) for _ in range(RESAMPLES)]
    tails = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    found = {}
    for claim, places in CLAIMS.items():
        looked_at = []
        for place in places(results):
            value = place.number(ours)
            if math.isnan(value):
                continue
            values = np.array([place.number(sample) for sample in resamples])
            values = values[~np.isnan(values)]
            low, high = (
                np.quantile(values, tails, method="nearest") if values.size else (value,) * 2
            )
            looked_at.append(Tested(place, value, (float(low), float(high)), place.number(theirs)))
        if looked_at:
            found[claim] = looked_at
    return found


def check(results: Results) -> list[Finding]:
    """The claims with their verdicts and evidence."""
    found = []
    for claim, looked_at in examine(results).items():
        evidence = _evidence(looked_at)
        pde = results.get("pde")
        if claim == FP64_ERRORS and pde is not None and pde.gathered.draws:
            evidence += f" {draws_sentence(pde)}"
        found.append(Finding(claim, verdict([each.holds for each in looked_at]), evidence))
    return found


def verdict(holds: Sequence[bool]) -> Verdict:
    """Confirmed if everywhere, not reproduced if nowhere, else partly."""
    return "confirmed" if all(holds) else "partly" if any(holds) else "not reproduced"


def on_the_papers_numbers(looked_at: Sequence[Tested]) -> Verdict | None:
    """The verdict of the same test on the paper's own numbers; None if it has none."""
    holds = [held for each in looked_at if (held := each.holds_for_the_paper) is not None]
    return verdict(holds) if holds else None


def _evidence(looked_at: Sequence[Tested]) -> str:
    true, false = ([str(e) for e in looked_at if e.holds == wanted] for wanted in (True, False))
    clear = sum(each.is_clear for each in looked_at)
    theirs = on_the_papers_numbers(looked_at)
    ending = f" Clear of the bounds in {clear} of {len(looked_at)} places."
    if theirs is not None:
        ending += f" On the paper's own numbers: {theirs}."
    if not true or not false:
        return f"{'; '.join(true or false)}.{ending}"
    missed = f"Not true in {len(false)} of {len(looked_at)} cases: {'; '.join(false)}."
    return f"{missed}{ending} True in the others: {'; '.join(true)}."


def _cases(results: Results, *names: str) -> Iterator[tuple[str, float, str]]:
    """Experiment, tau and range of the paper's tables, where there are results."""
    for name in names:
        if name in results:
            for tau in results[name].baselines:
                for where in results[name].reported_ranges:
                    yield name, tau, where


def _label(name: str, tau: float, where: str, method: str = "") -> str:
    place = "" if where == "all" else f" {where}"
    return f"{name}{place}, {method + ', ' if method else ''}tau = {scientific(tau)}"


def _against_paper(
    metric: str, method: str, names: Sequence[str], slack: float, is_ratio: bool
) -> Callable[[Results], Iterator[Place]]:
    """A number of ours over, or minus, the reported one; the paper's own is 1, or 0."""

    def places(results: Results) -> Iterator[Place]:
        for name, tau, where in _cases(results, *names):
            for policy in ("W1", "W2") if method == "RL" else (method,):
                reported = paper.reported(name, tau, policy, where, metric)
                if math.isnan(reported):
                    continue
                key = name, tau, policy, where, metric

                def number(n: Numbers, key: tuple[str, float, str, str, str] = key) -> float:
                    reported = paper.reported(*key)
                    ours = n.mean(*key)
                    return ours / reported if is_ratio else ours - reported

                bounds = (1 / slack, slack) if is_ratio else (-slack - 1e-9, slack + 1e-9)
                spec = ".2g" if is_ratio else "+.2f"
                label = _label(name, tau, where, "" if method == "FP64" else policy)
                yield Place(f"{label} {metric}", number, *bounds, spec)

    return places


def _both(*choices: Callable[[Results], Iterator[Place]]) -> Callable[[Results], Iterator[Place]]:
    def places(results: Results) -> Iterator[Place]:
        for choice in choices:
            yield from choice(results)

    return places


def _means(
    names: Sequence[str],
    methods: Sequence[str],
    metric: str,
    bounds: tuple[float, float],
    *,
    wheres: Sequence[str] | None = None,
    taus: Sequence[float] | None = None,
    spec: str = ".3f",
) -> Callable[[Results], Iterator[Place]]:
    """A mean itself lies within bounds."""

    def places(results: Results) -> Iterator[Place]:
        for name, tau, reported in _cases(results, *names):
            if taus is not None and tau not in taus:
                continue
            for where in wheres or (reported,):
                if wheres is not None and reported not in (wheres[0], "all"):
                    continue
                for method in methods:
                    key = name, tau, method, where, metric
                    yield Place(
                        _label(name, tau, where, method),
                        lambda n, key=key: n.mean(*key),  # type: ignore[misc]
                        *bounds,
                        spec,
                    )

    return places


Key = tuple[str, float, str, str, str]


def _compared(
    pairs: Callable[[Results], Iterator[tuple[str, Key, Key]]],
    bounds: tuple[float, float],
    *,
    is_ratio: bool = False,
    spec: str = "+.2f",
) -> Callable[[Results], Iterator[Place]]:
    """The first number minus, or over, the second one lies within bounds."""

    def places(results: Results) -> Iterator[Place]:
        for label, first, second in pairs(results):

            def number(n: Numbers, first: Key = first, second: Key = second) -> float:
                a, b = n.mean(*first), n.mean(*second)
                if is_ratio:
                    return a / b if b else math.nan
                return a - b

            yield Place(label, number, *bounds, spec)

    return places


def _weights(
    names: Sequence[str],
    metric: str,
    wheres: Sequence[str] | None = None,
    taus: Sequence[float] | None = None,
) -> Callable[..., Iterator[tuple[str, Key, Key]]]:
    """W2 and W1 of the same system."""

    def pairs(results: Results) -> Iterator[tuple[str, Key, Key]]:
        for name, tau, where in _cases(results, *names):
            if (wheres is None or where in wheres) and (taus is None or tau in taus):
                label = f"{_label(name, tau, where)}, W2 against W1"
                yield label, (name, tau, "W2", where, metric), (name, tau, "W1", where, metric)

    return pairs


def _to_fp64(
    names: Sequence[str],
    methods: Sequence[str],
    metric: str,
    wheres: Sequence[str] | None = None,
    taus: Sequence[float] | None = None,
) -> Callable[..., Iterator[tuple[str, Key, Key]]]:
    """A policy and all-FP64."""

    def pairs(results: Results) -> Iterator[tuple[str, Key, Key]]:
        for name, tau, reported in _cases(results, *names):
            for where in wheres or (reported,):
                for method in methods if taus is None or tau in taus else ():
                    label = _label(name, tau, where, method)
                    yield (
                        label,
                        (name, tau, method, where, metric),
                        (name, tau, "FP64", where, metric),
                    )

    return pairs


def _along_kappa(results: Results) -> Iterator[tuple[str, Key, Key]]:
    for name, tau, where in _cases(results, "dense"):
        after = {"low": "medium", "medium": "high"}.get(where)
        if after in results[name].ranges:
            assert after is not None
            label = f"W2, tau = {scientific(tau)}, {where} minus {after}"
            yield label, (name, tau, "W2", where, "half"), (name, tau, "W2", after, "half")


def _tighter(
    name: str, method: str, metric: str, where: str
) -> Callable[..., Iterator[tuple[str, Key, Key]]]:
    """tau = 1e-8 and 1e-6."""

    def pairs(results: Results) -> Iterator[tuple[str, Key, Key]]:
        if name in results and {1e-6, 1e-8} <= set(results[name].baselines):
            label = f"{name} {where}, {method}, {metric} at 1e-8 against 1e-6"
            yield label, (name, 1e-8, method, where, metric), (name, 1e-6, method, where, metric)

    return pairs


def _ablated(metric: str) -> Callable[..., Iterator[tuple[str, Key, Key]]]:
    """Without and with the iteration penalty."""

    def pairs(results: Results) -> Iterator[tuple[str, Key, Key]]:
        for name, tau, where in _cases(results, "ablation"):
            for method in ("W1", "W2") if "dense" in results else ():
                label = f"{method}, {where}, tau = {scientific(tau)}"
                yield (
                    label,
                    (name, tau, method, where, metric),
                    ("dense", tau, method, where, metric),
                )

    return pairs


def _overfitting(results: Results) -> Iterator[Place]:
    """Reward above all-FP64's on the training systems, minus that on the test systems.

    The paper released no numbers for it.
    """
    for name, result in results.items():
        for case in result.cases:
            gap = _reward_gap(result, case.weight, case.tau)
            yield Place(
                f"{name}, {case.label}",
                lambda n, gap=gap: gap(n),  # type: ignore[misc]
                -math.inf,
                A_STAGE_IN_TEN,
                "+.3f",
            )


def _reward_gap(result: Result, weight: str, tau: float) -> Callable[[Numbers], float]:
    case, safe = result.case(weight, tau), result.gathered.space.safe
    rows = np.arange(len(case.rewards))
    gain = case.rewards[rows, case.chosen] - case.rewards[:, safe]
    trained = case.training_gain

    def number(n: Numbers) -> float:
        if not isinstance(n, OurNumbers):
            return math.nan
        if n.trainings is None:
            return float(trained.mean() - gain.mean())
        chosen = n.systems[result.experiment.data]
        of_training = trained[n.trainings][:, chosen % trained.shape[1]]
        return float(of_training.mean() - gain[n.trainings][:, chosen].mean())

    return number


SIMULATED = ("dense", "sparse", "pde")
RL = ("W1", "W2")
INFINITE = math.inf
FP64_ERRORS = f"Agreement: all-FP64's mean errors within a factor {ERROR_FACTOR:g} of the paper's"
BENIGN = ("poisson_2d", "anisotropic_2d", "convection_diffusion_2d")

CLAIMS: Claims = {
    FP64_ERRORS: _both(
        _against_paper("ferr", "FP64", SIMULATED, ERROR_FACTOR, True),
        _against_paper("nbe", "FP64", SIMULATED, ERROR_FACTOR, True),
    ),
    f"Agreement: all-FP64's iterations are the paper's, to {ITERATION_SLACK:g}": _both(
        _against_paper("outer", "FP64", SIMULATED, ITERATION_SLACK, False),
        _against_paper("gmres", "FP64", SIMULATED, ITERATION_SLACK, False),
    ),
    "Success, by the paper's criterion, is as frequent as reported, to 1 point either way": (
        _against_paper("success", "RL", (*SIMULATED, "ablation"), A_POINT, False)
    ),
    "Dense: W1 is at FP64 accuracy (mean ferr within a factor 10, either way)": _compared(
        _to_fp64(("dense",), ("W1",), "ferr"),
        (1 / SAME_ORDER, SAME_ORDER),
        is_ratio=True,
        spec=".2g",
    ),
    "Dense: W1 never goes below FP32": _means(("dense",), ("W1",), "half", (0.0, NONE_AT_ALL)),
    "Dense: W2 uses BF16 and TF32 at low kappa, in more than 0.1 stages": _means(
        ("dense",), ("W2",), "half", (A_STAGE_IN_TEN, 4.0), wheres=("low",)
    ),
    "Dense: W2's use of BF16 and TF32 falls with the condition number": _compared(
        _along_kappa, (0.0, 4.0)
    ),
    "Dense: beyond 1e6, W1 and W2 choose alike (BF16, TF32 and FP64 stages to 0.1)": _both(
        _compared(_weights(("dense",), "fp64", ("high",)), (-A_STAGE_IN_TEN, A_STAGE_IN_TEN)),
        _compared(_weights(("dense",), "half", ("high",)), (-A_STAGE_IN_TEN, A_STAGE_IN_TEN)),
    ),
    "Dense: beyond 1e6, FP64 dominates (3 of 4 stages) and nothing is below FP32": _both(
        _means(("dense",), RL, "fp64", (DOMINANT, 4.0), wheres=("high",)),
        _means(("dense",), RL, "half", (0.0, NONE_AT_ALL), wheres=("high",)),
    ),
    "Dense: W2 pays with errors at low kappa, ferr at least 10 times W1's": _compared(
        _weights(("dense",), "ferr", ("low",)), (SAME_ORDER, INFINITE), is_ratio=True, spec=".2g"
    ),
    "Dense: W2 takes more GMRES iterations than W1 at low kappa": _compared(
        _weights(("dense",), "gmres", ("low",)), (0.0, INFINITE)
    ),
    "Dense: outer iterations are stable, 2.0 to 2.35 on average": _means(
        ("dense",), RL, "outer", (2.0, 2.354), spec=".2f"
    ),
    "Dense: the tighter tau costs W2 successes at low kappa": _compared(
        _tighter("dense", "W2", "success", "low"), (-INFINITE, -A_POINT)
    ),
    "Sparse: BF16 and TF32 are avoided entirely": _means(
        ("sparse",), RL, "half", (0.0, NONE_AT_ALL)
    ),
    "Sparse: W1 and W2 choose alike (FP64 stages to 0.1)": _compared(
        _weights(("sparse",), "fp64"), (-A_STAGE_IN_TEN, A_STAGE_IN_TEN)
    ),
    "Sparse: FP64 in 3.99 to 4.00 stages": _means(("sparse",), RL, "fp64", (3.985, 4.0)),
    "Sparse: errors are close to FP64's (mean ferr within a factor 10, either way)": _compared(
        _to_fp64(("sparse",), RL, "ferr"), (1 / SAME_ORDER, SAME_ORDER), is_ratio=True, spec=".2g"
    ),
    "Sparse: GMRES iterations are FP64's, to 0.5": _compared(
        _to_fp64(("sparse",), RL, "gmres"), (-0.5, 0.5)
    ),
    "PDE: under W2 and tau = 1e-6, FP32 replaces FP64 (more FP32 than under W1)": _compared(
        _weights(("pde",), "fp32", taus=(1e-6,)), (A_STAGE_IN_TEN, 4.0)
    ),
    "PDE: BF16 and TF32 remain almost unused (0.02 stages at most)": _means(
        ("pde",), RL, "half", (0.0, 0.02)
    ),
    "PDE: at tau = 1e-8, W1 and W2 choose alike (FP64 stages to 0.1)": _compared(
        _weights(("pde",), "fp64", taus=(1e-8,)), (-A_STAGE_IN_TEN, A_STAGE_IN_TEN)
    ),
    "PDE: the tighter tau makes W2 more cautious (more FP64)": _compared(
        _tighter("pde", "W2", "fp64", "all"), (A_STAGE_IN_TEN, 4.0)
    ),
    "PDE: high contrast carries the errors (mean ferr at tau = 1e-6 of the order of 1e-2)": _means(
        ("pde",), RL, "ferr", (4.5e-3, 4.6e-1), wheres=("high_contrast_2d",), taus=(1e-6,), spec="e"
    ),
    "PDE: the other families stay at FP64 accuracy (mean ferr within a factor 10)": _compared(
        _to_fp64(("pde",), RL, "ferr", BENIGN),
        (1 / SAME_ORDER, SAME_ORDER),
        is_ratio=True,
        spec=".2g",
    ),
    "PDE: high contrast takes extra GMRES iterations at tau = 1e-8, 14.52 (to a factor 2)": _means(
        ("pde",), RL, "gmres", (7.26, 29.04), wheres=("high_contrast_2d",), taus=(1e-8,), spec=".1f"
    ),
    "PDE: at tau = 1e-8, errors are close to FP64's (mean ferr within a factor 10)": _compared(
        _to_fp64(("pde",), RL, "ferr", taus=(1e-8,)),
        (1 / SAME_ORDER, SAME_ORDER),
        is_ratio=True,
        spec=".2g",
    ),
    "Removing the iteration penalty raises the GMRES iterations": _compared(
        _ablated("gmres"), (0.0, INFINITE)
    ),
    "Removing the iteration penalty raises the use of formats below FP64": _compared(
        _ablated("fp64"), (-4.0, 0.0)
    ),
    "No overfitting: what is gained over all-FP64 is as much on test systems (to 0.1)": (
        _overfitting
    ),
}
"""What the paper says, and where it is looked at."""
