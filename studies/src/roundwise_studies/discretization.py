"""Proposition 1 of the paper, worked out: what binning the state costs, and what the bound says.

    python -m roundwise_studies.discretization    # from what `roundwise reproduce all` has solved

The proposition bounds the loss of a policy that sees bins by ``2 L Delta``: L is a Lipschitz
constant of the expected reward in the state, Delta the largest distance to the middle of a bin. L
is estimated from pairs of systems: the largest slope ``|mu(s, a) - mu(s', a)| / ||s - s'||`` over
actions and pairs, and the one that 95 % of all slopes stay below. The loss is that of the best
action of each bin, chosen in hindsight, against the best action of each system: no learner that
sees these bins can do better on these systems.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roundwise.discretizer import FeatureDiscretizer
from roundwise.rewards.base import reward_matrix
from roundwise_studies.protocol import reproduce
from roundwise_studies.report import Table, format_markdown, scientific
from roundwise_studies.simulated import Settings, SimulatedStudy
from roundwise_studies.tabulating import FlatRow, row_table

Floats = NDArray[np.float64]

BINS = (5, 10, 20, 40)
NEAR = 0.1
"""Pairs of systems that are nearer tell of other differences than the state's, and of rounding."""


def slopes(contexts: Floats, rewards: Floats, nearest: float = NEAR) -> Floats:
    """``|mu(s, a) - mu(s', a)| / ||s - s'||`` of all pairs that are not too near, and actions."""
    first, second = np.triu_indices(len(contexts), 1)
    distance = np.linalg.norm(contexts[first] - contexts[second], axis=1)
    far = distance >= nearest
    change = np.abs(rewards[first[far]] - rewards[second[far]])
    return np.asarray(change / distance[far, None]).ravel()


def widest(contexts: Floats, bins: int) -> float:
    """Delta: the largest distance of a system to the middle of its bin."""
    grid = FeatureDiscretizer(bins).fit(contexts)
    low, high = contexts.min(axis=0), contexts.max(axis=0)
    spacing = (high - low) / max(bins - 1, 1)
    middles = low + grid.bin_indices(contexts) * spacing
    return float(np.linalg.norm(contexts - middles, axis=1).max())


def hindsight_loss(contexts: Floats, rewards: Floats, bins: int) -> tuple[float, float, int]:
    """Mean and largest loss of the best action of each bin, and how many bins have systems."""
    states = np.asarray(FeatureDiscretizer(bins).fit(contexts).transform(contexts))
    lost = np.empty(len(contexts))
    for state in np.unique(states):
        members = states == state
        action = rewards[members].mean(axis=0).argmax()
        lost[members] = rewards[members].max(axis=1) - rewards[members, action]
    return float(lost.mean()), float(lost.max()), len(np.unique(states))


def rows(cache: Path, names: Sequence[str] = ("dense",)) -> Iterator[FlatRow]:
    """One for each experiment, tau, weighting and number of bins."""
    settings = Settings(seeds=1)
    for name, result in reproduce(SimulatedStudy(settings, tuple(names)), cache).items():
        for case in result.cases:
            train, test = result.gathered.halves[case.tau]
            contexts = np.concatenate([train.contexts, test.contexts])
            both = [*train.rows, *test.rows], [*train.facts, *test.facts]
            rewards = reward_matrix(case.reward, *both, result.gathered.space)
            found = slopes(contexts, rewards)
            for bins in BINS:
                delta = widest(contexts, bins)
                mean, worst, used = hindsight_loss(contexts, rewards, bins)
                usual = float(np.quantile(found, 0.95))
                yield {
                    "experiment": name,
                    "tau": scientific(case.tau),
                    "weights": case.weight,
                    "bins": f"{bins} x {bins}",
                    "with systems": used,
                    "Delta": delta,
                    "largest L": float(found.max()),
                    "2 L Delta": 2 * float(found.max()) * delta,
                    "L of 95 %": usual,
                    "2 L Delta of 95 %": 2 * usual * delta,
                    "mean loss": mean,
                    "largest loss": worst,
                }


def table(found: Sequence[FlatRow]) -> Table:
    return row_table(
        "Loss of the best action of each bin, in hindsight, and the bound of Proposition 1",
        found,
        formats={
            **dict.fromkeys(("Delta", "mean loss"), ".3f"),
            **dict.fromkeys(("largest L", "2 L Delta", "L of 95 %", "2 L Delta of 95 %"), ".1f"),
            "largest loss": ".2f",
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cache", type=Path, default=Path("out"))
    parser.add_argument("--experiments", nargs="+", default=["dense", "sparse", "pde"])
    arguments = parser.parse_args()
    print(format_markdown(table(list(rows(arguments.cache, arguments.experiments)))))


if __name__ == "__main__":
    main()
