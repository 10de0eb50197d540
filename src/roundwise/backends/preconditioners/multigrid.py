"""Multigrid by smoothed aggregation (Vanek, Mandel & Brezina 1996): a V-cycle as preconditioner.

Unknowns that are strongly connected are taken together into one of the next level; what A hardly
changes (constants, or the rigid motions of an elastic body) is kept exactly; interpolation is
smoothed by a step of Jacobi; the coarse matrix is ``R A P`` (Galerkin). A cycle smooths by
Chebyshev's polynomial before and after, so that it is symmetric where A is, and applies a dense
inverse on the last level. ``cpp/iterative/hierarchy.hpp`` has the rest, and why rounding the
hierarchy to 16 bits does no harm.

It is for symmetric positive (semi)definite matrices that come from differential equations and
graphs. With ``symmetric=False`` strength is judged by rows and A' makes the restriction; diffusion
may then be joined by some convection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.preconditioners.contract import STORED_IN, Array, arrays_of, as_block
from roundwise.formats import FP32, FloatFormat, get_format
from roundwise.machine.threads import get_num_threads

FAILURES = {
    1: Status.NOT_POSITIVE_DEFINITE,
    2: Status.ZERO_PIVOT,
    3: Status.OVERFLOW,
    4: Status.SLOW_CONVERGENCE,
}
"""Why there is no hierarchy; `Made` in ``cpp/iterative/hierarchy.hpp``."""

THETA = 0.08
"""Strength of connections, halved on each level: that of Vanek, Mandel & Brezina (1996)."""

DEGREE, RATIO = 2, 4.0
"""The smoother's polynomial, and the largest over the smallest eigenvalue that it is to damp. A
taste: `benchmarks/bench_iterative.py` draws the systems that they were chosen for."""

COARSEST = 300
"""Unknowns of which a dense inverse is made. A taste: it takes some milliseconds."""


class Multigrid:
    """A hierarchy of A; `apply` is one V-cycle.

    Parameters
    ----------
    A : sparse
        Square.
    format : str or FloatFormat
        Of storage: fp64, fp32, bf16 or fp16.
    near_nullspace : (n,) or (n, m) array, optional
        What A hardly changes: a constant vector if not given. For elasticity, the rigid motions.
    nodes : int
        So many consecutive unknowns belong to one place, and stay together. With more than one,
        and no `near_nullspace`, that is a constant for each of them.
    symmetric : bool
        Whether A is symmetric, and definite.
    theta, degree, ratio, coarsest
        Strength of connections; of the smoother; unknowns of the last level, at most.
    keep : bool
        Keep the matrices of all levels in FP64, to be looked at.

    Examples
    --------
    >>> from roundwise.problems import poisson_2d
    >>> hierarchy = Multigrid(poisson_2d(30).A, "fp32")
    >>> hierarchy.levels[0][0]
    900
    """

    name = "multigrid/sa"

    def __init__(
        self,
        A: Any,
        format: str | FloatFormat = FP32,
        near_nullspace: Any = None,
        nodes: int = 1,
        symmetric: bool = True,
        theta: float = THETA,
        degree: int = DEGREE,
        ratio: float = RATIO,
        coarsest: int = COARSEST,
        keep: bool = False,
    ) -> None:
        self.format = get_format(format)
        if self.format not in STORED_IN:
            known = ", ".join(fmt.name for fmt in STORED_IN)
            raise ValueError(f"no hierarchy is stored in {self.format}; choose {known}")
        arrays = arrays_of(A, self.name, self.format)
        n = len(arrays[0]) - 1
        if nodes < 1 or n % nodes:
            raise ValueError(f"nodes = {nodes}, n = {n}; pass a divisor of n")
        first = np.arange(0, n + 1, nodes, dtype=np.int32) if nodes > 1 else _NONE
        vectors = _constants(n, nodes) if near_nullspace is None else _vectors(near_nullspace, n)
        choices: tuple[Any, ...] = symmetric, theta, degree, ratio, coarsest, keep
        near = vectors.reshape(-1, order="F")
        result, found = _kernels.iterative_hierarchy(
            self.format.name, *(*arrays, near, first, *choices, get_num_threads())
        )
        if found is None:
            raise ArithmeticFailure(FAILURES[result], self.name, self.format)
        self.n, self._hierarchy = n, found

    @property
    def bytes(self) -> int:
        return int(self._hierarchy.bytes)

    @property
    def levels(self) -> list[tuple[int, int, float]]:
        """Of each level its unknowns, its entries, and a bound of the eigenvalues of D^-1 A."""
        return list(self._hierarchy.levels)

    @property
    def entries(self) -> int:
        """Those of the matrices of all levels."""
        return sum(level[1] for level in self.levels)

    def apply(self, R: Any) -> Array:
        block, was_vector = as_block(R, self.n)
        Z = np.empty_like(block, order="F")
        _kernels.preconditioner_apply(self._hierarchy, block, Z, get_num_threads())
        return Z[:, 0] if was_vector else Z


_NONE: NDArray[np.int32] = np.empty(0, np.int32)


def _constants(n: int, nodes: int) -> Array:
    """A constant for each unknown of a node; nothing where nodes are single, as it is known."""
    return np.tile(np.eye(nodes), (n // nodes, 1)) if nodes > 1 else np.empty((0, 1))


def _vectors(given: Any, n: int) -> Array:
    vectors = np.asarray(given, dtype=np.float64)
    vectors = vectors[:, None] if vectors.ndim == 1 else vectors
    if vectors.ndim != 2 or len(vectors) != n or not vectors.size:
        raise ValueError(f"near_nullspace has the shape {vectors.shape}; pass columns of {n} rows")
    if not np.isfinite(vectors).all():
        raise ValueError("near_nullspace holds inf or NaN; remove it before the call")
    return vectors
