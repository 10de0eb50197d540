"""GMRES-IR: iterative refinement whose corrections come from preconditioned GMRES.

    PA = LU, x_0 = U\\(L\\Pb)                      in u_f  (factor)
    repeat  r = b - A x                           in u_r  (residual)
            solve U\\L\\P A z = U\\L\\P r by GMRES    in u_g  (gmres)
            x = x + z                             in u    (update)

Carson & Higham, SIAM J. Sci. Comput. 39 (2017) and 40 (2018); Carson & Chen's Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from roundwise.algorithms.base import Algorithm, Outcome, Shared
from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.refinement import refine_by_inner_solves
from roundwise.algorithms.stage import Stages
from roundwise.algorithms.stopping import PaperRule, StoppingRule
from roundwise.problems import LinearSystem


@dataclass(frozen=True)
class GmresIR(Algorithm):
    """GMRES-based iterative refinement in four precisions.

    Parameters
    ----------
    tolerance : float
        Relative tolerance of the inner GMRES, on the preconditioned residual.
    restart : int, optional
        Arnoldi steps of a GMRES cycle; n if not given.
    cycles : int
        GMRES cycles of one outer step.
    equilibrate : bool
        Scale rows and columns by powers of two first; needed for fp16 and fp8, whose range
        most matrices exceed. The stopping rule then sees the scaled system.
    stop : StoppingRule
        By default the paper's, with tau = 1e-6.

    Examples
    --------
    >>> system = rw.problems.randsvd(30, kappa=1e4, rng=0)
    >>> outcome = rw.GmresIR(stop=rw.algorithms.DeploymentRule()).run(system, "fp32-fp64-fp64-fp64")
    >>> outcome.status.name, bool(outcome.nbe < 1e-15)
    ('CONVERGED', True)
    """

    stages: ClassVar[tuple[str, ...]] = ("factor", "update", "gmres", "residual")

    tolerance: float = 1e-6
    restart: int | None = None
    cycles: int = 1
    equilibrate: bool = False
    stop: StoppingRule = field(default_factory=PaperRule)

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance = {self.tolerance}; choose 0 < tolerance < 1")
        if self.cycles < 1 or (self.restart is not None and self.restart < 1):
            raise ValueError("restart and cycles are counts; choose at least 1")

    @classmethod
    def paper(cls, tau: float = 1e-6) -> GmresIR:
        """Carson & Chen's settings: tau is both the inner tolerance and the stagnation ratio.

        The first stagnating step ends the run: so says their equation, and their 2.00 outer
        iterations of FP64 agree. Their prose says that the scripts wait for three such steps, which
        is ``PaperRule(tau, patience=3)``.

        Parameters
        ----------
        tau : float

        Examples
        --------
        >>> rw.GmresIR.paper(1e-8).tolerance
        1e-08
        """
        return cls(tolerance=tau, stop=PaperRule(tau))

    def execute(self, problem: LinearSystem, stages: Stages, shared: Shared) -> Outcome:
        restart = problem.n if self.restart is None else self.restart
        solve = partial(gmres, tolerance=self.tolerance, restart=restart, cycles=self.cycles)
        return refine_by_inner_solves(
            problem, stages, shared, solve, self.stop, equilibrate=self.equilibrate
        )
