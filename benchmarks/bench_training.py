"""Updates per second when policies learn by replay. Run with ``make bench``."""

from __future__ import annotations

import time

import numpy as np

import roundwise as rw
from roundwise.actions import monotone_space, top_k
from roundwise.algorithms.base import PAPER_FORMATS
from roundwise.policies import LinearUCB, Policy, TabularQ, ThompsonSampling
from roundwise.tuning import train


def main() -> None:
    rng = np.random.default_rng(0)
    space = top_k(monotone_space(rw.GmresIR.stages, PAPER_FORMATS), 25)
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


if __name__ == "__main__":
    main()
