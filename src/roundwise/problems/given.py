"""Problems as callers pass them: a `Problem`, a pair ``(A, b)``, or a matrix alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import scipy.sparse as sp

from roundwise.problems.linear_system import Problem, canonical_matrix
from roundwise.problems.matrix_market import reference_solution

ProblemLike: TypeAlias = Problem | tuple[Any, Any] | Any


def as_problem(given: ProblemLike, kind: Callable[..., Problem]) -> Problem:
    """The problem itself, or one of this kind (`LinearSystem`, `LeastSquares`) made of arrays.

    A matrix without b gets the x of `reference_solution` as the true solution, and ``b = fl(A x)``.
    """
    if isinstance(given, Problem):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return kind(*given)
    if sp.issparse(given) or getattr(given, "ndim", 0) == 2:
        A = canonical_matrix(given)
        x = reference_solution(A.shape[1])
        return kind(A, A @ x, x)
    raise TypeError(
        f"a training problem is of type {type(given).__name__}; pass a list of problems, of pairs "
        "(A, b), or of matrices: fit([(A1, b1), (A2, b2)])"
    )
