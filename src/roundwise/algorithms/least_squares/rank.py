"""The rank of a least squares problem: is the smallest singular value above ``rcond`` times the
largest? Where it clearly is, factors tell; where there is doubt, an SVD decides, as in NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from roundwise.algorithms.conditioning import largest_eigenvalue
from roundwise.algorithms.least_squares.augmented import (
    AugmentedFactors,
    AugmentedSystem,
    SvdFactors,
)
from roundwise.backends import ArithmeticFailure
from roundwise.backends.arrays import array_module, on_host

Array = NDArray[np.float64]

RANK_MARGIN = 10.0
"""Estimates of extreme singular values from a few steps are seldom off by more than that."""


@np.errstate(all="ignore")  # what is infinite or NaN is doubtful
def tall_condition(system: AugmentedSystem, M: AugmentedFactors) -> float:
    """About the condition number of T with columns of length 1, by the power method.

    The largest singular value is replaced by its upper bound, ||T||_F. Infinite if that leaves
    float64's range.
    """
    w = system.weights
    v = np.random.default_rng(0).standard_normal(len(w))
    there = array_module(system.T).asarray if system.backend else np.asarray

    def apply(v: Array) -> Any:
        return w * on_host(M.inverse_of_normal(there(w * v)))

    try:
        inverse = largest_eigenvalue(apply, v)
    except ArithmeticFailure:  # out of float64's range
        return np.inf
    return system.norm * float(np.sqrt(inverse))


@np.errstate(all="ignore")
def largest_singular_value(system: AugmentedSystem) -> float:
    """About that of T with columns of length 1, from below."""
    w = system.weights
    v = np.random.default_rng(1).standard_normal(len(w))
    there = array_module(system.T).asarray if system.backend else np.asarray

    def apply(v: Array) -> Any:
        return on_host(system.transposed @ (system.T @ there(v / w))) / w

    normal = largest_eigenvalue(apply, v)
    return float(np.sqrt(normal))


@np.errstate(all="ignore")
def condition_bound(system: AugmentedSystem, M: AugmentedFactors) -> float:
    """At least the condition number of T with columns of length 1, from the diagonal of R.

    The squares of the n - 1 larger singular values have at most the mean ``||T||_F^2 / (n - 1)``,
    and the product of all is that of R's diagonal:

        s_n >= |r_11 ... r_nn| ((n - 1) / ||T||_F^2)^((n - 1) / 2).

    That is near s_n if n is small, or if all singular values are about the same. Infinite if the
    diagonal is not at hand.
    """
    if M.diagonal is None:
        return np.inf
    others = M.n - 1
    mean = system.norm**2 / others if others else 1.0
    smallest = np.log(M.diagonal / system.weights).sum() - 0.5 * others * np.log(mean)
    return system.norm * float(np.exp(-smallest))


class Rank(Enum):
    """The rank of T, as far as its factors show it."""

    FULL = "full"
    DOUBTFUL = "an SVD tells its rank"
    UNSEEN = "better factors are to tell its rank"


def rank_shown(system: AugmentedSystem, M: AugmentedFactors, rcond: float) -> tuple[Rank, float]:
    """Whether every singular value of T is above ``rcond`` times the largest; T's condition number.

    Where the diagonal of R settles it, the condition number is NaN: nobody has estimated it.
    """
    if _shown_by(condition_bound(system, M), system, M, rcond) is Rank.FULL:
        return Rank.FULL, np.nan
    condition = tall_condition(system, M)
    if not condition * rcond * RANK_MARGIN < 1:
        condition *= largest_singular_value(system) / system.norm
    return _shown_by(condition, system, M, rcond), condition


def _shown_by(condition: float, system: AugmentedSystem, M: AugmentedFactors, rcond: float) -> Rank:
    """Written so that NaN is unseen."""
    if not condition * M.resolution <= system.norm:
        return Rank.UNSEEN
    return Rank.FULL if condition * rcond * RANK_MARGIN < 1 else Rank.DOUBTFUL


def truncated(system: AugmentedSystem, rcond: float) -> tuple[Array, Array, int]:
    """The shortest solution by LAPACK's gelsd, as in NumPy, the singular values, and the rank.

    That takes neither U nor V; of a dense problem that is scaled as a whole.
    """
    A = system.transposed if system.wide else system.T
    (m, n), b = A.shape, system.parts(system.B)[1 if system.wide else 0]
    B = np.zeros((max(m, n), b.shape[1]), order="F")
    B[:m] = b
    work, integers, _ = lapack.dgelsd_lwork(m, n, b.shape[1], rcond)
    X, S, rank, info = lapack.dgelsd(A, B, int(work), int(integers), rcond, False, True)
    return np.asfortranarray(X[:n]), S, int(rank) if info == 0 else min(m, n)


@dataclass(frozen=True, eq=False)
class Decomposed:
    """``T = U S V'`` of a tall dense matrix, and its rank."""

    U: Array
    S: Array
    V: Array
    rank: int

    @classmethod
    def of(cls, T: Any, rcond: float) -> Decomposed:
        try:
            U, S, Vt = scipy.linalg.svd(T, full_matrices=False, check_finite=False)
        except np.linalg.LinAlgError:  # divide and conquer does not converge for some matrices
            driver = "gesvd"
            U, S, Vt = scipy.linalg.svd(T, full_matrices=False, lapack_driver=driver)
        return cls(U, S, Vt.T, int(np.count_nonzero(rcond * S[0] < S)))

    def factors(self) -> SvdFactors:
        return SvdFactors(self.U, self.S, self.V)

    def shortest(self, b: Array, wide: bool) -> tuple[Array, Array]:
        """The shortest least squares solution of this rank, and its residual.

        With A = T, or T' if A is wide.
        """
        U, S, V = self.U[:, : self.rank], self.S[: self.rank, None], self.V[:, : self.rank]
        left, right = (V, U) if wide else (U, V)
        t = left.T @ b
        s = b - left @ t
        s -= left @ (left.T @ s)
        return right @ (t / S), s
