"""CG-IR: refinement of symmetric positive definite systems by preconditioned conjugate gradients.

    A = LL', x_0 = L'\\(L\\b)                        in u_f  (factor)
    repeat  r = b - A x                             in u_r  (residual)
            solve A z = r by CG, preconditioner LL' in u_g  (cg)
            x = x + z                               in u    (update)

Higham & Pranesh, SIAM J. Sci. Comput. 43 (2021), with CG in place of their GMRES.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from roundwise.algorithms.base import Algorithm, Outcome, Shared
from roundwise.algorithms.krylov import conjugate_gradients
from roundwise.algorithms.refinement import refine_by_inner_solves
from roundwise.algorithms.stage import Stages
from roundwise.algorithms.stopping import PaperRule, StoppingRule
from roundwise.backends.native.dense import is_symmetric
from roundwise.problems import LinearSystem


@dataclass(frozen=True)
class CgIR(Algorithm):
    """CG-based iterative refinement in four precisions, for symmetric positive definite A.

    Parameters
    ----------
    tolerance : float
        Relative tolerance of the inner CG.
    max_inner : int, optional
        CG steps of one outer step; n if not given.
    stop : StoppingRule
        By default the paper's with tau = 0.5: corrections that do not halve stagnate.

    Examples
    --------
    >>> system = rw.problems.poisson_2d(8)
    >>> outcome = rw.CgIR().run(system, "fp32-fp64-fp64-fp64")
    >>> bool(outcome.ferr < 1e-12)
    True
    """

    stages: ClassVar[tuple[str, ...]] = ("factor", "update", "cg", "residual")

    tolerance: float = 1e-4
    max_inner: int | None = None
    stop: StoppingRule = field(default_factory=lambda: PaperRule(tau=0.5, max_steps=100))

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance = {self.tolerance}; choose 0 < tolerance < 1")
        if self.max_inner is not None and self.max_inner < 1:
            raise ValueError(f"max_inner = {self.max_inner}; choose at least 1")

    def execute(self, problem: LinearSystem, stages: Stages, shared: Shared) -> Outcome:
        if not shared.get("symmetric", lambda: is_symmetric(problem.A)):
            raise ValueError("CG-IR needs a symmetric matrix; use GmresIR or LuIR for this one")
        most = problem.n if self.max_inner is None else self.max_inner
        solve = partial(conjugate_gradients, tolerance=self.tolerance, most=most)
        return refine_by_inner_solves(problem, stages, shared, solve, self.stop, "cholesky")
