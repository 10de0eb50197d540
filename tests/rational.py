"""Exact rational arithmetic: solutions, determinants and residuals without any rounding."""

from fractions import Fraction

import numpy as np
from scipy import sparse


def rationals(A):
    """A dense or sparse array as rows of fractions."""
    A = A.toarray() if sparse.issparse(A) else np.asarray(A)
    return [[Fraction(float(value)) for value in row] for row in A]


def eliminated(A, B):
    """The determinant of A, and ``A^-1 B``, None if A is singular; by Gauss and Jordan."""
    rows = [a + b for a, b in zip(rationals(A), rationals(B), strict=True)]
    n, determinant = len(rows), Fraction(1)
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k]), None)
        if pivot is None:
            return Fraction(0), None
        if pivot != k:
            rows[k], rows[pivot], determinant = rows[pivot], rows[k], -determinant
        head = rows[k][k]
        determinant *= head
        rows[k] = [value / head if j >= k else value for j, value in enumerate(rows[k])]
        for i, row in enumerate(rows):
            if i != k and row[k]:
                factor = row[k]
                rows[i] = [value - factor * top for value, top in zip(row, rows[k], strict=True)]
    return determinant, [row[n:] for row in rows]


def determinant(A):
    return eliminated(A, np.empty((A.shape[0], 0)))[0]


def residual(A, X, B):
    """``B - A X`` as rows of fractions."""
    rows, columns = rationals(A), list(zip(*rationals(X), strict=True))
    return [
        [value - sum(a * x for a, x in zip(row, column, strict=True)) for value, column in pairs]
        for row, pairs in (
            (row, list(zip(values, columns, strict=True)))
            for row, values in zip(rows, rationals(B), strict=True)
        )
    ]


def relative_error(X, exact):
    """The largest over the columns of ``||x - x_true|| / ||x_true||`` in the max norm."""
    worst = Fraction(0)
    for x, true in zip(zip(*rationals(X), strict=True), zip(*exact, strict=True), strict=True):
        error = max(abs(a - b) for a, b in zip(x, true, strict=True))
        size = max(abs(b) for b in true)
        if error:
            worst = max(worst, error / size) if size else Fraction(10**400)
    return worst
