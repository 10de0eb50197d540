"""Dense systems: the paper's Table 2 and Figures 2, 5 and 6.

Reproduces: `randsvd` systems with one small singular value (mode 2), n uniform in 100..500,
kappa = 10**j with j uniform in 1..8; rewards with lambda_iter = 1.

Departs: the ranges of kappa are closed above (1e3 counts as low), which gives about the paper's 37
low systems of 100; the systems themselves are our own draws. See `departures.py` for what holds in
every experiment.
"""

from roundwise.experiments.departures import EVERYWHERE, PAPERS_DENSE
from roundwise.experiments.simulated.experiment import Experiment

DENSE = Experiment(
    name="dense",
    title="Dense systems",
    data="dense",
    lambda_iter=1.0,
    by_range=True,
    about="Random dense systems with one small singular value (randsvd, mode 2), kappa = 10 to "
    "1e8: the paper's Table 2 and Figures 2, 5 and 6. The iteration penalty has weight 1.",
    departures=(*EVERYWHERE, *PAPERS_DENSE),
)
