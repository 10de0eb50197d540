"""Stored times of many runs as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from roundwise.outcomes.records import from_json

Pair = tuple[str, str]  # fingerprint, action


def measurement_arrays(
    rows: Iterable[tuple[str, str, float, str, int | None]],
    pairs: Sequence[Pair],
    shape: tuple[int, int],
    stages: Sequence[str],
) -> dict[str, Any]:
    """What `OutcomeView` has of measured runs, from (fingerprint, action, seconds, timings, peak).

    Medians over the repeats; NaN, and 0 repeats, where nothing was measured.
    """
    found: dict[Pair, list[tuple[float, dict[str, float], int | None]]] = {}
    for fingerprint, action, seconds, timings, peak in rows:
        found.setdefault((fingerprint, action), []).append((seconds, from_json(timings), peak))
    names = tuple(dict.fromkeys((*stages, "verify")))
    medians = np.full((len(pairs), 1 + len(names)), np.nan)  # seconds, then timings
    repeats = np.zeros(len(pairs), dtype=np.int64)
    peak_bytes = np.full(len(pairs), np.nan)
    for place, pair in enumerate(pairs):
        runs = found.get(pair, [])
        if not runs:
            continue
        repeats[place] = len(runs)
        times = [[seconds, *(t.get(name, 0.0) for name in names)] for seconds, t, _ in runs]
        medians[place] = np.median(times, axis=0)
        peak_bytes[place] = max((p for _, _, p in runs if p is not None), default=np.nan)
    return {
        "timing_names": names,
        "seconds": medians[:, 0].reshape(shape),
        "repeats": repeats.reshape(shape),
        "timings": medians[:, 1:].reshape(*shape, len(names)),
        "peak_bytes": peak_bytes.reshape(shape),
    }
