"""Success rates, mean errors and iterations, and precision usage, by condition number.

Success is judged twice: as the paper does, on a threshold that grows with kappa, and strictly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roundwise.actions import ActionSpace
from roundwise.algorithms.base import Outcome
from roundwise.rewards.base import strict_success
from roundwise_studies.evaluation.tables import Row

RANGE_SLACK = 1e-6
"""Relative slack of the upper end of a range: a matrix made with kappa = 1e3 counts as low, though
its singular values give 1e3 only up to rounding."""


@dataclass(frozen=True)
class KappaRange:
    """Condition numbers with ``low < kappa <= high``, the ends with a slack of `RANGE_SLACK`."""

    name: str
    low: float
    high: float

    def contains(self, kappas: NDArray[np.float64]) -> NDArray[np.bool_]:
        return (kappas > self.low * (1 + RANGE_SLACK)) & (kappas <= self.high * (1 + RANGE_SLACK))


PAPER_RANGES = (
    KappaRange("low", -math.inf, 1e3),
    KappaRange("medium", 1e3, 1e6),
    KappaRange("high", 1e6, 1e9),
    KappaRange("very high", 1e9, math.inf),
)
"""The paper's ranges; the upper end belongs to a range. An estimate of kappa may be below 1."""


def assign_ranges(
    kappas: ArrayLike, ranges: Sequence[KappaRange] = PAPER_RANGES
) -> dict[KappaRange, NDArray[np.intp]]:
    """The indices of the problems in each range; every problem must be in exactly one."""
    kappas = np.asarray(kappas, dtype=np.float64)
    if kappas.ndim != 1 or np.isnan(kappas).any():
        raise ValueError("kappas must be a vector of condition numbers without NaN")
    members = {r: np.flatnonzero(r.contains(kappas)) for r in ranges}
    if not np.array_equal(np.sort(np.concatenate(list(members.values()))), np.arange(len(kappas))):
        raise ValueError("the ranges overlap, or leave out a kappa; cover each exactly once")
    return members


def paper_success(
    ferr: ArrayLike, nbe: ArrayLike, kappas: ArrayLike, tau: float
) -> NDArray[np.bool_]:
    """``max(ferr, nbe) < tau median(kappa of the range)`` for each problem; NaN is no success.

    Beyond kappa = 1 / tau the threshold exceeds 1, and the criterion asks for nothing.
    """
    thresholds = np.zeros(np.shape(kappas))
    for members in assign_ranges(kappas).values():
        if len(members):
            thresholds[members] = _threshold(kappas, members, tau)
    return np.asarray(np.maximum(ferr, nbe) < thresholds)


@dataclass(frozen=True)
class RangeAccuracy:
    """Successes, mean errors and mean iterations of the chosen runs in one range.

    Runs without a finite error (broken off, or diverged) count as failures and in the mean
    iterations, but not in the mean ferr and nbe. A mean of nothing is NaN, also that of ferr where
    no x_true is known.
    """

    name: str
    count: int
    without_result: int
    paper_success: float  # share of all problems in the range, between 0 and 1
    strict_success: float
    threshold: float  # the paper's, ``tau median(kappa)``; NaN for all ranges together
    ferr: float
    nbe: float
    outer_iterations: float
    inner_iterations: float

    @property
    def vacuous(self) -> bool:
        """Whether the paper's threshold exceeds 1, so that x = 0 would be a success."""
        return self.threshold > 1


@dataclass(frozen=True)
class AccuracyTable:
    """Accuracy in each range that has problems, and in all together (last)."""

    ranges: tuple[RangeAccuracy, ...]

    def to_rows(self) -> list[Row]:
        """Rows for `format_table`; a vacuous paper success is marked by ``*``."""
        return [
            {
                "range": r.name,
                "count": r.count,
                "paper %": f"{100 * r.paper_success:.1f}{'*' if r.vacuous else ''}",
                "strict %": f"{100 * r.strict_success:.1f}",
                "no result": r.without_result,
                "ferr": r.ferr,
                "nbe": r.nbe,
                "outer": r.outer_iterations,
                "inner": r.inner_iterations,
            }
            for r in self.ranges
        ]


def accuracy_table(
    outcomes: Sequence[Outcome], baselines: Sequence[Outcome], kappas: ArrayLike, tau: float
) -> AccuracyTable:
    """Judge the chosen run of each problem, with the all-FP64 runs as baselines.

    `tau` is the tolerance of both criteria of success. Ranges without problems are left out.

    Parameters
    ----------
    outcomes, baselines : sequence of Outcome
        The chosen runs, and those of all-FP64.
    kappas : array_like
        Condition numbers of the problems.
    tau : float

    Returns
    -------
    AccuracyTable

    Examples
    --------
    >>> from roundwise_studies.evaluation import accuracy_table
    >>> outcome = rw.GmresIR().run(rw.problems.randsvd(10, 10.0, rng=0), "fp64-fp64-fp64-fp64")
    >>> table = accuracy_table([outcome], [outcome], [10.0], tau=1e-6)
    >>> table.ranges[-1].count
    1
    """
    if not len(outcomes) == len(baselines) == np.size(kappas) > 0:
        raise ValueError(
            f"{len(outcomes)} outcomes, {len(baselines)} baselines, {np.size(kappas)} kappas; "
            "pass one of each for each problem, and at least one"
        )
    if not tau > 0:
        raise ValueError(f"tau = {tau}; choose tau > 0")
    ferr, nbe, outer, inner = np.array(
        [[o.ferr, o.nbe, o.outer_iterations, o.inner_iterations] for o in outcomes], np.float64
    ).T
    paper = paper_success(ferr, nbe, kappas, tau)
    strict = strict_success(ferr, nbe, [o.ferr for o in baselines], tau)

    def judge(name: str, members: NDArray[np.intp], threshold: float) -> RangeAccuracy:
        # An unknown ferr (NaN) does not make a result missing.
        result = np.isfinite(nbe[members]) & ~np.isinf(ferr[members])
        kept = members[result]
        return RangeAccuracy(
            name,
            len(members),
            without_result=int(np.count_nonzero(~result)),
            paper_success=_mean(paper[members]),
            strict_success=_mean(strict[members]),
            threshold=threshold,
            ferr=_mean(ferr[kept]),
            nbe=_mean(nbe[kept]),
            outer_iterations=_mean(outer[members]),
            inner_iterations=_mean(inner[members]),
        )

    judged = [
        judge(r.name, members, _threshold(kappas, members, tau))
        for r, members in assign_ranges(kappas).items()
        if len(members)
    ]
    judged.append(judge("all", np.arange(len(outcomes)), math.nan))
    return AccuracyTable(tuple(judged))


@dataclass(frozen=True)
class RangeUsage:
    """Formats used in one range: the mean number of stages per solve that each has.

    `stages` gives the share of solves by stage and format; they sum to 1 for each stage.
    """

    name: str
    count: int
    formats: Mapping[str, float]
    stages: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class UsageTable:
    """Precision usage in each range that has problems, and in all together (last)."""

    ranges: tuple[RangeUsage, ...]

    def to_rows(self) -> list[Row]:
        """Rows for `format_table`, one per range."""
        return [{"range": r.name, "count": r.count, **r.formats} for r in self.ranges]


def usage_table(chosen: ArrayLike, space: ActionSpace, kappas: ArrayLike) -> UsageTable:
    """How often each format is used, from the index of the chosen action of each problem."""
    indices = np.asarray(chosen)
    if indices.shape != np.shape(kappas) or indices.ndim != 1 or not indices.size:
        raise ValueError("pass one chosen action and one kappa for each problem, at least one")
    if indices.dtype.kind not in "iu" or indices.min() < 0 or indices.max() >= len(space):
        raise ValueError(f"chosen actions must be indices from 0 to {len(space) - 1}")

    def use(name: str, members: NDArray[np.intp]) -> RangeUsage:
        actions = [space[i] for i in indices[members]]
        stages = {
            stage: {
                fmt.name: sum(a[s] == fmt for a in actions) / len(actions) for fmt in space.formats
            }
            for s, stage in enumerate(space.stages)
        }
        formats = {f.name: sum(share[f.name] for share in stages.values()) for f in space.formats}
        return RangeUsage(name, len(members), formats, stages)

    used = [use(r.name, m) for r, m in assign_ranges(kappas).items() if len(m)]
    return UsageTable((*used, use("all", np.arange(indices.size))))


def _threshold(kappas: ArrayLike, members: NDArray[np.intp], tau: float) -> float:
    return tau * float(np.median(np.asarray(kappas, dtype=np.float64)[members]))


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(values.mean()) if values.size else math.nan
