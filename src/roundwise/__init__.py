"""Roundwise: how little floating-point precision does each step of a solver need?

Names are imported when they are first asked for: ``import roundwise`` takes no time, and a solve
loads no more than it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roundwise._lazy import lazy_names

if TYPE_CHECKING:
    from roundwise.actions import Action
    from roundwise.algorithms import (
        Algorithm,
        CgIR,
        DeploymentRule,
        GmresIR,
        LsIR,
        LuIR,
        Outcome,
        OutcomeStatus,
        PaperRule,
        VerifiedSolve,
    )
    from roundwise.backends import ArithmeticFailure, Status, get_backend
    from roundwise.backends.cuda.device import DeviceUnavailable
    from roundwise.exceptions import IllConditionedWarning, RoundwiseError, UnknownNameError
    from roundwise.features import FEATURES, compute_features
    from roundwise.formats import (
        BF16,
        BF16X3,
        E4M3,
        E5M2,
        FP16,
        FP16X2,
        FP32,
        FP64,
        NAMED_FORMATS,
        TF32,
        FloatFormat,
        get_format,
        register_format,
    )
    from roundwise.machine.threads import (
        get_num_threads,
        get_simd_level,
        set_num_threads,
        set_simd_level,
        simd_levels,
    )
    from roundwise.outcomes import OutcomeTable, fill
    from roundwise.policies.base import Policy
    from roundwise.problems import LeastSquares, LinearSystem, read_matrix_market
    from roundwise.rewards import Reward
    from roundwise.rounding import round_scalar, round_to
    from roundwise.solver.factorization import Factorization
    from roundwise.solver.front_door import factor, solve
    from roundwise.solver.learning import Solver
    from roundwise.solver.least_squares import lstsq
    from roundwise.solver.places import DeviceMemoryError
    from roundwise.solver.solution import LeastSquaresSolution, Solution, SolveFailed
    from roundwise.solver.stacks import StackedFactorization, StackedSolution
    from roundwise.tuning.tuner import Tuner

__version__ = "0.1.0"

_HOMES = {
    "actions": ("Action",),
    "algorithms": (
        "Algorithm",
        "CgIR",
        "DeploymentRule",
        "GmresIR",
        "LsIR",
        "LuIR",
        "Outcome",
        "OutcomeStatus",
        "PaperRule",
        "VerifiedSolve",
    ),
    "backends": (
        "ArithmeticFailure",
        "Status",
        "get_backend",
    ),
    "backends.cuda.device": ("DeviceUnavailable",),
    "exceptions": (
        "IllConditionedWarning",
        "RoundwiseError",
        "UnknownNameError",
    ),
    "features": (
        "FEATURES",
        "compute_features",
    ),
    "formats": (
        "BF16",
        "BF16X3",
        "E4M3",
        "E5M2",
        "FP16",
        "FP16X2",
        "FP32",
        "FP64",
        "FloatFormat",
        "NAMED_FORMATS",
        "TF32",
        "get_format",
        "register_format",
    ),
    "machine.threads": (
        "get_num_threads",
        "get_simd_level",
        "set_num_threads",
        "set_simd_level",
        "simd_levels",
    ),
    "outcomes": (
        "OutcomeTable",
        "fill",
    ),
    "policies.base": ("Policy",),
    "problems": (
        "LeastSquares",
        "LinearSystem",
        "read_matrix_market",
    ),
    "rewards": ("Reward",),
    "rounding": (
        "round_scalar",
        "round_to",
    ),
    "solver.factorization": ("Factorization",),
    "solver.front_door": (
        "factor",
        "solve",
    ),
    "solver.learning": ("Solver",),
    "solver.least_squares": ("lstsq",),
    "solver.places": ("DeviceMemoryError",),
    "solver.solution": (
        "LeastSquaresSolution",
        "Solution",
        "SolveFailed",
    ),
    "solver.stacks": (
        "StackedFactorization",
        "StackedSolution",
    ),
    "tuning.tuner": ("Tuner",),
}
__getattr__, __dir__, __all__ = lazy_names("roundwise", _HOMES)
