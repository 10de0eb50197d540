"""Roundwise as a solver of lineax: ``lineax.linear_solve(operator, b, Roundwise())``."""

from __future__ import annotations

from typing import Any

import equinox.internal as eqxi
import jax.numpy as jnp
import lineax
from lineax._solver.misc import (
    pack_structures,
    ravel_vector,
    transpose_packed_structures,
    unravel_solution,
)

from roundwise.integrations.jax import factor


class Roundwise(lineax.AbstractLinearSolver[Any]):
    """Square operators, by verified solves with factors in as little precision as it takes.

    Parameters
    ----------
    tol, policy, accuracy
        As for `roundwise.solve`.

    Examples
    --------
    >>> import jax.numpy as jnp, lineax
    >>> from roundwise.integrations.lineax import Roundwise
    >>> A = lineax.MatrixLinearOperator(jnp.array([[4.0, 1.0], [2.0, 3.0]]))
    >>> lineax.linear_solve(A, jnp.array([1.0, 2.0]), Roundwise()).value.round(3)
    Array([0.1, 0.6], dtype=float32)
    """

    tol: float | None = None
    policy: str = "default"
    accuracy: str = "backward"

    def init(self, operator: Any, options: Any) -> Any:
        """Factorize; an operator that is tagged positive semidefinite by Cholesky."""
        if operator.in_size() != operator.out_size():
            raise ValueError("the operator is not square; pass lineax.AutoLinearSolver or QR")
        A = operator.as_matrix()
        definite = lineax.is_positive_semidefinite(operator)
        if lineax.is_negative_semidefinite(operator):
            A, definite = -A, True
        sign = eqxi.Static(-1 if lineax.is_negative_semidefinite(operator) else 1)
        asked: Any = {"tol": self.tol, "policy": self.policy, "accuracy": self.accuracy}
        F = factor(A, assume_a="positive definite" if definite else None, **asked)
        return F, sign, pack_structures(operator), eqxi.Static("N"), eqxi.Static(False)

    def compute(self, state: Any, vector: Any, options: Any) -> Any:
        """Solve with the factors; it has failed if it raises."""
        F, sign, structures, trans, conjugate = state
        b = ravel_vector(vector, structures)
        b = jnp.conj(b) if conjugate.value else b
        x = sign.value * F.solve(b, trans.value)
        x = jnp.conj(x) if conjugate.value else x
        return unravel_solution(x, structures), lineax.RESULTS.successful, {}

    def transpose(self, state: Any, options: Any) -> Any:
        F, sign, structures, trans, conjugate = state
        other = eqxi.Static("N" if trans.value == "T" else "T")
        return (F, sign, transpose_packed_structures(structures), other, conjugate), {}

    def conj(self, state: Any, options: Any) -> Any:
        F, sign, structures, trans, conjugate = state
        return (F, sign, structures, trans, eqxi.Static(not conjugate.value)), {}

    def assume_full_rank(self) -> bool:
        return True
