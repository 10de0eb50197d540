"""Passes over a matrix, against what mathematics says of them, and alike for any threads."""

import math
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import roundwise as rw
from roundwise import _kernels
from roundwise.algorithms.scaling import moderate
from roundwise.backends import NativeBackend
from roundwise.backends.native import exact
from roundwise.backends.native.dense import is_symmetric
from roundwise.backends.native.storage import largest_entry, work_array
from roundwise.features import probe
from roundwise.formats import FP32, FP64
from roundwise.solver.prepare import prepare

THREADS = (1, 2, 3, 7)
LARGE = 400  # 1.28 MB: more than one thread takes part
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def gaussian(n, m=None, seed=0, dtype=np.float64):
    A = np.random.default_rng(seed).standard_normal((n, m or n))
    return np.asfortranarray(A, dtype=dtype)


@pytest.fixture(params=_kernels.available_levels())
def level(request):
    before = _kernels.active_level()
    _kernels.set_level(request.param)
    yield request.param
    _kernels.set_level(before)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 9), (100, 31)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_norm_of_integers_is_exact(level, shape, dtype):
    A = np.asfortranarray(np.random.default_rng(1).integers(-9, 10, shape), dtype=dtype)
    norm, largest = _kernels.native_column_norms(A, 2)
    assert norm == max(sum(abs(Fraction(x)) for x in column) for column in A.T.tolist())
    assert largest == np.abs(A).max()


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("place", [(0, 0), (LARGE - 1, LARGE - 1), (LARGE // 2, 7)])
def test_no_entry_that_is_not_finite_is_overlooked(level, name, place):
    A = gaussian(LARGE)
    A[place] = SPECIAL[name]
    assert not math.isfinite(_kernels.native_column_norms(A, 2)[1])
    for order in "CF":
        assert not math.isfinite(NativeBackend().sizes(np.array(A, order=order))[1])
        with pytest.raises(ValueError, match="NaN or infinite"):
            rw.solve(np.array(A, order=order), np.ones(LARGE))


def test_negative_zero_and_subnormal_numbers_count(level):
    assert _kernels.native_column_norms(np.full((3, 3), -0.0, order="F"), 1) == (0.0, 0.0)
    tiny = np.full((3, 3), -5e-324, order="F")
    assert _kernels.native_column_norms(tiny, 1) == (1.5e-323, 5e-324)


@pytest.mark.parametrize("order", ["C", "F"])
def test_sizes_are_the_infinity_norm_and_the_largest_entry(order):
    A = np.array(gaussian(LARGE), order=order)
    norm, largest = NativeBackend().sizes(A)
    assert norm == pytest.approx(np.abs(A).sum(axis=1).max(), rel=1e-13)
    assert largest == np.abs(A).max() == largest_entry(np.asfortranarray(A))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_copy_has_the_same_bits(dtype):
    A = gaussian(2000, 700, dtype=dtype)
    A[:3, 0] = -0.0, math.nan, np.finfo(dtype).smallest_subnormal
    for threads in THREADS:
        copy = np.zeros_like(A)
        _kernels.native_copy(A, copy, threads)
        assert A.tobytes("F") == copy.tobytes("F")
    made = work_array(A, FP64 if dtype is np.float64 else FP32)
    assert made.tobytes("F") == A.tobytes("F")
    assert not np.shares_memory(made, A)


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100, LARGE])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_symmetric_matrices_and_those_with_one_other_entry(level, n, dtype):
    A = gaussian(n, dtype=dtype)
    A = A + A.T
    assert is_symmetric(A)
    rng = np.random.default_rng(n)
    for _ in range(5):
        i, j = (int(k) for k in rng.integers(n, size=2))
        other = A.copy(order="F")
        other[i, j] = np.nextafter(other[i, j], dtype(9))
        assert is_symmetric(other) == (i == j)
        assert all(_kernels.native_symmetric(other, t) == (i == j) for t in THREADS)


def test_symmetry_of_zeros_nan_views_and_integers():
    A = np.zeros((50, 50))
    A[3, 7] = -0.0  # equals 0.0
    assert is_symmetric(A)
    A[9, 9] = math.nan  # equals nothing, as in NumPy
    assert not is_symmetric(A)
    wide = gaussian(60, 120)
    view = (wide[:, ::2] + wide[:, ::2].T)[::-1, ::-1]
    assert is_symmetric(view)
    assert is_symmetric(np.arange(9).reshape(3, 3) * 0)


def reference(lines, diagonal):
    """Norms and inner products of columns as NumPy computes them."""
    count = lines.shape[1]
    norms = np.linalg.norm(lines, axis=0)
    weights = np.divide(1.0, norms, out=np.zeros(count), where=norms > 0)
    squares = lines**2
    squares[diagonal, np.arange(count)] = 0.0
    lengths = np.sqrt(squares @ weights**2)
    scale = np.where(lengths > 0, lengths, lengths.max() or 1.0)
    scaled = lines / scale[:, None]
    return norms, np.tril(scaled.T @ scaled)


@pytest.mark.parametrize("n", [1, 3, 63, 64, 65, 255, 300, 2100])
def test_the_look_at_some_lines(level, n):
    A, count = gaussian(n, seed=n), min(64, n)
    rows = np.arange(count) * n // count
    A[n // 2] = 0.0  # a row without a length
    found = []
    for threads in THREADS:
        largest, norms, gram = np.empty(count), np.empty(count), np.empty((count, count), order="F")
        _kernels.native_look(A, rows, rows, largest, norms, gram, threads)
        found.append((largest, norms, gram))
    largest, norms, gram = found[0]
    expected = reference(A[:, rows], rows)
    assert np.array_equal(largest, np.abs(A[:, rows]).max(axis=0))
    np.testing.assert_allclose(norms, expected[0], rtol=1e-13)
    np.testing.assert_allclose(gram, expected[1], rtol=1e-11, atol=1e-11 * np.abs(gram).max())
    for other in found[1:]:
        assert all(np.array_equal(x, y) for x, y in zip(found[0], other, strict=True))


def test_lines_out_of_range_are_refused():
    A, out = gaussian(5), np.empty(1)
    for lines, diagonal in (([5], [0]), ([-1], [0]), ([0], [5])):
        with pytest.raises(ValueError, match="out of range"):
            _kernels.native_look(
                A, np.array(lines), np.array(diagonal), out, out.copy(), np.empty((1, 1)).T, 1
            )


@pytest.mark.parametrize(("n", "count"), [(5, 0), (0, 0)])
def test_a_look_at_nothing_ends(n, count):
    empty = np.empty(count)
    lines = np.zeros(count, np.int64)
    gram = np.empty((count, count), order="F")
    _kernels.native_look(np.ones((n, 3), order="F"), lines, lines, empty, empty.copy(), gram, 2)


@pytest.mark.parametrize("power", [-900, -500, 500, 900])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_power_of_two_changes_no_feature(power, order):
    A = np.array(gaussian(150), order=order)
    plain, scaled = (
        probe.row_features(SimpleNamespace(A=M, n=150, is_sparse=False))
        for M in (A, np.ldexp(A, power))
    )
    assert scaled == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_residual_has_the_same_bits_for_any_threads(order):
    n = 700
    A, x, b = np.array(gaussian(n), order=order), gaussian(n, 1)[:, 0], gaussian(n, 1, seed=2)[:, 0]
    columns, transpose = (A.T, True) if order == "C" else (A, False)
    for block in (exact.EXACT, exact.block_for(n)):
        found = [np.empty(n) for _ in THREADS]
        for threads, r in zip(THREADS, found, strict=True):
            _kernels.native_exact_residual(columns, transpose, x, b, r, block, threads)
        assert all(np.array_equal(found[0], r) for r in found)
        error = exact.error_of(n, block) * (np.abs(A) @ np.abs(x) + np.abs(b))
        exactly = [
            b_i - sum(Fraction(p) * Fraction(q) for p, q in zip(row, x.tolist(), strict=True))
            for row, b_i in zip(A[:3].tolist(), map(Fraction, b.tolist()), strict=False)
        ]
        for i, true in enumerate(exactly):
            assert abs(Fraction(found[0][i]) - true) <= 2.0**-53 * abs(true) + Fraction(error[i])


@pytest.mark.parametrize("order", ["C", "F"])
def test_float32_is_widened_exactly(order):
    A = np.array(gaussian(LARGE, dtype=np.float32), order=order)
    A[0, :2] = -0.0, np.finfo(np.float32).smallest_subnormal
    made = prepare(A).A
    assert made.dtype == np.float64
    assert np.array_equal(made, A.astype(np.float64))
    assert np.signbit(made[0, 0])
    assert made.flags.c_contiguous == A.flags.c_contiguous


def test_views_that_are_not_contiguous():
    wide = np.random.default_rng(3).standard_normal((LARGE, 2 * LARGE))
    A, b = wide[:, ::2], np.ones(LARGE)
    assert np.array_equal(rw.solve(A, b), rw.solve(np.ascontiguousarray(A), b))


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (300, 5), (2000, 128), (5, 0), (0, 3)])
def test_inner_products_of_few_columns(shape):
    """Exactly those of whole numbers, whose sums float64 holds; the same for any thread count."""
    A = np.asfortranarray(np.random.default_rng(3).integers(-9, 9, shape), dtype=float)
    for threads in (1, 2, 3):
        gram = np.full((shape[1], shape[1]), np.nan, order="F")
        _kernels.native_gram(A, gram, threads)
        np.testing.assert_array_equal(np.tril(gram), np.tril(A.T.astype(int) @ A.astype(int)))
    with pytest.raises(ValueError, match="shapes do not match"):
        _kernels.native_gram(A, np.empty((shape[1] + 1, shape[1]), order="F"), 1)


# Scaling by powers of two

EDGES = [0.0, -0.0, 5e-324, -1.5e-323, 1e-310, 2.0**-1022, -1.0, 1.5, 1.7e308]


def wide_range(rows, columns, seed=0):
    """Numbers of all sizes, subnormal ones and zeros among them; the first row has only zeros."""
    rng = np.random.default_rng(seed)
    A = np.ldexp(rng.standard_normal((rows, columns)), rng.integers(-1100, 1020, (rows, columns)))
    A = np.where(rng.random(A.shape) < 0.2, rng.choice(EDGES, A.shape), A)
    A[0] = 0.0
    return np.asfortranarray(A)


def exponents(count, size, seed):
    return np.random.default_rng(seed).integers(-size, size + 1, count).astype(np.int32)


def bits(x):
    return x.view(np.int64)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (8, 40), (61, 33), (LARGE, LARGE)])
@pytest.mark.parametrize("size", [0, 30, 2200])
def test_largest_exponents_are_those_of_frexp(level, shape, size):
    A = wide_range(*shape)
    row_scale, column_scale = exponents(shape[0], size, 1), exponents(shape[1], size, 2)
    powers = np.frexp(A)[1].astype(np.int64) - row_scale[:, None] - column_scale
    powers[A == 0] = -(10**9)
    for threads in THREADS:
        rows, columns = np.empty(shape[0], np.int32), np.empty(shape[1], np.int32)
        _kernels.native_largest_exponents(A, row_scale, column_scale, rows, columns, threads)
        for axis, found in ((1, rows), (0, columns)):
            expected = powers.max(axis=axis)
            np.testing.assert_array_equal(found, np.where(expected == -(10**9), 0, expected))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (8, 40), (61, 33), (LARGE, LARGE)])
@pytest.mark.parametrize("size", [0, 30, 600, 1100])
def test_scaled_entries_are_those_of_ldexp(level, shape, size):
    A = wide_range(*shape)
    row_scale, column_scale = exponents(shape[0], size, 1), exponents(shape[1], size, 2)
    with np.errstate(all="ignore"):
        expected = np.ldexp(A, -(row_scale[:, None] + column_scale))
    is_exact = bool((np.abs(expected[A != 0]) >= 2.0**-1022).all())
    for threads in THREADS:
        scaled = np.empty_like(A)
        found = _kernels.native_scale(A, row_scale, column_scale, scaled, threads)
        np.testing.assert_array_equal(bits(scaled), bits(expected))
        assert found is is_exact
    own = A.copy(order="F")
    _kernels.native_scale(own, row_scale, column_scale, own, 2)
    np.testing.assert_array_equal(bits(own), bits(expected))


@pytest.mark.parametrize("power", [*range(-2200, 2201, 100), -1075, -1074, -1022, 1023, 1024, 1074])
def test_scaled_entries_are_rounded_once(level, power):
    """At the ends of float64's range, and halfway between its subnormal numbers."""
    halfway = [
        np.ldexp(k + half, e) for k in (1, 2, 3) for half in (0.5, 0.5 + 2.0**-50) for e in (0, 60)
    ]
    A = np.array([[*EDGES, *halfway, math.inf, -math.inf]], order="F").T.copy(order="F")
    scaled, zero = np.empty_like(A), np.zeros(1, np.int32)
    with np.errstate(all="ignore"):
        expected = np.ldexp(A, power)
    for in_rows in (power, 7, 1200):
        rows = np.full(len(A), -in_rows, np.int32)
        _kernels.native_scale(A, rows, zero + in_rows - power, scaled, 1)
        np.testing.assert_array_equal(bits(scaled), bits(expected))


@pytest.mark.parametrize("value", [2.0**-1022, np.nextafter(2.0**-1022, 0), 1.5, 0.0])
def test_scaling_tells_whether_an_entry_is_lost(level, value):
    A, scaled = gaussian(LARGE), np.empty((LARGE, LARGE), order="F")
    A[LARGE - 1, 3] = 8 * value
    scales = np.zeros(LARGE, np.int32), np.full(LARGE, 3, np.int32)
    for threads in THREADS:
        is_exact = _kernels.native_scale(A, *scales, scaled, threads)
        assert is_exact == (value >= 2.0**-1022 or value == 0)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 129), (300, 61)])
@pytest.mark.parametrize("transpose", [False, True])
def test_sums_of_magnitudes(level, shape, transpose):
    A = gaussian(*shape)
    M = A.T if transpose else A
    weights = np.ldexp(1.0, exponents(M.shape[1], 30, 1))
    sums = np.empty(len(M))
    _kernels.native_magnitude_sums(A, transpose, weights, sums, 2)
    for row, found in zip(M.tolist(), sums, strict=True):
        exact_sum = sum(abs(Fraction(x)) * Fraction(w) for x, w in zip(row, weights, strict=True))
        assert found == pytest.approx(float(exact_sum), rel=len(row) * 2.0**-53)


@pytest.mark.parametrize("transpose", [False, True])
def test_sums_of_magnitudes_depend_on_no_level_and_no_threads(transpose):
    A, weights, found = gaussian(LARGE), np.ldexp(1.0, exponents(LARGE, 30, 1)), []
    before = _kernels.active_level()
    for level in _kernels.available_levels():
        _kernels.set_level(level)
        for threads in THREADS:
            found.append(np.empty(LARGE))
            _kernels.native_magnitude_sums(A, transpose, weights, found[-1], threads)
    _kernels.set_level(before)
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("own", [False, True])
def test_a_matrix_is_scaled_alike_in_both_orders(order, own):
    A = np.array(np.ldexp(gaussian(LARGE), exponents(LARGE, 300, 1)[:, None]), order=order)
    given = A.copy(order="K")
    scaled = moderate(A, 1.0, 2.0**300, own=own)
    assert scaled.A.flags[f"{order}_CONTIGUOUS"]
    assert (scaled.A is A) == own
    powers = scaled.rows[:, None] + scaled.columns
    np.testing.assert_array_equal(np.ldexp(scaled.A, powers), given)
    largest = np.abs(scaled.A).max(axis=0)
    assert ((largest >= 0.5) & (largest < 1)).all()
    shares = np.ldexp(scaled.A, powers - int(scaled.rows.max()) - int(scaled.columns.max()))
    assert scaled.norm == pytest.approx(np.abs(shares).sum(axis=1).max(), rel=1e-14)
    transposed = scaled.transposed(NativeBackend())
    assert transposed.norm == pytest.approx(np.abs(shares).sum(axis=0).max(), rel=1e-14)


LEVELS_CHANGE = """
import sys, threading
import numpy as np
from roundwise import _kernels

A, (zero, rows, columns) = np.ones((1, 1), order="F"), np.zeros((3, 1), np.int32)
done = threading.Event()

def change():
    levels = _kernels.available_levels()
    while not done.is_set():
        for _ in range(100):
            _kernels.set_level(levels[0])
            _kernels.set_level(levels[-1])

sys.setswitchinterval(1e-6)
thread = threading.Thread(target=change)
thread.start()
for _ in range(500_000):
    _kernels.native_largest_exponents(A, zero, zero, rows, columns, 1)
done.set()
thread.join()
"""


def test_a_level_that_another_thread_sets_is_that_of_the_next_call():
    # Wider vectors need more scratch memory: the heap broke when one level measured it for another.
    subprocess.run([sys.executable, "-c", LEVELS_CHANGE], check=True)
