"""A slow reference for the emulated kernels: each operation is exact, then rounded once.

Sums, products and quotients are exact in rational arithmetic; square roots come from mpmath
with far more bits than any format has. Orders of operations are those of cpp/emulated/kernels.hpp.
"""

from fractions import Fraction

import mpmath
import numpy as np

import roundwise as rw


class Arithmetic:
    """Scalar operations rounded to a format (finite operands, nonzero divisors)."""

    def __init__(self, fmt):
        self.fmt = fmt

    def add(self, x, y):
        if x == 0 and y == 0:
            return x + y  # the hardware's sign of zero
        return rw.rounding.round_scalar(Fraction(x) + Fraction(y), self.fmt)

    def subtract(self, x, y):
        return self.add(x, -y)

    def multiply(self, x, y):
        sign = -1.0 if (np.signbit(x) != np.signbit(y)) else 1.0
        return sign * rw.rounding.round_scalar(abs(Fraction(x) * Fraction(y)), self.fmt)

    def divide(self, x, y):
        sign = -1.0 if (np.signbit(x) != np.signbit(y)) else 1.0
        return sign * rw.rounding.round_scalar(abs(Fraction(x) / Fraction(y)), self.fmt)

    def sqrt(self, x):
        with mpmath.workprec(300):
            root = mpmath.sqrt(mpmath.mpf(x))
            man, exp = int(root.man), int(root.exp)
        return rw.rounding.round_scalar(Fraction(man) * Fraction(2) ** exp, self.fmt)


def dot(fmt, x, y):
    """32 partial sums, added in a tree."""
    op, sums = Arithmetic(fmt), [0.0] * 32
    for i, (a, b) in enumerate(zip(x, y, strict=True)):
        sums[i % 32] = op.add(sums[i % 32], op.multiply(a, b))
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [op.add(a, b) for a, b in zip(sums[:half], sums[half:], strict=True)]
    return sums[0]


def norm2(fmt, x):
    op = Arithmetic(fmt)
    _, exponent = np.frexp(np.abs(x).max())
    scaled = [
        rw.rounding.round_scalar(Fraction(v) / Fraction(2) ** (int(exponent) - 1), fmt) for v in x
    ]
    root = op.sqrt(dot(fmt, scaled, scaled))
    return rw.rounding.round_scalar(Fraction(root) * Fraction(2) ** (int(exponent) - 1), fmt)


def axpy(fmt, alpha, x, y):
    op = Arithmetic(fmt)
    return np.array([op.add(b, op.multiply(alpha, a)) for a, b in zip(x, y, strict=True)])


def matvec(fmt, A, x):
    op, y = Arithmetic(fmt), np.zeros(len(A))
    for i, row in enumerate(A):
        for a, b in zip(row, x, strict=True):
            y[i] = op.add(y[i], op.multiply(a, b))
    return y


def lu(fmt, A):
    """Packed factors and row order, by the textbook's three loops."""
    op, A = Arithmetic(fmt), A.copy()
    n = len(A)
    perm = np.arange(n)
    for k in range(n):
        pivot = k + int(np.argmax(np.abs(A[k:, k])))
        A[[k, pivot]], perm[[k, pivot]] = A[[pivot, k]], perm[[pivot, k]]
        for i in range(k + 1, n):
            A[i, k] = op.divide(A[i, k], A[k, k])
            for j in range(k + 1, n):
                A[i, j] = op.subtract(A[i, j], op.multiply(A[i, k], A[k, j]))
    return A, perm


def solve_triangular(fmt, T, b, lower, unit):
    op, x = Arithmetic(fmt), b.copy()
    n = len(x)
    order = range(n) if lower else range(n - 1, -1, -1)
    for j in order:
        if not unit:
            x[j] = op.divide(x[j], T[j, j])
        for i in range(j + 1, n) if lower else range(j):
            x[i] = op.subtract(x[i], op.multiply(T[i, j], x[j]))
    return x


def solve(fmt, packed, perm, b):
    y = solve_triangular(fmt, packed, b[perm], lower=True, unit=True)
    return solve_triangular(fmt, packed, y, lower=False, unit=False)


def solve_transposed(fmt, packed, perm, b):
    y = solve_triangular(fmt, packed.T, b, lower=True, unit=False)
    z = solve_triangular(fmt, packed.T, y, lower=False, unit=True)
    x = np.empty_like(z)
    x[perm] = z
    return x


def cholesky(fmt, A):
    op, L = Arithmetic(fmt), np.tril(A)
    n = len(L)
    for j in range(n):
        for k in range(j):
            for i in range(j, n):
                L[i, j] = op.subtract(L[i, j], op.multiply(L[i, k], L[j, k]))
        L[j, j] = op.sqrt(L[j, j])
        for i in range(j + 1, n):
            L[i, j] = op.divide(L[i, j], L[j, j])
    return L


def orthogonalize(fmt, V, w):
    op, w, h = Arithmetic(fmt), w.copy(), np.empty(len(V))
    for i, v in enumerate(V):
        h[i] = dot(fmt, v, w)
        w = np.array([op.subtract(a, op.multiply(h[i], b)) for a, b in zip(w, v, strict=True)])
    return h, w


def givens(fmt, j, cosines, sines, h, g):
    op = Arithmetic(fmt)

    def rotate(c, s, x, y):
        return (
            op.add(op.multiply(c, x), op.multiply(s, y)),
            op.subtract(op.multiply(c, y), op.multiply(s, x)),
        )

    for i in range(j):
        h[i], h[i + 1] = rotate(cosines[i], sines[i], h[i], h[i + 1])
    length = norm2(fmt, h[j : j + 2])
    cosines[j], sines[j] = op.divide(h[j], length), op.divide(h[j + 1], length)
    h[j], h[j + 1] = length, 0.0
    g[j], g[j + 1] = rotate(cosines[j], sines[j], g[j], 0.0)
