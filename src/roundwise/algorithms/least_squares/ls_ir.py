"""LS-IR: least squares by refinement of the augmented system, with preconditioned GMRES.

    T = Q R, first p and q                        in u_f  (factor)
    repeat  f = b - p - T q,  g = -T' p           in u_r  (residual)
            solve for dp and dq by GMRES          in u_g  (gmres)
            p = p + dp,  q = q + dq               in u    (update)

q is the solution x, p its residual (`augmented` explains the system). Carson, Higham & Pranesh,
"Three-precision GMRES-based iterative refinement for least squares problems", SIAM J. Sci. Comput.
42 (2020). The preconditioner is Bjorck's solution by Q and R, or by Cholesky factors of T'T.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, cast

import numpy as np

from roundwise.algorithms.accuracy import max_norm
from roundwise.algorithms.base import Algorithm, Outcome, Shared
from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.least_squares.augmented import (
    AugmentedFactors,
    AugmentedMatrix,
    AugmentedStage,
    DirectFactors,
    NormalFactors,
    OrthogonalFactors,
)
from roundwise.algorithms.least_squares.certificate import bounds_of, judged
from roundwise.algorithms.least_squares.scaling import ScaledLeastSquares, scaled_least_squares
from roundwise.algorithms.refinement import Corrector, Refined, Substitution, by_columns, refine
from roundwise.algorithms.scaling import ScaledColumns
from roundwise.algorithms.stage import Stage, Stages, Vector
from roundwise.algorithms.stopping import PaperRule, StoppingRule
from roundwise.methods.tall import TALL
from roundwise.problems.least_squares import LeastSquares
from roundwise.problems.linear_system import Problem


@dataclass(frozen=True)
class LsIR(Algorithm):
    """Least squares by refinement in four precisions, for `LeastSquares` problems.

    Parameters
    ----------
    method : {"qr", "cholesky"}, optional
        How T is factorized; "cholesky", of T'T, takes half the operations and fails where
        kappa^2 u_f is above 1. By default "qr" if A is dense, and "cholesky" if it is sparse.
    tolerance : float
        Relative tolerance of the inner GMRES, on the preconditioned residual.
    restart : int
        GMRES steps of one correction, at most.
    stop : StoppingRule
        By default the paper's, on the corrections of x, with tau = 0.5: those that do not halve
        stagnate.

    The outcome's `nbe` is the bound that `roundwise.lstsq` accepts answers by.

    Examples
    --------
    >>> problem = rw.problems.random_least_squares(30, 5, kappa=10.0, residual=0.1, rng=0)
    >>> outcome = rw.LsIR().run(problem, "fp32-fp64-fp64-fp64")
    >>> outcome.nbe < 1e-15
    True
    """

    stages: ClassVar[tuple[str, ...]] = ("factor", "update", "gmres", "residual")
    problem_type: ClassVar[type[Problem]] = LeastSquares

    method: Literal["qr", "cholesky"] | None = None
    tolerance: float = 1e-4
    restart: int = 40
    stop: StoppingRule = field(default_factory=lambda: PaperRule(tau=0.5, max_steps=100))

    def __post_init__(self) -> None:
        if self.method not in (None, "qr", "cholesky"):
            raise ValueError(f"method = {self.method!r}; choose 'qr', 'cholesky' or None")
        if not (0 < self.tolerance < 1 and self.restart >= 1):
            raise ValueError("choose 0 < tolerance < 1 and restart >= 1")

    def execute(self, problem: LeastSquares, stages: Stages, shared: Shared) -> Outcome:
        if not stages["factor"].backend.on_host:
            raise ValueError("LsIR runs on the processor; choose native, operation or storage")
        if self.method == "qr" and problem.is_sparse:
            raise ValueError("QR is for dense A; use LsIR(method='cholesky'), or A.toarray()")
        method = self.method or ("cholesky" if problem.is_sparse else "qr")
        factor, update, inner, residual = residual_of_both(stages).values()
        scaled: ScaledLeastSquares = shared.get(
            "system",
            lambda: scaled_least_squares(problem.A, problem.b[:, None], always=True),
            residual,
        )
        T, matrix = scaled.system.T, partial(shared_augmented, scaled=scaled, shared=shared)
        A = matrix(inner)
        M = shared.get(
            ("factors", factor.fmt, inner.fmt if method == "cholesky" else None),
            lambda: augmented_factors(factor, inner, A, T, method),
            factor,
        )
        factor.count_factorization(M)
        applied = shared.get(("applied", factor.fmt, inner.fmt), lambda: M.to(inner.fmt), inner)

        def solve(r: Vector) -> Any:
            return gmres(inner, A, applied, r, self.tolerance, self.restart, 1)

        refined = refine_augmented(
            scaled, Substitution(factor, M), by_columns(solve), residual, update, self.stop, matrix
        )
        if refined.X is None:
            return Outcome(refined.status, None, reason=refined.reason)
        x = scaled.solution(refined.X)[:, 0]
        with shared.diagnostics():
            given = scaled.with_solution(refined.X, x[:, None])
            nbe = float(judged(scaled.system, given)[0][0])
        return Outcome(
            self.stop.confirm(refined.status, scaled.system.n, nbe),
            x,
            ferr=_forward_error(problem, x),
            nbe=nbe,
            cbe=np.nan,
            outer_iterations=refined.progress.steps,
            inner_iterations=refined.progress.inner_iterations,
            history=tuple(refined.history),
            reason=refined.reason,
        )


def residual_of_both(stages: Stages) -> Stages:
    """The stages, that of residuals made one of augmented systems."""
    given = stages["residual"]
    stages["residual"] = AugmentedStage(given.name, given.fmt, given.backend)
    return stages


@np.errstate(all="ignore")  # infinity and NaN never pass the gate
def refine_augmented(
    scaled: ScaledLeastSquares,
    start: Corrector | Vector,
    correct: Corrector,
    residual: Stage,
    update: Stage,
    stop: StoppingRule,
    matrix: Any,
    columns: Any = slice(None),
    known: tuple[float, float] | None = None,
) -> Refined:
    """The refinement loop on the augmented system, or on some of its columns.

    With the `known` errors of residuals it goes by the bounds that the gate compares.
    """
    system = scaled.system.of_columns(columns)
    pair = cast(Any, (system, ScaledColumns(system.B)))
    errors = system.backward_errors if known is None else partial(bounds_of, system, known=known)
    return refine(pair, start, correct, residual, update, stop, matrix, errors)


def shared_augmented(stage: Stage, scaled: ScaledLeastSquares, shared: Shared) -> AugmentedMatrix:
    """The augmented matrix in the stage's format, for products."""

    def make() -> AugmentedMatrix:
        T = scaled.system.T
        return AugmentedMatrix(stage, stage.matrix(T).prepared(), stage.matrix(T.T).prepared())

    return shared.get(("augmented", stage.fmt), make, stage)


def augmented_factors(
    factor: Stage,
    inner: Stage,
    A: AugmentedMatrix,
    T: Any,
    method: str,
    shared: Shared | None = None,
) -> AugmentedFactors:
    """An approximate inverse of the augmented matrix, by a method, in the factor stage's format.

    A method that was added prepares itself. Beside such, "qr" and "cholesky" there are those of
    sparse engines, of which "cholesky/..." factor T'T, and the others the augmented matrix itself.
    `shared` keeps T'T.
    """
    backend, fmt = factor.backend, factor.fmt
    if (own := TALL.get(method)) is not None and own.prepare is not None:
        prepared: AugmentedFactors = own.prepare(factor, T)
        return prepared
    if method == "qr":
        return OrthogonalFactors(factor, *backend.orthogonalized(T, fmt), fmt)
    shared = Shared() if shared is None else shared
    if method.startswith("cholesky"):
        G = shared.get(("gram", fmt), lambda: backend.gram(T, fmt))
        return NormalFactors(inner, A, backend.analyse(G, method).factorize(G, fmt))
    return DirectFactors.of(T, factor, method)


def _forward_error(problem: LeastSquares, x: Vector) -> float:
    if problem.x_true is None:
        return float("nan")
    size = max_norm(problem.x_true)
    return max_norm(x - problem.x_true) / (size if size > 0 else 1.0)
