"""What the native study asks of the device that it runs on, and the paper's algorithm."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from roundwise.actions import ActionSpace, list_space, monotone_space
from roundwise.algorithms import Algorithm, DeploymentRule, GmresIR
from roundwise.backends import Backend
from roundwise.costs import MeasuredTime
from roundwise.outcomes import OutcomeTable
from roundwise.rewards import BackwardErrorTarget, CostReward, Reward
from roundwise.tuning import Context

RESTART = 30
RULE = DeploymentRule(max_steps=10)
ALGORITHM = GmresIR(tolerance=1e-4, restart=RESTART, cycles=1, stop=RULE)
"""The paper's budget; it stops at FP64-level backward error, which needs no true solution."""

FORMAT_SETS = {"fp16": ("fp16", "fp32", "fp64"), "bf16": ("bf16", "fp32", "fp64")}
"""By their lowest format: the paper's set, and one that some processors compute in."""

ORDERS = {"stages": GmresIR.stages, "paper": ("factor", "gmres", "update", "residual")}
"""(u_f, u, u_g, u_r) as everywhere here, or (u_f, u_g, u, u_r) as in the paper's native study."""

FEATURE_FORMAT = "fp32"
"""Format of the LU that estimates kappa; its time is part of the feature's."""

HALVES = ("train", "test")
TIME = CostReward(MeasuredTime(), BackwardErrorTarget())


def space_of(formats: tuple[str, ...], order: str = "stages") -> ActionSpace:
    """Actions whose significand bits do not decrease in that order of the stages."""
    places = [ORDERS[order].index(stage) for stage in GmresIR.stages]
    actions = monotone_space(ORDERS[order], formats)
    return list_space(GmresIR.stages, [[a[i] for i in places] for a in actions])


@dataclass(frozen=True)
class ActionSet:
    """Actions of one algorithm to choose among, and the reward for time.

    They run on systems of at most `largest` unknowns. `chooser` is the reference that chooses among
    them by itself, if there is one; its reason tells the actions that it tried.
    """

    algorithm: Algorithm
    space: ActionSpace
    time: Reward = TIME
    largest: float = math.inf
    chooser: str = ""


class Device(ABC):
    """The settings of the study on one device, dataclasses, and what runs there.

    `cheap_state` is what a policy sees that pays for no factorization, `reference` the routine that
    times are compared with, and `said` the policies that the summary is about. `by_size`: systems
    have few sizes, and tables and figure are by size; else the figure is by kappa.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    departures: ClassVar[tuple[tuple[str, str], ...]]
    features: ClassVar[tuple[str, ...]]
    cheap_state: ClassVar[tuple[str, Context]]
    reference: ClassVar[str]
    said: ClassVar[tuple[str, ...]]
    by_size: ClassVar[bool]

    seed: int
    repeats: int
    episodes: int

    @property
    def taus(self) -> tuple[float, ...]:
        """Errors by which the paper judges; none where it has no numbers."""
        return ()

    @property
    @abstractmethod
    def are_the_papers(self) -> bool:
        """Whether they are the paper's; on a device that it has no numbers of, the defaults."""

    @abstractmethod
    def arithmetic(self, table: OutcomeTable) -> Backend | str:
        """What runs are done in; where the device is missing, what the table has of it."""

    @abstractmethod
    def action_sets(self) -> Mapping[str, ActionSet]:
        """By name."""

    @abstractmethod
    def references(self) -> Mapping[str, Algorithm]:
        """Routines of others, with the one action ``fp64``, by name."""

    @abstractmethod
    def recipes(self, half: str) -> Iterable[Any]:
        """What `measure` makes each of the training or validation systems from."""

    @abstractmethod
    def measure(
        self, table: OutcomeTable, where: Backend | str, recipe: Any, half: str
    ) -> tuple[int, str, int]:
        """Run what the table lacks of a system: its n, its fingerprint, how many runs that were."""

    @abstractmethod
    def machine(self, origins: tuple[Mapping[str, Any], ...]) -> str:
        """In words, where runs were done."""

    @abstractmethod
    def described(self) -> dict[str, object]:
        """The settings in words, for the report."""
