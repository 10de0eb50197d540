"""The paper's simulated experiments, as data, and what their results depend on.

- dense: n uniform in 100..500, kappa = 10**j with j uniform in 1..8. The ranges of kappa are closed
  above (1e3 counts as low), which gives about the paper's 37 low systems of 100.
- ablation: the reward changes, the outcomes are those of dense, and nothing is solved again.
- sparse: A = A0 A0^T + beta I with floor(0.01 n^2) normal entries in A0, n uniform in 100..500.
- pde: Poisson, anisotropic diffusion, high-contrast diffusion and convection-diffusion in turn,
  n in 100..500 rounded up to a square, and a smooth manufactured solution.

All systems are our own draws. `roundwise_studies.departures` says where each experiment departs
from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from roundwise.actions import ActionSpace, monotone_space
from roundwise.algorithms import GmresIR
from roundwise.algorithms.base import PAPER_FORMATS

WEIGHTS = {"W1": (1.0, 0.1), "W2": (1.0, 1.0)}
"""(w1, w2): the weights of accuracy and of precision."""

ABOUT = {
    "dense": "Random dense systems with one small singular value (randsvd, mode 2), kappa = 10 to "
    "1e8: the paper's Table 2 and Figures 2, 5 and 6. The iteration penalty has weight 1.",
    "sparse": "Random sparse positive definite systems, kappa about 1e8 to 1e10: the paper's "
    "Tables 3, 4 and 5 and Figure 3. The iteration penalty has weight 0.5.",
    "pde": "Four families of finite-difference matrices, kappa about 20 to 1e12: the paper's "
    "Tables 6, 7 and 8 and Figures 4, 7 and 8. The iteration penalty has weight 0.5.",
    "ablation": "The dense experiment again, on the same outcomes, with a reward that does not see "
    "the iterations: the paper's Table 9 and Figure 9.",
}


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    `data` is a key of `roundwise_studies.simulated.sets.DATA_SETS`, and `lambda_iter` the
    weight of the iteration penalty. `by_range`: the paper reports by range of the condition number.
    `heavy_tailed`: a few systems dominate the mean errors, and other draws are looked at, too.
    """

    name: str
    title: str
    data: str
    lambda_iter: float
    by_range: bool = False
    heavy_tailed: bool = False


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("dense", "Dense systems", "dense", 1.0, by_range=True),
        Experiment("sparse", "Random sparse systems", "sparse", 0.5),
        Experiment("pde", "PDE systems", "pde", 0.5, heavy_tailed=True),
        Experiment("ablation", "Ablation: no iteration penalty", "dense", 0.0, by_range=True),
    )
}


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
        return monotone_space(GmresIR.stages, PAPER_FORMATS).last(self.actions)
