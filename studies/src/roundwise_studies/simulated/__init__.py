"""The paper's simulated experiments.

>>> study = SimulatedStudy(Settings(), ("dense",))               # doctest: +SKIP
>>> results = reproduce(study, Path("out"))                      # doctest: +SKIP
>>> write(study, results, Path("out/reproduce"))                 # doctest: +SKIP
"""

from roundwise_studies.simulated.experiment import EXPERIMENTS, Settings
from roundwise_studies.simulated.study import SimulatedStudy
