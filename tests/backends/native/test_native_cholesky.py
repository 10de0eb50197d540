"""Our Cholesky factorization against mathematics: error bounds, exact cases, statuses, threads."""

import numpy as np
import pytest
from hard_systems import spd

import roundwise as rw
from roundwise import _kernels

KERNELS = [("bf16", level) for level in _kernels.native_bf16_levels()]
KERNELS += [(fmt, level) for fmt in ("fp32", "fp64") for level in rw.machine.threads.simd_levels()]
kernel_cases = pytest.mark.parametrize("kernel", KERNELS, ids="-".join)
UBF16 = 2.0**-8


def computed_in(kernel):
    return np.float64 if kernel[0] == "fp64" else np.float32


def cholesky(A, kernel, threads=2, upper=False):
    """The code and L. The triangle that must not be read holds NaN."""
    F = np.array(A, dtype=computed_in(kernel), order="F")
    F[np.tril_indices(len(F), -1) if upper else np.triu_indices(len(F), 1)] = np.nan
    fmt, level = kernel
    if fmt == "bf16":
        return _kernels.native_bf16_cholesky(F, upper, level, threads), F
    before = rw.machine.threads.get_simd_level()
    rw.machine.threads.set_simd_level(level)
    try:
        return _kernels.native_cholesky(F, upper, threads), F
    finally:
        rw.machine.threads.set_simd_level(before)


@kernel_cases
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [1, 2, 17, 63, 64, 65, 129, 300])
def test_small_backward_error(kernel, upper, n):
    A = spd(n, 10).astype(np.float32)
    code, L = cholesky(A, kernel, upper=upper)
    assert code == 0
    assert not np.triu(L, 1).any()
    wide = L.astype(np.longdouble)
    # (n + 1) u for FP32 and FP64 sums (Higham 2002, theorem 10.3), to first order twice; BF16
    # rounds both factors of a product beyond the first 64 rows and columns.
    bound = np.full((n, n), 2 * (n + 1) * np.finfo(computed_in(kernel)).eps / 2)
    if kernel[0] == "bf16":
        bound[64:, 64:] += 1.01 * UBF16
    error = np.tril(np.abs(A - wide @ wide.T))
    assert (error <= bound * (np.abs(wide) @ np.abs(wide.T))).all()


@kernel_cases
@pytest.mark.parametrize("n", [5, 64, 130, 333])
def test_exact_where_all_numbers_are_small_integers(kernel, n):
    rng = np.random.default_rng(n)
    L = np.tril(rng.integers(-2, 3, (n, n)) * (rng.random((n, n)) < 4 / n), -1) + 2.0 * np.eye(n)
    code, found = cholesky(L @ L.T, kernel)
    assert code == 0
    assert (found == L).all()


@kernel_cases
@pytest.mark.parametrize("pivot", [0.0, -1.0])
@pytest.mark.parametrize(("n", "column"), [(1, 0), (100, 70), (400, 0), (400, 399), (700, 300)])
def test_a_pivot_that_is_not_positive_is_told_with_its_column(kernel, pivot, n, column):
    A = 2 * np.eye(n)
    A[column, column] = pivot
    assert cholesky(A, kernel)[0] == column + 1


@kernel_cases
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("i", "j"), [(0, 0), (150, 3), (199, 199)])
def test_what_is_not_finite_is_told_with_a_negative_code(kernel, value, i, j):
    A = spd(200, 10)
    A[i, j] = A[j, i] = value
    assert cholesky(A, kernel)[0] == -(i + 1)  # row i spoils its own pivot first


@kernel_cases
@pytest.mark.parametrize("n", [65, 300, 1100])
def test_bits_do_not_depend_on_threads(kernel, n):
    results = {cholesky(spd(n, 10), kernel, threads)[1].tobytes() for threads in (1, 2, 3, 8, 16)}
    assert len(results) == 1


def test_refuses_what_it_cannot_take():
    square = np.asfortranarray(np.eye(3))
    with pytest.raises(ValueError, match="square"):
        _kernels.native_cholesky(np.ones((3, 2), order="F"), False, 1)
    with pytest.raises(ValueError, match="threads"):
        _kernels.native_cholesky(square, False, 0)
    with pytest.raises(ValueError, match="choose one of"):
        _kernels.native_bf16_cholesky(square.astype(np.float32), False, "abacus", 1)
