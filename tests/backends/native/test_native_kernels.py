"""Native kernels against mathematics: error bounds, exact cases and every 16-bit number."""

import os
from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
import pytest

import roundwise as rw
from roundwise import _kernels

LEVELS = _kernels.native_bf16_levels()
U32, UBF16 = 2.0**-24, 2.0**-8  # BF16 has 8 significant bits: a relative error of at most 2**-9
SIZES = (1, 2, 3, 17, 63, 64, 65, 100, 128, 129, 257, 500)
DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
PAIRS = [
    (storage, arithmetic)
    for arithmetic in ("fp32", "fp64")
    for storage in ("bf16", "fp16", "fp32", "fp64")
    if (storage, arithmetic) != ("fp64", "fp32")
]
pairs = pytest.mark.parametrize(("storage", "arithmetic"), PAIRS)
bf16_level = pytest.mark.parametrize("level", LEVELS)
LU_KERNELS = [("bf16", level) for level in LEVELS]
LU_KERNELS += [
    (fmt, level) for fmt in ("fp32", "fp64") for level in rw.machine.threads.simd_levels()
]
lu_kernel = pytest.mark.parametrize("kernel", LU_KERNELS, ids="-".join)


def fortran(A, dtype=None):
    return np.array(A, dtype=dtype, order="F")


def stored(A, fmt):
    """A rounded to a format, as the kernels take it, and its values in float64."""
    rounded = fortran(A, DTYPES[fmt])
    bits = rounded.view(np.uint16) if rounded.dtype.itemsize == 2 else rounded
    return bits, rounded.astype(np.float64)


def unit_roundoff(fmt):
    return {"fp32": 2.0**-24, "fp64": 2.0**-53}[fmt]


def factorize(F, pivots, kernel, threads):
    """In place; F is in the type that the kernel computes with."""
    fmt, level = kernel
    if fmt == "bf16":
        return _kernels.native_bf16_lu(F, pivots, level, threads)
    before = rw.machine.threads.get_simd_level()
    rw.machine.threads.set_simd_level(level)
    try:
        return _kernels.native_lu(F, pivots, threads)
    finally:
        rw.machine.threads.set_simd_level(before)


def computed_in(kernel):
    return np.float64 if kernel[0] == "fp64" else np.float32


def lu(A, kernel, threads=2):
    """The code, P as row numbers, L, U (both in float64)."""
    F = fortran(A, computed_in(kernel))
    n = len(F)
    pivots = np.full(n, -1, np.int32)
    code = factorize(F, pivots, kernel, threads)
    perm = np.arange(n)
    if code == 0:
        for i, p in enumerate(pivots):
            assert i <= p < n
            perm[[i, p]] = perm[[p, i]]
    wide = F.astype(np.float64)
    return code, perm, np.tril(wide, -1) + np.eye(n), np.triu(wide)


def matrix(n, seed=0):
    return np.random.default_rng(seed + n).standard_normal((n, n)).astype(np.float32)


def test_levels_end_with_the_portable_one():
    assert LEVELS[-1] == "portable"
    assert set(LEVELS) <= {"amx", "avx512_bf16", "portable"}


@pytest.mark.parametrize("level", ["amx", "avx512_bf16"])
def test_hardware_level(level):
    """A skip here shows in pytest's summary which level this machine could not test."""
    if level not in LEVELS:
        pytest.skip(f"this processor has no {level}")
    assert lu(matrix(100), ("bf16", level))[0] == 0


@lu_kernel
@pytest.mark.parametrize("n", SIZES)
def test_lu_has_a_small_backward_error(kernel, n):
    A = matrix(n)
    code, perm, L, U = lu(A, kernel)
    assert code == 0
    assert np.abs(L).max() == 1  # partial pivoting
    # 2 n u, and for BF16 in addition the rounding of l and u: a product of rounded factors has a
    # relative error of at most 2**-8 (to first order). Rows and columns 0 to 63 are in float32.
    bound = np.full((n, n), 2 * n * np.finfo(computed_in(kernel)).eps / 2)
    if kernel[0] == "bf16":
        bound[64:, 64:] += 1.01 * UBF16
    wide = np.longdouble if kernel[0] == "fp64" else np.float64
    error = np.abs(A[perm] - L.astype(wide) @ U.astype(wide))
    assert (error <= bound * (np.abs(L) @ np.abs(U))).all()


@bf16_level
def test_lu_rounds_products_to_bf16(level):
    """The error is larger than float32 would give: the kernel does round to BF16."""
    A = matrix(300)
    _, perm, L, U = lu(A, ("bf16", level))
    relative = np.abs(A[perm] - L @ U) / (np.abs(L) @ np.abs(U))
    assert 1e-4 < relative[64:, 64:].max() < UBF16


@lu_kernel
@pytest.mark.parametrize("n", [5, 64, 65, 130, 333])
def test_lu_is_exact_where_all_numbers_are_small_integers(kernel, n):
    rng = np.random.default_rng(n)
    # Entries of L below its unit diagonal are 0 or 1/2, so that the pivots are those that P gives.
    L = np.tril(rng.integers(0, 2, (n, n)) * (rng.random((n, n)) < 4 / n), -1) / 2 + np.eye(n)
    U = np.triu(rng.integers(-8, 9, (n, n)) * (rng.random((n, n)) < 4 / n), 1).astype(float)
    U += np.diag(rng.choice([-64.0, 64.0], n))
    P = rng.permutation(n)
    A = np.empty((n, n))
    A[P] = L @ U
    code, perm, found_L, found_U = lu(A, kernel)
    assert code == 0
    assert (found_L == L).all()
    assert (found_U == U).all()
    assert (perm == P).all()


@lu_kernel
@pytest.mark.parametrize("n", [65, 300])
def test_lu_pivots_as_lapack_where_nothing_is_rounded(kernel, n):
    """Powers of two on a permuted diagonal: each column has one possible pivot."""
    P = np.random.default_rng(n).permutation(n)
    A = np.zeros((n, n))
    A[P, np.arange(n)] = 2.0 ** (np.arange(n) % 5)
    _, perm, L, U = lu(A, kernel)
    assert (perm == P).all()
    assert (np.eye(n) == L).all()
    assert (np.diag(U) == 2.0 ** (np.arange(n) % 5)).all()


@lu_kernel
@pytest.mark.parametrize("exponent", [0, -60, 60, -120, 120])
def test_multipliers_are_rounded_as_quotients_are(kernel, exponent):
    """Kernels that multiply by a reciprocal correct the product; no multiplier may exceed 1."""
    n, rng, dtype = 700, np.random.default_rng(exponent + 200), computed_in(kernel)
    for _ in range(20):
        A = np.eye(n, dtype=dtype)
        A[:, 0] = np.ldexp(rng.uniform(1, 2, n) * rng.choice([-1, 1], n), exponent).astype(dtype)
        largest = A[np.abs(A[:, 0]).argmax(), 0]
        A[rng.integers(0, n, 50), 0] = np.nextafter(largest, dtype(0))  # quotients next to 1
        code, perm, L, _ = lu(A, kernel)
        assert code == 0
        assert np.abs(L).max() <= 1
        assert np.array_equal(L[1:, 0], (A[perm, 0] / A[perm[0], 0])[1:].astype(np.float64))


@lu_kernel
def test_the_first_of_equal_pivots_is_taken(kernel):
    code, perm, L, U = lu([[1, 1], [-1, 1]], kernel)
    assert (code, list(perm)) == (0, [0, 1])
    assert (L == [[1, 0], [-1, 1]]).all()
    assert (U == [[1, 1], [0, 2]]).all()


@lu_kernel
@pytest.mark.parametrize(
    ("n", "column"), [(1, 0), (3, 1), (100, 0), (100, 70), (400, 399), (400, 130)]
)
def test_a_zero_pivot_is_told_with_its_column(kernel, n, column):
    A = np.triu(np.ones((n, n))) + np.eye(n)
    A[column, column] = 0
    assert lu(A, kernel)[0] == column + 1


@lu_kernel
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("i", "j"), [(0, 0), (7, 3), (3, 7), (199, 199), (10, 199), (199, 10)])
def test_what_is_not_finite_is_told_with_a_negative_code(kernel, value, i, j):
    A = matrix(200)
    A[i, j] = value
    assert lu(A, kernel)[0] == -(j + 1)  # earlier columns do not depend on column j


@lu_kernel
def test_overflow_is_not_finite(kernel):
    """An LU whose entries grow beyond the range of the format must fail."""
    n = 200
    A = np.eye(n) - np.tril(np.ones((n, n)), -1)
    A[:, -1] = 1  # doubles in each step
    scale = 2.0**900 if kernel[0] == "fp64" else 1
    assert lu(scale * A, kernel)[0] == -n


@lu_kernel
def test_subnormal_numbers_lose_no_more_than_their_size(kernel):
    """vdpbf16ps and AMX flush them to zero, so the bound includes that absolute error."""
    A = matrix(200)
    A[:, ::3] *= np.float32(2.0**-140)
    code, perm, L, U = lu(A, kernel)
    assert code == 0
    error = np.abs(A[perm] - L @ U)
    bf16 = kernel[0] == "bf16"
    bound = (400 * U32 + bf16 * 1.01 * UBF16) * (np.abs(L) @ np.abs(U))
    assert (error <= bound + 200 * 2.0 ** (-126 if bf16 else -149)).all()


@lu_kernel
@pytest.mark.parametrize("n", [65, 300, 700, 1100])
def test_lu_does_not_depend_on_threads(kernel, n):
    A = matrix(n)
    results = []
    for threads in (1, 2, 3, 8, 16):
        F, pivots = fortran(A, computed_in(kernel)), np.zeros(n, np.int32)
        assert factorize(F, pivots, kernel, threads) == 0
        results.append((F.tobytes(), pivots.tobytes()))
    assert len(set(results)) == 1


@pytest.mark.parametrize("n", [65, 200, 700])
def test_levels_agree_to_their_precision(n):
    """The matrix needs no interchanges, so that all levels compute the same factors."""
    A = matrix(n) / n + 2 * np.eye(n, dtype=np.float32)
    _, _, exact_L, exact_U = lu(A, ("fp64", "baseline"))
    tolerances = {"bf16": 2 * UBF16, "fp32": n * U32, "fp64": n * 2.0**-53}  # |u| < 3
    for kernel in LU_KERNELS:
        _, perm, L, U = lu(A, kernel)
        assert (perm == np.arange(n)).all()
        assert np.abs(L - exact_L).max() < tolerances[kernel[0]]
        assert np.abs(U - exact_U).max() < tolerances[kernel[0]]


@bf16_level
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 32), (31, 13, 64), (100, 97, 32), (70, 200, 544)])
def test_gemm(level, m, n, k):
    rng = np.random.default_rng(m)
    A, B = (fortran(rng.standard_normal(s), np.float32) for s in ((m, k), (k, n)))
    C = fortran(rng.standard_normal((m, n)), np.float32)
    a, b = (X.astype(ml_dtypes.bfloat16).astype(np.float64) for X in (A, B))
    expected = C - a @ b
    bound = (k + 2) * U32 * (np.abs(C) + np.abs(a) @ np.abs(b))
    for threads in (1, 2, 3):
        found = C.copy(order="F")
        _kernels.native_bf16_gemm(found, A, B, level, threads)
        assert (np.abs(found - expected) <= bound).all()


def test_lu_refuses_what_it_cannot_take():
    square, pivots = fortran(np.eye(3), np.float32), np.zeros(3, np.int32)
    with pytest.raises(ValueError, match="choose one of"):
        _kernels.native_bf16_lu(square, pivots, "abacus", 1)
    with pytest.raises(ValueError, match="square"):
        _kernels.native_bf16_lu(fortran(np.ones((3, 2)), np.float32), pivots, "portable", 1)
    with pytest.raises(ValueError, match="pass n pivots"):
        _kernels.native_bf16_lu(square, np.zeros(2, np.int32), "portable", 1)
    with pytest.raises(ValueError, match="threads"):
        _kernels.native_bf16_lu(square, pivots, "portable", 0)
    with pytest.raises(ValueError, match="pass n pivots"):
        _kernels.native_lu(square, np.zeros(2, np.int32), 1)
    for A in (square.astype(np.float64), np.ones((3, 2), np.float32, order="C")):
        with pytest.raises(TypeError):
            _kernels.native_bf16_lu(A, pivots, "portable", 1)
    with pytest.raises(TypeError):
        _kernels.native_lu(np.ones((3, 3), np.float16, order="F"), pivots, 1)
    with pytest.raises(ValueError, match="multiple of 32"):
        _kernels.native_bf16_gemm(square, square, square, "portable", 1)


# --- conversions


def converted(x, fmt, threads=1):
    x = np.asarray(x)
    if fmt in ("bf16", "fp16"):
        y = np.empty(x.shape, np.uint16)
        _kernels.native_convert(x, y, fmt, threads)
        return y.view(DTYPES[fmt])
    y = np.empty(x.shape, DTYPES[fmt])
    _kernels.native_convert(x, y, fmt, threads)
    return y


def same_numbers(x, y):
    """Equal, with the sign of zero, or both NaN."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        x, y = x.astype(np.float64), y.astype(np.float64)
    equal = (x == y) & (np.signbit(x) == np.signbit(y))
    return bool((equal | (np.isnan(x) & np.isnan(y))).all())


ALL_BITS = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_every_16_bit_number_widens_and_comes_back(fmt, wide, simd_level):
    values = ALL_BITS.view(DTYPES[fmt])
    y = np.empty(len(ALL_BITS), wide)
    _kernels.native_convert(ALL_BITS, y, fmt, 1)
    assert same_numbers(y, values)
    assert same_numbers(converted(y, fmt), values)


def hard_cases(fmt):
    """Around every boundary of the format: numbers, ties, and just beside them."""
    with np.errstate(invalid="ignore"):
        values = ALL_BITS.view(DTYPES[fmt]).astype(np.float64)
    finite = np.unique(values[np.isfinite(values)])
    ties = (finite[1:] + finite[:-1]) / 2
    largest, below = finite[-1], finite[-2]
    edge = largest + (largest - below) / 2  # from here on: infinity
    centres = np.concatenate([finite, ties, [edge, -edge, 2 * edge, 1e300, -1e300, 5e-324]])
    beside = [np.nextafter(centres, np.inf), np.nextafter(centres, -np.inf)]
    traps = [centres * (1 + 2.0**-30), centres * (1 - 2.0**-30), centres * (1 + 2.0**-24)]
    special = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan])]
    return np.concatenate([centres, *beside, *traps, *special])


@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_float64_is_rounded_once(fmt, simd_level):
    x = hard_cases(fmt)
    expected = rw.round_to(x, fmt)  # tested against exact arithmetic elsewhere
    assert same_numbers(converted(x, fmt), expected)
    # The cases are hard enough: rounding through float32 gets some of them wrong.
    with np.errstate(over="ignore"):
        twice = x.astype(np.float32).astype(DTYPES[fmt])
    assert not same_numbers(twice, expected)


@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_float32_is_rounded_to_nearest_even(fmt, simd_level):
    with np.errstate(over="ignore", invalid="ignore"):
        x = hard_cases(fmt).astype(np.float32)
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(0))])
        assert same_numbers(converted(x, fmt), x.astype(DTYPES[fmt]))


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1000, 600_001])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_conversion_of_any_length(n, threads, simd_level):
    x = np.random.default_rng(n).standard_normal(n)
    for fmt in ("bf16", "fp16", "fp32"):
        narrow = converted(x, fmt, threads)
        assert same_numbers(narrow, rw.round_to(x, fmt))
        back = np.empty(n)
        bits = narrow.view(np.uint16) if narrow.itemsize == 2 else narrow
        _kernels.native_convert(bits, back, fmt, threads)
        assert (back == narrow.astype(np.float64)).all()


def test_matrices_keep_their_order():
    A = fortran(np.arange(12.0).reshape(3, 4))
    B = np.empty((3, 4), np.float32, order="F")
    _kernels.native_convert(A, B, "fp32", 1)
    assert (A == B).all()
    with pytest.raises(ValueError, match="shape"):
        _kernels.native_convert(A, np.empty((4, 3), np.float32, order="F"), "fp32", 1)
    with pytest.raises(ValueError, match="does not fit"):
        _kernels.native_convert(A, B, "bf16", 1)
    with pytest.raises(TypeError):
        _kernels.native_convert(A.T, B.T, "fp32", 1)  # not column-major
    with pytest.raises(TypeError):
        _kernels.native_convert(B, B, "fp32", 1)


# --- products and solves


@pairs
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 20), (37, 11), (300, 290)])
def test_matvec(storage, arithmetic, m, n, simd_level):
    rng = np.random.default_rng(m)
    bits, A = stored(rng.standard_normal((m, n)), storage)
    for transpose, M in ((False, A), (True, A.T)):
        x = rng.standard_normal(M.shape[1]).astype(DTYPES[arithmetic])
        y = np.full(M.shape[0], np.nan, DTYPES[arithmetic])
        _kernels.native_matvec(bits, storage, x, y, transpose, 2)
        exact = np.array(
            [float(mpmath.fdot(map(float, row), map(float, x))) for row in M]
            if M.size < 1000
            else M.astype(np.longdouble) @ x.astype(np.longdouble)
        )
        bound = (M.shape[1] + 1) * unit_roundoff(arithmetic) * (np.abs(M) @ np.abs(x))
        assert (np.abs(y - exact) <= bound).all()


def factors(n, kind, storage, seed=0):
    """Packed factors with well-conditioned triangles, as stored, and the triangles in float64."""
    rng = np.random.default_rng(seed + n)
    F = rng.uniform(-1, 1, (n, n)) / np.sqrt(n) + np.diag(rng.choice([-1.0, 1.0], n) * 2)
    if kind == "cholesky":
        F = np.abs(F)
        F[np.triu_indices(n, 1)] = np.nan  # must not be read
    bits, F = stored(F, storage)
    if kind == "cholesky":
        L = np.tril(F)
        return bits, L, L.T
    return bits, np.tril(F, -1) + np.eye(n), np.triu(F)


@pairs
@pytest.mark.parametrize("kind", ["lu", "cholesky"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 65, 257])
def test_triangular_solves(storage, arithmetic, kind, transpose, n, simd_level):
    check_triangular_solves(storage, arithmetic, kind, transpose, n)


@pairs
@pytest.mark.parametrize("kind", ["lu", "cholesky"])
@pytest.mark.parametrize("transpose", [False, True])
def test_large_triangular_solves(storage, arithmetic, kind, transpose):
    """More blocks than are multiplied with at once, and threads that wait for each other."""
    check_triangular_solves(storage, arithmetic, kind, transpose, 1409)


def check_triangular_solves(storage, arithmetic, kind, transpose, n):
    bits, L, U = factors(n, kind, storage)
    first, second = (U.T, L.T) if transpose else (L, U)
    rng = np.random.default_rng(n)
    B = fortran(rng.standard_normal((n, 6)), DTYPES[arithmetic])
    X = B.copy(order="F")
    if kind == "lu":
        _kernels.native_getrs(bits, storage, X, transpose, 2)
    else:
        _kernels.native_potrs(bits, storage, X, 2)
    # Each solve has a componentwise backward error of n u |T|, to first order.
    u = unit_roundoff(arithmetic)
    x = X.astype(np.longdouble)
    residual = np.abs(B - first.astype(np.longdouble) @ (second.astype(np.longdouble) @ x))
    bound = (2 * n + 4) * u * (np.abs(first) @ (np.abs(second) @ np.abs(x)))
    # Twice the bound: the error of the inner solve is multiplied by the first triangle.
    assert (residual <= 2 * bound).all()


@pairs
def test_products_and_solves_do_not_depend_on_threads(storage, arithmetic):
    n = 1100  # large enough that threads are started
    bits, _, _ = factors(n, "lu", storage)
    spd, _, _ = factors(n, "cholesky", storage)
    rng = np.random.default_rng(0)
    B = fortran(rng.standard_normal((n, 7)), DTYPES[arithmetic])
    results = []
    for threads in (1, 2, 3, 16):
        out = []
        for transpose in (False, True):
            y, X = np.empty(n, B.dtype), B.copy(order="F")
            _kernels.native_matvec(bits, storage, B[:, 0], y, transpose, threads)
            _kernels.native_getrs(bits, storage, X, transpose, threads)
            out += [y.tobytes(), X.tobytes()]
        X = B.copy(order="F")
        _kernels.native_potrs(spd, storage, X, threads)
        results.append((*out, X.tobytes()))
    assert len(set(results)) == 1


@pytest.mark.parametrize("columns", [8, 9, 17, 40])
@pytest.mark.parametrize("n", [1, 5, 12, 29, 128, 131])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_columns_are_solved_in_strips(n, columns, dtype, simd_level):
    """Small integers with unit pivots: both substitutions are exact, whatever their order."""
    rng = np.random.default_rng(n * columns)
    sparse = rng.integers(-1, 2, (n, n)) * (rng.random((n, n)) < 2 / n)
    packed = fortran((sparse - np.diag(np.diag(sparse)) + np.eye(n)).astype(dtype))
    L, U = np.tril(packed, -1) + np.eye(n), np.triu(packed)
    X = rng.integers(-3, 4, (n, columns)).astype(float)
    name = "fp32" if dtype == np.float32 else "fp64"
    for transpose in (False, True):
        for threads in (1, 2, 3):
            B = fortran(((U.T @ (L.T @ X)) if transpose else L @ (U @ X)).astype(dtype))
            _kernels.native_getrs(packed, name, B, transpose, threads)
            np.testing.assert_array_equal(B, X)
            B = fortran((L @ (L.T @ X)).astype(dtype))
            _kernels.native_potrs(packed, name, B, threads)
            np.testing.assert_array_equal(B, X)


def test_a_solution_does_not_depend_on_its_neighbours():
    """Columns of B are solved for four at a time; alone, a column gives the same up to rounding."""
    bits, _, _ = factors(200, "lu", "bf16")
    B = fortran(np.random.default_rng(0).standard_normal((200, 7)))
    X = B.copy(order="F")
    _kernels.native_getrs(bits, "bf16", X, False, 1)
    for j in range(7):
        x = fortran(B[:, j : j + 1])
        _kernels.native_getrs(bits, "bf16", x, False, 1)
        np.testing.assert_allclose(x[:, 0], X[:, j], rtol=1e-10)


def test_products_and_solves_refuse_what_they_cannot_take():
    A, x = fortran(np.eye(3)), np.ones(3)
    b = fortran(np.ones((3, 1)))
    with pytest.raises(ValueError, match="lengths"):
        _kernels.native_matvec(A, "fp64", np.ones(2), x, False, 1)
    with pytest.raises(ValueError, match="does not fit"):
        _kernels.native_matvec(A, "bf16", x, x.copy(), False, 1)
    with pytest.raises(TypeError):  # arithmetic narrower than what is stored
        _kernels.native_matvec(A, "fp64", x.astype(np.float32), x.astype(np.float32), False, 1)
    with pytest.raises(ValueError, match="square"):
        _kernels.native_getrs(fortran(np.ones((3, 2))), "fp64", b, False, 1)
    with pytest.raises(ValueError, match="length"):
        _kernels.native_potrs(A, "fp64", fortran(np.ones((2, 1))), 1)
    with pytest.raises(ValueError, match="threads"):
        _kernels.native_getrs(A, "fp64", b, False, 0)


# --- norms


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (5, 40), (40, 5), (33, 33), (700, 400)])
def test_norms(dtype, shape, simd_level):
    A = fortran(np.random.default_rng(0).standard_normal(shape), dtype)
    results = {_kernels.native_norms(A, threads) for threads in (1, 2, 3)}
    assert len(results) == 1
    one, inf, largest = results.pop()
    wide = np.abs(A.astype(np.float64))
    assert one == pytest.approx(wide.sum(axis=0).max(), rel=1e-13)
    assert inf == pytest.approx(wide.sum(axis=1).max(), rel=1e-13)
    assert largest == wide.max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_norms_tell_what_is_not_finite(dtype, value, simd_level):
    for i, j in ((0, 0), (36, 41), (20, 3)):
        A = fortran(np.ones((37, 42)), dtype)
        A[i, j] = value
        for norm in _kernels.native_norms(A, 1):
            assert np.isnan(norm) if np.isnan(value) else norm == np.inf


# --- vectors

VECTOR_LENGTHS = (0, 1, 3, 8, 31, 32, 33, 100, 1003)
vector_type = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def between_sentinels(x):
    """A copy of a vector inside a longer array, and this array."""
    memory = np.full(len(x) + 32, np.nan, x.dtype)
    memory[16 : 16 + len(x)] = x
    return memory[16 : 16 + len(x)], memory


def untouched(memory):
    return bool(np.isnan(memory[:16]).all() and np.isnan(memory[-16:]).all())


@vector_type
@pytest.mark.parametrize("n", VECTOR_LENGTHS)
def test_axpy(dtype, n, simd_level):
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, n)).astype(dtype)
    alpha = float(dtype(-1.3))
    found, memory = between_sentinels(y)
    assert _kernels.native_axpy(alpha, x, found) is True
    assert untouched(memory)
    u = np.finfo(dtype).eps / 2
    for xi, yi, result in zip(x, y, found, strict=True):
        exact = Fraction(alpha) * Fraction(float(xi)) + Fraction(float(yi))
        # The product and the sum may be rounded once each, or only the sum.
        bound = 2.001 * u * (abs(alpha * float(xi)) + abs(float(yi)))
        assert abs(Fraction(float(result)) - exact) <= bound


@vector_type
@pytest.mark.parametrize("n", VECTOR_LENGTHS)
@pytest.mark.parametrize("m", [0, 1, 3])
def test_orthogonalize_is_exact_on_small_integers(dtype, n, m, simd_level):
    rng = np.random.default_rng(n)
    V = rng.integers(-1, 2, (m, n)) * (rng.random((m, n)) < min(1, 20 / max(n, 1)))
    left = rng.integers(-4, 5, n)
    w, memory = between_sentinels(left.astype(dtype))
    h, expected = np.full(m, np.nan, dtype), np.zeros(m)
    assert _kernels.native_orthogonalize(V.astype(dtype), w, h) is True
    for i in range(m):
        expected[i] = V[i] @ left
        left = left - V[i] * (V[i] @ left)
    assert abs(left).max(initial=0) < 2**24  # otherwise float32 would round
    assert (h == expected).all()
    assert (w == left).all()
    assert untouched(memory)


@vector_type
@pytest.mark.parametrize("n", [40, 1003])
def test_orthogonalize_leaves_no_component(dtype, n, simd_level):
    rng = np.random.default_rng(n)
    V = np.linalg.qr(rng.standard_normal((n, 20)))[0].T.astype(dtype)
    w = rng.standard_normal(n).astype(dtype)
    left, h = w.copy(), np.empty(20, dtype)
    assert _kernels.native_orthogonalize(np.ascontiguousarray(V), left, h)
    tolerance = n * np.finfo(dtype).eps * np.linalg.norm(w)
    wide = V.astype(np.float64)
    assert np.abs(wide @ left).max() <= tolerance
    assert np.abs(h - wide @ w).max() <= tolerance  # V is orthonormal to the same precision
    assert np.linalg.norm(left + h @ wide - w) <= tolerance


@vector_type
@pytest.mark.parametrize("n", [1, 37, 200])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_vector_kernels_tell_what_is_not_finite(dtype, n, value, simd_level):
    def spoiled(i, *shape):
        array = np.full(shape, 0.5, dtype)
        array.reshape(-1)[i] = value
        return array

    good, coefficients = np.full(n, 0.5, dtype), np.empty(3, dtype)
    basis = np.zeros((3, n), dtype)
    for i in {0, n // 2, n - 1}:
        assert _kernels.native_axpy(1.0, spoiled(i, n), good.copy()) is False
        assert _kernels.native_axpy(0.0, good, spoiled(i, n)) is False
        assert _kernels.native_orthogonalize(basis, spoiled(i, n), coefficients) is False
        assert _kernels.native_orthogonalize(basis[:0], spoiled(i, n), coefficients[:0]) is False
        for row in range(3):
            V = spoiled(row * n + i, 3, n)
            assert _kernels.native_orthogonalize(V, np.zeros(n, dtype), coefficients) is False
    assert _kernels.native_axpy(value, np.zeros(n, dtype), good.copy()) is False
    largest = np.full(n, np.finfo(dtype).max)
    assert _kernels.native_axpy(1.0, largest, largest.copy()) is False
    assert (
        _kernels.native_orthogonalize(np.full((1, n), 2, dtype), largest, np.empty(1, dtype))
        is False
    )


def test_vector_kernels_refuse_what_they_cannot_take():
    x, V = np.ones(3), np.ones((2, 3))
    with pytest.raises(ValueError, match="length"):
        _kernels.native_axpy(1.0, x, np.ones(2))
    with pytest.raises(TypeError):
        _kernels.native_axpy(1.0, x.astype(np.float32), x)
    with pytest.raises(TypeError):
        _kernels.native_axpy(1.0, x, np.ones(6)[::2])
    for basis, w, h in ((V, np.ones(2), np.ones(2)), (V, x, np.ones(3))):
        with pytest.raises(ValueError, match="shapes"):
            _kernels.native_orthogonalize(basis, w, h)
    with pytest.raises(TypeError):
        _kernels.native_orthogonalize(np.asfortranarray(V), x, np.ones(2))


# --- threads


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux's")
@pytest.mark.parametrize("cores", [1, 2])
def test_threads_leave_the_cores_of_the_process_alone(cores):
    before = os.sched_getaffinity(0)
    allowed = set(sorted(before)[:cores])
    try:
        os.sched_setaffinity(0, allowed)
        F, pivots = fortran(matrix(400)), np.zeros(400, np.int32)
        assert _kernels.native_lu(F, pivots, 3) == 0
        assert os.sched_getaffinity(0) == allowed
    finally:
        os.sched_setaffinity(0, before)
