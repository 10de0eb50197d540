"""Gathers the facts of the default policy, and tells how well they decide on unseen systems.

``python -m roundwise.experiments.default_policy.facts`` (or ``make default-policy``) solves every system
of `policy_systems` three times: starting in BF16, FP32 and FP64. Only counts are kept, so the
machine may be busy. What was solved is kept in a file beside the output: after an interruption the
same command goes on.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import roundwise
from roundwise.backends import NativeBackend
from roundwise.backends.native.backend import bf16_level
from roundwise.costs.prices import Prices, generic_prices
from roundwise.formats import FP32, FP64
from roundwise.machine.identity import Machine
from roundwise.outcomes import progress_bar
from roundwise.outcomes.optional import require
from roundwise.policies.facts import Climb, Experience, Facts, Start, Work, climb_of
from roundwise.policies.look import Context, context_of, first_formats
from roundwise.policies.neighbours import SPARSE_CROSSOVER, DefaultPolicy, ladder_from
from roundwise.problems.gallery import System, policy_systems
from roundwise.solver.factorization import Factorization
from roundwise.solver.front_door import is_positive_definite
from roundwise.solver.inputs import checked_columns, checked_matrix
from roundwise.solver.solution import SolveFailed

FOLDS = 5
SHIPPED = Path(__file__).parents[1] / "solver" / "default_policy.json"


@dataclass(frozen=True)
class Record:
    """One system, solved from each first format."""

    name: str
    context: Context
    log_fill: float
    climbs: Mapping[str, Climb]
    sufficed: Mapping[str, bool]

    @property
    def experience(self) -> Experience:
        starts = {f: Start(int(self.sufficed[f]), self.climbs[f]) for f in self.climbs}
        return Experience(1, self.log_fill, starts)

    def to_json(self) -> str:
        climbs = {f: {g: asdict(w) for g, w in climb.items()} for f, climb in self.climbs.items()}
        return json.dumps(asdict(self) | {"climbs": climbs})

    @classmethod
    def from_json(cls, line: str) -> Record:
        saved = json.loads(line)
        climbs = {
            first: {fmt: Work(**work) for fmt, work in climb.items()}
            for first, climb in saved["climbs"].items()
        }
        return cls(**saved | {"context": Context(**saved["context"]), "climbs": climbs})


def solve_from_all(system: System) -> Record:
    """Solve a system from each first format, and note the work."""
    backend = NativeBackend(bf16_level() or "portable")
    A = system.matrix()
    matrix = checked_matrix(A, backend)
    columns = checked_columns(system.right_hand_side(matrix.n), matrix)
    positive_definite = is_positive_definite(matrix, None)
    context = context_of(matrix, positive_definite)
    climbs, sufficed, log_fill = {}, {}, 0.0
    for first in first_formats(context.kind):
        factorization = Factorization(
            matrix, ladder_from(first), backend, positive_definite=positive_definite
        )
        try:
            attempts = factorization.run(columns, full_output=False).attempts
        except SolveFailed as failure:
            attempts = failure.attempts
        climbs[first] = climb_of(attempts)
        sufficed[first] = attempts[0].accepted
        factors = factorization._factors
        if context.is_sparse and factors is not None:
            log_fill = math.log(factors.entries / context.entries)
    return Record(system.name, context, log_fill, climbs, sufficed)


def gather(
    systems: Sequence[System], log: Path, jobs: int, progress: Callable[[int, int], None]
) -> list[Record]:
    """Solve all systems; those that the log holds already are not solved again."""
    joblib = require("joblib", "tune")
    known = {record.name: record for record in _read_log(log)}
    missing = [system for system in systems if system.name not in known]
    log.parent.mkdir(parents=True, exist_ok=True)
    progress(len(systems) - len(missing), len(systems))
    done = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(
        joblib.delayed(solve_from_all)(system) for system in missing
    )
    with log.open("a", encoding="utf-8") as stream:
        for record in done:
            stream.write(record.to_json() + "\n")
            stream.flush()
            known[record.name] = record
            progress(len(known), len(systems))
    return [known[system.name] for system in systems]


def _read_log(log: Path) -> list[Record]:
    if not log.exists():
        return []
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    return [Record.from_json(line) for line in lines if line.endswith("\n")]


@dataclass(frozen=True)
class Verdict:
    """How decisions on unseen systems compare, in priced seconds.

    Attributes
    ----------
    group : str
    systems : int
    best : float
        The share of systems whose choice is the best one, or within 5 % of it.
    worst : float
        How many times faster than FP64 at once the policy's choice is, on the system where it is
        slowest in comparison.
    ratios : dict
        Geometric means of the seconds over those of the best choice: the policy's, of always
        starting in FP32, and of FP64 at once.
    seconds : dict
        Totals of the same, and of the best choices.
    """

    group: str
    systems: int
    best: float
    worst: float
    ratios: Mapping[str, float]
    seconds: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {
            "systems": self.systems,
            "within 5 % of the best": round(self.best, 3),
            "worst against FP64": round(self.worst, 3),
            "time over the best's": {name: round(r, 3) for name, r in self.ratios.items()},
            "seconds": {name: float(f"{total:.4g}") for name, total in self.seconds.items()},
        }


def cross_validate(records: Sequence[Record], prices: Prices, folds: int = FOLDS) -> list[Verdict]:
    """Decide on each system from the facts of the other folds; small systems are left out."""
    decided: list[tuple[Record, str, dict[str, float]]] = []
    for fold in range(folds):
        facts = Facts.gathered(
            (r.context, r.experience) for i, r in enumerate(records) if i % folds != fold
        )
        policy = DefaultPolicy(facts, prices)
        for record in records[fold::folds]:
            context = record.context
            if context.is_sparse:
                small = context.entries < SPARSE_CROSSOVER
            else:
                small = context.n < policy.crossover(context.kind)
            if small:
                continue
            fill = math.exp(record.log_fill)
            seconds = {
                first: prices.seconds(context, climb, fill)
                for first, climb in record.climbs.items()
                if first in prices.profile.rates
            }
            decided.append((record, policy.choose_for(context).formats[0], seconds))
    groups = list(dict.fromkeys(record.context.kind for record, _, _ in decided))
    return [
        _verdict(group, [(f, s) for r, f, s in decided if group in ("all", r.context.kind)])
        for group in ([*groups, "all"] if decided else [])
    ]


def _verdict(group: str, decided: Sequence[tuple[str, dict[str, float]]]) -> Verdict:
    taken = {
        "policy": [seconds[first] for first, seconds in decided],
        "always FP32 first": [seconds[FP32.name] for _, seconds in decided],
        "always FP64": [seconds[FP64.name] for _, seconds in decided],
        "best": [min(seconds.values()) for _, seconds in decided],
    }
    over = {name: np.array(taken[name]) / taken["best"] for name in list(taken)[:-1]}
    return Verdict(
        group,
        len(decided),
        float(np.mean(over["policy"] <= 1.05)),
        float(np.min(over["always FP64"] / over["policy"])),
        {name: float(np.exp(np.mean(np.log(values)))) for name, values in over.items()},
        {name: sum(values) for name, values in taken.items()},
    )


def table(verdicts: Sequence[Verdict]) -> str:
    """As Markdown, for people and for docs."""
    if not verdicts:
        return "no system is large enough to gain time"
    ratios, totals = list(verdicts[0].ratios), list(verdicts[0].seconds)
    head = ["systems", "number", "within 5 % of the best", "worst against FP64"]
    head += [f"{name}, over the best" for name in ratios] + [f"{name} (s)" for name in totals]
    rows = [head, ["---"] * len(head)]
    for v in verdicts:
        row = [v.group, f"{v.systems}", f"{100 * v.best:.0f} %", f"{v.worst:.2f}"]
        row += [f"{v.ratios[name]:.3f}" for name in ratios]
        rows.append(row + [f"{v.seconds[name]:.3g}" for name in totals])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m roundwise.experiments.default_policy.facts",
        description="Make the default policy.",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=-1, help="processes, one BLAS thread each")
    parser.add_argument("--matrices", type=Path, help="a folder of Matrix Market files to include")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--log", type=Path, default=Path("out/default_policy.jsonl"))
    parser.add_argument("--every", type=int, default=1, help="take only every n-th system")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink all sizes, to try it out")
    asked = parser.parse_args(arguments)
    systems = policy_systems(asked.seed, asked.matrices, asked.scale)[:: asked.every]
    records = gather(systems, asked.log, asked.jobs, progress_bar("default policy"))
    prices = generic_prices()
    verdicts = cross_validate(records, prices)
    provenance = {
        "command": "python -m roundwise.experiments.default_policy.facts"
        + ("" if asked.matrices is None else " --matrices (SuiteSparse)"),
        "seed": asked.seed,
        "roundwise": roundwise.__version__,
        "systems": len(records),
        "machine": str(Machine.this()),
        "prices": prices.source,
        "cross-validation": {"folds": FOLDS} | {v.group: v.to_dict() for v in verdicts},
    }
    facts = Facts.gathered(((r.context, r.experience) for r in records), provenance)
    asked.out.write_text(facts.to_json(), encoding="utf-8")
    print(table(verdicts))


if __name__ == "__main__":
    main()
