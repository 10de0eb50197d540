"""Krylov-IR: refinement whose corrections come from preconditioned CG or GMRES.

    M = about A^-1                                  in u_m (preconditioner)
    repeat  r = b - A x                             in u_r (residual)
            solve A z = r by CG or FGMRES with M    in u_g (krylov), M stored and applied in u_m
            x = x + z                               in u   (update)

The paper's question for iterative methods: nothing is factorized, so that the formats of M and of
the Krylov vectors decide about the iterations, and what they cost. `preconditioner` is one of

- ``jacobi``: the inverse of A's diagonal;
- ``fsai``: ``M = G'G`` with G lower triangular, of the pattern of A's lower triangle, and
  ``G A G'`` with a unit diagonal: for symmetric positive definite A (Kolotilina & Yeremin, SIAM J.
  Matrix Anal. Appl. 14, 1993);
- ``spai``: columns m_j of the pattern of A's, with least ``||A m_j - e_j||_2`` (Benson &
  Frederickson 1982);
- ``lu`` and ``cholesky``: complete factors in the stage's format, as GMRES-IR and CG-IR have them.

The first three are computed in float64 and rounded to the format; they are applied as products, so
that every format runs them. A dense A has a full pattern: Jacobi or factors are for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import sparse

from roundwise._csr import canonical_csr
from roundwise.algorithms.base import Algorithm, Outcome, Shared
from roundwise.algorithms.krylov import fgmres, preconditioned_cg
from roundwise.algorithms.refinement import (
    by_columns,
    refine_problem,
    shared_factors,
    shared_matrix,
    shared_system,
)
from roundwise.algorithms.stage import Stage, Stages, Vector
from roundwise.algorithms.stopping import PaperRule, StoppingRule
from roundwise.backends import ArithmeticFailure, Status
from roundwise.backends.native.dense import is_symmetric
from roundwise.problems import LinearSystem

PRECONDITIONERS = ("jacobi", "fsai", "spai", "lu", "cholesky")

Apply = Callable[[Vector], Vector]


@dataclass(frozen=True)
class KrylovIR(Algorithm):
    """Preconditioned CG or GMRES in four precisions.

    Parameters
    ----------
    krylov : {"gmres", "cg"}
        CG is for symmetric positive definite A.
    preconditioner : {"jacobi", "fsai", "spai", "lu", "cholesky"}
    tolerance : float
        What a correction is to reduce the residual to.
    restart : int, optional
        Arnoldi steps of a GMRES cycle; n if not given.
    most : int, optional
        CG steps, or GMRES cycles times `restart`, of one correction; n if not given.
    stop : StoppingRule
        By default the paper's with tau = 0.5: corrections that do not halve stagnate.

    Examples
    --------
    >>> system = rw.problems.poisson_2d(8)
    >>> outcome = rw.algorithms.KrylovIR("cg", "fsai").run(system, "bf16-fp32-fp64-fp64")
    >>> outcome.status.name, bool(outcome.nbe < 1e-15)
    ('CONVERGED', True)
    """

    stages: ClassVar[tuple[str, ...]] = ("preconditioner", "krylov", "update", "residual")

    krylov: Literal["gmres", "cg"] = "gmres"
    preconditioner: str = "jacobi"
    tolerance: float = 1e-6
    restart: int | None = None
    most: int | None = None
    stop: StoppingRule = field(default_factory=lambda: PaperRule(tau=0.5, max_steps=100))

    def __post_init__(self) -> None:
        if self.krylov not in ("gmres", "cg"):
            raise ValueError(f"krylov = {self.krylov!r}; choose 'gmres' or 'cg'")
        if self.preconditioner not in PRECONDITIONERS:
            names = ", ".join(PRECONDITIONERS)
            raise ValueError(f"preconditioner = {self.preconditioner!r}; choose one of {names}")
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance = {self.tolerance}; choose 0 < tolerance < 1")
        if any(count is not None and count < 1 for count in (self.restart, self.most)):
            raise ValueError("restart and most are counts; choose at least 1")

    def execute(self, problem: LinearSystem, stages: Stages, shared: Shared) -> Outcome:
        stored, inner, update, residual = stages.values()
        symmetric = self.krylov == "cg" or self.preconditioner in ("fsai", "cholesky")
        if symmetric and not shared.get("symmetric", lambda: is_symmetric(problem.A)):
            raise ValueError("CG, fsai and cholesky need a symmetric matrix; use gmres with others")
        system = shared_system(problem, False, residual, shared)
        A = shared_matrix(inner, system, shared)
        if self.preconditioner in ("lu", "cholesky"):
            factors = shared_factors(stored, system, shared, self.preconditioner)
            apply: Apply = partial(stored.solve, factors)
        else:
            apply = self._products(system[0].A, stored, shared)
        most = problem.n if self.most is None else self.most
        solve: Any
        if self.krylov == "cg":
            solve = partial(preconditioned_cg, inner, A, apply, tolerance=self.tolerance, most=most)
        else:
            restart = problem.n if self.restart is None else min(self.restart, most)
            limits = {"restart": restart, "most": most}
            solve = partial(fgmres, inner, A, apply, tolerance=self.tolerance, **limits)
        correct = by_columns(solve)
        return refine_problem(
            problem, system, correct, correct, residual, update, self.stop, shared
        )

    def _products(self, A: Any, stored: Stage, shared: Shared) -> Apply:
        """M as products with matrices in the stage's format, made once."""
        make = {"jacobi": _jacobi, "fsai": _fsai, "spai": _spai}[self.preconditioner]
        parts, flops = shared.get(("inverse", self.preconditioner), lambda: make(A, stored), stored)
        stored.count(flops, sum(part.nnz for part in parts))
        key = "inverse", self.preconditioner, stored.fmt
        rounded = shared.get(
            key, lambda: [stored.matrix(part).prepared() for part in parts], stored
        )

        def apply(r: Vector) -> Vector:
            for part in rounded:
                r = stored.matvec(part, r)
            return r

        return apply


Parts = tuple[list[sparse.csr_array], float]
"""Matrices that make M, the first to be applied first, and the operations that they took."""


def _jacobi(A: Any, stored: Stage) -> Parts:
    diagonal = np.asarray(A.diagonal(), dtype=np.float64)
    if not diagonal.all():
        raise ArithmeticFailure(Status.ZERO_PIVOT, "jacobi", stored.fmt)
    return [sparse.csr_array(sparse.diags_array(1.0 / diagonal))], float(len(diagonal))


def _fsai(A: Any, stored: Stage) -> Parts:
    rows = canonical_csr(A if sparse.issparse(A) else sparse.csr_array(A))
    places, values, starts, flops = [], [], [0], 0.0
    for i in range(rows.shape[0]):
        J = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
        J = np.union1d(J[i > J], [i])
        try:
            y = np.linalg.solve(rows[J][:, J].toarray(), np.eye(len(J))[:, -1])
        except np.linalg.LinAlgError:
            y = np.array([-1.0])
        if not y[-1] > 0:
            raise ArithmeticFailure(Status.NOT_POSITIVE_DEFINITE, "fsai", stored.fmt, i)
        places.append(J)
        values.append(y / np.sqrt(y[-1]))
        starts.append(starts[-1] + len(J))
        flops += len(J) ** 3 / 3
    G = sparse.csr_array((np.concatenate(values), np.concatenate(places), starts), rows.shape)
    return [G, G.T.tocsr()], flops


def _spai(A: Any, stored: Stage) -> Parts:
    columns = sparse.csc_array(A)
    places, values, starts, flops = [], [], [0], 0.0
    for j in range(columns.shape[0]):
        J = np.sort(columns.indices[columns.indptr[j] : columns.indptr[j + 1]])
        block = columns[:, J].tocsr()
        touched = np.flatnonzero(np.diff(block.indptr))
        dense = block[touched].toarray()
        m = np.linalg.lstsq(dense, (touched == j).astype(np.float64))[0]
        places.append(J)
        values.append(m)
        starts.append(starts[-1] + len(J))
        flops += 2 * len(touched) * len(J) ** 2
    M = sparse.csc_array((np.concatenate(values), np.concatenate(places), starts), columns.shape)
    return [M.tocsr()], flops
