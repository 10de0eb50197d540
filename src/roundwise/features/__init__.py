"""Features: numbers computed from a problem, each with what it cost to compute.

`FEATURES` lists them, `compute_features` computes and times them. `PROBE` names the cheap ones that
the front door decides by.
"""

from roundwise.features.definitions import (
    FEATURES,
    KAPPA_EXACT_SPARSE_LIMIT,
    KAPPA_FLOOR,
    NORM_FLOOR,
    Feature,
    compute_features,
)
from roundwise.features.probe import PROBE
