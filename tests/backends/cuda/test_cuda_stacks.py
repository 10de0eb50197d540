"""The kernels of stacks, compiled for the processor: answers, the gate, and who is refused."""

import numpy as np
import pytest
from cuda_host import HostDevice
from exact import backward_error

from roundwise.algorithms.accuracy import default_tolerance
from roundwise.backends.cuda import stacks
from roundwise.formats import FP32, FP64
from roundwise.solver.express import gate_of

rng = np.random.default_rng
TYPES = [np.float64, np.float32, np.complex128, np.complex64]
EVERY = None, None


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    return HostDevice(tmp_path_factory.mktemp("kernels"))


def drawn(shape, dtype, seed=0):
    x = rng(seed).standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng(seed + 1).standard_normal(shape)
    return x.astype(dtype)


def solved(device, A, B, places=EVERY, count=None, tol=None):
    n, is_complex = A.shape[-1], A.dtype.kind == "c"
    single = A.dtype in (np.float32, np.complex64)
    tol = default_tolerance(n, FP32 if single else FP64) if tol is None else tol
    gate = gate_of(n, is_complex, tol)
    asked = tol, gate.growth, gate.exact_error, gate.suspicious, gate.least, gate.most
    count = len(A) if count is None else count
    X, bounds, some_refused = stacks.solve_stack(device, A, B, count, places, asked)
    assert some_refused == np.isinf(bounds).any()
    return X, bounds


def real_parts(A, x, b):
    """A complex system as a real one of twice the size, whose arithmetic `exact` knows."""
    if A.dtype.kind != "c":
        return A, x, b
    blocks = np.block([[A.real, -A.imag], [A.imag, A.real]])
    return blocks, *(np.concatenate([y.real, y.imag]) for y in (x, b))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 3, 8, 13, 32, 33, 66])
@pytest.mark.parametrize("columns", [1, 9])
def test_answers_pass_the_gate_in_exact_arithmetic(device, n, columns, dtype):
    A, B = drawn((3, n, n), dtype), drawn((3, n, columns), dtype, 5)
    X, bounds = solved(device, A, B)
    u = np.finfo(dtype).eps / 2
    assert X.dtype == dtype
    assert (bounds <= np.sqrt(n) * u).all()
    for i in range(3):
        for c in range(columns):
            error = backward_error(*real_parts(A[i], X[i, :, c], B[i, :, c]))
            room = 2.0 if A.dtype.kind == "c" else 1.0  # norms of parts instead of moduli
            assert error <= room * bounds[i]


@pytest.mark.parametrize("n", [5, 40])
def test_any_strides_and_any_broadcasting(device, n):
    A, B = drawn((6, n, n), np.float64), drawn((2, n, 3), np.float64, 3)
    which = np.array([0, 0, 1, 1, 0, 1])
    expected = np.linalg.solve(A, B[which])
    by_columns = np.ascontiguousarray(A.swapaxes(1, 2)).swapaxes(1, 2)
    spread = np.zeros((6, n, 3 * n))[:, :, ::3]
    spread[...] = A
    for given in (A, by_columns, spread, A[::-1].copy()[::-1]):
        X, bounds = solved(device, given, B, (None, which))
        assert (bounds < 1e-15 * np.sqrt(n)).all()
        np.testing.assert_allclose(X, expected, rtol=1e-8, atol=1e-10)
    order = np.array([4, 1])
    X, _ = solved(device, A, B, (order, None), count=2)
    np.testing.assert_allclose(X, np.linalg.solve(A[order], B), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("n", [4, 7, 40])
def test_what_is_refused_is_refused_alone(device, n, dtype):
    A, B = drawn((9, n, n), dtype), drawn((9, n, 2), dtype, 1)
    alone = [solved(device, A[i : i + 1], B[i : i + 1]) for i in range(9)]
    A[1] = 0.0
    A[2, -1] = A[2, 0]
    A[3, 0, 0] = np.nan
    tiny = 1e-200 if A.dtype.kind == "c" else 1e-290
    A[4] *= tiny  # whose products would vanish
    B[4] *= tiny
    B[5, 0, 1] = np.inf
    B[6] = 0.0
    X, bounds = solved(device, A, B)
    assert np.isinf(bounds[[1, 2, 3, 4, 5]]).all()
    assert bounds[6] == 0
    assert not X[6].any()
    for i in (0, 7, 8):
        assert np.array_equal(X[i], alone[i][0][0])
        assert bounds[i] == alone[i][1][0]


@pytest.mark.parametrize("n", [12, 48])
def test_a_system_is_corrected_until_it_passes(device, n):
    """Rows that nearly depend on each other leave a residual that a correction removes."""
    A = drawn((4, n, n), np.float64)
    A[:, -1] = A[:, 0] + 1e-7 * A[:, -1]
    B = drawn((4, n, 1), np.float64, 2)
    X, bounds = solved(device, A, B)
    for i in range(4):
        assert backward_error(A[i], X[i, :, 0], B[i, :, 0]) <= bounds[i] <= 2.0**-53 * np.sqrt(n)


def test_every_size_has_a_kernel():
    for is_complex in (False, True):
        for n in range(1, stacks.largest(is_complex) + 1):
            sizes = dict(stacks._constants(n, is_complex))
            if n <= 32:
                assert n <= sizes["LENGTH"] <= sizes["WIDTH"] <= 32
                assert 32 % sizes["WIDTH"] == 0
            else:
                assert n <= sizes["ROWS"]
                assert sizes["PANEL"] * sizes["ROWS"] * sizes["PARTS"] <= 4096
