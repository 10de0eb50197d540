"""`LeastSquares`: the problem min ||b - A x||, and random ones whose difficulty is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roundwise.problems.generators import RandomSource, as_generator
from roundwise.problems.linear_system import (
    Matrix,
    Problem,
    Vector,
    canonical_matrix,
    canonical_vector,
)


@dataclass(frozen=True, eq=False)
class LeastSquares(Problem):
    """A problem: min ||b - A x||_2 for an m-by-n A with m >= n, dense or sparse.

    The data are copied and made read-only, so that a fingerprint once taken stays true. `x_true`
    is the solution where it is known.

    Parameters
    ----------
    A : (m, n) array or sparse
    b : (m,) array
    x_true : (n,) array, optional
    name : str
    meta : mapping
        What is to be remembered of where it comes from.

    Examples
    --------
    >>> problem = rw.problems.LeastSquares([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 2.0, 4.0])
    >>> problem.n
    2
    """

    A: Matrix
    b: Vector
    x_true: Vector | None = None
    name: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        A = canonical_matrix(self.A)
        if not 0 < A.shape[1] <= A.shape[0]:
            raise ValueError(f"A has shape {A.shape}; pass at least as many rows as columns")
        object.__setattr__(self, "A", A)
        for name, rows in (("b", A.shape[0]), ("x_true", A.shape[1])):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, canonical_vector(name, getattr(self, name), rows))
        object.__setattr__(self, "meta", dict(self.meta))

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays come out of a pickle writeable; the constructor freezes them again.
        return LeastSquares, (self.A, self.b, self.x_true, self.name, self.meta)

    @property
    def n(self) -> int:
        """The number of unknowns."""
        return int(self.A.shape[1])


def random_least_squares(
    m: int, n: int, *, kappa: float, residual: float, rng: RandomSource
) -> LeastSquares:
    """A random problem with 2-norm condition number kappa and a residual of chosen size.

    ``A = U diag(s) V'`` with Haar-distributed U and V and s from 1 to ``1 / kappa`` in equal
    ratios; ``b = A x + residual w`` with x and w of length 1, w orthogonal to A's range up to
    rounding. `x_true` is left open: rounding moves the solution by about ``kappa^2 residual u``.

    Parameters
    ----------
    m, n : int
        Rows and columns, m > n.
    kappa : float
        The condition number of A.
    residual : float
        The length of ``b - A x``; that of x is 1.
    rng : Generator or int

    Examples
    --------
    >>> problem = rw.problems.random_least_squares(20, 5, kappa=10.0, residual=0.1, rng=0)
    >>> problem.A.shape
    (20, 5)
    """
    if not (m > n >= 1 and kappa >= 1 and residual >= 0):
        raise ValueError("choose m > n >= 1, kappa >= 1 and residual >= 0")
    random = as_generator(rng)
    Q = np.linalg.qr(random.standard_normal((m, n + 1)))[0]
    V = np.linalg.qr(random.standard_normal((n, n)))[0]
    singular = kappa ** (-np.arange(n) / max(1, n - 1))
    A = (Q[:, :n] * singular) @ V.T
    x = random.standard_normal(n)
    b = A @ (x / np.linalg.norm(x)) + residual * Q[:, n]
    return LeastSquares(A, b, meta={"kappa": float(kappa), "residual": float(residual)})
