"""Native outcomes of the gallery: every action of the front door once on every system.

The outcomes, with their times and those of the features, go into an `OutcomeTable`; a system that
the table knows is not solved again, so an interrupted run goes on where it stopped. A file beside
the table remembers which fingerprint each system has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from roundwise.actions import ActionSpace
from roundwise.algorithms import VerifiedSolve
from roundwise.backends import get_backend
from roundwise.features import LOOK
from roundwise.outcomes import OutcomeTable, OutcomeView, fill
from roundwise.problems import LinearSystem
from roundwise.problems.gallery import System

ALGORITHM = VerifiedSolve()
KAPPA = "kappa_est"
"""What theory's rule looks at; it costs an FP64 factorization."""

FEATURES = {False: (*LOOK, KAPPA), True: (*LOOK, KAPPA, "fill_ratio")}
"""By whether systems are sparse."""


def spaces() -> dict[bool, ActionSpace]:
    """The actions for dense and for sparse systems."""
    return {sparse: ALGORITHM.starts([sparse]) for sparse in (False, True)}


class Index:
    """Fingerprint, kind and family of each system by name, in a file beside the table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._known: dict[str, tuple[str, bool]] = {}
        for line in lines:
            name, fingerprint, sparse = json.loads(line)
            self._known[name] = fingerprint, sparse

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> tuple[str, bool]:
        return self._known[name]

    def add(self, name: str, problem: LinearSystem) -> None:
        self._known[name] = problem.fingerprint, problem.is_sparse
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps([name, problem.fingerprint, problem.is_sparse]) + "\n")


def gather(
    systems: Sequence[System],
    path: Path,
    repeats: int,
    progress: Callable[[int, int], None],
) -> dict[bool, OutcomeView]:
    """Run what the table at `path` lacks; the outcomes of dense and of sparse systems."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table, index, actions = OutcomeTable(path), Index(path.with_suffix(".systems.jsonl")), spaces()
    machine = get_backend(ALGORITHM.arithmetic).machine
    for done, system in enumerate(systems):
        progress(done, len(systems))
        key = f"{system.name} on {machine.key if machine else ''}, {repeats} times"
        if key in index:
            continue
        problem = system.problem()
        fill(
            table,
            ALGORITHM,
            [problem],
            actions[problem.is_sparse],
            arithmetic=ALGORITHM.arithmetic,
            features=FEATURES[problem.is_sparse],
            repeats=repeats,
            memory=False,
        )
        index.add(key, problem)
    progress(len(systems), len(systems))
    found: dict[bool, list[str]] = {}
    for system in systems:
        key = f"{system.name} on {machine.key if machine else ''}, {repeats} times"
        fingerprint, sparse = index[key]
        found.setdefault(sparse, []).append(fingerprint)
    return {
        sparse: table.view(
            ALGORITHM,
            list(dict.fromkeys(fingerprints)),
            actions[sparse],
            ALGORITHM.arithmetic,
            FEATURES[sparse],
        )
        for sparse, fingerprints in sorted(found.items())
    }
