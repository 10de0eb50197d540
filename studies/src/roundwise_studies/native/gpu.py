"""The native study on a GPU, beside cuSOLVER.

Reproduces: systems with given singular values from kappa = 1e1 to 1e9; a policy that sees a
condition estimate and ||A||_inf learns which formats to use, and is judged on other systems.

Departs: see `NATIVE_GPU` in departures.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from roundwise.algorithms import Algorithm
from roundwise.backends import Backend
from roundwise.backends.cuda.device import DeviceUnavailable
from roundwise.exceptions import RoundwiseError
from roundwise.outcomes import OutcomeTable, fill
from roundwise.outcomes.records import (
    Setting,
    StoredArithmetic,
    StoredProblem,
    feature_arithmetic,
    origin_json,
)
from roundwise.outcomes.writing import ProblemResults
from roundwise.rewards import ClimbReward
from roundwise.solver import places
from roundwise.tuning import Context
from roundwise_studies import departures
from roundwise_studies.native.device import (
    FEATURE_FORMAT,
    FORMAT_SETS,
    HALVES,
    ActionSet,
    Device,
    space_of,
)
from roundwise_studies.native.gpu_runs import (
    ALGORITHM,
    CUSOLVER,
    FEATURES,
    FRONT_DOOR,
    PAPERS,
    PROBE,
    ROUTINES,
    SPACE,
    DeviceCall,
    measured_features,
)
from roundwise_studies.native.gpu_systems import FAMILIES, DeviceSystem, Recipe

EXPONENTS = (1, 9)
"""kappa = 10**j of systems with given singular values, in both halves."""

OURS, THEIRS = "front door", "GMRES-IR"
"""The sets of actions: those of `roundwise.solve` there, and the paper's 15 of its algorithm."""

LOOKING = "time, look"


@dataclass(frozen=True)
class Gpu(Device):
    """Everything but the machine that a result depends on.

    Each round of a size has one system of each of `FAMILIES`; `train` and `test` count the rounds
    of each size. The paper's own algorithm runs with all its actions up to n = `papers_up_to`.
    """

    name: ClassVar[str] = "native-gpu"
    title: ClassVar[str] = "On a GPU"
    departures: ClassVar[tuple[tuple[str, str], ...]] = departures.NATIVE_GPU
    features: ClassVar[tuple[str, ...]] = FEATURES
    # What the front door looks at on a GPU: 64 rows, no factorization.
    cheap_state: ClassVar[tuple[str, Context]] = (
        LOOKING,
        Context(("n", *PROBE), (1.0, None, 0.01, 1e-8)),
    )
    reference: ClassVar[str] = CUSOLVER
    said: ClassVar[tuple[str, ...]] = (FRONT_DOOR, LOOKING, "RL(W1)")
    by_size: ClassVar[bool] = True

    sizes: tuple[int, ...] = (1000, 2048, 4096, 8192, 16384)
    train: tuple[int, ...] = (2, 2, 2, 1, 1)
    test: tuple[int, ...] = (2, 2, 2, 2, 1)
    papers_up_to: int = 1000
    seed: int = 0
    repeats: int = 2
    episodes: int = 100

    def __post_init__(self) -> None:
        if not len(self.sizes) == len(self.train) == len(self.test) > 0:
            raise ValueError("sizes, train and test differ in length; choose counts for each size")
        if min(*self.sizes, *self.train, *self.test, self.repeats, self.episodes) < 1:
            raise ValueError("choose at least 1 for every size, count, repeat and episode")

    @property
    def are_the_papers(self) -> bool:
        return self == Gpu(seed=self.seed)

    def within(self, smallest: int, largest: int) -> Gpu:
        """The same with the sizes from `smallest` to `largest` only."""
        kept = [i for i, n in enumerate(self.sizes) if smallest <= n <= largest]
        if not kept:
            raise ValueError(
                f"no size is between {smallest} and {largest}; choose a range with one of "
                f"{', '.join(map(str, self.sizes))}"
            )
        sizes, train, test = (
            tuple(counts[i] for i in kept) for counts in (self.sizes, self.train, self.test)
        )
        return replace(self, sizes=sizes, train=train, test=test)

    def arithmetic(self, table: OutcomeTable) -> Backend | str:
        """The GPU's backend; where there is none, the only GPU's arithmetic in the table."""
        try:
            return places.backend_of(0)
        except DeviceUnavailable:
            keys = table.arithmetics()
            stored = [key for key in keys if StoredArithmetic.parse(key).model == "cuda"]
            if not stored:
                raise
            if len(stored) > 1:
                raise RoundwiseError(
                    f"{table.path} has results of several GPUs ({', '.join(stored)}), and none of "
                    "them is here; keep those of one GPU in the file"
                ) from None
            return stored[0]

    def action_sets(self) -> dict[str, ActionSet]:
        sets = {OURS: ActionSet(ALGORITHM, SPACE, ClimbReward(), chooser=FRONT_DOOR)}
        if self.papers_up_to >= min(self.sizes):
            papers = space_of(FORMAT_SETS["fp16"])
            sets[THEIRS] = ActionSet(PAPERS, papers, largest=self.papers_up_to)
        return sets

    def references(self) -> dict[str, DeviceCall]:
        return {name: DeviceCall(name) for name in ROUTINES}

    def recipes(self, half: str) -> Iterator[Recipe]:
        """Size by size."""
        stream = HALVES.index(half)
        for n, rounds in zip(self.sizes, getattr(self, half), strict=True):
            for number in range(rounds):
                for place, family in enumerate(FAMILIES):
                    seed = (self.seed, stream, n, number, place)
                    exponent = np.random.default_rng(seed).integers(*EXPONENTS, endpoint=True)
                    kappa = 10.0 ** int(exponent) if family.startswith("mode") else math.nan
                    yield Recipe(family, n, kappa, seed)

    def measure(
        self, table: OutcomeTable, where: Backend | str, recipe: Any, half: str
    ) -> tuple[int, str, int]:
        """Without a GPU nothing is run: what another machine has stored is read."""
        key = recipe.fingerprint(StoredArithmetic.of(where).machine)
        if not isinstance(where, Backend):
            return recipe.n, key, 0
        lacking = [
            (algorithm, actions)
            for algorithm, actions in self.tasks(recipe.n, half)
            if (table.repeats(algorithm, [key], actions, where) < self.repeats).any()
        ]
        unknown = not table.stored_features([key], where, FEATURE_FORMAT)[key] >= set(FEATURES)
        if not lacking and not unknown:
            return recipe.n, key, 0
        warm_up(self, where, recipe.n)
        system = recipe.drawn(where)
        if unknown:
            write_features(table, system, where)
        run = partial(fill, arithmetic=where, features=(), memory=False, repeats=self.repeats)
        computed = sum(run(table, algorithm, [system], actions) for algorithm, actions in lacking)
        return recipe.n, key, computed

    def tasks(self, n: int, half: str) -> list[tuple[Algorithm, tuple[Any, ...]]]:
        """What runs on a system of n unknowns."""
        sets = [actions for actions in self.action_sets().values() if n <= actions.largest]
        found: list[tuple[Algorithm, tuple[Any, ...]]] = [
            (actions.algorithm, actions.space.actions) for actions in sets
        ]
        if half == "test":
            found += [(routine, ("fp64",)) for routine in self.references().values()]
        return found

    def machine(self, origins: tuple[Mapping[str, Any], ...]) -> str:
        """The GPU, with the versions of driver and libraries."""
        machines: list[Any] = [origin.get("machine") for origin in origins]
        gpus = [machine for machine in machines if machine and "gpu" in machine]
        return ", ".join(sorted({f"{gpu['gpu']} ({gpu['versions']})" for gpu in gpus}))

    def described(self) -> dict[str, object]:
        low, high = EXPONENTS
        return {
            "systems": f"{', '.join(FAMILIES)}; kappa 1e{low} to 1e{high} where it is given",
            "sizes": list(self.sizes),
            "rounds of training": list(self.train),
            "rounds of validation": list(self.test),
            "actions": "the front door's on a GPU; up to n = "
            f"{self.papers_up_to} also GMRES-IR's 15 monotone ones of fp16, fp32, fp64",
            "state": f"kappa_est from an {FEATURE_FORMAT} LU, and norm_inf; look: n and 64 rows",
            "repeats": self.repeats,
            "episodes": self.episodes,
            "seed": self.seed,
        }


QUICK = Gpu((1000, 2048), (1, 1), (1, 1), repeats=1)


@cache
def warm_up(gpu: Gpu, backend: Backend, n: int) -> None:
    """Run everything once at this size, so that no time is one of compiling or planning."""
    system = next(recipe for recipe in gpu.recipes("test") if recipe.n == n).drawn(backend)
    for algorithm, actions in gpu.tasks(n, "test"):
        for action in actions:
            algorithm.run(system, action, backend)
    measured_features(system)


def write_features(table: OutcomeTable, system: DeviceSystem, backend: Backend) -> None:
    table.write(
        ProblemResults(
            problem=StoredProblem.of(system),
            setting=Setting.of(ALGORITHM, backend),
            origin=origin_json(backend.machine),
            outcomes={},
            features=measured_features(system),
            feature_arithmetic=feature_arithmetic(backend, FEATURE_FORMAT),
        )
    )
