"""The data sets of the experiments, and notes of them that save making them again.

Making 200 dense systems takes seconds, and a replay needs only their fingerprints. The note of a
set lies beside its outcome table. `recall` makes the first systems of each half again and believes
the note if they have the noted fingerprints: another version, LAPACK or processor may make others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roundwise.experiments.paper.systems import released_set
from roundwise.experiments.simulated.settings import Settings
from roundwise.problems import DATA_SETS as PROBLEM_SETS
from roundwise.problems import Dataset, LinearSystem

DATA_SETS = {**PROBLEM_SETS, "released": released_set}

CHECKED = 4
"""Systems of each half that are made again before a note is believed: one of each PDE family."""


@dataclass(frozen=True)
class HalfNote:
    """Fingerprint and density of each system."""

    fingerprints: tuple[str, ...]
    densities: tuple[float, ...]

    @classmethod
    def of(cls, problems: Iterable[LinearSystem]) -> HalfNote:
        pairs = [(problem.fingerprint, problem.density) for problem in problems]
        return cls(tuple(f for f, _ in pairs), tuple(d for _, d in pairs))


@dataclass(frozen=True)
class SetNote:
    """Both halves of a data set."""

    train: HalfNote
    test: HalfNote

    @property
    def fingerprints(self) -> tuple[str, ...]:
        return self.train.fingerprints + self.test.fingerprints


def make(data: str, settings: Settings, train: int, test: int) -> Dataset:
    """The first systems of each half of a data set."""
    return DATA_SETS[data](train, test, seed=settings.seed, sizes=settings.sizes)


def remember(cache: Path, data: str, settings: Settings, made: Dataset) -> SetNote:
    """Write the note of a data set; notes of the same set with other settings are kept."""
    note = SetNote(HalfNote.of(made.train), HalfNote.of(made.test))
    path = _path(cache, data)
    notes = _read(path) | {_key(settings): asdict(note)}
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(notes, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)  # in one step, so that a reader sees the old or the new file
    return note


def recall(cache: Path, data: str, settings: Settings) -> SetNote | None:
    """The note of a data set; None if there is none, or if the set would be another one today."""
    systems, saved = settings.systems, _read(_path(cache, data)).get(_key(settings))
    if saved is None:
        return None
    try:
        halves = [
            HalfNote(tuple(saved[half]["fingerprints"]), tuple(saved[half]["densities"]))
            for half in ("train", "test")
        ]
    except (KeyError, TypeError):
        return None
    count = min(CHECKED, systems)
    made = make(data, settings, count, count)
    for half, problems in zip(halves, (made.train, made.test), strict=True):
        if len(half.fingerprints) != systems or len(half.densities) != systems:
            return None
        if half.fingerprints[:count] != tuple(problem.fingerprint for problem in problems):
            return None
    return SetNote(*halves)


def _key(settings: Settings) -> str:
    low, high = settings.sizes
    return f"systems {settings.systems}, seed {settings.seed}, sizes {low} to {high}"


def _path(cache: Path, data: str) -> Path:
    return cache / f"{data}-sets.json"


def _read(path: Path) -> dict[str, Any]:
    """All notes in a file; none if it is damaged, as notes only save time."""
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return notes if isinstance(notes, dict) else {}
