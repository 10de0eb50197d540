"""The outcomes of the native study: every action on every system, and others' routines, timed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roundwise.actions import ActionLike
from roundwise.algorithms import Algorithm
from roundwise.outcomes import OutcomeTable, OutcomeView
from roundwise_studies.native.device import FEATURE_FORMAT, HALVES, Device
from roundwise_studies.protocol import Bar, Gathered, no_bar


@dataclass(frozen=True, eq=False)
class NativeGathered(Gathered[str, OutcomeView]):
    """All outcomes by set of actions, and the routines' on the validation systems by name."""

    references: Mapping[str, OutcomeView]
    machine: str  # in words


def gather(device: Device, table: OutcomeTable, bar: Bar = no_bar) -> NativeGathered:
    """Run every action on every system, and routines on the validation systems, what is missing.

    All runs of a system come before the next system, so that those that are compared are
    neighbours in time.
    """
    where = device.arithmetic(table)
    asked = [(half, recipe) for half in HALVES for recipe in device.recipes(half)]
    keys: dict[str, list[tuple[int, str]]] = {half: [] for half in HALVES}
    computed = 0
    for done, (half, recipe) in enumerate(asked, start=1):
        n, key, runs = device.measure(table, where, recipe, half)
        keys[half].append((n, key))
        computed += runs
        bar(done, len(asked))

    def view(
        half: str,
        algorithm: Algorithm,
        actions: Iterable[ActionLike],
        features: tuple[str, ...] = (),
        largest: float = math.inf,
    ) -> OutcomeView:
        chosen = [key for n, key in keys[half] if n <= largest]
        return table.view(algorithm, chosen, actions, where, features, FEATURE_FORMAT)

    halves = {}
    for name, s in device.action_sets().items():
        train, test = (
            view(half, s.algorithm, s.space, device.features, s.largest) for half in HALVES
        )
        halves[name] = train, test
    references = {
        name: view("test", routine, ["fp64"]) for name, routine in device.references().items()
    }
    origins = tuple(table.origins())
    return NativeGathered(halves, origins, computed, references, device.machine(origins))
