"""What each feature is worth to the paper's learner: left out, and added, one at a time.

The paper's state is log10 kappa and log10 ||A||_inf, and it leaves others for later. Here the
learner gets the state with a feature left out, alone, and with one more; ten bins each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roundwise.features.definitions import compute_with_factors
from roundwise.policies import TabularQ
from roundwise.problems import LinearSystem
from roundwise_studies.beyond.judging import Replay, judged, trained
from roundwise_studies.simulated.experiment import WEIGHTS
from roundwise_studies.tabulating import FlatRow

LOGARITHMIC = {
    "kappa_est": 1.0,
    "pivot_growth": 1e-300,
    "fill_ratio": 1e-300,
    "row_scale_spread": 1.0,
    "n": 1.0,
}
"""Features that enter as ``log10 max(value, floor)``; the others as they are."""

PAPERS = ("kappa_exact", "norm_inf")
ADDED = (
    "fill_ratio", "pivot_growth", "diagonal_dominance", "density", "symmetry", "row_scale_spread",
    "diagonal_share", "coherence", "kappa_est", "n",
)  # fmt: skip
"""Fill and pivot growth come from factors; dominance, sparsity and what the rows tell of the
spectrum (their cosines, their range) from the entries."""


def computed(
    problems: Sequence[LinearSystem], names: Sequence[str], file: Path
) -> dict[str, NDArray[np.float64]]:
    """Features by name, one number for each problem; kept in a file by fingerprint."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for problem in problems:
        row = known.setdefault(problem.fingerprint, {})
        missing = [name for name in names if name not in row]
        if missing:
            values = compute_with_factors(problem, missing, "operation")
            row |= {name: min(float(value), 1e300) for name, value in values.items()}
    file.write_text(json.dumps(known) + "\n", encoding="utf-8")
    return {
        name: np.array([known[problem.fingerprint][name] for problem in problems]) for name in names
    }


def column(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    floor = LOGARITHMIC.get(name)
    return values if floor is None else np.log10(np.maximum(values, floor))


def states(
    replay: Replay, halves: tuple[Mapping[str, NDArray[np.float64]], ...], added: Sequence[str]
) -> Iterator[tuple[str, tuple[NDArray[np.float64], NDArray[np.float64]]]]:
    """Names of states, and the contexts of both halves."""
    base = replay.train.contexts, replay.test.contexts
    yield "kappa, norm (the paper's)", base
    yield "kappa alone", (base[0][:, :1], base[1][:, :1])
    yield "norm alone", (base[0][:, 1:], base[1][:, 1:])
    yield "nothing", (np.zeros_like(base[0][:, :1]), np.zeros_like(base[1][:, :1]))
    for name in added:
        more = [column(name, half[name])[:, None] for half in halves]
        yield f"kappa, norm, {name}", (np.hstack([base[0], more[0]]), np.hstack([base[1], more[1]]))
        yield f"{name} alone", (more[0], more[1])


def contributions(
    replay: Replay,
    halves: tuple[Mapping[str, NDArray[np.float64]], ...],
    added: Sequence[str] = ADDED,
    seeds: int = 10,
) -> Iterator[FlatRow]:
    """One row for each state and weighting."""
    for name, contexts in states(replay, halves, added):
        for weight in WEIGHTS:
            earned = replay.rewards("train", replay.reward(weight))
            chosen = np.array(
                [
                    trained(TabularQ(), contexts, earned, replay.space, replay.top, seed)
                    for seed in range(seeds)
                ]
            )
            lead: FlatRow = {"experiment": replay.name, "state": name}
            yield lead | judged(replay, weight, chosen)
