"""Energy as a reward: joules of a run by the processor's own counter, where that can be read.

Linux shows the RAPL counters of Intel's and AMD's processors under ``/sys/class/powercap``: joules
of a whole package, other programs included, updated about every millisecond. A run is repeated
until it has taken long enough. Where there is no counter, as in most virtual machines, or it may
not be read, `Counter.found` refuses with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import ActionSpace, list_space
from roundwise.algorithms import GmresIR
from roundwise.algorithms.stopping import DeploymentRule
from roundwise.exceptions import RoundwiseError
from roundwise.policies import TabularQ
from roundwise.problems import LinearSystem
from roundwise.tuning import train
from roundwise_studies.tabulating import FlatRow

POWERCAP = Path("/sys/class/powercap")
LONG_ENOUGH = 0.05
"""Seconds of a measurement: fifty updates of the counter, so that its steps are 2 % of it."""


class EnergyUnavailable(RoundwiseError):
    """This machine shows no energy counter, or not to this user."""


@dataclass(frozen=True)
class Counter:
    """The counters of all packages; each starts again at 0 after its range of microjoules."""

    files: tuple[Path, ...]
    ranges: tuple[int, ...]

    @classmethod
    def found(cls, folder: Path = POWERCAP) -> Counter:
        """The counters of all packages, or why there are none."""
        zones = sorted(folder.glob("intel-rapl:[0-9]")) + sorted(
            folder.glob("intel-rapl:[0-9][0-9]")
        )
        if not zones:
            raise EnergyUnavailable(
                f"{folder} has no RAPL counter (a virtual machine, another processor, or another "
                "system than Linux); take CostReward with MeasuredTime instead of energy"
            )
        files = tuple(zone / "energy_uj" for zone in zones)
        try:
            ranges = tuple(int((zone / "max_energy_range_uj").read_text()) for zone in zones)
            counter = cls(files, ranges)
            counter.read()
        except PermissionError:
            raise EnergyUnavailable(
                f"{files[0]} may be read by root alone; ask the administrator for read access, or "
                "take CostReward with MeasuredTime"
            ) from None
        return counter

    def read(self) -> tuple[int, ...]:
        return tuple(int(file.read_text()) for file in self.files)

    def joules(self, before: Sequence[int], after: Sequence[int]) -> float:
        """What was used between two readings that are less than one range apart."""
        used = zip(before, after, self.ranges, strict=True)
        return 1e-6 * sum((end - start) % (span + 1) for start, end, span in used)


def joules_of(run: Callable[[], object], counter: Counter, seconds: float = LONG_ENOUGH) -> float:
    """Mean joules of a call, repeated for so many seconds."""
    run()
    count, before, start = 0, counter.read(), time.perf_counter()
    while count == 0 or time.perf_counter() - start < seconds:
        run()
        count += 1
    return counter.joules(before, counter.read()) / count


def rewards(joules: NDArray[np.float64], met: NDArray[np.bool_], safe: int) -> NDArray[np.float64]:
    """log2 of all-FP64's joules over an action's, (N, A); a miss pays for FP64 besides.

    As `CostReward` has it for seconds: the safe action earns 0.
    """
    reference = joules[:, safe, None]
    spent = np.where(met, joules, joules + reference)
    earned = np.log2(reference / spent)
    earned[:, safe] = 0.0
    return np.asarray(earned)


def study(problems: Sequence[LinearSystem], counter: Counter, seed: int = 0) -> Iterator[FlatRow]:
    """Native runs of GMRES-IR with each factor format: joules, seconds, and what is learned."""
    algorithm = GmresIR(stop=DeploymentRule())
    names = ["fp32-fp64-fp64-fp64", "fp64-fp64-fp64-fp64"]
    space: ActionSpace = list_space(algorithm.stages, names)
    joules = np.empty((len(problems), len(space)))
    seconds, met = np.empty_like(joules), np.zeros(joules.shape, dtype=bool)
    for i, problem in enumerate(problems):
        for a, action in enumerate(space):
            outcome = algorithm.run(problem, action, "native")
            seconds[i, a], met[i, a] = outcome.seconds or np.nan, outcome.converged
            joules[i, a] = joules_of(partial(algorithm.run, problem, action, "native"), counter)
    earned = rewards(joules, met, space.safe)
    contexts = np.array([[np.log10(problem.meta["kappa"])] for problem in problems])
    policy = TabularQ(alpha="1/N")
    train(policy, contexts, earned, space, 50, np.random.default_rng(seed))
    chosen = policy.predict(contexts)
    for a, name in enumerate(space.names):
        yield {
            "action": name,
            "joules": float(np.median(joules[:, a])),
            "seconds": float(np.median(seconds[:, a])),
            "met %": 100 * float(met[:, a].mean()),
            "mean reward": float(earned[:, a].mean()),
            "chosen %": 100 * float((chosen == a).mean()),
        }
