"""A table of a million outcomes: seconds and memory to write, open, view and train. `make scale`.

Solving is what takes long, and it is measured elsewhere (benchmarks/bench_gmres_ir.py); here a few
systems are solved with all 35 actions, and their facts are written again and again as those of
other problems, through the same transactions as `fill` uses. Each step runs in a process of its
own, whose peak memory is what the system says. The result is in ``out/scale.md``, which
`docs/refresh.py scale` puts into docs/cluster.md.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import roundwise as rw
from roundwise.actions import monotone_space
from roundwise.algorithms.base import PAPER_FORMATS
from roundwise.costs import GENERIC_AVX512_CPU
from roundwise.machine.identity import Machine
from roundwise.outcomes import OutcomeTable
from roundwise.outcomes.filling import PAPER_FEATURES, Task, evaluate
from roundwise.outcomes.records import Setting
from roundwise.outcomes.writing import ProblemResults
from roundwise.policies import TabularQ
from roundwise.problems import randsvd
from roundwise.rewards import CostReward, StrictTarget

ALGORITHM = rw.GmresIR.paper(1e-6)
SPACE = monotone_space(ALGORITHM.stages, PAPER_FORMATS)
EPISODES = 3
OUT = Path("out")


class Measured:
    """The seconds of a block, on the clock and of the processor."""

    def __enter__(self) -> Measured:
        self._started = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_error: object) -> None:
        self.clock = time.perf_counter() - self._started[0]
        self.processor = time.process_time() - self._started[1]


def solved() -> list[list[ProblemResults]]:
    """The results of eight small systems, as the tasks of `fill` give them."""
    found = []
    for k in range(1, 9):
        problem = randsvd(40, 10.0**k, rng=k)
        tasks = []
        for index, name in enumerate(PAPER_FORMATS):
            actions = tuple(action for action in SPACE if action[0].name == name)
            features = PAPER_FEATURES if index == 0 else ()
            setting = Setting.of(ALGORITHM, "operation")
            task = Task(ALGORITHM, setting, problem, actions, "operation", features)
            tasks.append(evaluate(task))
        found.append(tasks)
    return found


def write(path: Path, problems: int) -> Measured:
    """One transaction for each task."""
    table, sources = OutcomeTable(path), solved()
    with Measured() as measured:
        for i in range(problems):
            fingerprint = hashlib.blake2b(str(i).encode(), digest_size=16).hexdigest()
            for result in sources[i % len(sources)]:
                problem = replace(result.problem, fingerprint=fingerprint, name=f"copy {i}")
                table.write(replace(result, problem=problem))
    return measured


def opened(path: Path, problems: int) -> Measured:
    with Measured() as measured:
        table = OutcomeTable(path, must_exist=True)
    assert len(table) == problems * len(SPACE)
    return measured


def viewed(path: Path, problems: int) -> Measured:
    table = OutcomeTable(path, must_exist=True)
    with Measured() as measured:
        view = table.view(ALGORITHM, None, SPACE)
    assert view.shape == (problems, len(SPACE))
    return measured


def trained(path: Path, problems: int) -> Measured:
    view = OutcomeTable(path, must_exist=True).view(ALGORITHM, None, SPACE)
    reward = CostReward(GENERIC_AVX512_CPU, StrictTarget(1e-6))
    tuner = rw.Tuner(ALGORITHM, space=SPACE, reward=reward, policy=TabularQ(), episodes=EPISODES)
    with Measured() as measured:
        tuner.fit_view(view, SPACE)
    assert tuner.rewards_.shape == (problems, len(SPACE))
    return measured


STEPS: dict[str, Callable[[Path, int], Measured]] = {
    "write": write,
    "open": opened,
    "view": viewed,
    f"train, {EPISODES} episodes": trained,
}


def peak_mebibytes() -> float:
    """The most memory this process has had; NaN where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return float("nan")
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _step(name: str, path: Path, problems: int, queue: Any) -> None:
    measured = STEPS[name](path, problems)
    queue.put((measured.clock, measured.processor, peak_mebibytes()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outcomes", type=int, default=1_000_000)
    given = parser.parse_args()
    problems = -(-given.outcomes // len(SPACE))
    OUT.mkdir(exist_ok=True)
    path = OUT / "scale.sqlite"
    path.unlink(missing_ok=True)
    context = multiprocessing.get_context("spawn")
    lines = ["| step | seconds | of the processor | peak MiB |", "| :-- | --: | --: | --: |"]
    for name in STEPS:
        queue = context.SimpleQueue()
        process = context.Process(target=_step, args=(name, path, problems, queue))
        process.start()
        process.join()
        if process.exitcode != 0:
            sys.exit(f"{name} ended with {process.exitcode}")
        clock, processor, peak = queue.get()
        lines.append(f"| {name} | {clock:.1f} | {processor:.1f} | {peak:.0f} |")
        print(lines[-1], flush=True)
    size = path.stat().st_size / 2**20
    lines += [
        "",
        f"{problems * len(SPACE)} outcomes of {problems} problems, a file of {size:.0f} MiB;",
    ]
    lines.append(f"{Machine.this()}. Training includes the rewards of all pairs.")
    print("\n".join(lines[-2:]))
    (OUT / "scale.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.unlink()


if __name__ == "__main__":
    main()
