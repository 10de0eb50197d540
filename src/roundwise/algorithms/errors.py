"""How good a computed solution is, always against the original float64 data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.problems import LinearSystem

Vector = NDArray[np.float64]


class ErrorMeasure:
    """Errors of approximate solutions of one linear system; norms of A are computed once."""

    def __init__(self, problem: LinearSystem) -> None:
        self.problem = problem
        self._abs_A = abs(problem.A)
        self.norm_A = float(self._abs_A.sum(axis=1).max())
        self.norm_b = max_norm(problem.b)

    def forward(self, x: Vector) -> float:
        """``||x - x_true|| / ||x_true||`` (max norm); absolute if x_true is 0, NaN if unknown."""
        x_true = self.problem.x_true
        if x_true is None:
            return float("nan")
        size = max_norm(x_true)
        return max_norm(x - x_true) / (size if size > 0 else 1.0)

    def backward(self, x: Vector) -> float:
        """Normwise: ``||b - A x|| / (||A|| ||x|| + ||b||)`` in the max norm (Rigal & Gaches)."""
        residual = self.problem.b - self.problem.A @ x
        return _ratio(max_norm(residual), self.norm_A * max_norm(x) + self.norm_b)

    def componentwise(self, x: Vector) -> float:
        """``max_i |b - A x|_i / (|A| |x| + |b|)_i``, 0/0 being 0 (Oettli & Prager)."""
        residual = np.abs(self.problem.b - self.problem.A @ x)
        size = self._abs_A @ np.abs(x) + np.abs(self.problem.b)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(residual == 0, 0.0, residual / size)
        return float(ratios.max())


def max_norm(x: NDArray[Any]) -> float:
    """``max_i |x_i|``."""
    return float(np.abs(x).max())


def _ratio(numerator: float, denominator: float) -> float:
    return 0.0 if numerator == 0 else numerator / denominator
