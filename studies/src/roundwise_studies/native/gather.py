"""The outcomes of the native study: every action on every system, and LAPACK beside it, timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.actions import ActionSpace, list_space
from roundwise.algorithms import GmresIR
from roundwise.outcomes import OutcomeTable, OutcomeView, fill
from roundwise_studies.native.direct import DirectSolve, has_dsgesv
from roundwise_studies.native.settings import ALGORITHM, NativeSettings, spaces, systems
from roundwise_studies.protocol import Bar, Gathered, no_bar

FEATURES = ("n", "norm_inf", "kappa_est")
FEATURE_FORMAT = "fp32"
"""Format of the LU that estimates kappa; its time is part of the feature's."""

PEAKS = 10
"""Validation systems whose peak memory is measured: it takes one more run of every action."""

REFERENCES = ("dgesv", "dsgesv", "scipy.linalg.solve", "numpy.linalg.solve")
"""NumPy's BLAS threads spin after a call: it comes last, before the next system is made."""


@dataclass(frozen=True, eq=False)
class NativeGathered(Gathered[str, OutcomeView]):
    """All outcomes by set of formats, and LAPACK's on the validation systems by routine."""

    references: Mapping[str, OutcomeView]

    @cached_property
    def kappas(self) -> NDArray[np.float64]:
        """Of the validation systems, as their generator made them; no policy sees these."""
        return np.array([float(problem.meta["kappa"]) for problem in self.first[1].problems])


def gather(settings: NativeSettings, table: OutcomeTable, bar: Bar = no_bar) -> NativeGathered:
    """Run every action on every system, and LAPACK on the validation systems, what is missing.

    All runs of a system come before the next system, so that those that are compared are
    neighbours in time.
    """
    known = spaces(settings.order)
    names = dict.fromkeys(name for space in known.values() for name in space.names)
    everything = list_space(GmresIR.stages, list(names))
    references = [name for name in REFERENCES if name != "dsgesv" or has_dsgesv()]
    fingerprints: dict[str, list[str]] = {"train": [], "test": []}
    measure = partial(fill, arithmetic="native", repeats=settings.repeats)
    computed, total = 0, settings.train + settings.test
    for half, found in fingerprints.items():
        for problem in systems(settings, half):
            computed += measure(
                table,
                ALGORITHM,
                [problem],
                everything,
                features=FEATURES,
                feature_format=FEATURE_FORMAT,
                memory=None if half == "test" and len(found) < PEAKS else False,
            )
            for name in references if half == "test" else ():
                measure(table, DirectSolve(name), [problem], ["fp64"], features=(), memory=False)
            found.append(problem.fingerprint)
            bar(sum(map(len, fingerprints.values())), total)

    def view(half: str, space: ActionSpace) -> OutcomeView:
        return table.view(ALGORITHM, fingerprints[half], space, "native", FEATURES, FEATURE_FORMAT)

    return NativeGathered(
        {name: (view("train", space), view("test", space)) for name, space in known.items()},
        tuple(table.origins()),
        computed,
        {
            name: table.view(DirectSolve(name), fingerprints["test"], ["fp64"], "native", ())
            for name in references
        },
    )
