"""The settings of the study on a GPU, and the recipes of its systems."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from roundwise_studies.native_gpu.systems import FAMILIES, Recipe

EXPONENTS = (1, 9)
"""kappa = 10**j of systems with given singular values, in both halves."""


@dataclass(frozen=True)
class DeviceSettings:
    """Everything but the machine that a result depends on.

    Each round of a size has one system of each of `FAMILIES`; `train` and `test` count the rounds
    of each size. The paper's own algorithm runs with all its actions up to n = `papers_up_to`.
    """

    sizes: tuple[int, ...] = (1000, 2048, 4096, 8192, 16384)
    train: tuple[int, ...] = (2, 2, 2, 1, 1)
    test: tuple[int, ...] = (2, 2, 2, 2, 1)
    papers_up_to: int = 1000
    seed: int = 0
    repeats: int = 2
    episodes: int = 100

    def __post_init__(self) -> None:
        if not len(self.sizes) == len(self.train) == len(self.test) > 0:
            raise ValueError("sizes, train and test differ in length; choose counts for each size")
        if min(*self.sizes, *self.train, *self.test, self.repeats, self.episodes) < 1:
            raise ValueError("choose at least 1 for every size, count, repeat and episode")

    def within(self, smallest: int, largest: int) -> DeviceSettings:
        """The same with the sizes from `smallest` to `largest` only."""
        kept = [i for i, n in enumerate(self.sizes) if smallest <= n <= largest]
        if not kept:
            raise ValueError(
                f"no size is between {smallest} and {largest}; choose a range with one of "
                f"{', '.join(map(str, self.sizes))}"
            )
        sizes, train, test = (
            tuple(counts[i] for i in kept) for counts in (self.sizes, self.train, self.test)
        )
        return replace(self, sizes=sizes, train=train, test=test)


QUICK = DeviceSettings((1000, 2048), (1, 1), (1, 1), repeats=1)


def recipes(settings: DeviceSettings, half: str) -> Iterator[Recipe]:
    """The training or validation systems, size by size."""
    stream = ("train", "test").index(half)
    for n, rounds in zip(settings.sizes, getattr(settings, half), strict=True):
        for number in range(rounds):
            for place, family in enumerate(FAMILIES):
                seed = (settings.seed, stream, n, number, place)
                exponent = np.random.default_rng(seed).integers(*EXPONENTS, endpoint=True)
                kappa = 10.0 ** int(exponent) if family.startswith("mode") else math.nan
                yield Recipe(family, n, kappa, seed)
