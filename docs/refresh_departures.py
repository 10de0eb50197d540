# ruff: noqa: E501 (paragraphs of the page)
"""The departure study beyond the dense systems: docs/departures-others.md.

    python docs/refresh_departures.py solve pde     # resumable; also sparse, ablation
    python docs/refresh_departures.py store         # what out/ has, into docs/paper/departures.json
    python docs/refresh_departures.py               # the page, from that file; a test makes it again

`solve` and `store` take the variants and the numbers of systems in `PLANS`: the variants without and
with all departures on all of the paper's systems, and every variant on its first ones.
"""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refresh_paper import STORE, load, made_on, markdown, origin, plain, rows_of, save, shown

from roundwise_studies import paper
from roundwise_studies.protocol import reproduce
from roundwise_studies.released.study import DepartureStudy
from roundwise_studies.released.tables import METRICS, mean_distances
from roundwise_studies.released.tables import usage as usage_rows
from roundwise_studies.released.variants import DEPARTURES, variants
from roundwise_studies.simulated import Settings, numbers
from roundwise_studies.simulated.tables import METHODS

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "out"
MAIN = ("storage", "all", "all, its stream")
PLANS: dict[str, tuple[int, int]] = {"sparse": (100, 12), "pde": (100, 20), "ablation": (100, 12)}
"""Systems of each half: of the main variants, and of all variants."""


def studies(experiment: str) -> dict[str, DepartureStudy]:
    """The main variants on many systems, and every variant on a few."""
    many, few = PLANS[experiment]
    every = variants(experiment)
    main = tuple(variant for variant in every if variant.name in MAIN)
    return {
        "main": DepartureStudy(Settings(systems=many), experiment, main),
        "each": DepartureStudy(Settings(systems=few), experiment, every),
    }
