"""The price of knowing: policies that learn by replay, and all outcomes of GMRES-IR for one system
and for the paper's dense set.

Run with ``make bench`` on an idle machine; the last part takes minutes.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits
from timing import median_seconds

import roundwise as rw
from roundwise.actions import monotone_space
from roundwise.algorithms.base import PAPER_FORMATS
from roundwise.policies import LinearUCB, Policy, TabularQ, ThompsonSampling
from roundwise.problems import LinearSystem, randsvd
from roundwise.tuning import train
from roundwise_studies.datasets import dense_set

ACTIONS = list(itertools.combinations_with_replacement(PAPER_FORMATS, 4))  # the 35 monotone ones
ALGORITHM = rw.GmresIR.paper(1e-6)


def all_outcomes(problem: LinearSystem) -> int:
    rw.set_num_threads(1)
    with threadpool_limits(1):
        return len(ALGORITHM.run_all(problem, ACTIONS))


def learning() -> None:
    """Updates per second when policies learn by replay."""
    rng = np.random.default_rng(0)
    space = monotone_space(rw.GmresIR.stages, PAPER_FORMATS).last(25)
    contexts = np.column_stack([rng.uniform(1, 8, 100), rng.uniform(0, 2, 100)])
    bits = np.array([sum(fmt.p for fmt in action) for action in space])
    rewards = -np.abs(bits - 20 * contexts[:, :1]) / 50
    policies: list[tuple[Policy, str]] = [
        (TabularQ(), ">= 100000"),
        (LinearUCB(), ""),
        (ThompsonSampling(), ""),
    ]
    print("Learning by replay: 100 episodes of 100 problems, 25 actions")
    for policy, wanted in policies:
        start = time.perf_counter()
        train(policy, contexts, rewards, space, 100, np.random.default_rng(1))
        rate = 100 * 100 / (time.perf_counter() - start)
        print(f"  {policy.name:<18} {rate:>10.0f} updates per second   {wanted}")


def main() -> None:
    learning()
    problem = randsvd(300, 1e4, mode=2, rng=0)
    rw.set_num_threads(1)
    with threadpool_limits(1):
        (outcomes,) = median_seconds(3, lambda: ALGORITHM.run_all(problem, ACTIONS))
        fp64, solve = median_seconds(
            9,
            lambda: ALGORITHM.run(problem, ACTIONS[-1]),
            lambda: np.linalg.solve(problem.A, problem.b),
        )
    print("GMRES-IR, randsvd n = 300, kappa = 1e4, tau = 1e-6, one thread")
    print(f"  numpy.linalg.solve     {1e3 * solve:9.2f} ms")
    print(f"  the FP64 action        {1e3 * fp64:9.2f} ms   {fp64 / solve:6.1f}x")
    print(f"  all 35 actions         {1e3 * outcomes:9.2f} ms   {outcomes / solve:6.1f}x")

    data = dense_set(100, 100, seed=0)
    start = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        runs = sum(pool.map(all_outcomes, data.train + data.test))
    elapsed = time.perf_counter() - start
    print(f"  200 systems, {runs} runs  {elapsed:9.1f} s, two processes   (wanted: 180 s)")


if __name__ == "__main__":
    main()
