"""The fuzzing of `test_gate` and `test_error_bounds` over many systems and all cores: `make fuzz`.

Every system is solved twice: once plainly, and its answer put to the gate in rational arithmetic;
once with all that is known of its error, which is compared with the exact solution.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import warnings
from collections import Counter

import numpy as np
import rational
from scipy import sparse
from solver import test_error_bounds, test_gate

import roundwise as rw
from roundwise.machine.identity import Machine
from roundwise.machine.threads import usable_cores

FORMS = {"dense": np.asarray, "sparse": sparse.csr_array, "Fortran": np.asfortranarray}


def gate(seed: int) -> str:
    """Whether there was an answer; an AssertionError if it is above the gate."""
    A, b = test_gate.drawn_system(np.random.default_rng([77, seed]), is_complex=False)
    form = FORMS[list(FORMS)[seed % 3]]
    policy = test_gate.POLICIES[seed // 3 % len(test_gate.POLICIES)]
    try:
        x = rw.solve(form(A), b, policy=policy)
    except rw.SolveFailed:
        return "no answer"
    assert rational.passes_gate(A, x, b, math.sqrt(len(A)) * 2.0**-53)
    return "an answer"


def bounds(seed: int) -> str:
    """What is said of the error; an AssertionError if that is not true."""
    return test_error_bounds.check(*test_error_bounds.drawn_system(seed))


def judged(task: tuple[str, int]) -> tuple[str, int, str]:
    name, seed = task
    warnings.simplefilter("ignore")
    try:
        return name, seed, {"gate": gate, "bounds": bounds}[name](seed)
    except AssertionError as error:
        return name, seed, f"WRONG {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first system")
    parser.add_argument("--jobs", type=int, default=usable_cores())
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.systems)
    tasks = [(name, seed) for seed in seeds for name in ("gate", "bounds")]
    counts: Counter[tuple[str, str]] = Counter()
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for done, (name, seed, result) in enumerate(pool.imap_unordered(judged, tasks, 50), 1):
            if result.startswith("WRONG"):
                print(f"{name}, system {seed}: {result}", flush=True)
                result = "WRONG"
            counts[name, result] += 1
            if done % 20_000 == 0:
                print(f"{done} of {len(tasks)}", file=sys.stderr, flush=True)
    print(f"{given.systems} systems from {given.first} on, {Machine.this()}")
    for (name, result), count in sorted(counts.items()):
        print(f"  {name}: {result}: {count}")
    sys.exit(any(result == "WRONG" for _, result in counts))


if __name__ == "__main__":
    main()
