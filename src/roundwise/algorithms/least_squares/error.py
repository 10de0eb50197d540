"""How good a computed least squares solution is: an upper bound of its backward error.

**Least squares** (m >= n). For any vector s, with ``r = b - A x``, ``f = r - s`` and ``h = A' s``,
x is an exact solution of min ||(b + db) - (A + E) x|| for some E and db with

    ||E||_F <= eta ||A||_F,   ||db|| <= eta ||b||,   eta^2 = e1^2 + e2^2,
    e1 = ||f|| / (||A||_F ||x|| + ||b||),   e2 = ||h|| / (||A||_F ||s||).

Refinement delivers the s that makes eta small. s = 0 is allowed, too (e2 = 0): the bound of Rigal &
Gaches for a consistent system. s = r gives a perturbation of Stewart (1977).

**Minimum norm** (m < n). For any y, with ``r = b - A x`` and ``g = x - A' y``, x is the shortest
solution of a system (A + E) x = b + db that is as close; `minimum_norm_errors` has the formula.

docs/least-squares.md has the proofs. All norms are 2-norms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.arrays import on_host

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sizes:
    """Norms of the columns of x, b and the witness (s, or y), and ||A||_F."""

    A: float
    x: Array
    b: Array
    witness: Array


def lengths(X: Array, rows: int) -> tuple[Array, Array]:
    """The 2-norms of the first `rows` rows of each column, and those of the others."""
    squares = np.square(X)
    sums = on_host(squares[:rows].sum(axis=0)), on_host(squares[rows:].sum(axis=0))
    return np.sqrt(sums[0]), np.sqrt(sums[1])


def _quotients(sizes: Array, divisors: Array) -> Array:
    """0 where the size is; infinite where the divisor is, so that what is unknown is not small."""
    if all(0 < divisor < math.inf for divisor in divisors.tolist()):
        return sizes / divisors
    quotients = np.where(sizes == 0, 0.0, sizes / divisors)
    return np.where(np.isfinite(divisors), quotients, np.inf)


def least_squares_errors(f: Array, h: Array, sizes: Sizes, c: tuple[float, float] = (0, 0)) -> Any:
    """eta of each column, the smaller one of those with the witness s and with s = 0.

    `f` and `h` are norms; `c` bounds the errors of what they are computed from: f is off by at most
    ``c[0] (||A||_F ||x|| + ||b|| + ||s||)``, h by ``c[1] ||A||_F ||s||``.
    """
    size, s = sizes.A * sizes.x + sizes.b, sizes.witness
    f = f + c[0] * (size + s)
    first = _quotients(f, size)
    second = _quotients(h, sizes.A * s) + c[1]
    return np.minimum(np.hypot(first, second), _quotients(f + s, size))


def minimum_norm_errors(g: Array, r: Array, sizes: Sizes, c: tuple[float, float] = (0, 0)) -> Any:
    """Backward errors for x of minimum norm, with the witness y.

    With ``tau = ||g|| / ||x|| + ||y|| ||r|| / ||x||^2`` and ``delta = tau / (1 - tau)``:

        e1 = ||r|| / (||A||_F ||x|| + ||b||),
        e2 = (delta ||x|| + (1 + delta) ||g||) / ((1 - delta) ||A||_F ||y||),

    infinite unless tau < 1/2. g is off by at most ``c[0] (||A||_F ||y|| + ||x||)``, r by
    ``c[1] (||A||_F ||x|| + ||b||)``.
    """
    x, y, size = sizes.x, sizes.witness, sizes.A * sizes.x + sizes.b
    g, r = g + c[0] * (sizes.A * y + x), r + c[1] * size
    tau = g / x + (y / x) * (r / x)
    delta = tau / (1 - tau)
    second = (delta * x + (1 + delta) * g) / ((1 - delta) * sizes.A * y)
    eta = np.where(tau < 0.5, np.hypot(_quotients(r, size), second), np.inf)
    return np.where((sizes.b == 0) & (x == 0), 0.0, eta)
