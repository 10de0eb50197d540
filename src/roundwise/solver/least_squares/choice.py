"""Which actions `lstsq` tries, in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from roundwise.actions import Action
from roundwise.algorithms.least_squares.ls_ir import LsIR
from roundwise.formats import FP32, FP64
from roundwise.problems.least_squares import LeastSquares
from roundwise.solver.least_squares.inputs import GivenProblem
from roundwise.solver.policy_argument import DEFAULT, Start, at_least, parse_policy
from roundwise.solver.prepare import BACKEND
from roundwise.tuning import DeployedPolicy

DENSE = ("cholesky", "choleskyqr", "qr")
SPARSE = ("cholesky/amd", "superlu/colamd")
"""Methods in the order in which they are tried, of A'A and of A or the augmented matrix."""

LADDER_END = Action([FP64] * 4, "svd")


def ladder_of(policy: Any, problem: GivenProblem) -> tuple[tuple[Action, ...], str]:
    """The actions to try in turn, and why the first is first."""
    methods = SPARSE if sparse.issparse(problem.A) else DENSE
    asker = parse_policy(policy, LsIR)
    decides = None if asker is DEFAULT else asker.on(BACKEND)
    if decides is None:
        first, reason = _default(problem, methods[0])
    elif isinstance(decides, Start):
        first, reason = _asked_for(decides, methods[0])
    else:
        first, reason = _trained(decides, problem)
    known = (*methods, LADDER_END.method)
    if first.method not in known:
        raise ValueError(f"method {first.method!r} is not for this A; choose {', '.join(known)}")
    if first.method == "choleskyqr" and first[0] != FP64:
        raise ValueError("Cholesky QR is in fp64 alone; choose choleskyqr:fp64-fp64-fp64-fp64")
    if first.method == LADDER_END.method:
        return (LADDER_END,), reason
    ladder = [first]
    if isinstance(decides, Start):
        ladder += [_native(action, methods[0]) for action in decides.actions[1:]]
    last = ladder[-1]
    if last[0] != FP64:
        ladder.append(Action([FP64] * 4, last.method))
    ladder += [Action([FP64] * 4, m) for m in methods[methods.index(last.method) + 1 :]]
    return (*dict.fromkeys(ladder), LADDER_END), reason


def _asked_for(start: Start, method: str) -> tuple[Action, str]:
    asked, reason = start.actions[0], f"You asked for {start.text} first."
    first = _native(asked, method)
    if tuple(first) != tuple(asked):
        reason += f" Least squares do not run in it here: {first[0]} instead."
    return first, reason


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


def _trained(policy: DeployedPolicy, problem: GivenProblem) -> tuple[Action, str]:
    A, b = problem.A, problem.b[:, 0]
    if A.shape[0] < A.shape[1]:
        A, b = A.T, np.zeros(A.shape[1])
    state = policy.state(LeastSquares(A, b), arithmetic=policy.arithmetic)
    chosen = policy.policy.space[policy.policy.choose(state)]
    algorithm = policy.algorithm
    own = algorithm.method if isinstance(algorithm, LsIR) else None
    method = SPARSE[0] if sparse.issparse(problem.A) else own or "qr"
    return _native(Action(chosen), method), f"The tuner chose {chosen}."


def _native(action: Action, method: str) -> Action:
    """The action in fp32 and fp64, each format raised to the lowest that has its bits and range.

    `method` is for an action that names none.
    """
    return Action([at_least(fmt, (FP32, FP64)) for fmt in action], action.method or method)
