"""What every backend promises: the same contract, named statuses, clear errors."""

import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
from cases import BACKENDS, FORMATS
from scipy import sparse

import roundwise as rw
from roundwise.backends import Status

KINDS = {"dense": np.asarray, "sparse": sparse.csr_array}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return rw.get_backend(request.param)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def well_conditioned(n, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, n)) / n + np.eye(n)


def status_of(call):
    with pytest.raises(rw.ArithmeticFailure) as error:
        call()
    assert "\n" not in str(error.value)
    return error.value.status


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_results_are_numbers_of_the_format(backend, kind, fmt):
    n = 12
    M = backend.matrix(kind(well_conditioned(n)), fmt)
    x, y = np.random.default_rng(1).standard_normal((2, n))
    F = M.lu()
    results = [M.matvec(x), F.solve(x), backend.axpy(0.3, x, y, fmt), backend.scale(0.3, x, fmt)]
    results += [np.array([backend.dot(x, y, fmt), backend.norm2(x, fmt)])]
    results += [F.L.toarray() if sparse.issparse(F.L) else F.L]
    for result in results:
        assert result.dtype == np.float64
        assert np.array_equal(rw.round_to(result, fmt), result)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_errors_are_of_the_order_of_u(backend, kind, fmt):
    # gamma_n bounds with n = 20 (Higham 2002, chapters 3 and 9), for a matrix with condition
    # number below 10 and no growth.
    n, u = 20, fmt.unit_roundoff
    A = rw.round_to(well_conditioned(n), fmt)
    b = rw.round_to(np.random.default_rng(1).uniform(-1, 1, n), fmt)
    M = backend.matrix(kind(A), fmt)
    F = M.lu()
    assert np.all(abs(M.matvec(b) - A @ b) <= 2 * n * u * (abs(A) @ abs(b)) + fmt.min_subnormal * n)
    for transpose, T in ((False, A), (True, A.T)):
        x = F.solve(b, transpose=transpose)
        assert abs(T @ x - b).max() <= 3 * n * u * (abs(T).sum(1).max() * abs(x).max() + 1)


def test_blocks_of_right_hand_sides(backend, kind):
    n = 9
    B = np.random.default_rng(2).standard_normal((n, 4))
    F = backend.matrix(kind(well_conditioned(n)), rw.FP32).lu()
    for block in (B, np.asfortranarray(B), B[:, ::-1], B.astype(np.float32)):
        X = F.solve(block)
        assert X.shape == block.shape
        for j in range(4):
            # BLAS may order a block's operations otherwise than a vector's.
            np.testing.assert_allclose(X[:, j], F.solve(block[:, j]), rtol=1e-6)
    before = B.copy()
    F.solve(B)
    assert np.array_equal(B, before)
    assert F.solve(B[:, :0]).shape == (n, 0)


def test_inputs_are_not_modified(backend, kind):
    A = kind(well_conditioned(6))
    dense = A.toarray() if sparse.issparse(A) else A.copy()
    x, y = np.ones(6) / 3, np.ones(6) / 7
    backend.matrix(A, rw.BF16).lu().solve(x)
    backend.axpy(2.0, x, y, rw.BF16)
    backend.scale(2.0, x, rw.BF16)
    assert np.array_equal(A.toarray() if sparse.issparse(A) else A, dense)
    assert np.array_equal(x, np.ones(6) / 3)
    assert np.array_equal(y, np.ones(6) / 7)


def test_read_only_and_strided_operands(backend):
    x = np.arange(1.0, 13.0)[::2]
    A = well_conditioned(12)[::2, ::2]
    A.flags.writeable = x.flags.writeable = False
    M = backend.matrix(A, rw.FP64)
    np.testing.assert_allclose(M.matvec(x), A @ x, rtol=1e-14)
    np.testing.assert_allclose(A @ M.lu().solve(x), x, rtol=1e-13)
    assert backend.dot(x, x, rw.FP64) == 286.0


def test_one_by_one(backend, kind):
    M = backend.matrix(kind(np.array([[3.0]])), rw.BF16)
    third = rw.round_to(1 / 3, "bf16")
    assert M.lu().solve(np.array([1.0]))[0] == third
    assert M.lu().solve(np.array([1.0]), transpose=True)[0] == third


def test_overflow_is_a_status(backend, kind):
    big = kind(np.full((2, 2), 3e4) + 1e4 * np.eye(2))
    M = backend.matrix(big, rw.FP16)
    large = np.full(2, 60000.0)
    assert status_of(lambda: backend.matrix(kind(np.full((2, 2), 1e5)), rw.FP16)) is Status.OVERFLOW
    assert status_of(lambda: M.matvec(np.ones(2) * 4)) is Status.OVERFLOW
    assert status_of(lambda: M.matvec(np.ones(2) * 1e6)) is Status.OVERFLOW
    assert status_of(lambda: backend.dot(large, large, rw.FP16)) is Status.OVERFLOW
    assert status_of(lambda: backend.axpy(1.0, large, large, rw.FP16)) is Status.OVERFLOW
    assert status_of(lambda: backend.scale(2.0, large, rw.FP16)) is Status.OVERFLOW
    assert status_of(lambda: backend.norm2(large, rw.FP16)) is Status.OVERFLOW
    tiny = backend.matrix(kind(np.eye(2) * 2.0**-14), rw.FP16).lu()
    assert status_of(lambda: tiny.solve(large)) is Status.OVERFLOW
    # E4M3 has no infinity: overflow makes NaN, and is still called overflow.
    assert status_of(lambda: backend.dot(np.full(2, 400.0), np.ones(2), rw.E4M3)) is Status.OVERFLOW


def test_overflow_inside_lu_is_a_status(backend, kind):
    # Growth: the last pivot would be 65504 + 65504.
    A = kind(np.array([[1.0, 65504.0], [-1.0, 65504.0]]))
    with pytest.raises(rw.ArithmeticFailure, match=r"LU factorization in fp16.*overflow"):
        backend.matrix(A, rw.FP16).lu()


def test_singular_is_a_status(backend, kind):
    zero_row = np.diag([1.0, 0.0, 3.0])
    rounds_to_singular = np.array([[1.0, 1.0], [1.0, 1 + 2.0**-12]])
    assert status_of(lambda: backend.matrix(kind(zero_row), rw.FP64).lu()) is Status.ZERO_PIVOT
    M = backend.matrix(kind(rounds_to_singular), rw.BF16)
    assert status_of(M.lu) is Status.ZERO_PIVOT
    backend.matrix(kind(rounds_to_singular), rw.FP64).lu()


def test_factors_that_underflow_are_singular(backend, kind):
    F = backend.matrix(kind(np.eye(2) * 1e-30), rw.BF16).lu()
    assert status_of(lambda: F.to(rw.FP16)) is Status.ZERO_PIVOT


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_input_is_a_status(backend, kind, bad):
    x = np.array([1.0, bad])
    M = backend.matrix(kind(np.eye(2)), rw.FP64)
    poisoned = np.eye(2)
    poisoned[1, 0] = bad
    wanted = Status.NONFINITE_INPUT
    assert status_of(lambda: backend.matrix(kind(poisoned), rw.FP64)) is wanted
    assert status_of(lambda: M.matvec(x)) is wanted
    assert status_of(lambda: M.lu().solve(x)) is wanted
    assert status_of(lambda: backend.dot(x, x, rw.BF16)) is wanted
    assert status_of(lambda: backend.norm2(x, rw.BF16)) is wanted
    assert status_of(lambda: backend.axpy(bad, np.ones(2), np.ones(2), rw.BF16)) is wanted
    assert status_of(lambda: backend.scale(1.0, x, rw.BF16)) is wanted


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda b: b.matrix(np.ones((2, 2), complex), rw.BF16), TypeError, "got complex128; conv"),
        (lambda b: b.matrix(np.ones((2, 2), object), rw.BF16), TypeError, "got object"),
        (lambda b: b.matrix(sparse.eye_array(2, dtype=int), rw.BF16), TypeError, "got int64"),
        (lambda b: b.matrix(np.ones(3), rw.BF16), ValueError, r"shape \(3,\); pass a matrix"),
        (lambda b: b.matrix(np.ones((0, 0)), rw.BF16), ValueError, "at least one row"),
        (lambda b: b.matrix(np.ones((2, 3)), rw.BF16).lu(), ValueError, "2 x 3; pass a square"),
        (
            lambda b: b.matrix(sparse.csr_array(np.ones((2, 3))), rw.BF16).lu(),
            ValueError,
            "pass a square",
        ),
        (lambda b: b.matrix(np.eye(2), rw.BF16).matvec(np.ones(3)), ValueError, "of length 2"),
        (lambda b: b.matrix(np.eye(2), rw.BF16).lu().solve(np.ones(3)), ValueError, "of length 2"),
        (lambda b: b.matrix(np.eye(2), rw.BF16).lu().solve(np.ones((3, 1))), ValueError, r"\(2, k"),
        (lambda b: b.dot(np.ones(2), np.ones(3), rw.BF16), ValueError, "of length 2"),
        (lambda b: b.dot(np.ones(2, complex), np.ones(2), rw.BF16), TypeError, "got complex128"),
        (lambda b: b.axpy(1.0, np.ones((2, 2)), np.ones(2), rw.BF16), ValueError, "pass a vector"),
    ],
)
def test_wrong_calls_get_one_clear_line(backend, call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(backend)
    assert "\n" not in str(caught.value)


def test_storage_rounds_once_per_result():
    # Operation arithmetic loses every addend below half an ulp of the sum; storage does not.
    row = np.concatenate([[1.0], np.full(64, 2.0**-9)])
    A, ones = np.tile(row, (65, 1)), np.ones(65)
    assert rw.get_backend("operation").matrix(A, rw.BF16).matvec(ones)[0] == 1.0
    assert rw.get_backend("storage").matrix(A, rw.BF16).matvec(ones)[0] == 1.125


def test_backends_by_name():
    assert rw.get_backend().arithmetic == "operation"
    same = rw.get_backend("storage")
    assert rw.get_backend(same) is same
    with pytest.raises(rw.UnknownNameError, match="unknown arithmetic model 'native'; known: op"):
        rw.get_backend("native")


@pytest.mark.parametrize("fmt", [rw.BF16, rw.FP16, rw.FP64], ids=str)
def test_storage_orthogonalize_by_hand(fmt):
    rng = np.random.default_rng(0)
    V = rw.round_to(rng.uniform(-1, 1, (3, 8)) / 4, fmt)
    w = rw.round_to(rng.uniform(-1, 1, 8), fmt)
    h, left = rw.get_backend("storage").orthogonalize(V, w, fmt)
    for v, coefficient in zip(V, h, strict=True):
        # Eight products of few bits: float64 sums of any order agree to its last bits.
        exact = float(v @ w)
        assert abs(coefficient - exact) <= fmt.unit_roundoff * abs(exact) + 1e-15
        w = rw.round_to(w - coefficient * v, fmt)
    np.testing.assert_array_equal(left, w)


def test_formats_by_name_and_numbers_as_scalars(backend):
    x = np.array([3.0, 4.0])
    assert backend.norm2(x, "bf16") == 5.0
    assert backend.dot(x, x, "fp32") == 25.0
    np.testing.assert_array_equal(backend.scale(2, x, "fp64"), 2 * x)
    np.testing.assert_array_equal(backend.matrix(np.eye(2), "fp16").matvec(x), x)
    with pytest.raises(TypeError, match="NoneType"):
        backend.scale(None, x, "fp64")


def test_empty_vectors(backend):
    empty = np.empty(0)
    assert backend.dot(empty, empty, rw.BF16) == backend.norm2(empty, rw.BF16) == 0
    assert backend.axpy(1.0, empty, empty, rw.BF16).shape == (0,)


def test_givens_refuses_what_it_could_not_change(backend):
    good = [np.zeros(3), np.zeros(3), np.ones(3), np.zeros(3)]
    backend.givens(0, *good, rw.FP64)
    strided = np.zeros((3, 2))[:, 0]
    for place, bad in ((0, strided), (2, np.ones(3, np.float32)), (3, np.zeros(1)), (1, [0.0] * 3)):
        arrays = [a.copy() for a in good]
        arrays[place] = bad
        with pytest.raises(ValueError, match="is changed in place; pass a contiguous"):
            backend.givens(0, *arrays, rw.FP64)
    with pytest.raises(ValueError, match="at least 0"):
        backend.givens(-1, *good, rw.FP64)


FLUSH_TO_ZERO = """
#include <xmmintrin.h>
void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
unsigned state(void) { return _mm_getcsr() & 0x8040; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86's control register")
def test_flush_to_zero_of_other_libraries_does_not_reach_the_kernels(tmp_path):
    # Any library built with -ffast-math may switch subnormals off for the process.
    (tmp_path / "ftz.c").write_text(FLUSH_TO_ZERO)
    library = tmp_path / "ftz.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "ftz.c", "-o", library], check=True)
    code = f"""
import ctypes, numpy as np, roundwise as rw
x = np.array([1e-39, 2e-39], dtype=np.float32)
before = rw.round_to(x, "bf16").view(np.uint32).tolist()
flush = ctypes.CDLL({str(library)!r})
flush.flush()
after = rw.round_to(x, "bf16").view(np.uint32).tolist()
assert before == after and after[0] != 0, (before, after)
assert flush.state() == 0x8040  # and is put back
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
