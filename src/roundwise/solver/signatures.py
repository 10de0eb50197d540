"""What type checkers are told of `solve`, `lstsq` and `factor`: options, and shapes that matter.

An array whose shape a checker does not know counts as a matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np

if TYPE_CHECKING:
    from roundwise.solver.iterating import Step
    from roundwise.solver.prepare import Accuracy
    from roundwise.solver.structures import Structure

Matrix: TypeAlias = np.ndarray[tuple[int, int], Any]
Stack: TypeAlias = (
    np.ndarray[tuple[int, int, int], Any] | np.ndarray[tuple[int, int, int, int], Any]
)


class SystemOptions(TypedDict, total=False):
    """Those of `Solver.solve`."""

    tol: float | None
    assume_a: Structure | None
    accuracy: Accuracy
    device: str | None
    lower: bool
    transposed: bool
    memory: str | float | None


class SolveOptions(SystemOptions, total=False):
    """Those of `roundwise.solve`."""

    policy: Any
    overwrite_a: bool
    overwrite_b: bool
    check_finite: bool
    nullspace: Any
    M: Any
    x0: Any
    callback: Callable[[Step], Any] | None
    progress: bool
    rtol: float | None
    atol: float | None


class FactorOptions(TypedDict, total=False):
    """Those of `roundwise.factor`."""

    tol: float | None
    policy: Any
    assume_a: Structure | None
    columns: int
    accuracy: Accuracy
    device: str | None
    lower: bool
    memory: str | float | None
