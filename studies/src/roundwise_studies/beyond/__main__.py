"""Run parts of what the paper left for later: ``python -m roundwise_studies.beyond [part ...]``."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from roundwise.machine.identity import Machine
from roundwise_studies.beyond import algorithms, energy, features, learners, patience
from roundwise_studies.beyond.judging import replayed
from roundwise_studies.datasets import DATA_SETS
from roundwise_studies.report import format_text
from roundwise_studies.simulated.experiment import EXPERIMENTS, Settings
from roundwise_studies.tabulating import FlatRow, row_table

Options = argparse.Namespace


def sensitivity(options: Options) -> Iterable[FlatRow]:
    for name in options.experiments:
        yield from learners.sensitivity(replayed(name, options.cache, options.jobs), options.seeds)


def learner_rows(options: Options) -> Iterable[FlatRow]:
    for name in options.experiments:
        replay = replayed(name, options.cache, options.jobs)
        library = () if options.without_library else ("DQN", "PPO")
        yield from learners.learners(replay, library, options.seeds, options.library_seeds)


def literature(options: Options) -> Iterable[FlatRow]:
    for name in options.experiments:
        replay = replayed(name, options.cache, options.jobs)
        known = {problem.fingerprint for problem in replay.test.problems}
        made = DATA_SETS[EXPERIMENTS[name].data](0, 100, seed=0).test
        problems = [problem for problem in made if problem.fingerprint in known]
        yield from learners.fixed_rows(replay, problems)


def feature_rows(options: Options) -> Iterable[FlatRow]:
    for name in options.experiments:
        replay = replayed(name, options.cache, options.jobs)
        data = EXPERIMENTS[name].data
        made = DATA_SETS[data](100, 100, seed=0)
        known = {problem.fingerprint for problem in replay.test.problems}
        test = [problem for problem in made.test if problem.fingerprint in known]
        file = options.cache / f"{data}-features.json"
        added = features.ADDED
        halves = tuple(features.computed(half, added, file) for half in (made.train, test))
        yield from features.contributions(replay, halves, added, options.seeds)


def algorithm_rows(options: Options) -> Iterable[FlatRow]:
    for task in algorithms.tasks(options.problems):
        yield from algorithms.learned(task, options.cache, options.seeds, options.jobs)


def applications(options: Options) -> Iterable[FlatRow]:
    task = algorithms.application_task(options.matrices, options.largest)
    yield from algorithms.learned(task, options.cache, options.seeds, options.jobs)


def patience_rows(options: Options) -> Iterable[FlatRow]:
    taus = tuple(options.taus)
    settings = Settings(systems=options.systems, seeds=options.seeds, taus=taus)
    for name in options.experiments:
        yield from patience.rows(name, settings, options.cache, options.jobs)


def energy_rows(options: Options) -> Iterable[FlatRow]:
    counter = energy.Counter.found()
    yield from energy.study(algorithms.dense_problems(12, (300, 600), 6, 5), counter)


PARTS: dict[str, Callable[[Options], Iterable[FlatRow]]] = {
    "sensitivity": sensitivity,
    "features": feature_rows,
    "learners": learner_rows,
    "literature": literature,
    "patience": patience_rows,
    "algorithms": algorithm_rows,
    "applications": applications,
    "energy": energy_rows,
}
BY_DEFAULT = ("sensitivity", "features", "learners", "literature", "patience", "algorithms")
"""Those that need neither files of the user's nor a counter of the machine's."""


def run(name: str, options: Options) -> Path:
    """Run a part, print its table, and write its numbers."""
    clock = time.process_time()
    rows = list(PARTS[name](options))
    shown = {key: ".3g" for row in rows for key, cell in row.items() if isinstance(cell, float)}
    print(f"\n{name}\n\n{format_text(row_table(name, rows, formats=shown))}", flush=True)
    stored = {
        "part": name,
        "machine": str(Machine.this()),
        "processor_seconds": round(time.process_time() - clock, 1),
        "rows": [{key: plain(cell) for key, cell in row.items()} for row in rows],
    }
    folder = options.cache / "beyond"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    file.write_text(json.dumps(stored, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return Path(file)


def plain(cell: Any) -> Any:
    if isinstance(cell, float):
        return float(f"{cell:.6g}") if math.isfinite(cell) else None
    return cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--cache", type=Path, default=Path("out"))
    parser.add_argument("--experiments", nargs="+", default=["dense"], choices=list(EXPERIMENTS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--systems", type=int, default=100, help="of each half, for patience")
    parser.add_argument("--taus", nargs="+", type=float, default=[1e-6, 1e-8], help="of patience")
    parser.add_argument("--library-seeds", type=int, default=3, help="of DQN and PPO")
    parser.add_argument("--problems", type=int, default=60, help="of each algorithm")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--matrices", type=Path, help="a folder of .mtx or .mtx.gz files")
    parser.add_argument("--largest", type=int, default=300, help="n of application matrices")
    parser.add_argument("--without-library", action="store_true", help="no DQN and no PPO")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    if "applications" in options.parts and options.matrices is None:
        parser.error("applications need --matrices, a folder of Matrix Market files")
    options.cache.mkdir(parents=True, exist_ok=True)
    for name in options.parts or BY_DEFAULT:
        print(f"\n{run(name, options)}")


if __name__ == "__main__":
    main()
