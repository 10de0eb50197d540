"""LU of complex matrices by three real products: its error, pivots, threads and failures."""

import numpy as np
import pytest
from scipy.linalg import lapack

import roundwise as rw
from roundwise import _kernels
from roundwise.backends.contract import ArithmeticFailure, Status
from roundwise.backends.native import complex_matrix
from roundwise.backends.real_form import RealForm
from roundwise.formats import FP32, FP64

U32 = 2.0**-24
SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 129, 300)
level = pytest.mark.parametrize("level", rw.machine.threads.simd_levels())
real = pytest.mark.parametrize("real", [np.float32, np.float64])


@pytest.fixture(autouse=True)
def _same_level_afterwards():
    before = rw.machine.threads.get_simd_level()
    yield
    rw.machine.threads.set_simd_level(before)


def gaussian(n, seed=0):
    rng = np.random.default_rng(seed + n)
    return rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))


def lu(A, threads=2, real=np.float32):
    """The code, the factors and the interchanges of A."""
    n = len(A)
    packed = np.full((2 * n, n), np.nan, real, order="F")
    swaps = np.full(n, -1, np.int32)
    code = _kernels.native_complex_lu(np.asfortranarray(A), packed, swaps, threads)
    factors = np.empty((n, n), np.result_type(real, np.complex64), order="F")
    factors.real, factors.imag = packed[:n], packed[n:]
    return code, factors, swaps


def permuted(A, swaps):
    A = A.copy()
    for i, p in enumerate(swaps):
        assert i <= p < len(A)
        A[[i, p]] = A[[p, i]]
    return A


@level
@real
@pytest.mark.parametrize("n", SIZES)
def test_factors_multiply_to_the_matrix(n, real, level):
    """Every sum of three-product multiplications errs by a small multiple of n u |L| |U|.

    Higham (1992): the real part errs as by four products, the imaginary one by at most
    (n + 4) u (|Re L| + |Im L|)(|Re U| + |Im U|), which is at most twice |L| |U|.
    """
    rw.machine.threads.set_simd_level(level)
    A = gaussian(n)
    code, packed, swaps = lu(A, real=real)
    assert code == 0
    F, u = packed.astype(np.clongdouble), np.finfo(real).eps / 2
    L, U = np.tril(F, -1) + np.eye(n), np.triu(F)
    bound = 4 * (n + 8) * u * (np.abs(L) @ np.abs(U)) + u * np.abs(permuted(A, swaps))
    assert (np.abs(permuted(A, swaps) - L @ U) <= bound).all()
    sizes = np.abs(L.real) + np.abs(L.imag)
    assert sizes.max() <= 2 * (1 + 4 * u)  # |l| <= sqrt(2)


@level
@pytest.mark.parametrize("n", SIZES)
def test_pivots_are_those_of_elimination(n, level):
    """Row i of A is large in column order[i]: no rounding can change such a pivot."""
    rw.machine.threads.set_simd_level(level)
    A = gaussian(n)
    order = np.random.default_rng(n).permutation(n)
    A[np.arange(n), order] += 8 * n * np.exp(1j * np.arange(n))
    code, packed, swaps = lu(A)
    _, expected, info = lapack.zgetrf(A)
    assert code == info == 0
    np.testing.assert_array_equal(swaps, expected)
    np.testing.assert_array_equal(permuted(np.arange(n), swaps), np.argsort(order))
    assert np.isfinite(packed).all()


@level
@real
@pytest.mark.parametrize("n", [*SIZES, 449])
def test_bits_do_not_depend_on_threads(n, real, level):
    rw.machine.threads.set_simd_level(level)
    A = gaussian(n, seed=1)
    code, alone, swaps = lu(A, 1, real)
    assert code == 0
    for threads in (2, 3, 5):
        _, packed, others = lu(A, threads, real)
        assert packed.tobytes() == alone.tobytes()
        assert others.tobytes() == swaps.tobytes()


@level
def test_the_first_of_equal_pivots_is_taken(level):
    rw.machine.threads.set_simd_level(level)
    A = gaussian(70)
    A[:, 0] = 1
    A[40, 0], A[41, 0], A[42, 0] = 1 + 1j, 2j, -2  # |re| + |im| is 2 in all three
    code, _, swaps = lu(A)
    assert (code, swaps[0]) == (0, 40)


@level
@pytest.mark.parametrize("n", [3, 150])
def test_failures_name_their_column(n, level):
    rw.machine.threads.set_simd_level(level)
    A = gaussian(n)
    lost = A.copy()
    lost[:, n - 1] = 0
    assert lu(lost)[0] == n
    lost = A.copy()
    lost[:, 1] = 0
    assert lu(lost)[0] == 2
    for bad in (np.nan, np.inf, 1j * np.nan, 1j * np.inf, 1e300):
        broken = A.copy()
        broken[n - 1, 1] = bad
        assert lu(broken)[0] == -2
        broken = A.copy()
        broken[0, n - 1] = bad  # reaches the last pivot from a row of U
        assert lu(broken)[0] == -n


@level
@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e37])
def test_pivots_whose_reciprocal_is_out_of_range(scale, level):
    rw.machine.threads.set_simd_level(level)
    A = np.array([[3 + 2j, 1 + 1j], [1 - 2j, -2 + 1j]]) * scale
    code, packed, swaps = lu(A)
    assert (code, swaps[0]) == (0, 0)
    stored = A.astype(np.complex64).astype(np.complex128)
    ratio = stored[1, 0] / stored[0, 0]
    assert abs(packed[1, 0] - ratio) <= 8 * U32 * abs(ratio)


def test_arrays_are_checked():
    A = np.asfortranarray(gaussian(4))
    packed, swaps = np.empty((8, 4), np.float32, order="F"), np.empty(4, np.int32)
    with pytest.raises(ValueError, match="pass n columns of n real"):
        _kernels.native_complex_lu(A, packed[:3, :3].copy(order="F"), swaps, 1)
    with pytest.raises(ValueError, match="pass n pivots"):
        _kernels.native_complex_lu(A, packed, swaps[:3], 1)
    with pytest.raises(ValueError, match="pass at least 1"):
        _kernels.native_complex_lu(A, packed, swaps, 0)
    with pytest.raises(TypeError):
        _kernels.native_complex_lu(A, packed.copy(order="C"), swaps, 1)
    assert lu(np.empty((0, 0), np.complex128))[0] == 0


def test_matrices_use_it(monkeypatch):
    """Factors solve with A and A*, and failures have the statuses that LAPACK's led to."""
    A, b = gaussian(70), gaussian(70)[0]

    def factors(values, fmt=FP32):
        return complex_matrix.ComplexMatrix(RealForm(np.ascontiguousarray(values)), fmt).lu()

    x = factors(A, FP64).solve(b.view(np.float64)).view(np.complex128)
    assert np.linalg.norm(A @ x - b) < 1e-12 * np.linalg.norm(b)
    for operator, adjoint in ((A, False), (A.conj().T, True)):
        x = factors(A).solve(b.view(np.float64), transpose=adjoint).view(np.complex128)
        assert np.linalg.norm(operator @ x - b) < 1e-3 * np.linalg.norm(b)
    statuses = {"zero": Status.ZERO_PIVOT, "large": Status.OVERFLOW, "nan": Status.NONFINITE_INPUT}
    for change, status in statuses.items():
        values = A.copy()
        values[3] *= {"zero": 0, "large": 1e300, "nan": np.nan}[change]
        with pytest.raises(ArithmeticFailure) as failure:
            factors(values)
        assert failure.value.status is status
    if complex_matrix.has_own_lu():
        monkeypatch.setattr(_kernels, "native_complex_lu", lambda *_: -1)
        with pytest.raises(ArithmeticFailure):
            factors(A)
