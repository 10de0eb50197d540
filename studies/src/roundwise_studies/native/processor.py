"""Our harder variant of the paper's native study, on the processor, beside LAPACK.

The paper's study as published is in `published`. Here the 50 training systems (low and medium
kappa) and the 100 validation systems (low, medium and high) are `randsvd` mode 2, n uniform in
1000..1500. Every monotone action of {fp16, fp32, fp64} runs three times on each, with at most ten
outer steps, GMRES restarted after 30, one cycle, tolerance 1e-4; the policy sees a Hager-Higham
estimate of kappa and ||A||_inf.

Departs: see `NATIVE` in departures.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from roundwise.actions import list_space
from roundwise.algorithms import GmresIR
from roundwise.backends import Backend, native_formats
from roundwise.features import NORM_FLOOR
from roundwise.machine.identity import Machine
from roundwise.outcomes import OutcomeTable, fill
from roundwise.problems import LinearSystem, randsvd
from roundwise.tuning import Context
from roundwise_studies import departures
from roundwise_studies.datasets import one_blas_thread
from roundwise_studies.native.device import (
    ALGORITHM,
    FEATURE_FORMAT,
    FORMAT_SETS,
    HALVES,
    ORDERS,
    RESTART,
    RULE,
    ActionSet,
    Device,
    space_of,
)
from roundwise_studies.native.direct import DirectSolve, has_dsgesv

EXPONENTS = {"train": (1, 6), "test": (1, 9)}
"""kappa = 10**j: up to the end of the medium range, and up to the end of the high one."""

PEAKS = 10
"""Validation systems whose peak memory is measured: it takes one more run of every action."""

REFERENCES = ("dgesv", "dsgesv", "scipy.linalg.solve", "numpy.linalg.solve")
"""NumPy's BLAS threads spin after a call: it comes last, before the next system is made."""

CHEAP = "time, cheap state"


@dataclass(frozen=True)
class Processor(Device):
    """Everything but the machine that a result depends on; counts and sizes are the paper's.

    `train` and `test` count the training and validation systems, with n within `sizes`. Success is
    ``ferr <= tau``; no run depends on `taus`. `order` is a key of `ORDERS`.
    """

    name: ClassVar[str] = "native"
    title: ClassVar[str] = "Native CPU validation, our harder variant"
    departures: ClassVar[tuple[tuple[str, str], ...]] = departures.NATIVE
    features: ClassVar[tuple[str, ...]] = ("n", "norm_inf", "kappa_est")
    # Needs no factorization: the size, and a norm that the solver computes anyway.
    cheap_state: ClassVar[tuple[str, Context]] = (
        CHEAP,
        Context(("n", "norm_inf"), (1.0, NORM_FLOOR)),
    )
    reference: ClassVar[str] = "numpy.linalg.solve"
    said: ClassVar[tuple[str, ...]] = ("time", CHEAP)
    by_size: ClassVar[bool] = False

    train: int = 50
    test: int = 100
    sizes: tuple[int, int] = (1000, 1500)
    seed: int = 0
    repeats: int = 3
    episodes: int = 100
    taus: tuple[float, ...] = (1e-6, 1e-8)
    order: str = "paper"

    def __post_init__(self) -> None:
        for name in ("train", "test", "repeats", "episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; choose at least 1")
        if not 2 <= self.sizes[0] <= self.sizes[1]:
            raise ValueError(f"sizes = {self.sizes}; choose 2 <= smallest <= largest")
        if self.order not in ORDERS:
            raise ValueError(f"order = {self.order!r}; choose one of {', '.join(ORDERS)}")

    @property
    def are_the_papers(self) -> bool:
        """Whether only the seed and the order of the stages differ from the defaults."""
        return self == Processor(seed=self.seed, order=self.order)

    def arithmetic(self, table: OutcomeTable) -> str:
        return "native"

    def action_sets(self) -> dict[str, ActionSet]:
        """One for each set of formats that this machine runs; bf16 needs instructions."""
        known = {fmt.name for fmt in native_formats()}
        return {
            name: ActionSet(ALGORITHM, space_of(formats, self.order))
            for name, formats in FORMAT_SETS.items()
            if set(formats) <= known
        }

    def references(self) -> dict[str, DirectSolve]:
        names = [name for name in REFERENCES if name != "dsgesv" or has_dsgesv()]
        return {name: DirectSolve(name) for name in names}

    def recipes(self, half: str) -> range:
        """The numbers of the systems."""
        return range(getattr(self, half))

    def system(self, half: str, number: int) -> LinearSystem:
        seed = np.random.SeedSequence(self.seed, spawn_key=(HALVES.index(half), number))
        rng = np.random.default_rng(seed)
        n, exponent = (
            int(rng.integers(*ends, endpoint=True)) for ends in (self.sizes, EXPONENTS[half])
        )
        with one_blas_thread():
            return randsvd(n, 10.0**exponent, mode=2, rng=rng)

    def measure(
        self, table: OutcomeTable, where: Backend | str, recipe: Any, half: str
    ) -> tuple[int, str, int]:
        problem = self.system(half, recipe)
        measure = partial(fill, table, arithmetic=where, repeats=self.repeats)
        sets = self.action_sets().values()
        names = dict.fromkeys(name for actions in sets for name in actions.space.names)
        computed = measure(
            ALGORITHM,
            [problem],
            list_space(GmresIR.stages, list(names)),
            features=self.features,
            feature_format=FEATURE_FORMAT,
            memory=None if half == "test" and recipe < PEAKS else False,
        )
        for routine in self.references().values() if half == "test" else ():
            measure(routine, [problem], ["fp64"], features=(), memory=False)
        return problem.n, problem.fingerprint, computed

    def machine(self, origins: tuple[Mapping[str, Any], ...]) -> str:
        return str(Machine.this())

    def described(self) -> dict[str, object]:
        return {
            "systems": f"{self.train} training (kappa 1e1 to 1e6), {self.test} validation "
            "(kappa 1e1 to 1e9), randsvd mode 2",
            "sizes": f"{self.sizes[0]} to {self.sizes[1]}",
            "algorithm": f"GMRES-IR, tolerance {ALGORITHM.tolerance:g}, restart {RESTART}, one "
            "cycle",
            "stop": f"backward error <= sqrt(n) u, or hopeless, or {RULE.max_steps} outer steps",
            "actions": f"monotone in the order {', '.join(ORDERS[self.order])}",
            "state": f"kappa_est from an {FEATURE_FORMAT} LU, and norm_inf; cheap: n and norm_inf",
            "repeats": self.repeats,
            "episodes": self.episodes,
            "tau": [f"{tau:.0e}" for tau in self.taus],
            "seed": self.seed,
        }
