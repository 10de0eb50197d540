"""Systems on a GPU that FP64 factors are chosen for: few numbers read back, and little of Python.

The action is that of `decide`, and so are the bits of x: what is saved is Python's time, which is
most of a solve with a thousand unknowns there. Lower formats, and whatever shows signs of trouble,
go on to the general path, which finds out why and says so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from roundwise.actions import Action
from roundwise.algorithms.accuracy import (
    default_tolerance,
    lost_pivots,
    passes,
    upper_bounds,
    within,
)
from roundwise.algorithms.scaling import is_moderate
from roundwise.backends import ArithmeticFailure
from roundwise.backends.contract import ToRefine
from roundwise.features.probe import device_row_features
from roundwise.formats import FP64
from roundwise.policies.device import DevicePolicy
from roundwise.solver.decide import looks_definite
from roundwise.solver.express import remembered
from roundwise.solver.inputs import BLOCK
from roundwise.solver.places import Place, memory_needed
from roundwise.solver.policy_argument import DEVICE_CONTEXT, device_policy
from roundwise.solver.prepare import Options
from roundwise.solver.system import unread
from roundwise.solver.trust.error_bound import PROVED_UP_TO
from roundwise.solver.trust.examining import FEW_DIGITS, SUSPICIOUS

Looked = dict[str, float]
"""What rows of A tell (`device_row_features`)."""


def express_on_device(A: Any, b: Any, options: Options, place: Place) -> tuple[Any, Looked | None]:
    """x of a real system in double precision, and what rows of A tell if they were looked at.

    Instead of x None if it is no such system, or is refused.
    """
    looked: Looked | None = None
    n = len(A)
    policy = device_policy(place.backend)
    norm = _norm(A, b, options, place)
    if norm is None:
        return None, None
    columns = 1 if b.ndim == 1 else b.shape[1]
    definite = looks_definite(A, n) if options.definite is None else options.definite
    if policy.probes({"n": float(n)}):
        looked = device_row_features(A)
        action = _chosen(policy, n, columns, definite, looked)
    else:
        action = remembered(_chosen, policy, n, columns, definite)
    hides = action.method == "cholesky" and n <= PROVED_UP_TO  # it has no pivots that would tell
    if action[0] != FP64 or hides or memory_needed(action, n) > place.memory_free:
        return None, looked
    return _solved(A, b, action, norm, options.tol, place), looked


def _norm(A: Any, b: Any, options: Options, place: Place) -> float | None:
    """The norm of an A that is solved with as it is; None if A and b are others."""
    n = len(A)
    if not (A.dtype == b.dtype == np.float64 and A.shape == (n, n) and len(b) == n):
        return None
    contiguous = A.flags.c_contiguous or A.flags.f_contiguous
    if not contiguous or not 0 < b.size <= BLOCK or options.accuracy != "backward":
        return None
    backend: Any = place.backend
    norm, largest = backend.sizes(A)
    return norm if math.isfinite(largest) and is_moderate(largest) else None


def _solved(A: Any, b: Any, action: Action, norm: float, tol: float | None, place: Place) -> Any:
    """x through the gate, by this action; None if that does not get there."""
    backend: Any = place.backend
    n = len(A)
    tolerance = default_tolerance(n) if tol is None else tol
    unknown = backend.residual_error(FP64, n)
    if not unknown < tolerance / 2:
        return None
    B = backend.xp.asfortranarray(b[:, None] if b.ndim == 1 else b)
    try:
        factors = backend.analyse(A, action.method).factorize(A, FP64)
        matrix, target = backend.matrix(A, FP64), within(tolerance, n, unknown)
        found = factors.refined(ToRefine(matrix, norm, B, target))
    except ArithmeticFailure:
        return None
    if found is None or not passes(upper_bounds(found.errors, n, unknown), tolerance):
        return None
    troubled = SUSPICIOUS * found.stretch > 1 or not found.largest < FEW_DIGITS
    if troubled or lost_pivots(factors, math.inf, SUSPICIOUS):
        return None
    return found.X[:, 0] if b.ndim == 1 else found.X


def _chosen(
    policy: DevicePolicy, n: int, columns: int, definite: bool, rows: Looked | None = None
) -> Action:
    """What is tried first; where no row of A is looked at, it depends on shapes alone."""
    known: Looked = {"n": n, "columns": columns, "looks_positive_definite": definite}
    state = policy.state(DEVICE_CONTEXT.vector(known | (unread(n) if rows is None else rows)))
    return policy.space[policy.rank(state).first]
