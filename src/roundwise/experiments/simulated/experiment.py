"""The paper's simulated experiments, as data.

- dense: Table 2 and Figures 2, 5 and 6. `randsvd` systems with one small singular value (mode 2),
  n uniform in 100..500, kappa = 10**j with j uniform in 1..8. The ranges of kappa are closed above
  (1e3 counts as low), which gives about the paper's 37 low systems of 100.
- ablation: Table 9 and Figure 9. The dense experiment without the iteration penalty: the reward
  changes, the outcomes are the same, and nothing is solved again.
- sparse: Tables 3, 4 and 5 and Figure 3. A = A0 A0^T + beta I with floor(0.01 n^2) normal entries
  in A0, n uniform in 100..500.
- pde: Tables 6, 7 and 8 and Figures 4, 7 and 8. Four families of finite-difference matrices in turn
  (Poisson, anisotropic diffusion, high-contrast diffusion, convection-diffusion), n in 100..500
  rounded up to a square, and a smooth manufactured solution.

All systems are our own draws. `roundwise.experiments.departures` says where each experiment departs
from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from roundwise.experiments import departures

WEIGHTS = {"W1": (1.0, 0.1), "W2": (1.0, 1.0)}
"""(w1, w2): the weights of accuracy and of precision."""


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Attributes
    ----------
    name, title : str
    data : str
        Its data set, see `roundwise.experiments.simulated.sets`.
    lambda_iter : float
        Weight of the iteration penalty.
    by_range : bool
        Whether the paper reports it by range of the condition number.
    about : str
        What it reproduces, for the report.
    departures : tuple of (title, text)
        Where it departs from the paper, or the paper's numbers from its text.
    heavy_tailed : bool
        Whether a few systems dominate the mean errors, so that other draws are looked at, too.
    """

    name: str
    title: str
    data: str
    lambda_iter: float
    by_range: bool
    about: str
    departures: departures.Departures = ()
    heavy_tailed: bool = False


DENSE = Experiment(
    name="dense",
    title="Dense systems",
    data="dense",
    lambda_iter=1.0,
    by_range=True,
    about="Random dense systems with one small singular value (randsvd, mode 2), kappa = 10 to "
    "1e8: the paper's Table 2 and Figures 2, 5 and 6. The iteration penalty has weight 1.",
    departures=(*departures.EVERYWHERE, *departures.PAPERS_DENSE),
)

ABLATION = replace(
    DENSE,
    name="ablation",
    title="Ablation: no iteration penalty",
    lambda_iter=0.0,
    about="The dense experiment again, on the same outcomes, with a reward that does not see the "
    "iterations: the paper's Table 9 and Figure 9.",
)

SPARSE = Experiment(
    "sparse",
    "Random sparse systems",
    "sparse",
    lambda_iter=0.5,
    by_range=False,
    about="Random sparse positive definite systems, kappa about 1e8 to 1e10: the paper's Tables "
    "3, 4 and 5 and Figure 3. The iteration penalty has weight 0.5.",
    departures=(*departures.EVERYWHERE, *departures.SPARSE),
)

PDE = replace(
    SPARSE,
    name="pde",
    title="PDE systems",
    data="pde",
    about="Four families of finite-difference matrices, kappa about 20 to 1e12: the paper's "
    "Tables 6, 7 and 8 and Figures 4, 7 and 8. The iteration penalty has weight 0.5.",
    departures=(*departures.EVERYWHERE, *departures.PDE),
    heavy_tailed=True,
)

EXPERIMENTS = {experiment.name: experiment for experiment in (DENSE, SPARSE, PDE, ABLATION)}
