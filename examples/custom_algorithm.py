"""
Your own algorithm, problem and reward
======================================

The power method, which finds the largest eigenvalue, learns which precisions it needs. It knows
nothing of formats, backends or learning; yet it runs in any precision on any backend, its
operations are counted, and ``Tuner`` learns its precisions as it does those of GMRES-IR.
"""

# sphinx_gallery_thumbnail_path = "images/thumb-custom_algorithm.png"

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

import roundwise as rw
from roundwise.algorithms import Shared, Stage
from roundwise.problems import Problem
from roundwise.rewards import Reward
from roundwise.tuning import Context

# %%
# The problem, and the algorithm
# ------------------------------
# Kernels of a stage round to its format.


@dataclass(frozen=True, eq=False)
class EigenProblem(Problem):
    A: np.ndarray  # symmetric
    value: float  # its largest eigenvalue


@dataclass(frozen=True)
class PowerMethod(rw.Algorithm):
    """x = A x / ||A x|| in `iterate`, then the Rayleigh quotient x' A x in `quotient`."""

    stages: ClassVar[tuple[str, ...]] = ("iterate", "quotient")
    steps: int = 100

    def execute(
        self, problem: EigenProblem, stages: Mapping[str, Stage], shared: Shared
    ) -> rw.Outcome:
        iterate, quotient = stages["iterate"], stages["quotient"]
        A, A_q = iterate.matrix(problem.A), quotient.matrix(problem.A)
        x = np.full(problem.n, 1 / np.sqrt(problem.n))
        for _ in range(self.steps):
            y = iterate.matvec(A, x)
            x = iterate.scale(1 / iterate.norm2(y), y)
        value = quotient.dot(x, quotient.matvec(A_q, x)) / quotient.dot(x, x)
        ferr = abs(value - problem.value) / abs(problem.value)
        return rw.Outcome(rw.OutcomeStatus.ITERATION_LIMIT, x, ferr, outer_iterations=self.steps)


# %%
# The reward
# ----------


@dataclass(frozen=True)
class DigitsForBits(Reward):
    """Correct digits up to `digits`, less a price for each bit of a significand."""

    name: ClassVar[str] = "digits for bits"
    needs_kappa: ClassVar[bool] = False
    digits: float = 6.0
    price: float = 0.02

    def components(self, outcome, facts, action):
        correct = -np.log10(max(outcome.ferr, 1e-16))
        bits = sum(fmt.p for fmt in action)
        return {"digits": min(correct, self.digits), "bits": -self.price * bits}


# %%
# Runs in four precisions
# -----------------------


def eigen_problem(n: int, second: float, rng: np.random.Generator) -> EigenProblem:
    """Eigenvalues 3, `second`, and others from 1 to that: the closer to 3, the slower."""
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return EigenProblem((Q * np.append(3.0, np.linspace(1, second, n - 1))) @ Q.T, 3.0)


rng = np.random.default_rng(0)
problems = [eigen_problem(30, second, rng) for second in np.linspace(1.2, 2.4, 12)]
for action in ("bf16-bf16", "bf16-fp64", "fp32-fp64", "fp64-fp64"):
    outcome = PowerMethod().run(problems[0], action)
    flops = sum(tally.flops for tally in outcome.operations.values())
    print(f"{action:10}  error {outcome.ferr:.1e}  {flops:.1e} flops")

# %%
# Learn which one is needed, save it, and choose for a new problem
# ----------------------------------------------------------------

tuner = rw.Tuner(
    PowerMethod(),
    ("bf16", "fp32", "fp64"),
    reward=DigitsForBits(),
    context=Context(("norm_inf",), (1.0,)),
)
tuner.fit(problems)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "tuner.json"
    tuner.save(path)
    loaded = rw.Tuner.load(path, PowerMethod(), rewards=[DigitsForBits])
new = eigen_problem(30, 1.8, rng)
action = loaded.predict(new)
error = PowerMethod().run(new, action).ferr
print(f"learned:    {action}  error {error:.1e}")
