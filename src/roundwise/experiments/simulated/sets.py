"""The data sets of the experiments, and a note of them that saves making them again.

Making 200 dense systems takes seconds, and a replay needs their fingerprints alone. The note lies
beside the outcome table. It is believed only after the first systems of each half were made again
and had the fingerprints that it says: another generator, LAPACK or processor makes others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roundwise.experiments.released.systems import released_set
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


def make(data: str, train: int, test: int, seed: int, sizes: tuple[int, int]) -> Dataset:
    """A data set by name."""
    return DATA_SETS[data](train, test, seed=seed, sizes=sizes)


def remember(cache: Path, data: str, key: str, made: Dataset) -> SetNote:
    """Note a data set; what was noted of others is kept."""
    note = SetNote(HalfNote.of(made.train), HalfNote.of(made.test))
    path = _path(cache, data)
    notes = _read(path) | {key: asdict(note)}
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(notes, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)  # at once: whoever reads sees the old or the new file
    return note


def recall(
    cache: Path, data: str, key: str, systems: int, seed: int, sizes: tuple[int, int]
) -> SetNote | None:
    """The note of a data set; None if there is none, or if it would be made otherwise today."""
    saved = _read(_path(cache, data)).get(key)
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
    made = make(data, count, count, seed, sizes)
    for half, problems in zip(halves, (made.train, made.test), strict=True):
        if len(half.fingerprints) != systems or len(half.densities) != systems:
            return None
        if half.fingerprints[:count] != tuple(problem.fingerprint for problem in problems):
            return None
    return SetNote(*halves)


def _path(cache: Path, data: str) -> Path:
    return cache / f"{data}-sets.json"


def _read(path: Path) -> dict[str, Any]:
    """What is noted; a damaged note is none, as it only saves time."""
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return notes if isinstance(notes, dict) else {}
