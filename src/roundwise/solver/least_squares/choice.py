"""Which actions `lstsq` tries, in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from roundwise.actions import Action
from roundwise.algorithms.least_squares.ls_ir import LsIR
from roundwise.formats import FP32, FP64, NAMED_FORMATS, FloatFormat
from roundwise.problems.least_squares import LeastSquares
from roundwise.solver.least_squares.inputs import GivenProblem
from roundwise.tuning import Tuner

DENSE = ("cholesky", "choleskyqr", "qr")
SPARSE = ("cholesky/amd", "superlu/colamd")
"""Methods in the order in which they are tried, of A'A and of A or the augmented matrix."""

LADDER_END = Action([FP64] * 4, "svd")


def ladder_of(policy: Any, problem: GivenProblem) -> tuple[tuple[Action, ...], str]:
    """The actions to try in turn, and why the first is first."""
    methods = SPARSE if sparse.issparse(problem.A) else DENSE
    first, reason = _first(policy, problem, methods[0])
    known = (*methods, LADDER_END.method)
    if first.method not in known:
        raise ValueError(f"method {first.method!r} is not for this A; choose {', '.join(known)}")
    if first.method == "choleskyqr" and first[0] != FP64:
        raise ValueError("Cholesky QR is in fp64 alone; choose choleskyqr:fp64-fp64-fp64-fp64")
    if first.method == LADDER_END.method:
        return (LADDER_END,), reason
    ladder = [first]
    if first[0] != FP64:
        ladder.append(Action([FP64] * 4, first.method))
    ladder += [Action([FP64] * 4, m) for m in methods[methods.index(first.method) + 1 :]]
    return (*ladder, LADDER_END), reason


def _first(policy: Any, problem: GivenProblem, method: str) -> tuple[Action, str]:
    if isinstance(policy, Tuner):
        return _trained(policy, problem)
    if not isinstance(policy, str):
        raise TypeError(
            f"policy is of type {type(policy).__name__}; pass 'default', a format's name, an "
            "action's text, or a Tuner that was fitted for LsIR"
        )
    if policy == "default":
        return _default(problem, method)
    if policy in NAMED_FORMATS:
        fmt = _native(NAMED_FORMATS[policy])
        runs = "" if fmt.name == policy else f" Least squares run in fp32 and fp64: {fmt} it is."
        return Action([fmt, FP64, FP64, FP64], method), f"You asked for {policy} first.{runs}"
    action = LsIR().formats(policy.partition(":")[2] or policy)
    for fmt in action:
        if fmt not in (FP32, FP64):
            raise ValueError(f"{fmt} does not run here; choose fp32 or fp64 in {policy!r}")
    return Action(action, policy.partition(":")[0] if ":" in policy else "qr"), (
        f"You asked for {policy} first."
    )


def _default(problem: GivenProblem, method: str) -> tuple[Action, str]:
    if problem.dtype == np.float32:
        return Action([FP32, FP64, FP64, FP64], method), (
            "The answer is to be float32: Cholesky of A'A in fp32 is likely to do, at the least "
            "cost."
        )
    return Action([FP64] * 4, method), (
        "Cholesky of A'A in fp64 takes half the operations of QR and suffices unless the condition "
        "number is large."
    )


def _trained(tuner: Tuner, problem: GivenProblem) -> tuple[Action, str]:
    if not isinstance(tuner.algorithm, LsIR):
        raise ValueError(
            f"the Tuner was fitted for {type(tuner.algorithm).__name__}; fit one for LsIR"
        )
    A, b = problem.A, problem.b[:, 0]
    if A.shape[0] < A.shape[1]:
        A, b = A.T, np.zeros(A.shape[1])
    chosen = tuner.predict(LeastSquares(A, b))
    formats = [_native(fmt) for fmt in chosen]
    method = SPARSE[0] if sparse.issparse(problem.A) else tuner.algorithm.method or "qr"
    return Action(formats, method), f"The tuner chose {chosen}."


def _native(fmt: FloatFormat) -> FloatFormat:
    """The lowest of fp32 and fp64 that has this format's bits and range."""
    return FP32 if fmt.p <= FP32.p and fmt.emax <= FP32.emax else FP64
