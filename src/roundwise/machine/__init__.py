"""The machine: its identity, the threads and instruction set of our kernels, the BLAS it loads."""

from roundwise.machine.identity import Machine, cpu_model
from roundwise.machine.threads import (
    factorization_threads,
    get_num_threads,
    get_simd_level,
    set_num_threads,
    set_simd_level,
    simd_levels,
    usable_cores,
)

__all__ = [
    "Machine",
    "cpu_model",
    "factorization_threads",
    "get_num_threads",
    "get_simd_level",
    "set_num_threads",
    "set_simd_level",
    "simd_levels",
    "usable_cores",
]
