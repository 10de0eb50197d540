"""The system in Matrix Market files, real or complex, as `solve` and `compare` take it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.problems import LinearSystem
from roundwise.problems.matrix_market import read_arrays, reference_solution


@dataclass(frozen=True, eq=False)
class FileSystem:
    """A and its right-hand sides; `x_true` is None if b was given."""

    A: Any
    B: NDArray[Any]  # (n, columns)
    name: str
    x_true: NDArray[Any] | None = None

    @classmethod
    def read(cls, matrix: Path, rhs: Path | None) -> FileSystem:
        """From files; without b, one is made from an x whose entries, or parts, are 1 to 2."""
        A, B, name = read_arrays(matrix, rhs)
        if B is not None:
            return cls(A, B, name)
        x = reference_solution(A.shape[0])
        if np.iscomplexobj(A):
            x = reference_solution(2 * A.shape[0]).view(np.complex128)
        return cls(A, (A @ x)[:, None], name, x)

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
        return [LinearSystem(self.A, b, self.x_true, name=self.name) for b in self.B.T]
