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

from roundwise.actions import ActionLike
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

        Returns
        -------
        GmresIR

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


INDEX_BYTES = 4


def modelled_bytes(
    n: int, action: ActionLike, restart: int, entries: tuple[int, int] | None = None
) -> int:
    """Storage of GMRES-IR with formats (u_f, u, u_g, u_r), after Carson & Chen's native study.

    The matrix in u, a second one in u_r if that is another format, the factors in u_f, and vectors:
    the Krylov basis of ``restart + 1`` and one product in u_g, solution and correction in u,
    right-hand side and residual in u_r. It is a model: what a run really took is measured by
    `roundwise.outcomes.fill`.

    `restart` is the Arnoldi steps of a GMRES cycle, n if it never restarts. `entries` are those of
    a sparse A and of its factors, which have a 32-bit index each; by default both are dense.

    Parameters
    ----------
    n : int
        Unknowns.
    action : str or sequence of formats
        Formats of factor, update, gmres and residual.
    restart : int
        Arnoldi steps of a cycle.
    entries : (int, int), optional
        Of a sparse A and of its factors.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> from roundwise.algorithms import modelled_bytes
    >>> full = modelled_bytes(1000, "fp64-fp64-fp64-fp64", restart=30)
    >>> full - modelled_bytes(1000, "fp32-fp64-fp64-fp64", restart=30)  # half of the factors
    4000000
    """
    u_f, u, u_g, u_r = GmresIR().formats(action)
    if entries is None:
        of_matrix, of_factors, index = n * n, n * n, 0
    else:
        (of_matrix, of_factors), index = entries, INDEX_BYTES
    matrices = of_matrix * (u.storage_bytes + index) + of_factors * (u_f.storage_bytes + index)
    if u_r != u:
        matrices += of_matrix * u_r.storage_bytes  # its indices are those of the other
    vectors = (restart + 2) * u_g.storage_bytes + 2 * u.storage_bytes + 2 * u_r.storage_bytes
    return matrices + n * vectors
