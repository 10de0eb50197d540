"""The gate in rational arithmetic: float64 numbers are rational, so nothing is rounded here."""

from fractions import Fraction

import numpy as np
from scipy import sparse


def fractions(values):
    """Nested lists of the exact values of an array."""
    if isinstance(values, np.ndarray) and values.ndim:
        return [fractions(part) for part in values]
    return Fraction(float(values))


def residual(A, x, b):
    """``b - A x`` for a dense or sparse A and vectors x and b, exactly."""
    dense = np.asarray(A.toarray() if sparse.issparse(A) else A, dtype=np.float64)
    x, b = fractions(np.asarray(x, dtype=np.float64)), fractions(np.asarray(b, dtype=np.float64))
    return [
        value - sum(a * x[j] for j, a in enumerate(fractions(row)) if a)
        for row, value in zip(dense, b, strict=True)
    ]


def passes_gate(A, x, b, tolerance):
    """Whether ``||b - A x|| <= tolerance (||A|| ||x|| + ||b||)`` in the max norm, exactly."""
    dense = np.asarray(A.toarray() if sparse.issparse(A) else A, dtype=np.float64)
    norm = max(sum(map(abs, fractions(row))) for row in dense)
    X, B = (np.asarray(v, dtype=np.float64).reshape(len(dense), -1) for v in (x, b))
    return all(
        max(map(abs, residual(dense, x, b)))
        <= Fraction(tolerance)
        * (norm * Fraction(float(abs(x).max())) + Fraction(float(abs(b).max())))
        for x, b in zip(X.T, B.T, strict=True)
    )
