"""What the results of the experiments depend on."""

from __future__ import annotations

from dataclasses import dataclass

from roundwise.actions import ActionSpace, monotone_space, top_k
from roundwise.algorithms import GmresIR

FORMATS = ("bf16", "tf32", "fp32", "fp64")
"""The paper's."""


@dataclass(frozen=True)
class Settings:
    """Everything that a result depends on; the defaults are the paper's.

    `systems` counts those of each half, training and test; n is within `sizes` (grids of PDEs are
    rounded up to squares). `seeds` trainings on this one data set differ in their exploration: the
    first has the `seed` of the data set, the others the numbers after it. `actions` are the highest
    so many of the 35 monotone ones.
    """

    systems: int = 100
    seeds: int = 10
    seed: int = 0
    actions: int = 25
    arithmetic: str = "operation"
    taus: tuple[float, ...] = (1e-6, 1e-8)
    episodes: int = 100
    alpha: float = 0.5
    sizes: tuple[int, int] = (100, 500)

    def __post_init__(self) -> None:
        for name in ("systems", "seeds", "episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; choose at least 1")
        if not 1 <= self.actions <= 35:
            raise ValueError(f"actions = {self.actions}; choose 1 to 35 (the paper: 25)")

    @property
    def are_the_papers(self) -> bool:
        """Whether only the seed and the number of trainings differ from the paper's."""
        return self == Settings(seed=self.seed, seeds=self.seeds)

    @property
    def space(self) -> ActionSpace:
        """The paper's actions."""
        return top_k(monotone_space(GmresIR.stages, FORMATS), self.actions)
