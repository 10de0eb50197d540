"""Float64 numbers are rational: the gate, solutions and errors without any rounding."""

import math
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
    """Whether ``||b - A x|| <= tolerance (||A|| ||x|| + ||b||)`` in the max norm, exactly.

    Of complex numbers moduli count; square roots are rounded against x, by less than 2**-100.
    """
    dense = np.asarray(A.toarray() if sparse.issparse(A) else A)
    X, B = (np.asarray(v).reshape(len(dense), -1) for v in (x, b))
    if "c" in (dense.dtype.kind, X.dtype.kind, B.dtype.kind):
        return all(
            _passes_with_moduli(dense, *pair, tolerance) for pair in zip(X.T, B.T, strict=True)
        )
    norm = max(sum(map(abs, fractions(row))) for row in dense)
    return all(
        max(map(abs, residual(dense, x, b)))
        <= Fraction(tolerance)
        * (norm * Fraction(float(abs(x).max())) + Fraction(float(abs(b).max())))
        for x, b in zip(X.T, B.T, strict=True)
    )


def _passes_with_moduli(A, x, b, tolerance):
    residuals = complex_residual(A, x, b)
    norm = max(sum(map(_modulus, row)) for row in A)
    size = norm * max(map(_modulus, x)) + max(map(_modulus, b))
    return max(re * re + im * im for re, im in residuals) <= (Fraction(tolerance) * size) ** 2


def complex_residual(A, x, b):
    """``b - A x`` exactly: real and imaginary part of each entry."""
    x, found = [_parts(z) for z in x], []
    for row, value in zip(A, b, strict=True):
        re, im = _parts(value)
        for a, (s, t) in zip(row, x, strict=True):
            if a:
                p, q = _parts(a)
                re, im = re - p * s + q * t, im - p * t - q * s
        found.append((re, im))
    return found


def _parts(z):
    return Fraction(float(z.real)), Fraction(float(z.imag))


def _modulus(z):
    """Off by less than 2**-100 of itself."""
    square = sum(part * part for part in _parts(z))
    if not square:
        return Fraction(0)
    shift = 1 << 2 * max(0, 110 - _exponent(square) // 2)
    return Fraction(math.isqrt(int(square * shift)) + 1, math.isqrt(shift))


def _exponent(value):
    """About the binary logarithm of a positive number."""
    return value.numerator.bit_length() - value.denominator.bit_length()


def solved(A, B):
    """``A^-1 B`` as rows of fractions; None if A is singular.

    Rows and columns are multiplied by powers of two that make all numbers integers, and elimination
    without fractions (Bareiss 1968) keeps them so: all divisions leave no remainder.
    """
    A, B = _rows(A), _rows(B)
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


def relative_error(X, exact):
    """The largest over the columns of ``||x - x_true|| / ||x_true||`` in the max norm."""
    worst = Fraction(0)
    for x, true in zip(zip(*_rows(X), strict=True), zip(*exact, strict=True), strict=True):
        error = max(abs(a - b) for a, b in zip(x, true, strict=True))
        if error:
            worst = max(worst, error / max(map(abs, true)))
    return worst


def _rows(A):
    return fractions(np.asarray(A.toarray() if sparse.issparse(A) else A, dtype=np.float64))


def _shift(values):
    """The least e for which ``2**e`` times the values are integers."""
    used = [value for value in values if value]
    return max((_power(value) for value in used), default=0)


def _power(value):
    """The least e for which ``2**e value`` is an integer."""
    if value.denominator > 1:
        return value.denominator.bit_length() - 1
    return 1 - (value.numerator & -value.numerator).bit_length()
