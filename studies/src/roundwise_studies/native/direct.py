"""Direct solvers to compare with: LAPACK and SuperLU, called as users call them.

Each is an algorithm with one stage, so that its runs are timed, repeated and stored as ours are.
None looks at the true solution; the errors are measured afterwards and not timed.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse.linalg import splu, spsolve

from roundwise.algorithms import Algorithm, Outcome, OutcomeStatus, Shared, Stages
from roundwise.algorithms.accuracy import ErrorMeasure
from roundwise.backends.engines.superlu import DIAGONAL_PIVOT, SuperLUFactors
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.machine import blas
from roundwise.problems import LinearSystem

Vector = NDArray[np.float64]
REST = 0.15
"""Seconds to wait before a call of NumPy: it has a BLAS of its own, and the threads of SciPy's BLAS
spin for up to 0.1 s after a call and would slow it down."""

SAME_ORDERING = "MMD_AT_PLUS_A"
"""SuperLU's name of the ordering that the native backend uses for symmetric patterns."""


class DirectSolveError(RoundwiseError):
    """A direct solver found the matrix singular."""


def dsgesv(A: NDArray[np.float64], b: Vector) -> tuple[Vector, int]:
    """LAPACK's mixed-precision solver, ``(x, iter)``: FP32 LU and refinement in FP64.

    A positive `iter` counts refinement steps; a negative one says why it gave up and solved in
    FP64. SciPy has no wrapper for it, so it is called in the OpenBLAS that SciPy's wheel bundles.
    """
    library = blas.bundled("scipy")
    function = None if library is None else library.fortran("dsgesv")
    if library is None or function is None:
        raise RoundwiseError(
            "SciPy's BLAS has no dsgesv to call; install SciPy's wheel from PyPI, or leave it out"
        )
    n, integer = len(b), np.dtype(library.integer)
    columns = np.array(A, dtype=np.float64, order="F")  # overwritten where FP64 takes over
    b, x, work = np.ascontiguousarray(b), np.empty(n), np.empty(n)
    swork, pivots = np.empty(n * (n + 1), dtype=np.float32), np.empty(n, dtype=integer)
    size, one, steps, info = (np.array([value], dtype=integer) for value in (n, 1, 0, 0))
    system, results = (size, one, columns, size, pivots, b, size), (x, size, work, swork, steps)
    function.restype = None
    function(*(ctypes.c_void_p(array.ctypes.data) for array in (*system, *results, info)))
    _check(info[0], "dsgesv")
    return x, int(steps[0])


def has_dsgesv() -> bool:
    """Whether SciPy's BLAS is the wheel's OpenBLAS, with dsgesv in it."""
    library = blas.bundled("scipy")
    return library is not None and library.fortran("dsgesv") is not None


def _check(info: int, routine: str) -> None:
    if info > 0:
        raise DirectSolveError(f"{routine}: pivot {info} is zero; pass a regular matrix")


def _dgesv(A: Any, b: Vector) -> tuple[Vector, int]:
    *_, x, info = lapack.dgesv(A, b)
    _check(info, "dgesv")
    return x, 0


ROUTINES: dict[str, Callable[[Any, Vector], tuple[Vector, int]]] = {
    "numpy.linalg.solve": lambda A, b: (np.linalg.solve(A, b), 0),
    "scipy.linalg.solve": lambda A, b: (scipy.linalg.solve(A, b), 0),
    "dgesv": _dgesv,
    "dsgesv": dsgesv,
    "spsolve": lambda A, b: (spsolve(A.tocsc(), b, use_umfpack=False), 0),
    "spsolve, same ordering": lambda A, b: (
        spsolve(A.tocsc(), b, permc_spec=SAME_ORDERING, use_umfpack=False),
        0,
    ),
}
"""The routines by name; each maps ``(A, b)`` to the solution and the iterations it took."""

SPLU: dict[str, Mapping[str, Any]] = {
    "splu": {},
    "splu, same ordering": {
        "permc_spec": SAME_ORDERING,
        "diag_pivot_thresh": DIAGONAL_PIVOT,
        "options": {"SymmetricMode": True},
    },
}
"""Options of ``scipy.sparse.linalg.splu`` by name, the second with those that the native backend
has for symmetric patterns; the factors are kept to count their entries."""


@dataclass(frozen=True)
class DirectSolve(Algorithm):
    """One call of a direct solver, a key of `ROUTINES` or `SPLU`; the only action is ``fp64``."""

    stages: ClassVar[tuple[str, ...]] = ("factor",)

    routine: str

    def __post_init__(self) -> None:
        known = [*ROUTINES, *SPLU]
        if self.routine not in known:
            raise ValueError(f"routine = {self.routine!r}; choose one of {', '.join(known)}")

    def execute(self, problem: LinearSystem, stages: Stages, shared: Shared) -> Outcome:
        with shared.diagnostics():
            measure = shared.get("errors", lambda: ErrorMeasure(problem))
            if self.routine.startswith("numpy"):
                time.sleep(REST)
        A: Any = problem.A
        iterations = 0
        if self.routine in SPLU:
            options = SPLU[self.routine]
            factors = shared.get(
                ("factors", "lu", FP64), lambda: SuperLUFactors(FP64, splu(A.tocsc(), **options))
            )
            x = factors.solve(problem.b)
        else:
            x, iterations = ROUTINES[self.routine](A, problem.b)
        with shared.diagnostics():
            return Outcome(
                OutcomeStatus.CONVERGED,
                x,
                ferr=measure.forward(x),
                nbe=measure.backward(x),
                cbe=measure.componentwise(x),
                outer_iterations=max(iterations, 0),
                reason=f"iter = {iterations}: FP64 took over" if iterations < 0 else "",
            )
