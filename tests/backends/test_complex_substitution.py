"""Substitution with complex LU factors (cpp/native/complex_solve.hpp)."""

from __future__ import annotations

import numpy as np
import pytest

import roundwise._kernels as _kernels
from roundwise.backends.native.complex_matrix import PlanarLU
from roundwise.backends.real_form import complex_columns, real_columns
from roundwise.formats import FP32, FP64


@pytest.fixture
def rng():
    return np.random.default_rng(10)


SIZES = (1, 2, 31, 32, 33, 257, 520)


def packed_factors(rng, n, dtype=np.float32):
    """Factors of moderate size: n real parts, then n imaginary ones, in each column."""
    packed = np.asfortranarray(rng.standard_normal((2 * n, n)) / n, dtype=dtype)
    packed[np.arange(n), np.arange(n)] += 2
    return packed


def triangles(packed):
    """L and U as complex128 arrays."""
    n = packed.shape[1]
    LU = packed[:n].astype(np.float64) + 1j * packed[n:]
    return np.tril(LU, -1) + np.eye(n), np.triu(LU)


def planes(Z, dtype):
    """Columns of real and imaginary parts in turn."""
    B = np.empty((len(Z), 2 * Z.shape[1]), dtype=dtype, order="F")
    B[:, 0::2], B[:, 1::2] = Z.real, Z.imag
    return B


@pytest.mark.parametrize(("stored", "computed"), [("f4", "f4"), ("f4", "f8"), ("f8", "f8")])
@pytest.mark.parametrize("n", SIZES)
def test_residuals_are_within_the_bound_of_substitution(rng, n, stored, computed):
    """Componentwise: |b - L U x| <= c n u |L| |U| |x| (Higham, Accuracy and Stability, 8.5)."""
    packed = packed_factors(rng, n, stored)
    L, U = triangles(packed)
    unit = np.finfo(computed).eps / 2
    for columns in (1, 2, 3, 5, 8, 21):
        Z = planes(rng.standard_normal((n, columns)) + 1j, computed)
        for transpose in (False, True):
            X = Z.copy(order="F")
            _kernels.native_complex_getrs(packed, X, transpose, 2)
            x, b = X[:, 0::2] + 1j * X[:, 1::2].astype(float), Z[:, 0::2] + 1j * Z[:, 1::2]
            first, second = (U.T, L.T) if transpose else (L, U)
            bound = np.abs(first) @ (np.abs(second) @ np.abs(x))
            assert np.all(np.abs(b - first @ (second @ x)) <= 8 * (n + 4) * unit * bound)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("columns", "stored"), [(3, "f4"), (3, "f8"), (37, "f8")])
def test_the_same_bits_by_any_number_of_threads(rng, transpose, columns, stored):
    n = 700 if columns < 8 else 301
    packed = packed_factors(rng, n, stored)
    B = planes(rng.standard_normal((n, columns)) + 1j, "f8")
    answers = []
    for threads in (1, 2, 3, 5):
        X = B.copy(order="F")
        _kernels.native_complex_getrs(packed, X, transpose, threads)
        answers.append(X)
    for other in answers[1:]:
        np.testing.assert_array_equal(answers[0], other)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("columns", [1, 4])
def test_factors_solve_with_the_matrix_and_its_adjoint(rng, adjoint, columns):
    n = 40
    packed, rows = packed_factors(rng, n), rng.permutation(n).astype(np.int32)
    L, U = triangles(packed)
    transposed = np.empty((n, n), dtype=complex)
    transposed[rows] = L @ U  # of A
    A = transposed.conj() if adjoint else transposed.T
    x = rng.standard_normal((n, columns)) + 1j * rng.standard_normal((n, columns))
    factors = PlanarLU(FP32, packed, rows)
    for fmt, digits in ((FP32, 4), (FP64, 12)):
        found = factors.to(fmt).solve(real_columns(A @ x), transpose=adjoint)
        np.testing.assert_allclose(complex_columns(found), x, rtol=0, atol=10.0**-digits)
    np.testing.assert_allclose(factors.pivots[0::2], np.abs(np.diag(U)), rtol=1e-7)


def test_divisions_neither_overflow_nor_vanish():
    """Pivots near the ends of float64's range, whose squares it cannot hold."""
    for pivot in (1e300 + 1e299j, 1e-300 + 3e-300j, 2e-320j):
        packed = np.array([[pivot.real], [pivot.imag]], order="F")
        for columns in (1, 9):
            x = planes(np.full((1, columns), pivot * (2 - 1j)), "f8")
            _kernels.native_complex_getrs(packed, x, False, 1)
            np.testing.assert_allclose(x, [[2.0, -1.0] * columns], rtol=1e-3)


def test_wrong_shapes_are_refused(rng):
    packed = packed_factors(rng, 4, "f8")
    with pytest.raises(ValueError, match="n columns of n real"):
        _kernels.native_complex_getrs(
            packed[:7].copy(order="F"), np.empty((4, 2), order="F"), False, 1
        )
    for shape in ((3, 2), (4, 3)):
        with pytest.raises(ValueError, match="does not fit"):
            _kernels.native_complex_getrs(packed, np.empty(shape, order="F"), False, 1)
