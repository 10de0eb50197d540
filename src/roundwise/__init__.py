"""Roundwise: how little floating-point precision does each step of a solver need?"""

from roundwise.backends import ArithmeticFailure, Status, get_backend
from roundwise.exceptions import RoundwiseError, UnknownNameError
from roundwise.formats import (
    BF16,
    E4M3,
    E5M2,
    FP16,
    FP32,
    FP64,
    NAMED_FORMATS,
    TF32,
    FloatFormat,
    get_format,
)
from roundwise.rounding import round_scalar, round_to
from roundwise.runtime import (
    get_num_threads,
    get_simd_level,
    set_num_threads,
    set_simd_level,
    simd_levels,
)

__version__ = "0.1.0"

__all__ = [
    "BF16",
    "E4M3",
    "E5M2",
    "FP16",
    "FP32",
    "FP64",
    "NAMED_FORMATS",
    "TF32",
    "ArithmeticFailure",
    "FloatFormat",
    "RoundwiseError",
    "Status",
    "UnknownNameError",
    "get_backend",
    "get_format",
    "get_num_threads",
    "get_simd_level",
    "round_scalar",
    "round_to",
    "set_num_threads",
    "set_simd_level",
    "simd_levels",
]
