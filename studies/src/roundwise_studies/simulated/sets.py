"""The data sets of the experiments, and notes of them that save making them again.

Making 200 dense systems takes seconds, and a replay needs only their fingerprints. The note of a
set lies beside its outcome table. `recall` makes the first systems of each half again and believes
the note if they have the noted fingerprints: another version, LAPACK or processor may make others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from roundwise import RoundwiseError
from roundwise_studies.datasets import DATA_SETS as PROBLEM_SETS
from roundwise_studies.datasets import Dataset
from roundwise_studies.paper.systems import released_pde_set, released_set, released_sparse_set
from roundwise_studies.simulated.experiment import Settings

DATA_SETS = {
    **PROBLEM_SETS,
    "released": released_set,
    "released-sparse": released_sparse_set,
    "released-pde": released_pde_set,
}

CHECKED = 4
"""Systems of each half that are made again before a note is believed: one of each PDE family."""

Note = dict[str, dict[str, list[Any]]]
"""``fingerprints`` and ``densities`` of the systems of each half, ``train`` and ``test``."""


def make(data: str, settings: Settings, train: int, test: int) -> Dataset:
    """The first systems of each half of a data set."""
    return DATA_SETS[data](train, test, seed=settings.seed, sizes=settings.sizes)


def remember(cache: Path, data: str, settings: Settings, made: Dataset) -> Note:
    """Write the note of a data set; notes of the same set with other settings are kept."""
    note: Note = {
        half: {
            "fingerprints": [problem.fingerprint for problem in problems],
            "densities": [problem.density for problem in problems],
        }
        for half, problems in (("train", made.train), ("test", made.test))
    }
    notes = _read(cache, data) | {_key(settings): note}
    text = json.dumps(notes, indent=1) + "\n"
    (cache / f"{data}-sets.json").write_text(text, encoding="utf-8")
    return note


def recall(cache: Path, data: str, settings: Settings) -> Note | None:
    """The note of a data set; None if there is none, or if the set would be another one today."""
    note: Note | None = _read(cache, data).get(_key(settings))
    if note is None:
        return None
    count = min(CHECKED, settings.systems)
    made = make(data, settings, count, count)
    try:
        for half, problems in (("train", made.train), ("test", made.test)):
            first = [problem.fingerprint for problem in problems]
            known, densities = note[half]["fingerprints"], note[half]["densities"]
            if not len(known) == len(densities) == settings.systems or known[:count] != first:
                return None
    except (KeyError, TypeError):
        return None
    return note


def noted(cache: Path, data: str, settings: Settings) -> Note:
    """The note of a data set, believed: outcomes from elsewhere are replayed by their names."""
    try:
        found: Note = _read(cache, data)[_key(settings)]
    except KeyError:
        raise RoundwiseError(
            f"{cache}: no note of the {data} systems with these settings; solve them first"
        ) from None
    return found


def remember_draws(cache: Path, data: str, settings: Settings, draws: list[list[str]]) -> None:
    """Note the fingerprints of other test sets beside those of the experiment."""
    notes = _read(cache, data)
    notes[_key(settings)]["draws"] = {"fingerprints": draws}
    text = json.dumps(notes, indent=1) + "\n"
    (cache / f"{data}-sets.json").write_text(text, encoding="utf-8")


def _key(settings: Settings) -> str:
    low, high = settings.sizes
    return f"systems {settings.systems}, seed {settings.seed}, sizes {low} to {high}"


def _read(cache: Path, data: str) -> dict[str, Any]:
    """All notes of a data set; none if the file is damaged, as notes only save time."""
    try:
        notes = json.loads((cache / f"{data}-sets.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return notes if isinstance(notes, dict) else {}
