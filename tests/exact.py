"""Backward and forward errors that rounding cannot falsify: the judge of the solver's tests.

A product of two float64 numbers is split into two float64 numbers without error (Dekker 1971), a
row's products are brought to a common power of two, and `math.fsum` adds them exactly. What is
lost is below 2**-900 of the largest product in a row; no entry can over- or underflow.
"""

import math

import mpmath
import numpy as np
from scipy import sparse

SPLITTER = 2.0**27 + 1


def backward_error(A, x, b):
    """The largest over the columns of ``||b - A x|| / (||A|| ||x|| + ||b||)`` in the max norm."""
    rows, norm = _rows(A)
    X, B = (np.asarray(v, dtype=np.float64).reshape(len(rows), -1) for v in (x, b))
    if not np.isfinite(X).all():
        return math.inf
    errors = [0.0]
    for x, b in zip(X.T, B.T, strict=True):
        residual = max(abs(_residual(row, x, value)) for row, value in zip(rows, b, strict=True))
        size = norm * mpmath.mpf(np.abs(x).max()) + mpmath.mpf(np.abs(b).max())
        errors.append(float(residual / size) if residual else 0.0)
    return max(errors)


def passes(A, x, b):
    """Whether the backward error is at most ``sqrt(n) u``, as the gate for float64 asks."""
    return backward_error(A, x, b) <= math.sqrt(A.shape[0]) * 2.0**-53 * (1 + 2.0**-49)


def solution(A, b, digits=60):
    """``A^-1 b`` rounded to float64, by LU factorization in so many digits."""
    with mpmath.workdps(digits):
        x = mpmath.lu_solve(mpmath.matrix(_dense(A).tolist()), mpmath.matrix(list(map(float, b))))
        return np.array([float(v) for v in x])


def _dense(A):
    return np.asarray(A.toarray() if sparse.issparse(A) else A, dtype=np.float64)


def _rows(A):
    """Each row's columns and entries, and the infinity norm."""
    csr = sparse.csr_array(A, dtype=np.float64) if sparse.issparse(A) else None
    if csr is None:
        dense = _dense(A)
        rows = [(slice(None), row) for row in dense]
    else:
        csr.sum_duplicates()
        ends = zip(csr.indptr[:-1], csr.indptr[1:], strict=True)
        rows = [(csr.indices[i:j], csr.data[i:j]) for i, j in ends]
    return rows, max(_sum(*np.frexp(np.abs(entries))) for _, entries in rows)


def _residual(row, x, value):
    columns, entries = row
    (a, powers), (y, more) = np.frexp(entries), np.frexp(x[columns])
    last, power = np.frexp(value)
    product, rest = _product(-a, y)
    powers = powers + more
    return _sum(np.concatenate([[last], product, rest]), np.concatenate([[power], powers, powers]))


def _product(a, b):
    """``a b`` as the sum of two numbers, for a and b of moderate size."""
    p = a * b
    (a, low_a), (b, low_b) = _split(a), _split(b)
    return p, low_a * low_b - (((p - a * b) - low_a * b) - a * low_b)


def _split(a):
    high = SPLITTER * a
    high = high - (high - a)
    return high, a - high


def _sum(fractions, powers):
    """The sum of ``fractions * 2**powers``."""
    used = fractions != 0
    if not used.any():
        return mpmath.mpf(0)
    top = int(powers[used].max())
    return mpmath.ldexp(math.fsum(np.ldexp(fractions[used], powers[used] - top)), top)
