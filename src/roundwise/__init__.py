"""Roundwise: how little floating-point precision does each step of a solver need?"""

from roundwise import problems
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
from roundwise.problems import LeastSquares, LinearSystem, read_matrix_market
from roundwise.rounding import round_scalar, round_to
from roundwise.solver import (
    Factorization,
    LeastSquaresSolution,
    Solution,
    SolveFailed,
    Solver,
    StackedFactorization,
    StackedSolution,
    factor,
    lstsq,
    solve,
)
from roundwise.tuning import Tuner

__version__ = "0.1.0"

__all__ = [
    "BF16",
    "BF16X3",
    "E4M3",
    "E5M2",
    "FEATURES",
    "FP16",
    "FP16X2",
    "FP32",
    "FP64",
    "NAMED_FORMATS",
    "TF32",
    "Action",
    "Algorithm",
    "ArithmeticFailure",
    "CgIR",
    "DeploymentRule",
    "Factorization",
    "FloatFormat",
    "GmresIR",
    "IllConditionedWarning",
    "LeastSquares",
    "LeastSquaresSolution",
    "LinearSystem",
    "LsIR",
    "LuIR",
    "Outcome",
    "OutcomeStatus",
    "PaperRule",
    "RoundwiseError",
    "Solution",
    "SolveFailed",
    "Solver",
    "StackedFactorization",
    "StackedSolution",
    "Status",
    "Tuner",
    "UnknownNameError",
    "VerifiedSolve",
    "compute_features",
    "factor",
    "get_backend",
    "get_format",
    "get_num_threads",
    "get_simd_level",
    "lstsq",
    "problems",
    "read_matrix_market",
    "register_format",
    "round_scalar",
    "round_to",
    "set_num_threads",
    "set_simd_level",
    "simd_levels",
    "solve",
]
