"""Systems on a GPU whose shape settles the choice: FP64 factors at once, and few numbers read back.

The action is that of `decide`, and so are the bits of x: what is saved is Python's time, which is
most of a solve with a thousand unknowns there. Whatever shows signs of trouble is refused, and
goes on to the general path, which finds out why and says so.
"""

from __future__ import annotations

import math
from functools import lru_cache
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
from roundwise.formats import FP64
from roundwise.policies.device import DevicePolicy
from roundwise.solver.decide import looks_definite
from roundwise.solver.factored import MOST_STEPS
from roundwise.solver.inputs import BLOCK
from roundwise.solver.places import Place
from roundwise.solver.policy_argument import DEVICE_CONTEXT, device_policy
from roundwise.solver.prepare import Options
from roundwise.solver.system import unread
from roundwise.solver.trust.error_bound import PROVED_UP_TO
from roundwise.solver.trust.examining import FEW_DIGITS, SUSPICIOUS


def express_on_device(A: Any, b: Any, options: Options, place: Place) -> Any:
    """x of a real system in double precision; None if it is no such system, or is refused."""
    backend: Any = place.backend
    n = len(A)
    if not (A.dtype == b.dtype == np.float64 and A.shape == (n, n) and len(b) == n):
        return None
    contiguous = A.flags.c_contiguous or A.flags.f_contiguous
    columns = 1 if b.ndim == 1 else b.shape[1]
    if not contiguous or not 0 < b.size <= BLOCK or options.accuracy != "backward":
        return None
    policy = device_policy(backend)
    if policy.probes({"n": float(n)}):
        return None  # rows of A decide
    tolerance = default_tolerance(n) if options.tol is None else options.tol
    unknown = backend.residual_error(FP64, n)
    if not unknown < tolerance / 2:
        return None
    norm, largest = backend.sizes(A)
    if not (math.isfinite(largest) and is_moderate(largest)):
        return None
    definite = looks_definite(A, n) if options.definite is None else options.definite
    action = _first_action(policy, n, columns, definite)
    if action[0] != FP64 or (action.method == "cholesky" and n <= PROVED_UP_TO):
        return None
    B = backend.xp.asfortranarray(b[:, None] if b.ndim == 1 else b)
    try:
        factors = backend.analyse(A, action.method).factorize(A, FP64)
        matrix, target = backend.matrix(A, FP64), within(tolerance, n, unknown)
        found = factors.refined(matrix, norm, B, target, MOST_STEPS)
    except ArithmeticFailure:
        return None
    if found is None or not passes(upper_bounds(found.errors, n, unknown), tolerance):
        return None
    troubled = SUSPICIOUS * found.stretch > 1 or not found.largest < FEW_DIGITS
    if troubled or lost_pivots(factors, math.inf, SUSPICIOUS):
        return None
    return found.X[:, 0] if b.ndim == 1 else found.X


@lru_cache(maxsize=4096)
def _first_action(policy: DevicePolicy, n: int, columns: int, definite: bool) -> Action:
    """What is tried first where no row of A is looked at."""
    features = {"n": n, "columns": columns, "looks_positive_definite": definite} | unread(n)
    state = policy.state(DEVICE_CONTEXT.vector(features))
    return policy.space[policy.rank(state).first]
