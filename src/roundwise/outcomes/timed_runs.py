"""Timed runs: each task alone on the machine, several times, and its peak memory.

Peak memory is what Linux counts; other systems are not supported.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from roundwise.actions import Action
from roundwise.algorithms import Algorithm, Outcome, Shared
from roundwise.backends import Backend
from roundwise.features.definitions import FeatureValue, compute_with_factors
from roundwise.formats import FloatFormat
from roundwise.outcomes.records import measurement_facts
from roundwise.outcomes.writing import Row
from roundwise.problems import Problem

DEFAULT_REPEATS = 3
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

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


class _Watched(Shared):
    """Counts the bytes that a run needs beyond those in use when it began.

    Diagnostics are not part of a run: neither their peak nor what they leave allocated counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        _forget_peak()
        self._base = _resident("VmRSS")

    def count(self) -> None:
        self.bytes = max(self.bytes, _resident("VmHWM") - self._base)

    @contextmanager
    def diagnostics(self) -> Iterator[None]:
        self.count()
        before = _resident("VmRSS")
        with super().diagnostics():
            yield
        _forget_peak()
        self._base += _resident("VmRSS") - before


def can_measure() -> bool:
    """Whether this system tells a process its peak memory and lets it reset it."""
    if not _CLEAR.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return False
    try:
        _forget_peak()
    except PermissionError:
        return False  # some sandboxes forbid it
    return True


def peak_bytes(run: Callable[[Shared], object]) -> int | None:
    """The peak memory of ``run(shared)`` beyond that of its problem; None where not measurable.

    Linux counts pages, and sums the counts of several cores with a delay: a run that needs less
    than some megabytes cannot be told from that error.
    """
    if not can_measure():
        return None
    watched = _Watched()
    run(watched)
    watched.count()
    return watched.bytes


def _forget_peak() -> None:
    """Give freed memory back to the system, and forget the peak so far."""
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR.write_text("5")  # sets VmHWM to VmRSS; see proc(5)


def _resident(name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{_STATUS} has no {name}; pass memory=False")
    return int(found[1]) * 1024
