"""What the native study runs: its settings, algorithm, actions and systems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roundwise.actions import ActionSpace, list_space, monotone_space
from roundwise.algorithms import DeploymentRule, GmresIR
from roundwise.backends import native_formats
from roundwise.problems import LinearSystem, one_blas_thread, randsvd

RESTART = 30
RULE = DeploymentRule(max_steps=10)
ALGORITHM = GmresIR(tolerance=1e-4, restart=RESTART, cycles=1, stop=RULE)
"""The paper's budget; it stops at FP64-level backward error, which needs no true solution."""

FORMAT_SETS = {"fp16": ("fp16", "fp32", "fp64"), "bf16": ("bf16", "fp32", "fp64")}
"""By their lowest format: the paper's set, and the one that this CPU computes in."""

ORDERS = {"stages": GmresIR.stages, "paper": ("factor", "gmres", "update", "residual")}
"""(u_f, u, u_g, u_r) as everywhere here, or (u_f, u_g, u, u_r) as in the paper's native study."""

EXPONENTS = {"train": (1, 6), "test": (1, 9)}
"""kappa = 10**j: up to the end of the medium range, and up to the end of the high one."""


@dataclass(frozen=True)
class NativeSettings:
    """Everything but the machine that a result depends on; the defaults are the paper's.

    `train` and `test` count the training and validation systems, with n within `sizes`. Success is
    ``ferr <= tau``; no run depends on `taus`. `order` is a key of `ORDERS`.
    """

    train: int = 50
    test: int = 100
    sizes: tuple[int, int] = (1000, 1500)
    seed: int = 0
    repeats: int = 3
    episodes: int = 100
    taus: tuple[float, ...] = (1e-6, 1e-8)
    order: str = "stages"

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
        """Whether only the seed and the order of the stages differ from the paper's."""
        return self == NativeSettings(seed=self.seed, order=self.order)


def systems(settings: NativeSettings, half: str) -> Iterator[LinearSystem]:
    """The training or validation systems, one at a time: all at once they would fill 2 GB."""
    stream = ("train", "test").index(half)
    for index in range(getattr(settings, half)):
        seed = np.random.SeedSequence(settings.seed, spawn_key=(stream, index))
        rng = np.random.default_rng(seed)
        n, exponent = (
            int(rng.integers(*ends, endpoint=True)) for ends in (settings.sizes, EXPONENTS[half])
        )
        with one_blas_thread():
            problem = randsvd(n, 10.0**exponent, mode=2, rng=rng)
        yield problem  # after the `with`, so that the caller's solves have all threads


def format_sets() -> dict[str, tuple[str, ...]]:
    """The sets of formats that this machine runs; bf16 needs a processor with instructions."""
    known = {fmt.name for fmt in native_formats()}
    return {name: formats for name, formats in FORMAT_SETS.items() if set(formats) <= known}


def spaces(order: str = "stages") -> dict[str, ActionSpace]:
    """The actions of each set that this machine runs."""
    return {name: space_of(formats, order) for name, formats in format_sets().items()}


def space_of(formats: tuple[str, ...], order: str = "stages") -> ActionSpace:
    """Actions whose significand bits do not decrease in that order of the stages."""
    places = [ORDERS[order].index(stage) for stage in GmresIR.stages]
    actions = monotone_space(ORDERS[order], formats)
    return list_space(GmresIR.stages, [[a[i] for i in places] for a in actions])
