"""Timed runs: each task alone on the machine, several times."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from roundwise.actions import Action
from roundwise.algorithms import Algorithm, Outcome, Shared
from roundwise.backends import Backend
from roundwise.features import FeatureValue, compute_with_factors
from roundwise.formats import FloatFormat
from roundwise.outcomes.peak_memory import peak_bytes
from roundwise.outcomes.records import measurement_facts
from roundwise.outcomes.writing import Row
from roundwise.problems import Problem

DEFAULT_REPEATS = 3

NATIVE_FEATURES = ("n", "norm_inf", "kappa_est")
"""The default features beside timed outcomes; their cost counts, so that none takes an SVD."""


def measured_runs(
    algorithm: Algorithm,
    problem: Problem,
    actions: Sequence[Action],
    backend: Backend,
    repeats: range,
    memory: bool,
) -> tuple[list[Outcome], Mapping[tuple[str, int], Row]]:
    """Outcomes of the first repeat, and the times of all, by action and number of the repeat.

    The actions share their factors within a repeat, and each is charged for them. Peak memory
    takes one more run of each action, without sharing. These runs come first, so that they warm
    caches and threads up for the timed ones.
    """
    peaks = {
        action: peak_bytes(partial(algorithm.run, problem, action, backend))
        for action in (actions if memory else ())
    }
    first: list[Outcome] = []
    measurements = {}
    for repeat in repeats:
        shared = Shared()
        outcomes = [algorithm.run(problem, action, backend, shared) for action in actions]
        first = first or outcomes
        for action, outcome in zip(actions, outcomes, strict=True):
            peak = peaks.get(action) if repeat == repeats.start else None
            measurements[outcome.action, repeat] = measurement_facts(outcome, peak)
    return first, measurements


def measured_features(
    problem: Problem,
    names: Sequence[str],
    backend: Backend,
    feature_format: FloatFormat,
) -> dict[str, FeatureValue]:
    """Features with the median of their seconds; their values are those of the first repeat."""
    runs = [
        compute_with_factors(problem, names, backend, feature_format)
        for _ in range(DEFAULT_REPEATS if names else 0)
    ]
    return {
        name: dataclasses.replace(
            runs[0][name], seconds=statistics.median(run[name].seconds for run in runs)
        )
        for name in names
    }
