"""The outcomes of the study on a GPU: every action on every system, and cuSOLVER beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from roundwise.actions import Action, ActionSpace
from roundwise.algorithms import Algorithm
from roundwise.backends import Backend
from roundwise.backends.cuda.device import DeviceUnavailable
from roundwise.exceptions import RoundwiseError
from roundwise.outcomes import OutcomeTable, OutcomeView, fill
from roundwise.outcomes.keys import Setting, StoredArithmetic, feature_arithmetic
from roundwise.outcomes.records import StoredProblem, origin_json
from roundwise.outcomes.writing import ProblemResults
from roundwise.solver import places
from roundwise_studies.native.settings import FORMAT_SETS, space_of
from roundwise_studies.native_gpu.runs import (
    ALGORITHM,
    FEATURE_FORMAT,
    FEATURES,
    PAPERS,
    ROUTINES,
    SPACE,
    DeviceCall,
    measured_features,
)
from roundwise_studies.native_gpu.settings import DeviceSettings, recipes
from roundwise_studies.native_gpu.systems import DeviceSystem, Recipe
from roundwise_studies.protocol import Bar, Gathered, no_bar

OURS, THEIRS = "front door", "GMRES-IR"
"""The sets of actions: those of `roundwise.solve` there, and the paper's 15 of its algorithm."""

PAPERS_SPACE = space_of(FORMAT_SETS["fp16"])
HALVES = ("train", "test")

Actions = tuple[Action | str, ...]


@dataclass(frozen=True, eq=False)
class DeviceGathered(Gathered[str, OutcomeView]):
    """All outcomes by set of actions, the routines' on the validation systems, the machine."""

    references: Mapping[str, OutcomeView]
    machine: str  # its key

    @property
    def device(self) -> str:
        """The GPU, with the versions of driver and libraries."""
        machines: list[Any] = [origin.get("machine") for origin in self.origins]
        gpus = [machine for machine in machines if machine and "gpu" in machine]
        return ", ".join(sorted({f"{gpu['gpu']} ({gpu['versions']})" for gpu in gpus}))


def gather(settings: DeviceSettings, table: OutcomeTable, bar: Bar = no_bar) -> DeviceGathered:
    """Run what the table lacks; without a GPU, read what another machine has stored there.

    All runs of a system come before the next system. Before the first system of a size, each
    action runs once more, so that no time is one of compiling or planning.
    """
    where = arithmetic(table)
    machine = StoredArithmetic.of(where).machine
    asked = {half: list(recipes(settings, half)) for half in HALVES}
    total, done, computed = sum(map(len, asked.values())), 0, 0
    warm: set[int] = set()
    if isinstance(where, Backend):
        for half, recipes_of in asked.items():
            for recipe in recipes_of:
                computed += _measure(settings, table, where, recipe, half, warm)
                done += 1
                bar(done, total)

    def views(
        algorithm: Algorithm, space: ActionSpace, largest: float = math.inf
    ) -> tuple[OutcomeView, OutcomeView]:
        train, test = (
            [recipe.fingerprint(machine) for recipe in asked[half] if recipe.n <= largest]
            for half in HALVES
        )
        options = space, where, FEATURES, FEATURE_FORMAT
        return table.view(algorithm, train, *options), table.view(algorithm, test, *options)

    halves = {OURS: views(ALGORITHM, SPACE)}
    if settings.papers_up_to >= min(settings.sizes):
        halves[THEIRS] = views(PAPERS, PAPERS_SPACE, settings.papers_up_to)
    keys = [recipe.fingerprint(machine) for recipe in asked["test"]]
    references = {
        name: table.view(DeviceCall(name), keys, ["fp64"], where, ()) for name in ROUTINES
    }
    return DeviceGathered(halves, tuple(table.origins()), computed, references, machine)


def arithmetic(table: OutcomeTable) -> Backend | str:
    """The GPU's backend; where there is none, the only GPU's arithmetic in the table."""
    try:
        return places.backend_of(0)
    except DeviceUnavailable:
        stored = [key for key in table.arithmetics() if StoredArithmetic.parse(key).model == "cuda"]
        if not stored:
            raise
        if len(stored) > 1:
            raise RoundwiseError(
                f"{table.path} has results of several GPUs ({', '.join(stored)}), and none of them "
                "is here; keep those of one GPU in the file"
            ) from None
        return stored[0]


def tasks(settings: DeviceSettings, n: int, half: str) -> list[tuple[Algorithm, Actions]]:
    """What runs on a system."""
    found: list[tuple[Algorithm, Actions]] = [(ALGORITHM, SPACE.actions)]
    if n <= settings.papers_up_to:
        found.append((PAPERS, PAPERS_SPACE.actions))
    if half == "test":
        found += [(DeviceCall(name), ("fp64",)) for name in ROUTINES]
    return found


def _measure(
    settings: DeviceSettings,
    table: OutcomeTable,
    backend: Backend,
    recipe: Recipe,
    half: str,
    warm: set[int],
) -> int:
    """Run what the table lacks of one system; how many pairs that were."""
    assert backend.machine is not None
    key = recipe.fingerprint(backend.machine.key)
    wanted = tasks(settings, recipe.n, half)
    lacking = [
        (algorithm, actions)
        for algorithm, actions in wanted
        if (table.repeats(algorithm, [key], actions, backend) < settings.repeats).any()
    ]
    known = table.stored_features([key], backend, FEATURE_FORMAT)[key]
    if not lacking and known >= set(FEATURES):
        return 0
    system = recipe.drawn(backend)
    if recipe.n not in warm:
        for algorithm, actions in tasks(settings, recipe.n, "test"):
            for action in actions:
                algorithm.run(system, action, backend)
        measured_features(system)
        warm.add(recipe.n)
    if not known >= set(FEATURES):
        _write_features(table, system, backend)
    measure = partial(fill, arithmetic=backend, features=(), memory=False, repeats=settings.repeats)
    return sum(measure(table, algorithm, [system], actions) for algorithm, actions in lacking)


def _write_features(table: OutcomeTable, system: DeviceSystem, backend: Backend) -> None:
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
