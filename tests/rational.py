"""Exact arithmetic with integers and fractions: determinants, solutions, residuals and errors."""

from fractions import Fraction

import numpy as np
from scipy import sparse


def rationals(A):
    """A dense or sparse array as rows of fractions."""
    A = A.toarray() if sparse.issparse(A) else np.asarray(A)
    return [[Fraction(float(value)) for value in row] for row in A]


def solved(A, B):
    """``A^-1 B`` as rows of fractions; None if A is singular.

    Rows and columns are multiplied by powers of two that make all numbers integers, and elimination
    without fractions (Bareiss 1968) keeps them so: all divisions leave no remainder.
    """
    A, B = rationals(A), rationals(B)
    n, columns = len(A), [_shift(column) for column in zip(*A, strict=True)]
    A = [
        [value * 2**e if e >= 0 else value / 2**-e for value, e in zip(row, columns, strict=True)]
        for row in A
    ]
    rows = []
    for a, b in zip(A, B, strict=True):
        shift = max(_shift(a), _shift(b))
        rows.append([int(value * Fraction(2) ** shift) for value in a + b])
    previous = 1
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        top = rows[k]
        for i in range(k + 1, n):
            row, head = rows[i], rows[i][k]
            for j in range(k + 1, len(row)):
                row[j] = (row[j] * top[k] - head * top[j]) // previous
        previous = top[k]
    answers = [[0] * len(B[0]) for _ in range(n)]  # times the determinant
    for j in range(len(B[0])):
        for i in reversed(range(n)):
            rest = sum(rows[i][m] * answers[m][j] for m in range(i + 1, n))
            answers[i][j] = (previous * rows[i][n + j] - rest) // rows[i][i]
    return [
        [Fraction(value, previous) * Fraction(2) ** e for value in row]
        for row, e in zip(answers, columns, strict=True)
    ]


def is_singular(A):
    return solved(A, np.zeros((A.shape[0], 1))) is None


def residual(A, X, B):
    """``B - A X`` as rows of fractions."""
    columns = list(zip(*rationals(X), strict=True))
    return [
        [value - sum(map(Fraction.__mul__, row, x)) for value, x in zip(b, columns, strict=True)]
        for row, b in zip(rationals(A), rationals(B), strict=True)
    ]


def relative_error(X, exact):
    """The largest over the columns of ``||x - x_true|| / ||x_true||`` in the max norm."""
    worst = Fraction(0)
    for x, true in zip(zip(*rationals(X), strict=True), zip(*exact, strict=True), strict=True):
        error = max(abs(a - b) for a, b in zip(x, true, strict=True))
        if error:
            worst = max(worst, error / max(map(abs, true)))
    return worst


def _shift(values):
    """The least e for which ``2**e`` times the values are integers."""
    used = [value for value in values if value]
    return max((_power(value) for value in used), default=0)


def _power(value):
    """The least e for which ``2**e value`` is an integer."""
    if value.denominator > 1:
        return value.denominator.bit_length() - 1
    return 1 - (value.numerator & -value.numerator).bit_length()
