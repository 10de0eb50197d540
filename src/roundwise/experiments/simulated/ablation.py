"""Ablation: the paper's Table 9 and Figure 9, dense systems without the iteration penalty.

Reproduces: the dense experiment with lambda_iter = 0. It replays the outcome table of the dense
systems: the facts are the same, only the reward changes, and nothing is solved.

Departs: as the dense experiment, see `dense.py`.
"""

from roundwise.experiments.simulated.dense import DENSE
from roundwise.experiments.simulated.experiment import Experiment

ABLATION = Experiment(
    name="ablation",
    title="Ablation: no iteration penalty",
    data="dense",
    lambda_iter=0.0,
    by_range=True,
    about="The dense experiment again, on the same outcomes, with a reward that does not see the "
    "iterations: the paper's Table 9 and Figure 9.",
    departures=DENSE.departures,
)
