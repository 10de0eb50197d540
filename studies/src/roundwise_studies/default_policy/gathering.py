"""Native outcomes of the gallery: every action of the front door once on every system.

The outcomes, with their times and those of the features, go into an `OutcomeTable`; a system that
the table knows is not solved again, so an interrupted run goes on where it stopped. A file beside
the table remembers which fingerprint each system has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from roundwise.actions import ActionSpace
from roundwise.algorithms import VerifiedSolve
from roundwise.backends import get_backend
from roundwise.features import PROBE
from roundwise.outcomes import OutcomeTable, OutcomeView, fill
from roundwise_studies.default_policy.gallery import System

ALGORITHM = VerifiedSolve()
KAPPA = "kappa_est"
"""What theory's rule looks at; it costs an FP64 factorization."""

FEATURES = {False: (*PROBE, KAPPA), True: (*PROBE, KAPPA, "fill_ratio")}
"""By whether systems are sparse."""


def gather(
    systems: Sequence[System], path: Path, repeats: int, progress: Callable[[int, int], None]
) -> dict[bool, OutcomeView]:
    """Run what the table at `path` lacks; the outcomes of dense and of sparse systems."""
    path.parent.mkdir(parents=True, exist_ok=True)
    actions = {sparse: ALGORITHM.starts([sparse]) for sparse in (False, True)}
    table, index = OutcomeTable(path), path.with_suffix(".systems.jsonl")
    lines = index.read_text(encoding="utf-8").splitlines() if index.exists() else []
    known = {name: (fingerprint, sparse) for name, fingerprint, sparse in map(json.loads, lines)}
    machine = get_backend(ALGORITHM.arithmetic).machine
    where = f"on {machine.key if machine else ''}, {repeats} times"
    found: dict[bool, dict[str, None]] = {}
    for done, system in enumerate(systems):
        progress(done, len(systems))
        name = f"{system.name} {where}"
        if name not in known:
            known[name] = _measure(system, table, actions, repeats)
            with index.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps([name, *known[name]]) + "\n")
        fingerprint, sparse = known[name]
        found.setdefault(sparse, {})[fingerprint] = None
    progress(len(systems), len(systems))
    arithmetic = ALGORITHM.arithmetic
    return {
        sparse: table.view(ALGORITHM, list(them), actions[sparse], arithmetic, FEATURES[sparse])
        for sparse, them in sorted(found.items())
    }


def _measure(
    system: System, table: OutcomeTable, actions: Mapping[bool, ActionSpace], repeats: int
) -> tuple[str, bool]:
    """Fill the system's row of the table; returns its fingerprint, and whether it is sparse."""
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
    return problem.fingerprint, problem.is_sparse
