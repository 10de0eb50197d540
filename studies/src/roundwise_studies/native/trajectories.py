"""GMRES-IR step by step: the errors and the time after every correction, for the paper's study.

What a stopping rule would have returned is read off such a trajectory afterwards. So one run serves
every tau and every rule, also the released one, which looks at the true solution: the run does not.
Factorizations are timed apart, once for each system, format and repeat.

All times are CPU seconds of one thread on the processor, so that other programs do not count, and
wall-clock seconds on a device.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from roundwise.actions import Action, ActionSpace
from roundwise.algorithms import GmresIR, Stages
from roundwise.algorithms.accuracy import ErrorMeasure
from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.refinement import Substitution, by_columns, with_unit_columns
from roundwise.backends import ArithmeticFailure, Backend, Factors
from roundwise.backends.arrays import column_norms, on_host
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.machine import blas
from roundwise.problems import LinearSystem
from roundwise_studies.native.device import ALGORITHM, RESTART, RULE

STRICTEST = 1e-8
"""The smaller tau of the paper: a trajectory may end once its forward errors are below."""

LEAST_STEPS = 2
"""Corrections that a rule on ratios of corrections needs to see."""

PATIENCE = 3
"""A trajectory ends when its forward error has not improved in so many corrections."""


@dataclass(frozen=True)
class Step:
    """After so many corrections: errors, GMRES iterations and seconds so far, without those of LU.

    `ferr` and `ferr2` are relative forward errors in the max norm and in the 2-norm; `correction`
    is ``||z|| / ||x||`` of the last correction (1 before the first one).
    """

    ferr: float
    ferr2: float
    nbe: float
    gmres: int
    correction: float
    seconds: float


@dataclass(frozen=True)
class Trajectory:
    """The steps of an action on a system; `failure` names what ended it, if arithmetic did."""

    steps: tuple[Step, ...]
    failure: str = ""


@dataclass(frozen=True)
class Measured:
    """A system with all its trajectories, the times of LU and others, and what a policy may see.

    `lu` has the seconds of a factorization by kind (`unblocked`, `ours`) and format, `direct` those
    of LAPACK's dgesv, `estimate` those of the condition estimate besides its LU.
    """

    n: int
    kappa: float  # as the generator was asked
    kappa_est: float
    norm_inf: float
    norm_x: float
    norm_b: float
    estimate: float
    direct: float
    lu: Mapping[str, Mapping[str, float]]
    actions: Mapping[str, Trajectory]

    def to_dict(self) -> dict[str, Any]:
        actions = {
            name: [t.failure, [list(vars(step).values()) for step in t.steps]]
            for name, t in self.actions.items()
        }
        return vars(self) | {"actions": actions}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Measured:
        actions = {
            name: Trajectory(tuple(Step(*step) for step in steps), failure)
            for name, (failure, steps) in saved["actions"].items()
        }
        return cls(**{**saved, "actions": actions})


def clock_of(backend: Backend) -> Callable[[], float]:
    """CPU seconds of this thread; on a device, seconds after it has done what it was told."""
    if backend.on_host:
        return time.thread_time

    def clock() -> float:
        backend.xp.cuda.get_current_stream().synchronize()
        return time.perf_counter()

    return clock


def measured(problem: LinearSystem, space: ActionSpace, backend: Backend, repeats: int) -> Measured:
    """Run every action on a system, `repeats` times, and what it is compared with."""
    clock, A = clock_of(backend), backend.array(problem.A)
    lu: dict[str, dict[str, float]] = {"ours": {}}
    factors: dict[FloatFormat, Factors | ArithmeticFailure] = {}
    for fmt in space.formats:
        seconds = []
        for _ in range(repeats):
            start = clock()
            try:
                factors[fmt] = backend.analyse(A, "lu").factorize(A, fmt)
            except ArithmeticFailure as failure:
                factors[fmt] = failure
            seconds.append(clock() - start)
        lu["ours"][fmt.name] = median(seconds)
    if backend.on_host:
        lu["unblocked"] = unblocked_seconds(problem.A, repeats)
    start = time.thread_time()
    kappa_est, norm_inf = one_norm_condition(problem.A), float(np.abs(problem.A).sum(axis=1).max())
    estimate = max(0.0, time.thread_time() - start - lu["ours"]["fp64"])
    start = time.thread_time()
    lapack.dgesv(problem.A, problem.b)
    direct = time.thread_time() - start
    measure = ErrorMeasure(problem)
    actions = {}
    for name, action in zip(space.names, space, strict=True):
        made = factors[action[0]]
        if isinstance(made, ArithmeticFailure):
            actions[name] = Trajectory((), made.status.name)
            continue
        runs = [trajectory(problem, action, backend, made, measure, clock) for _ in range(repeats)]
        actions[name] = _with_median_times(runs)
    assert problem.x_true is not None
    return Measured(
        problem.n,
        float(problem.meta["kappa"]),
        kappa_est,
        norm_inf,
        float(np.abs(problem.x_true).max()),
        float(np.linalg.norm(problem.b)),
        estimate,
        direct,
        lu,
        actions,
    )


def _with_median_times(runs: Sequence[Trajectory]) -> Trajectory:
    """Results do not depend on the run; times do."""
    first = runs[0]
    steps = [
        Step(**(vars(step) | {"seconds": median(run.steps[k].seconds for run in runs)}))
        for k, step in enumerate(first.steps)
    ]
    return Trajectory(tuple(steps), first.failure)


def trajectory(
    problem: LinearSystem,
    action: Action,
    backend: Backend,
    factors: Factors,
    measure: ErrorMeasure,
    clock: Callable[[], float],
) -> Trajectory:
    """Refine up to ten steps; the conversions to the stages' formats are timed, too."""
    factor, update, inner, residual = Stages(GmresIR.stages, action, backend).values()
    x_true, steps, total, iterations = problem.x_true, list[Step](), 0.0, 0
    assert x_true is not None
    B = backend.array(problem.b)[:, None]
    best, worse = math.inf, 0

    def record(X: Any, correction: float) -> None:
        x = on_host(X[:, 0])
        if not np.isfinite(x).all():
            raise OverflowError
        error = float(np.linalg.norm(x - x_true) / np.linalg.norm(x_true))
        ferr, nbe = measure.forward(x), measure.backward(x)
        steps.append(Step(ferr, error, nbe, iterations, correction, total))

    try:
        start = clock()
        A_r, A_g = residual.matrix(problem.A).prepared(), inner.matrix(problem.A).prepared()
        M = factors.to(inner.fmt)
        X = with_unit_columns(Substitution(factor, factors), B).Z
        total += clock() - start
        record(X, 1.0)

        @by_columns
        def correct(r: Any) -> Any:
            return gmres(inner, A_g, M, r, ALGORITHM.tolerance, RESTART, ALGORITHM.cycles)

        while len(steps) <= RULE.max_steps:
            last = steps[-1]
            error = max(last.ferr, last.ferr2)
            best, worse = (error, 0) if error < best else (best, worse + 1)
            small = error <= STRICTEST or worse >= PATIENCE
            if small and len(steps) > LEAST_STEPS:
                break
            start = clock()
            R = residual.residual(A_r, X, B)
            found = with_unit_columns(correct, R)
            X = update.add(X, found.Z)
            total += clock() - start
            iterations += found.iterations
            norms = column_norms(found.Z), column_norms(X)
            record(X, float(norms[0][0] / max(norms[1][0], 5e-324)))
    except ArithmeticFailure as failure:
        return Trajectory(tuple(steps), failure.status.name)
    except OverflowError:
        return Trajectory(tuple(steps), "OVERFLOW")
    return Trajectory(tuple(steps))


def one_norm_condition(A: NDArray[np.float64]) -> float:
    """Hager and Higham's estimate of kappa_1 from an FP64 LU, as LAPACK's dgecon has it."""
    LU, _, info = lapack.dgetrf(A)
    if info > 0:
        return math.inf
    reciprocal, _ = lapack.dgecon(LU, np.abs(A).sum(axis=0).max(), norm="1")
    return 1 / float(reciprocal) if reciprocal > 0 else math.inf


def unblocked_seconds(A: NDArray[np.float64], repeats: int) -> dict[str, float]:
    """Seconds of the unblocked LU by format; one in 16 bits is computed in FP32."""
    found = {}
    for fmt, dtype in ((FP64, np.float64), (FP32, np.float32)):
        M, seconds = np.asfortranarray(A, dtype=dtype), []
        for _ in range(repeats):
            work = M.copy(order="F")
            start = time.thread_time()
            factorize_unblocked(work)
            seconds.append(time.thread_time() - start)
        found[fmt.name] = median(seconds)
    return found | {"fp16": found["fp32"]}


def factorize_unblocked(A: NDArray[Any]) -> NDArray[np.intp]:
    """LU by rank-one updates with partial pivoting, in place; the pivot rows of each column.

    The textbook's loop over columns, one BLAS call (ger) each: the same for float32 and float64,
    bound by memory in both, as an LU without blocks is. A is in Fortran's order.
    """
    library = blas.bundled("scipy")
    ger = None if library is None else library.fortran({"d": "dger", "f": "sger"}[A.dtype.char])
    if library is None or ger is None:
        raise RuntimeError("the unblocked LU calls the OpenBLAS of SciPy's wheel; install that")
    n, width, integer = len(A), A.itemsize, np.dtype(library.integer)
    pivots = np.arange(n)
    count, one, lead = (np.array([value], dtype=integer) for value in (n, 1, n))
    alpha, ger.restype = np.array([-1.0], dtype=A.dtype), None
    sizes, step, lda, minus = (ctypes.c_void_p(a.ctypes.data) for a in (count, one, lead, alpha))
    for k in range(n - 1):
        pivots[k] = p = k + int(np.abs(A[k:, k]).argmax())
        if p != k:
            A[[k, p]] = A[[p, k]]
        if A[k, k] == 0:
            continue
        A[k + 1 :, k] /= A[k, k]
        count[0] = n - k - 1
        corner = A.ctypes.data + k * (n + 1) * width
        column, row, rest = (
            ctypes.c_void_p(corner + offset) for offset in (width, n * width, (n + 1) * width)
        )
        ger(sizes, sizes, minus, column, step, row, lda, rest, lda)
    return pivots
