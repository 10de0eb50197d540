"""Make the shipped policy: measure the gallery, compare all policies, and write the facts.

``make default-policy`` on an idle machine; `gathering` and `comparing` say what is done. The file
that ships is written only if no other policy beats the neighbour policy (see `winner`), which alone
runs without extras and is priced for every machine; else the command says which one does.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise
from roundwise.actions import ActionSpace
from roundwise.costs import current_prices
from roundwise.machine import Machine
from roundwise.outcomes import OutcomeView, progress_bar
from roundwise.policies import Facts, NeighbourPolicy
from roundwise.tuning import PROBE_CONTEXT, view_contexts
from roundwise_studies.default_policy import comparing
from roundwise_studies.default_policy.gallery import policy_systems
from roundwise_studies.default_policy.gathering import gather
from roundwise_studies.evaluation.times import PolicyTimes
from roundwise_studies.report import format_text

SHIPPED = Path(roundwise.policies.__file__).with_name("default_policy.json")
COMMAND = "python -m roundwise_studies.default_policy"
CANDIDATE = "neighbours, priced"


def facts_of(views: Mapping[bool, OutcomeView], provenance: Mapping[str, Any]) -> Facts:
    """What the neighbour policy learns from all systems."""
    tables: dict[str, NDArray[np.float64]] = {}
    for view in views.values():
        policy, contexts = NeighbourPolicy(), view_contexts(view, PROBE_CONTEXT)
        policy.start(contexts, ActionSpace(view.stages, tuple(view.actions)))
        policy.study(view, contexts)
        tables |= policy.facts.tables
    return Facts(tables, provenance)


def winner(comparisons: Sequence[PolicyTimes]) -> str:
    """The neighbour policy, unless another one's regret is below its interval.

    On some kind of systems, that is, and on no kind above the interval.
    """
    rows = [c for c in comparisons if c.kind.endswith("all")]
    ours = {c.kind: c.regret for c in rows if c.policy == CANDIDATE}
    for name in dict.fromkeys(c.policy for c in rows):
        theirs = {c.kind: c.regret.value for c in rows if c.policy == name}
        above = any(theirs[kind] > ours[kind].high for kind in ours)
        if not above and any(theirs[kind] < ours[kind].low for kind in ours):
            return name
    return CANDIDATE


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(COMMAND, description="Make the policy that ships.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3, help="how often a run is measured")
    parser.add_argument("--matrices", type=Path, help="a folder of Matrix Market files to include")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--table", type=Path, default=Path("out/default_policy.sqlite"))
    parser.add_argument("--every", type=int, default=1, help="take only every n-th system")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink all sizes, to try it out")
    asked = parser.parse_args(arguments)
    systems = policy_systems(asked.seed, asked.matrices, asked.scale)[:: asked.every]
    views = gather(systems, asked.table, asked.repeats, progress_bar("measuring the gallery"))
    prices = current_prices()
    comparisons = comparing.compare(views, prices, progress_bar("comparing policies"))
    table = comparing.comparison_table(comparisons)
    print(format_text(table))
    with asked.table.with_name("policies.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([table.header, *table.rows])
    best = winner(comparisons)
    print(f"\nThe policy to ship: {best}.")
    if best != CANDIDATE:
        return
    provenance = {
        "command": COMMAND + ("" if asked.matrices is None else " --matrices (SuiteSparse)"),
        "seed": asked.seed,
        "roundwise": roundwise.__version__,
        "systems": len(systems),
        "machine": str(Machine.this()),
        "prices": prices.source,
        "chosen": f"{best}: least regret in measured time of {len(comparisons)} comparisons",
        "folds": comparing.FOLDS,
        "comparison": {"columns": list(table.header), "rows": [list(row) for row in table.rows]},
    }
    asked.out.write_text(facts_of(views, provenance).to_json(), encoding="utf-8")


if __name__ == "__main__":
    np.seterr(all="ignore")  # singular and huge systems are part of the gallery
    main()
