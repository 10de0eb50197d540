"""What every backend promises: the same contract, named statuses, clear errors."""

import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
from cases import BACKENDS, FORMATS, ODD_FORMATS, same_bits, supports
from scipy import sparse

import roundwise as rw
from roundwise.backends import Status
from roundwise.backends.arrays import column_norms
from roundwise.machine import Machine

KINDS = {"dense": np.asarray, "sparse": sparse.csr_array}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return rw.backends.get_backend(request.param)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def low(backend, kind):
    """A format with a narrow range: fp16, or fp32 where the backend has no lower one."""
    is_sparse = kind is KINDS["sparse"]
    return rw.FP16 if backend.supports(rw.FP16, is_sparse) else rw.FP32


each_case = pytest.mark.parametrize(
    ("backend", "kind", "fmt"),
    [
        pytest.param(rw.backends.get_backend(name), KINDS[kind], fmt, id=f"{name}-{kind}-{fmt}")
        for name in BACKENDS
        for kind in KINDS
        for fmt in FORMATS
        if supports(name, fmt, kind == "sparse")
    ],
)


def well_conditioned(n, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, n)) / n + np.eye(n)


def status_of(call):
    with pytest.raises(rw.backends.ArithmeticFailure) as error:
        call()
    assert "\n" not in str(error.value)
    return error.value.status


@each_case
def test_results_are_numbers_of_the_format(backend, kind, fmt):
    n = 12
    M = backend.matrix(kind(well_conditioned(n)), fmt)
    x, y = np.random.default_rng(1).standard_normal((2, n))
    F = M.lu()
    results = [M.matvec(x), F.solve(x), backend.axpy(0.3, x, y, fmt), backend.scale(0.3, x, fmt)]
    results += [np.array([backend.dot(x, y, fmt), backend.norm2(x, fmt)])]
    if backend.machine is None:  # the native one may have factorized A' and then scales L and U
        results += [F.L.toarray() if sparse.issparse(F.L) else F.L]
    for result in results:
        assert result.dtype == np.float64
        assert np.array_equal(rw.round_to(result, fmt), result)


@each_case
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


# --- what a backend says that it can do


def test_formats_are_those_that_run(backend, kind):
    is_sparse = kind is KINDS["sparse"]
    formats = backend.formats(is_sparse)
    assert [fmt.p for fmt in formats] == sorted(fmt.p for fmt in formats)
    assert {rw.FP32, rw.FP64} <= set(formats) <= set(FORMATS)
    between = rw.FloatFormat("between", 26, -126, 127)  # no carrier has it
    for fmt in [*FORMATS, *ODD_FORMATS, between]:
        assert backend.supports(fmt, is_sparse) or fmt not in formats
        if backend.supports(fmt, is_sparse):
            backend.matrix(kind(np.eye(2)), fmt).cholesky().solve(np.zeros(2))
        else:
            with pytest.raises(ValueError, match=r"; (use|choose) "):
                backend.matrix(kind(np.eye(2)), fmt).cholesky()
    assert backend.supports("fp64", is_sparse)
    assert not backend.supports(between, is_sparse)


def test_times_and_machines_are_of_native_arithmetic_only(backend):
    assert backend.timed == (backend.machine is not None)
    if backend.timed:
        assert backend.machine == Machine.this()
        assert backend.machine.key in backend.description


def test_methods_factorize_and_are_analysed_once(backend, kind):
    n = 12
    definite = well_conditioned(n) @ well_conditioned(n).T
    methods = backend.methods(kind is KINDS["sparse"])
    assert methods[0] == "cholesky"
    for method in methods:
        definite = np.tril(definite) if method == "triangular" else definite
        analysis = backend.analyse(kind(definite), method)
        for fmt, A in ((rw.FP32, definite), ("fp64", definite), (rw.FP32, 0.5 * definite)):
            if not backend.runs(method, fmt, kind is KINDS["sparse"]):
                with pytest.raises(ValueError, match="; use fp64"):
                    analysis.factorize(kind(A), fmt)
                continue
            F = analysis.factorize(kind(A), fmt)
            assert F.fmt == rw.get_format(fmt)
            assert F.method == method or method == "lu"  # any engine does LU
            x, u = F.solve(np.ones(n)), F.fmt.unit_roundoff
            if method.startswith(
                ("amg/", "multigrid/", "ic/", "ilu/")
            ):  # its solves stop at a residual of 1e-8
                x = x + F.solve(1 - A @ x)
            assert abs(A @ x - 1).max() <= 6 * n * u * (abs(A).sum(1).max() * abs(x).max() + 1)
    for unknown in ("magic", "" if "qr" in methods else "qr"):
        with pytest.raises(rw.UnknownNameError, match=f"known: {', '.join(methods)}$"):
            backend.analyse(kind(definite), unknown)
    if "qr" not in methods:
        with pytest.raises(rw.UnknownNameError, match="qr"):
            backend.matrix(kind(definite), rw.FP64).qr()


def test_the_product_of_the_pivots_is_the_determinant(backend, kind):
    A = well_conditioned(7)
    for array in (A, np.asfortranarray(A)):
        pivots = backend.matrix(kind(array), rw.FP64).lu().pivots
        if pivots is not None:
            np.testing.assert_allclose(np.prod(pivots), abs(np.linalg.det(A)), rtol=1e-13)
    assert (pivots is not None) == (backend.timed and kind is KINDS["dense"])


# --- blocks of columns


@each_case
@pytest.mark.parametrize("columns", [0, 1, 3])
def test_residuals_of_blocks(backend, kind, fmt, columns):
    n = 9
    A = rw.round_to(well_conditioned(n), fmt)
    X, B = rw.round_to(np.random.default_rng(3).uniform(-1, 1, (2, n, columns)), fmt)
    M = backend.matrix(kind(A), fmt)
    for layout in (np.ascontiguousarray, np.asfortranarray, lambda M: np.repeat(M, 2, 1)[:, ::2]):
        x, b = layout(X), layout(B)
        found = backend.residual(M, x, b)
        assert (found.shape, found.dtype) == (B.shape, np.float64)
        expected = [backend.axpy(-1.0, M.matvec(X[:, j]), B[:, j], fmt) for j in range(columns)]
        added = [backend.axpy(1.0, B[:, j], X[:, j], fmt) for j in range(columns)]
        sums = backend.add(x, b, fmt)
        if columns:
            slack = 0.0 if backend.machine is None else 2 * n * fmt.unit_roundoff
            np.testing.assert_allclose(found.T, expected, rtol=0, atol=slack)
            assert np.array_equal(sums.T, added)
        assert same_bits(x, X)
        assert same_bits(b, B)


def test_residuals_that_are_not_finite_never_look_finite(backend, kind):
    M = backend.matrix(kind(np.full((2, 2), 1e300) + 1e299 * np.eye(2)), rw.FP64)
    for X, B in (
        (np.full((2, 2), 1e10), np.ones((2, 2))),
        (np.ones((2, 1)), np.full((2, 1), np.nan)),
        (np.full((2, 1), np.inf), np.ones((2, 1))),
    ):
        try:
            R = backend.residual(M, X, B)
        except rw.backends.ArithmeticFailure:
            continue
        assert backend.timed  # emulated kernels name every failure
        assert not np.isfinite(column_norms(R)).any()


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


def test_inputs_are_not_modified(backend, kind, low):
    A = kind(well_conditioned(6))
    dense = A.toarray() if sparse.issparse(A) else A.copy()
    x, y = np.ones(6) / 3, np.ones(6) / 7
    M = backend.matrix(A, low)
    M.matvec(M.lu().solve(x))
    backend.axpy(2.0, x, y, low)
    backend.scale(2.0, x, low)
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


def test_one_by_one(backend, kind, low):
    M = backend.matrix(kind(np.array([[3.0]])), low)
    third = rw.round_to(1 / 3, low)
    assert M.lu().solve(np.array([1.0]))[0] == third
    assert M.lu().solve(np.array([1.0]), transpose=True)[0] == third


def test_overflow_is_a_status(backend, kind, low):
    M = backend.matrix(kind((np.full((2, 2), 0.45) + 0.15 * np.eye(2)) * low.max), low)
    large, beyond = np.full(2, 0.9 * low.max), np.full(2, 1.5 * low.max)
    for call in (
        lambda: backend.matrix(kind(np.full((2, 2), 1.5 * low.max)), low).matvec(large),
        lambda: backend.matrix(kind(np.diag(beyond)), low).lu(),
        lambda: M.matvec(np.ones(2) * 4),
        lambda: M.matvec(beyond),
        lambda: M.lu().solve(beyond),
        lambda: backend.matrix(kind(np.eye(2) * low.min_normal), low).lu().solve(large),
        lambda: backend.dot(large, large, low),
        lambda: backend.dot(beyond, np.zeros(2), low),
        lambda: backend.axpy(1.0, large, large, low),
        lambda: backend.axpy(1.5 * low.max, np.zeros(2), large, low),
        lambda: backend.scale(2.0, large, low),
        lambda: backend.norm2(large, low),
    ):
        assert status_of(call) is Status.OVERFLOW


@pytest.mark.parametrize("name", [name for name in BACKENDS if supports(name, rw.formats.E4M3)])
def test_overflow_to_nan_is_a_status_too(name):
    # E4M3 has no infinity.
    x = np.full(2, 400.0)
    assert (
        status_of(lambda: rw.backends.get_backend(name).dot(x, np.ones(2), rw.formats.E4M3))
        is Status.OVERFLOW
    )


def test_overflow_inside_lu_is_a_status(backend, kind, low):
    # Growth: the last pivot would be twice the largest number.
    A = kind(low.max * np.array([[1.0, 1.0], [-1.0, 1.0]]))
    with pytest.raises(
        rw.backends.ArithmeticFailure, match=rf"LU factorization in {low}.*overflow"
    ):
        backend.matrix(A, low).lu()


def test_singular_is_a_status(backend, kind, low):
    zero_row = np.diag([1.0, 0.0, 3.0])
    rounds_to_singular = np.array([[1.0, 1.0], [1.0, 1 + low.unit_roundoff / 16]])
    assert status_of(lambda: backend.matrix(kind(zero_row), rw.FP64).lu()) is Status.ZERO_PIVOT
    M = backend.matrix(kind(rounds_to_singular), low)
    assert status_of(M.lu) is Status.ZERO_PIVOT
    backend.matrix(kind(rounds_to_singular), rw.FP64).lu()


def test_factors_that_underflow_are_singular(backend, kind):
    F = backend.matrix(kind(np.eye(2) * 1e-60), rw.FP64).lu()
    assert status_of(lambda: F.to(rw.FP32)) is Status.ZERO_PIVOT


@each_case
def test_only_the_lower_triangle_is_read_by_cholesky(backend, kind, fmt):
    n, u = 8, fmt.unit_roundoff
    A = rw.round_to(well_conditioned(n) @ well_conditioned(n).T, fmt)
    A = np.tril(A) + np.tril(A, -1).T
    misleading = np.tril(A) + np.triu(np.full((n, n), 5.0), 1)
    for array in (misleading, np.asfortranarray(misleading)):
        F = backend.matrix(kind(array), fmt).cholesky()
        perm = np.arange(n) if F.perm is None else F.perm
        L, U = (f.toarray() if sparse.issparse(f) else f for f in (F.L, F.U))
        assert np.array_equal(U, L.T)
        assert abs(A[np.ix_(perm, perm)] - L @ L.T).max() <= 3 * n * u * abs(A).max()
        x = F.solve(np.ones(n))
        assert abs(A @ x - 1).max() <= 6 * n * u * (abs(A).sum(1).max() * abs(x).max() + 1)


def test_what_is_not_positive_definite_is_a_status(backend, kind):
    for A in ([[1.0, 2.0], [2.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]], [[-1.0, 0.0], [0.0, 1.0]]):
        M = backend.matrix(kind(np.array(A)), rw.FP64)
        assert status_of(M.cholesky) is Status.NOT_POSITIVE_DEFINITE


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_input_is_a_status(backend, kind, low, bad):
    x = np.array([1.0, bad])
    M = backend.matrix(kind(np.eye(2)), rw.FP64)
    poisoned = np.eye(2)
    poisoned[1, 0] = bad
    wanted = Status.NONFINITE_INPUT
    assert status_of(lambda: backend.matrix(kind(poisoned), rw.FP64).lu()) is wanted
    assert status_of(lambda: backend.matrix(kind(poisoned), low).cholesky()) is wanted
    assert status_of(lambda: backend.matrix(kind(poisoned), low).matvec(np.ones(2))) is wanted
    assert status_of(lambda: M.matvec(x)) is wanted
    assert status_of(lambda: M.lu().solve(x)) is wanted
    assert status_of(lambda: backend.dot(x, x, low)) is wanted
    assert status_of(lambda: backend.norm2(x, low)) is wanted
    assert status_of(lambda: backend.axpy(bad, np.ones(2), np.ones(2), low)) is wanted
    assert status_of(lambda: backend.scale(1.0, x, low)) is wanted


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda b: b.matrix(np.ones((2, 2), complex), rw.FP32), TypeError, "got complex128; conv"),
        (lambda b: b.matrix(np.ones((2, 2), object), rw.FP32), TypeError, "got object"),
        (lambda b: b.matrix(sparse.eye_array(2, dtype=int), rw.FP32), TypeError, "got int64"),
        (lambda b: b.matrix(np.ones(3), rw.FP32), ValueError, r"shape \(3,\); pass a matrix"),
        (lambda b: b.matrix(np.ones((0, 0)), rw.FP32), ValueError, "at least one row"),
        (lambda b: b.matrix(np.ones((2, 3)), rw.FP32).lu(), ValueError, "2 x 3; pass a square"),
        (
            lambda b: b.matrix(sparse.csr_array(np.ones((2, 3))), rw.FP32).lu(),
            ValueError,
            "pass a square",
        ),
        (lambda b: b.matrix(np.eye(2), rw.FP32).matvec(np.ones(3)), ValueError, "of length 2"),
        (lambda b: b.matrix(np.eye(2), rw.FP32).lu().solve(np.ones(3)), ValueError, r"pass \(2,\)"),
        (lambda b: b.matrix(np.eye(2), rw.FP32).lu().solve(np.ones((3, 1))), ValueError, r"\(2, k"),
        (lambda b: b.dot(np.ones(2), np.ones(3), rw.FP32), ValueError, "of length 2"),
        (lambda b: b.dot(np.ones(2, complex), np.ones(2), rw.FP32), TypeError, "got complex128"),
        (lambda b: b.axpy(1.0, np.ones((2, 2)), np.ones(2), rw.FP32), ValueError, "pass a vector"),
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
    assert rw.backends.get_backend("operation").matrix(A, rw.BF16).matvec(ones)[0] == 1.0
    assert rw.backends.get_backend("storage").matrix(A, rw.BF16).matvec(ones)[0] == 1.125


def test_backends_by_name():
    assert rw.backends.get_backend().arithmetic == "operation"
    same = rw.backends.get_backend("storage")
    assert rw.backends.get_backend(same) is same
    with pytest.raises(rw.UnknownNameError, match="unknown arithmetic model 'analog'; known: op"):
        rw.backends.get_backend("analog")


@pytest.mark.parametrize("fmt", [rw.BF16, rw.FP16, rw.FP64], ids=str)
def test_storage_orthogonalize_by_hand(fmt):
    rng = np.random.default_rng(0)
    V = rw.round_to(rng.uniform(-1, 1, (3, 8)) / 4, fmt)
    w = rw.round_to(rng.uniform(-1, 1, 8), fmt)
    h, left = rw.backends.get_backend("storage").orthogonalize(V, w, fmt)
    for v, coefficient in zip(V, h, strict=True):
        # Eight products of few bits: float64 sums of any order agree to its last bits.
        exact = float(v @ w)
        assert abs(coefficient - exact) <= fmt.unit_roundoff * abs(exact) + 1e-15
        w = rw.round_to(w - coefficient * v, fmt)
    np.testing.assert_array_equal(left, w)


def test_formats_by_name_and_numbers_as_scalars(backend):
    x = np.array([3.0, 4.0])
    assert backend.norm2(x, "fp16") == 5.0
    assert backend.dot(x, x, "fp32") == 25.0
    np.testing.assert_array_equal(backend.scale(2, x, "fp64"), 2 * x)
    np.testing.assert_array_equal(backend.matrix(np.eye(2), "fp16").matvec(x), x)
    for name in ("fp16", "fp32", "fp64"):
        with pytest.raises(TypeError, match="NoneType"):
            backend.scale(None, x, name)


def test_empty_vectors(backend):
    empty = np.empty(0)
    assert backend.dot(empty, empty, rw.FP16) == backend.norm2(empty, rw.FP16) == 0
    assert backend.axpy(1.0, empty, empty, rw.FP16).shape == (0,)


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
