"""Numbers as tables show them: rows as text, means and ratios with intervals, spread over seeds.

Intervals are percentile bootstraps over the *problems* (Efron & Tibshirani, An Introduction to the
Bootstrap, chapter 13).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES, CONFIDENCE = 2000, 0.95
_DRAWS_AT_ONCE = 2**20  # limits the memory of a bootstrap; part of its definition, do not change

Row = dict[str, str | int | float]
"""A line of a table: column heading to value."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval; its text is ``value [low, high]``."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class SeedSpread:
    """Mean, sample standard deviation (NaN for one seed), smallest and largest over seeds."""

    mean: float
    std: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.std:.2g} ({self.low:.3g} to {self.high:.3g})"


def seed_spread(values: ArrayLike) -> SeedSpread:
    """Summarise one number per seed."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not x.size:
        raise ValueError("pass one number per seed, at least one")
    std = float(x.std(ddof=1)) if x.size > 1 else math.nan
    return SeedSpread(float(x.mean()), std, float(x.min()), float(x.max()), x.size)


def mean_interval(
    values: ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """The mean of one number per problem, with a percentile bootstrap interval."""
    x = np.asarray(values, dtype=np.float64)
    return ratio_interval(x, np.ones_like(x), rng, resamples, confidence)


def ratio_interval(
    numerators: ArrayLike,
    denominators: ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """``sum(numerators) / sum(denominators)`` over problems, which are resampled in pairs.

    Denominators must be >= 0, and one of them > 0. A resample whose denominators are all 0
    counts as infinity.
    """
    x, y = (np.asarray(v, dtype=np.float64) for v in (numerators, denominators))
    if x.ndim != 1 or x.shape != y.shape or not x.size:
        raise ValueError("pass one number per problem, at least one, in vectors of equal length")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("the numbers to average hold NaN or infinity; leave these problems out")
    if (y < 0).any() or not y.any():
        raise ValueError("the sum to divide by must be positive; compare with another reference")
    if resamples < 1 or not 0 < confidence < 1:
        raise ValueError("choose resamples >= 1 and 0 < confidence < 1")
    block = max(1, _DRAWS_AT_ONCE // x.size)
    ratios = np.empty(resamples)
    for start in range(0, resamples, block):
        drawn = rng.integers(x.size, size=(min(block, resamples - start), x.size))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios[start : start + block] = x[drawn].sum(axis=1) / y[drawn].sum(axis=1)
    ratios[np.isnan(ratios)] = math.inf
    # No interpolation between neighbours: one of them may be infinite.
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(ratios, tails, method="nearest")
    return Interval(float(x.sum() / y.sum()), float(low), float(high))
