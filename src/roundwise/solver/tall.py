"""Least squares problems: `prepare` and `decide`, the first two of the four steps of `lstsq`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.actions import Action
from roundwise.algorithms.least_squares.ls_ir import LsIR
from roundwise.algorithms.least_squares.scaling import ScaledLeastSquares, scaled_least_squares
from roundwise.algorithms.least_squares.verified_lstsq import target_error
from roundwise.algorithms.scaling import NOT_FINITE
from roundwise.backends import Backend
from roundwise.backends.arrays import column_norms, is_sparse
from roundwise.costs import Shape, Work, current_prices
from roundwise.formats import FP32, FP64
from roundwise.methods.tall import SVD, TALL, tall_methods
from roundwise.problems.least_squares import LeastSquares
from roundwise.solver.decide import Plan, as_asked
from roundwise.solver.inputs import check_dtype, columns_of_rows, is_complex
from roundwise.solver.places import Place
from roundwise.solver.policy_argument import DEFAULT, Asker, Start, at_least
from roundwise.solver.prepare import BACKEND, check_finite, checked_tolerance, float64_matrix
from roundwise.tuning import DeployedPolicy

Array = NDArray[np.float64]

BY_SVD = Action([FP64] * 4, SVD.name)


@dataclass(frozen=True, eq=False)
class TallSystem:
    """A and b of a least squares problem as float64, and what is asked.

    "Tall" is the one of A and A' that is factorized.
    """

    A: Any  # a contiguous array, or canonical csr_array
    b: Array  # (m, k), Fortran-ordered
    was_vector: bool
    dtype: Any  # of the answer: float32 if A and b are, else float64
    tolerance: float
    rcond: float
    backend: Backend = BACKEND
    place: Place | None = None  # the GPU that has both; None for the processor

    @property
    def is_sparse(self) -> bool:
        return is_sparse(self.A)

    @property
    def is_empty(self) -> bool:
        return 0 in (*self.A.shape, self.b.shape[1])

    @cached_property
    def scaled(self) -> ScaledLeastSquares:
        """The augmented system of the problem, scaled to moderate size."""
        there = None if self.place is None else self.backend
        return scaled_least_squares(self.A, self.b, backend=there)

    def shaped(self, x: NDArray[Any]) -> NDArray[Any]:
        return x[:, 0] if self.was_vector else x

    def per_column(self, values: Array) -> Any:
        return float(values[0]) if self.was_vector else values


def prepare(
    A: Any, b: Any, tol: float | None, rcond: float | None, place: Place | None = None
) -> TallSystem:
    """A and b, ready to be solved with, or an error that names the fix."""
    for name, values in (("A", A), ("b", b)):
        if is_complex(values):
            raise TypeError(
                f"{name} is complex; real problems only: pass {name}.real if that is meant, or use "
                "numpy.linalg.lstsq"
            )
    given, form = float64_matrix(A) if place is None else (A, A)
    if given.ndim != 2:
        raise np.linalg.LinAlgError(f"A has {given.ndim} dimensions; pass a matrix")
    m, n = given.shape
    columns = columns_of_rows(b, m, place is None)
    dtype = answer_dtype(given, columns)
    tolerance, rcond = limits_of((m, n), dtype, tol, rcond)
    if place is not None:
        return _on_device(given, columns, dtype, (tolerance, rcond), place)
    if form.size:
        check_finite(BACKEND.sizes(form))
    block = np.array(columns if columns.ndim == 2 else columns[:, None], np.float64, order="F")
    return TallSystem(form, block, columns.ndim == 1, dtype, tolerance, rcond)


def _on_device(
    A: Any, columns: Any, dtype: Any, limits: tuple[float, float], place: Place
) -> TallSystem:
    check_dtype("A", A.dtype)
    if 0 in (*A.shape, *columns.shape):
        raise ValueError("A or b is empty: there is nothing to solve on a GPU; pass NumPy arrays")
    backend = place.backend
    contiguous = A.flags.c_contiguous or A.flags.f_contiguous
    if A.dtype != np.float64 or not contiguous:
        A = backend.xp.array(A, dtype=np.float64, order="K" if contiguous else "C")
    check_finite(backend.sizes(A))
    given = columns if columns.ndim == 2 else columns[:, None]
    block = backend.xp.array(given, dtype=np.float64, order="F")
    if not np.isfinite(column_norms(block)).all():
        raise ValueError(f"b {NOT_FINITE}")
    return TallSystem(A, block, columns.ndim == 1, dtype, *limits, backend, place)


def answer_dtype(A: Any, b: Any) -> Any:
    """Of x: float32 if A and b are."""
    return np.float32 if A.dtype == b.dtype == np.float32 else np.float64


def is_native_float(dtype: Any) -> bool:
    """Whether the compiled call takes numbers of this type as they are."""
    return dtype in (np.float64, np.float32) and bool(dtype.isnative)


def limits_of(
    shape: tuple[int, ...], dtype: Any, tol: Any, rcond: float | None
) -> tuple[float, float]:
    """The tolerance and the rcond of a problem, or an error that names the fix."""
    tol = checked_tolerance(tol)
    if rcond is None:
        rcond = max(shape) * 2 * (FP32 if dtype == np.float32 else FP64).unit_roundoff
    elif not 0 <= rcond < 1:
        raise ValueError(f"rcond = {rcond}; choose 0 <= rcond < 1, or None for max(m, n) eps")
    return target_error(shape[0], shape[1], dtype) if tol is None else tol, float(rcond)


def decide(system: TallSystem, asker: Asker) -> Plan:
    """What to try for a problem, and why."""
    policy = None if asker is DEFAULT else asker.on(BACKEND)
    if system.place is not None:
        return _decided_on_device(policy)
    if isinstance(policy, DeployedPolicy):
        return _trained(policy, system)
    return decided_by_shape(
        policy, system.A.shape, system.b.shape[1], system.is_sparse, system.dtype == np.float32
    )


def _decided_on_device(policy: Start | DeployedPolicy | None) -> Plan:
    """Products of matrices are what a GPU does best: Cholesky of A'A first, unless asked."""
    if isinstance(policy, DeployedPolicy):
        raise TypeError(
            "no Tuner is trained for least squares on a GPU; pass policy='default' or a format's "
            "name, or A.get() and b.get() to solve on the CPU"
        )
    if policy is not None:
        return _as_asked(policy, False, "cholesky")
    reason = "On a GPU Cholesky of A'A in fp64 takes a fraction of QR's time, and suffices unless "
    ladder = _ladder_from(Action([FP64] * 4, "cholesky"))
    return Plan(ladder, reason + "the condition number is large.")


def decided_by_shape(
    start: Start | None, shape: tuple[int, ...], columns: int, sparse: bool, single: bool
) -> Plan:
    """The same where nobody looks at the numbers: by prices, or as the caller says (`start`)."""
    first = _cheapest(shape, columns, sparse)
    return _default(first, single) if start is None else _as_asked(start, sparse, first)


def _as_asked(start: Start, sparse: bool, first: str) -> Plan:
    asked, fitting = start.with_method(first), tall_methods(sparse)
    return as_asked(start.text, asked, fitting, lambda action: _ladder_from(_runnable(action)))


FAILURES = 0.25
"""How often a method is expected to fail, so that the one after it follows: a taste. Nobody knows
how many of a user's problems have a condition number above 1e7, where Cholesky of A'A fails."""


def _cheapest(shape: tuple[int, ...], columns: int, sparse: bool) -> str:
    """The method that is expected to take the least; of sparse ones without a price the first."""
    n, rates, work = min(shape), current_prices(), Work(runs=1)
    size = Shape(n, shape[0] * shape[1], columns)

    def price(name: str) -> float:
        priced = TALL[name].price
        seconds = None if priced is None else priced(rates, size, FP64.name)
        return math.inf if seconds is None else seconds.of(work, columns)

    def expected(name: str) -> float:
        following = [price(other) for other in TALL[name].then]
        return price(name) + FAILURES * sum(one for one in following if math.isfinite(one))

    names = [name for name in tall_methods(sparse) if TALL[name].chosen]
    last_first = names if sparse else names[::-1]  # of equal prices the later one wins
    return min(last_first, key=expected)


@lru_cache(maxsize=8)
def _default(method: str, single: bool) -> Plan:
    if method == "qr":
        reason = "QR in fp64 at once, on one thread: Cholesky of A'A gains little for this shape."
        return Plan(_ladder_from(Action([FP64] * 4, method)), reason)
    if single and FP32 in TALL[method].formats:
        # Where fp32 is not enough, a dense A mostly has dependent columns, which QR sees.
        reason = "The answer is to be float32: Cholesky of A'A in fp32 is likely to do, at the "
        ladder = _ladder_from(Action([FP32, FP64, FP64, FP64], method))
        if method == "cholesky":
            ladder = (ladder[0], *ladder[2:])
        return Plan(ladder, reason + "least cost.")
    reason = f"{method} in fp64 is expected to take the least time."
    if method in ("cholesky", "cholesky/amd"):
        reason = "Cholesky of A'A in fp64 takes half the operations of QR and suffices unless the "
        reason += "condition number is large."
    return Plan(_ladder_from(Action([FP64] * 4, method)), reason)


def _trained(policy: DeployedPolicy, system: TallSystem) -> Plan:
    A, b = system.A, system.b[:, 0]
    if A.shape[0] < A.shape[1]:
        A, b = A.T, np.zeros(A.shape[1])
    state = policy.state(LeastSquares(A, b), arithmetic=policy.arithmetic)
    chosen = policy.policy.space[policy.policy.choose(state)]
    own = policy.algorithm.method if isinstance(policy.algorithm, LsIR) else None
    method = tall_methods(True)[0] if system.is_sparse else own or "qr"
    ladder = _ladder_from(_runnable(Action(chosen, method)))
    return Plan(ladder, f"The tuner chose {chosen}.")


def _runnable(action: Action) -> Action:
    """The action in fp32 and fp64, each format raised to the lowest that has its bits and range."""
    return Action([at_least(fmt, (FP32, FP64)) for fmt in action], action.method)


def _ladder_from(first: Action) -> tuple[Action, ...]:
    """The climb from an action on: FP64 by the same method, then by those that follow it."""
    ladder, method = [first], TALL[first.method]
    if first[0] != FP64:
        ladder.append(Action([FP64] * 4, method.name))
    while method.then:
        method = TALL[method.then[0]]
        ladder.append(Action([FP64] * 4, method.name))
    return tuple(dict.fromkeys(ladder))
