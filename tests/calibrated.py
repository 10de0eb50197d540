"""A calibration in round numbers, as if it had been measured on this machine."""

import dataclasses

from roundwise.costs.calibration import Calibration
from roundwise.machine.identity import Machine

VECTOR_KERNELS = ("axpy", "scale", "norm2", "orthogonalize", "givens", "solve_upper")


def calibration(**changes):
    """Round numbers: a call costs 1 s in fp64; LU takes n^3 s beyond, a solve 2 (n^2 + 2 n)."""
    by_size = {
        n: {"lu": 1 + n**3, "solve": 1 + 2 * (n * n + 2 * n), "matvec": 1.0} for n in (10, 20)
    }
    times = {"fp32": by_size, "fp64": by_size}
    overheads = {
        "fp32": dict.fromkeys(("lu", "solve", "matvec", *VECTOR_KERNELS), 7.0),
        "fp64": dict.fromkeys(("lu", "solve", "matvec", *VECTOR_KERNELS), 1.0),
    }
    return Calibration(dataclasses.replace(Machine.this(), **changes), times, overheads)
