"""A dense least squares problem by one compiled call: QR, refinement, rank and gate.

The call copies and scales the numbers, factorizes ``T = Q R`` by Householder's method, leaves out
columns of which nothing is left beside those before them, estimates the condition number of the
others, solves, corrects, and judges x as it is returned (docs/least-squares.md).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.actions import Action
from roundwise.algorithms.base import OutcomeStatus
from roundwise.backends.native import exact
from roundwise.formats import FP32, FP64, FP64X2
from roundwise.machine.threads import ONE_THREAD, factorization_threads

BLOCK_SHARE, LARGEST_BLOCK = 0.5, 256
"""What sums of blocks in a residual may add to a backward error, as a share of the tolerance, and
the most products of a block: more gain no time. Tastes: QR leaves a tenth of the tolerance or less,
and what does not pass is judged in twice the precision."""


class Gate(NamedTuple):
    """The arguments of the compiled call after the arrays (`TallGate` in C++)."""

    in_single: bool
    tolerance: float
    rcond: float
    resolution: float
    block_error_n: float
    block_error_m: float
    exact_error_n: float
    exact_error_m: float
    block_n: int
    block_m: int


class Found(NamedTuple):
    """The result of the compiled call."""

    x: NDArray[Any]  # of no use unless it was accepted
    residual_norms: NDArray[np.float64]
    status: int
    backward_error: float
    """The number that the gate compared with the tolerance; infinite where nothing was judged."""
    condition: float
    rank: int
    steps: int

    @property
    def accepted(self) -> bool:
        return self.status == ACCEPTED


ACCEPTED, IN_DOUBT, ABOVE_TOLERANCE, NOT_FINITE = range(4)

OUTCOMES = {
    ACCEPTED: OutcomeStatus.CONVERGED,
    IN_DOUBT: OutcomeStatus.UNCONFIRMED,
    ABOVE_TOLERANCE: OutcomeStatus.STAGNATED,
    NOT_FINITE: OutcomeStatus.NONFINITE_INPUT,
}


def runs_at_once(action: Action) -> bool:
    """Whether the compiled call is this action: QR, all else in fp64, residuals in twice that."""
    factor, *others, residual = action
    return (
        action.method == "qr"
        and factor in (FP32, FP64)
        and all(fmt == FP64 for fmt in others)
        and residual in (FP64, FP64X2)
    )


@lru_cache(maxsize=1024)
def gate_of(rows: int, columns: int, in_single: bool, tolerance: float, rcond: float) -> Gate:
    """The gate of a problem of this shape.

    Singular values below the `resolution` drown in the rounding errors of fp32 factors.
    """
    m, n = max(rows, columns), min(rows, columns)
    resolution = 10 * math.sqrt(m) * FP32.unit_roundoff if in_single else 0.0
    block = min(math.floor(BLOCK_SHARE * tolerance / FP64.unit_roundoff) - 1, LARGEST_BLOCK)
    block_n = block_m = block if block >= exact.LEAST_BLOCK else exact.EXACT
    if (
        rows < columns
    ):  # what is computed there for the shortest solution needs more of the tolerance
        block_n, block_m = exact.block_for(n), exact.block_for(m)
    in_blocks = exact.error_of(n, block_n), exact.error_of(m, block_m)
    exactly = exact.error_of(n), exact.error_of(m)
    return Gate(in_single, tolerance, rcond, resolution, *in_blocks, *exactly, block_n, block_m)


OPERATIONS_OF_A_MEETING = 2e7
"""Operations per panel of 64 columns, a meeting of threads, from which a second thread gains time:
a price. 600 x 590 numbers took 3.0 ms on one core of an AMD EPYC and 2.9 on two, 1200 x 1190 took
35 and 25."""


def threads_for(m: int, n: int, columns: int) -> int:
    """Threads of the compiled call; one where others would hardly gain what waiting for them costs.

    Answers do not depend on it.
    """
    operations, meetings = 2.0 * m * n * (n + 2 * columns), 2 + n / 64
    if operations < OPERATIONS_OF_A_MEETING * meetings:
        return ONE_THREAD
    return factorization_threads()


def solve_at_once(A: NDArray[Any], b: NDArray[Any], dtype: Any, gate: Gate) -> Found:
    """The least squares solution of float32 or float64 numbers in any memory order, in a type."""
    x = np.empty((A.shape[1], *b.shape[1:]), dtype)
    norms = np.empty(b.shape[1] if b.ndim == 2 else 1)
    threads = threads_for(max(A.shape), min(A.shape), len(norms))
    return Found(x, norms, *_kernels.tall_solve(A, b, x, norms, *gate, threads))


def allowed_error(gate: Gate, left_out: int) -> float:
    """Leaving out j singular values changes A by at most sqrt(j) rcond ||A||_2."""
    return gate.tolerance + math.sqrt(left_out) * gate.rcond
