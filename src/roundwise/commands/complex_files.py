"""``roundwise solve`` for Matrix Market files of complex numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.commands.verdict import Verdict
from roundwise.problems.matrix_market import read_arrays, reference_solution
from roundwise.solver import SolveFailed, solve
from roundwise.tuning import Tuner


@dataclass(frozen=True, eq=False)
class ComplexSystem:
    """A complex system as a verdict tells of it; A or b may be real."""

    A: Any
    B: NDArray[Any]  # (n, columns)
    name: str
    x_true: NDArray[Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def b(self) -> NDArray[Any]:
        return self.B[:, 0]

    @property
    def n(self) -> int:
        return int(self.A.shape[0])

    @property
    def is_sparse(self) -> bool:
        return bool(sparse.issparse(self.A))

    @property
    def density(self) -> float:
        nonzeros = self.A.nnz if self.is_sparse else np.count_nonzero(self.A)
        return float(nonzeros) / self.n**2

    @classmethod
    def read(cls, matrix: Path, rhs: Path | None) -> ComplexSystem:
        """From files; without b, one is made from an x whose parts have magnitudes of 1 to 2."""
        A, B, name = read_arrays(matrix, rhs)
        if B is not None:
            return cls(A, B, name)
        parts = reference_solution(2 * A.shape[0])
        x = parts[0::2] + 1j * parts[1::2]
        return cls(A, (A @ x)[:, None], name, x)


def complex_verdict(
    matrix: Path, rhs: Path | None, tuner: Tuner | None, options: Mapping[str, Any]
) -> Verdict:
    """Solve natively for all right-hand sides; `options` are those that real systems alone have."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise click.UsageError(
            f"{' and '.join(given)}: for real systems only, and these files are complex; leave "
            "that out, and the library chooses"
        )
    system = ComplexSystem.read(matrix, rhs)
    policy = "default" if tuner is None else tuner
    try:
        answer = solve(system.A, system.B, policy=policy, full_output=True)
    except SolveFailed as failure:
        answer = failure
    return Verdict.of_solve(system, rhs is None, answer)
