"""Passes over blocks of columns, against NumPy and by hand at the edges."""

import math

import numpy as np
import pytest
from scipy.linalg import lapack

from roundwise import _kernels
from roundwise.algorithms.scaling import scaled_back, shifted, unit_columns
from roundwise.backends.arrays import column_norms
from roundwise.features.probe import angles_from
from roundwise.solver.system import moduli

HUGE, TINY = 1.7e308, 5e-324
EDGES = [0.0, -0.0, TINY, 1e-310, 1.0, -2.5, HUGE, -HUGE, math.inf, -math.inf, math.nan]


def block(rows, columns, seed=0):
    return np.asfortranarray(np.random.default_rng(seed).standard_normal((rows, columns)))


@pytest.mark.parametrize("order", ["C", "F"])
def test_norms_are_those_of_numpy(order):
    X, weights = np.array(block(9, 4), order=order), np.arange(9.0)
    np.testing.assert_array_equal(column_norms(X), np.abs(X).max(axis=0))
    np.testing.assert_array_equal(
        column_norms(X, weights), (np.abs(X) * weights[:, None]).max(axis=0)
    )
    assert column_norms(np.empty((3, 0))).shape == (0,)


@pytest.mark.parametrize("value", EDGES)
def test_norms_at_the_edges(value):
    X = np.array([[0.5 * TINY], [value], [0.0]], order="F")
    np.testing.assert_array_equal(column_norms(X), [abs(value)])
    for pair in ([value, 0.0], [0.0, value]):
        Z = np.array([[0.0], [0.0], *([x] for x in pair)], order="F")
        np.testing.assert_array_equal(moduli(Z), [abs(value)])


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1.0, 1e150, 1e300])
def test_moduli_are_right_to_the_last_places(size):
    X = size * block(40, 3)
    Z = X[0::2] + 1j * X[1::2]
    np.testing.assert_allclose(moduli(X), np.abs(Z).max(axis=0), rtol=4e-16)
    weights = np.repeat(np.arange(20.0), 2)
    expected = (np.abs(Z) * np.arange(20.0)[:, None]).max(axis=0)
    np.testing.assert_allclose(moduli(X, weights), expected, rtol=4e-16)


def test_infinity_does_not_hide_nan():
    assert math.isnan(moduli(np.array([[math.inf], [math.nan]]))[0])
    assert math.isnan(moduli(np.array([[math.inf], [0.0], [math.nan], [0.0]]))[0])


@pytest.mark.parametrize("exponent", [-2100, -1074, -1022, -3, 0, 3, 1023, 2100])
def test_shifts_are_rounded_once(exponent):
    X = np.array([EDGES[:-1], EDGES[:-1]]).T
    exponents = np.array([exponent, 0], dtype=np.int32)
    with np.errstate(all="ignore"):
        expected = np.ldexp(X, exponents)
    np.testing.assert_array_equal(shifted(np.asfortranarray(X), exponents), expected)


def test_a_block_that_is_as_wide_as_high_is_shifted_by_rows_if_so_asked():
    X, exponents = block(3, 3), np.array([[1], [2], [3]])
    np.testing.assert_array_equal(shifted(X, exponents), np.ldexp(X, exponents))


def test_unit_columns_and_back():
    X = block(5, 4) * np.array([1e-300, 1e300, 0.0, 1.0])
    for sizes in (None, column_norms(X)):
        unit, exponents = unit_columns(X, sizes)
        np.testing.assert_array_equal(
            exponents[[0, 1, 3]], np.frexp(column_norms(X))[1][[0, 1, 3]] - 1
        )
        assert ((column_norms(unit)[[0, 1, 3]] >= 1) & (column_norms(unit)[[0, 1, 3]] < 2)).all()
        back, is_finite = scaled_back(unit, exponents)
        np.testing.assert_array_equal(back, X)
        assert is_finite
    assert not scaled_back(np.full((2, 1), 4.0), np.array([1022], dtype=np.int32))[1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_are_gathered_and_scattered(dtype):
    X, order = block(7, 3), np.random.default_rng(1).permutation(7).astype(np.int32)
    Y, Z = np.empty_like(X, dtype=dtype), np.empty_like(X)
    _kernels.native_gather(order, X, Y)
    np.testing.assert_array_equal(Y, X[order].astype(dtype))
    assert _kernels.native_scatter(order, Y, Z)
    np.testing.assert_array_equal(Z, X.astype(dtype))
    Y[3, 2] = math.inf
    assert not _kernels.native_scatter(None, Y, Z)
    for wrong in (order[:-1].copy(), np.full(7, 7, np.int32), np.full(7, -1, np.int32)):
        with pytest.raises(ValueError, match="order does not fit"):
            _kernels.native_gather(wrong, X, Y)


@pytest.mark.parametrize("conjugate", [False, True])
def test_complex_rows_are_gathered_and_scattered(conjugate):
    X, order = block(14, 2), np.random.default_rng(1).permutation(7).astype(np.int32)
    Z = X[0::2] + 1j * X[1::2]
    expected = np.conj(Z[order]) if conjugate else Z[order]
    parts, back = np.empty((7, 4), order="F"), np.empty_like(X)
    _kernels.native_gather_pairs(order, conjugate, X, parts)
    np.testing.assert_array_equal(parts[:, 0::2], expected.real)
    np.testing.assert_array_equal(parts[:, 1::2], expected.imag)
    assert _kernels.native_scatter_pairs(order, conjugate, parts, back)
    np.testing.assert_array_equal(back, X)


def test_interchanges_are_those_of_lapack():
    rng = np.random.default_rng(0)
    swaps = np.array([rng.integers(i, 50) for i in range(50)], dtype=np.int32)
    order = np.empty_like(swaps)
    _kernels.native_order(swaps, order)
    rows = np.arange(50.0)[:, None]
    np.testing.assert_array_equal(order, lapack.dlaswp(rows, swaps)[:, 0])
    with pytest.raises(ValueError, match="out of range"):
        _kernels.native_order(np.full(3, 3, np.int32), np.empty(3, np.int32))


def test_the_nearest_come_first_and_of_two_alike_the_first():
    points = np.asfortranarray([[3.0, 1.0, math.nan, 1.0, 0.0, 9.0, -1.0]])
    found = _kernels.native_nearest(points, np.zeros(1), 4.0, 3)
    assert found == [4, 1, 3]
    assert _kernels.native_nearest(points, np.zeros(1), 81.0, 9) == [4, 1, 3, 6, 0, 5]
    assert _kernels.native_nearest(points, np.full(1, 50.0), 4.0, 3) == []


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_angles_are_those_of_lapacks_pivoted_cholesky(kind, count):
    rng = np.random.default_rng(count)
    rows = rng.standard_normal((count, 200)) @ np.diag(np.logspace(0, -4, 200))
    if kind is complex:
        rows = rows + 1j * rng.standard_normal((count, 200)) * np.logspace(0, -4, 200)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    gram = np.asfortranarray(rows @ rows.conj().T)
    np.fill_diagonal(gram, 1.0)
    squares = (np.abs(np.tril(gram, -1)) ** 2).sum()
    pstrf = lapack.zpstrf if kind is complex else lapack.dpstrf
    factor, half = pstrf(gram, lower=1)[0], count // 2
    coherence, remainder = angles_from(np.tril(4.0 * gram).copy("F"), 200)
    assert coherence == pytest.approx(200 * squares / max(1, count * (count - 1) // 2), rel=1e-12)
    assert remainder == pytest.approx(factor[half, half].real, rel=1e-9)


@pytest.mark.parametrize("kind", [float, complex])
def test_rows_without_a_length_and_rows_alike_have_angles(kind):
    gram = np.zeros((6, 6), dtype=kind, order="F")
    assert angles_from(gram.copy("F"), 10) == (0.0, 1e-8)
    gram[:4, :4] = 1.0  # four rows alike: rank 1
    coherence, remainder = angles_from(gram, 10)
    assert coherence == pytest.approx(10 * 6 / 15)
    assert remainder == 1e-8
