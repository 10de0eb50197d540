"""The system in Matrix Market files, real or complex, as `solve` and `compare` take it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import cached_property
from roundwise.exceptions import IllConditionedWarning
from roundwise.problems import LinearSystem
from roundwise.problems.matrix_market import read_arrays, reference_solution
from roundwise.solver import SolveFailed, solve


@dataclass(frozen=True, eq=False)
class FileSystem:
    """A and its right-hand sides; `x_assumed` is None if b was given."""

    A: Any
    B: NDArray[Any]  # (n, columns)
    name: str
    x_assumed: NDArray[Any] | None = None

    @classmethod
    def read(cls, matrix: Path, rhs: Path | None) -> FileSystem:
        """Read files; without b, make one from an x whose entries, or parts, are 1 to 2."""
        A, B, name = read_arrays(matrix, rhs)
        if B is not None:
            return cls(A, B, name)
        x = reference_solution(A.shape[0])
        if np.iscomplexobj(A):
            x = reference_solution(2 * A.shape[0]).view(np.complex128)
        return cls(A, (A @ x)[:, None], name, x)

    @cached_property
    def accurate(self) -> NDArray[Any] | None:
        """The solution for the first column, right to its last places; None if it is not found.

        Where b was made as ``fl(A x_assumed)``, rounding has moved the solution away from
        `x_assumed` by about kappa u: errors are measured against this x instead.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllConditionedWarning)
            try:
                found = solve(self.A, self.B[:, 0], accuracy="forward", full_output=True)
            except SolveFailed:
                return None
        return np.asarray(found.x) if found.accuracy == "forward" else None

    @property
    def n(self) -> int:
        return int(self.A.shape[0])

    @property
    def is_sparse(self) -> bool:
        return bool(sparse.issparse(self.A))

    @property
    def is_complex(self) -> bool:
        return np.iscomplexobj(self.A) or np.iscomplexobj(self.B)

    @property
    def density(self) -> float:
        return float(self.A.nnz if self.is_sparse else np.count_nonzero(self.A)) / self.n**2

    def columns(self) -> list[LinearSystem]:
        """A problem for each right-hand side of a real system."""
        return [LinearSystem(self.A, b, self.x_assumed, name=self.name) for b in self.B.T]
