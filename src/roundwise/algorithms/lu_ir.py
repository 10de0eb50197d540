"""LU-IR: classical iterative refinement, with corrections from the factors alone.

    PA = LU, x_0 = U\\(L\\Pb)      in u_f  (factor)
    repeat  r = b - A x           in u_r  (residual)
            z = U\\(L\\Pr)          in u_f  (factor)
            x = x + z             in u    (update)

Wilkinson (1948), Moler (1967); in three precisions, Carson & Higham (2018).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from roundwise.algorithms.base import Algorithm, Outcome, Shared
from roundwise.algorithms.refinement import (
    Substitution,
    refine_problem,
    shared_factors,
    shared_system,
)
from roundwise.algorithms.stage import Stages
from roundwise.algorithms.stopping import PaperRule, StoppingRule
from roundwise.problems import LinearSystem


@dataclass(frozen=True)
class LuIR(Algorithm):
    """Classical iterative refinement in three precisions.

    Parameters
    ----------
    equilibrate : bool
        Scale rows and columns by powers of two first.
    stop : StoppingRule
        By default the paper's with tau = 0.5: corrections that do not halve stagnate.

    Examples
    --------
    >>> system = rw.problems.randsvd(30, kappa=1e4, rng=0)
    >>> outcome = rw.LuIR(stop=rw.algorithms.DeploymentRule()).run(system, "fp32-fp64-fp64")
    >>> outcome.status.name, bool(outcome.nbe < 1e-15)
    ('CONVERGED', True)
    """

    stages: ClassVar[tuple[str, ...]] = ("factor", "update", "residual")

    equilibrate: bool = False
    stop: StoppingRule = field(default_factory=lambda: PaperRule(tau=0.5, max_steps=100))

    def execute(self, problem: LinearSystem, stages: Stages, shared: Shared) -> Outcome:
        factor, update, residual = (stages[name] for name in self.stages)
        system = shared_system(problem, self.equilibrate, residual, shared)
        solve = Substitution(factor, shared_factors(factor, system, shared))
        return refine_problem(problem, system, solve, solve, residual, update, self.stop, shared)
