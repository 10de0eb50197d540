"""Your own algorithm with stages: the power method for the largest eigenvalue.

It is no linear solver, and knows nothing of formats, backends or learning; yet it runs in any
precision on any backend, and its operations are counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import roundwise as rw
from roundwise.algorithms import Shared, Stage


@dataclass(frozen=True)
class EigenProblem:
    A: np.ndarray  # symmetric
    value: float  # its largest eigenvalue


@dataclass(frozen=True)
class PowerMethod(rw.Algorithm):
    """x = A x / ||A x|| in `iterate`, then the Rayleigh quotient x' A x in `quotient`."""

    stages: ClassVar[tuple[str, ...]] = ("iterate", "quotient")
    steps: int = 200

    def _run(
        self, problem: EigenProblem, stages: Mapping[str, Stage], shared: Shared
    ) -> rw.Outcome:
        iterate, quotient = stages["iterate"], stages["quotient"]
        A, A_q = iterate.matrix(problem.A), quotient.matrix(problem.A)
        x = np.full(len(problem.A), 1 / np.sqrt(len(problem.A)))
        for _ in range(self.steps):
            y = iterate.matvec(A, x)
            x = iterate.scale(1 / iterate.norm2(y), y)
        value = quotient.dot(x, quotient.matvec(A_q, x)) / quotient.dot(x, x)
        ferr = abs(value - problem.value) / abs(problem.value)
        return rw.Outcome(rw.OutcomeStatus.ITERATION_LIMIT, x, ferr, outer_iterations=self.steps)


def main() -> None:
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    problem = EigenProblem((Q * np.append(3.0, np.linspace(1, 2, 59))) @ Q.T, 3.0)
    for action in ("bf16-bf16", "bf16-fp64", "fp32-fp64", "fp64-fp64"):
        outcome = PowerMethod().run(problem, action)
        flops = sum(tally.flops for tally in outcome.operations.values())
        print(f"{action:10}  error {outcome.ferr:.1e}  {flops:.1e} flops")


if __name__ == "__main__":
    main()
