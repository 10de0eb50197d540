"""The CUDA backend without a GPU: its array expressions, and algorithms that run over it.

`fake_cupy` fails where an array would be copied to the host, or mixed with one of NumPy's.
"""

import fake_cupy as cupy
import host_device
import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.algorithms.refinement import Correction, with_unit_columns
from roundwise.backends import ArithmeticFailure, UnsupportedFormat, backend_class, known_backends
from roundwise.backends.cuda.backend import FORMATS
from roundwise.backends.cuda.products import rounded, rounded_matrix
from roundwise.backends.native import exact
from roundwise.formats import FP64X2

rng = np.random.default_rng


@pytest.fixture
def backend(monkeypatch):
    return host_device.install(monkeypatch)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_rounding_on_the_device_is_rounding(fmt):
    exponents = rng(1).integers(-160, 130, 20_000)
    x = np.ldexp(rng(0).uniform(-2, 2, 20_000), exponents)
    x[:5] = 0.0, -0.0, fmt.max, -2 * fmt.max, fmt.min_subnormal / 2
    ties = np.ldexp(rng(2).integers(-(2**12), 2**12, 1000) + 0.5, -3)
    with np.errstate(over="ignore"):
        for values in (x, ties):
            got = rounded(cupy, cupy.asarray(values), fmt).get().astype(np.float64)
            expected = rw.round_to(values, fmt)
            assert np.array_equal(got, expected)
            assert np.array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("order", "CF")
def test_a_rounded_matrix_keeps_its_memory_order(order, monkeypatch):
    monkeypatch.setattr("roundwise.backends.cuda.products.ROWS", 50)
    A = np.asarray(rng(0).standard_normal((17, 17)), order=order)
    R = rounded_matrix(cupy, cupy.asarray(A), rw.BF16).get()
    assert R.dtype == np.float32
    assert np.array_equal(R, rw.round_to(A, rw.BF16))


def test_importing_asks_for_no_device():
    assert "cuda" in known_backends()
    assert backend_class("cuda").timed


def test_what_a_backend_on_a_device_says(backend):
    assert not backend.on_host
    assert backend.xp is cupy
    assert backend.description == f"cuda on {backend.machine.key}"
    assert backend.machine.key.startswith("a-stand-in-")
    assert backend.runs("lu", rw.FP64)
    assert not backend.runs("lu", rw.FP16)  # cuSOLVER has no such LU
    assert backend.runs("lu/local", rw.formats.FP16X2)
    assert not backend.methods(sparse=True)
    with pytest.raises(UnsupportedFormat, match="not e4m3"):
        backend.matrix(np.eye(2), rw.formats.E4M3)
    with pytest.raises(TypeError, match="is sparse"):
        backend.array(sparse.eye_array(3))


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_vector_kernels_are_those_of_the_operation_model(backend, fmt):
    reference, n = rw.backends.get_backend("operation"), 40
    x, y = rw.round_to(rng(3).uniform(-1, 1, (2, n)), fmt)
    X, Y = cupy.asarray(x), cupy.asarray(y)
    u = fmt.unit_roundoff
    assert backend.dot(X, Y, fmt) == pytest.approx(reference.dot(x, y, fmt), abs=2 * n * u)
    assert backend.norm2(X, fmt) == pytest.approx(reference.norm2(x, fmt), rel=2 * n * u)
    np.testing.assert_allclose(
        backend.axpy(-0.75, X, Y, fmt).get(), reference.axpy(-0.75, x, y, fmt), atol=4 * u
    )
    assert np.array_equal(backend.scale(0.5, X, fmt).get(), reference.scale(0.5, x, fmt))
    A = rng(4).uniform(-1, 1, (n, n))
    product = backend.matrix(cupy.asarray(A), fmt).matvec(X).get()
    expected = reference.matrix(A, fmt).matvec(x)
    np.testing.assert_allclose(product, expected, atol=2 * n * u)
    assert np.array_equal(product, rw.round_to(product, fmt))


@pytest.mark.parametrize("fmt", [rw.BF16, rw.formats.FP16X2, rw.FP32, rw.FP64], ids=str)
def test_two_passes_of_gram_schmidt_leave_what_is_orthogonal(backend, fmt):
    n, k = 200, 12
    Q = np.linalg.qr(rng(0).standard_normal((n, k)))[0]
    V = rw.round_to(Q.T, fmt)
    w = rw.round_to(V.T @ rng(1).standard_normal(k) + 1e-3 * rng(2).standard_normal(n), fmt)
    h, left, norm = backend.orthogonalize_and_norm(cupy.asarray(V), cupy.asarray(w), fmt)
    assert isinstance(h, np.ndarray)
    left, u = left.get(), fmt.unit_roundoff
    assert norm == pytest.approx(np.linalg.norm(left), rel=n * u)
    assert np.abs(V @ left).max() < 30 * u * np.linalg.norm(w)
    np.testing.assert_allclose(V.T @ h + left, w, atol=30 * u * np.linalg.norm(w))


def test_orthogonalizing_reads_back_once(backend, monkeypatch):
    reads = []
    original = cupy.asnumpy
    monkeypatch.setattr(cupy, "asnumpy", lambda x: reads.append(x.shape) or original(x))
    V, w = cupy.asarray(np.eye(3, 50)), cupy.asarray(np.ones(50))
    backend.orthogonalize_and_norm(V, w, rw.FP64)
    assert reads == [(4,)]


def test_norms_of_tiny_and_huge_vectors(backend):
    for size in (1e-300, 1e300):
        x = cupy.asarray(np.full(4, size))
        assert backend.norm2(x, rw.FP64) == pytest.approx(2 * size)
    assert backend.norm2(cupy.asarray(np.zeros(4)), rw.FP64) == 0
    with pytest.raises(ArithmeticFailure, match="overflow"):
        backend.norm2(cupy.asarray(np.array([np.inf, 1.0])), rw.FP64)


def test_a_vector_that_is_not_finite_is_found_with_its_norm(backend):
    x = backend.scale(1e200, cupy.asarray(np.full(3, 1e200)), rw.FP64)
    with pytest.raises(ArithmeticFailure, match="overflow"):
        backend.norm2(x, rw.FP64)


def test_residuals_have_the_error_that_is_claimed(backend):
    n = 60
    A, X, B = rng(0).standard_normal((n, n)), rng(1).random((n, 2)), rng(2).random((n, 2))
    for fmt in (rw.FP64, FP64X2):
        matrix = backend.matrix(cupy.asarray(A), fmt)
        R = backend.residual(matrix, cupy.asarray(X), cupy.asarray(B)).get()
        assert np.array_equal(R, exact.residual(A, X, B))
        assert backend.residual_error(fmt, n) == exact.error_of(n)
    assert backend.residual_error(rw.FP32, n) == np.inf


ALGORITHMS = [rw.GmresIR.paper(), rw.LuIR(), rw.CgIR(), rw.VerifiedSolve()]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_algorithms_run_on_the_device(backend, algorithm):
    """With the processor's matrices, which are copied there; the outcome is on the host."""
    n = 40
    M = rng(0).standard_normal((n, n))
    A = M @ M.T + n * np.eye(n)
    problem = rw.LinearSystem(A, A @ np.ones(n), x_true=np.ones(n))
    action = "-".join(["fp32", *["fp64"] * (len(algorithm.stages) - 1)])
    outcome = algorithm.run(problem, action, backend)
    assert outcome.converged
    assert isinstance(outcome.x, np.ndarray)
    assert outcome.nbe < 1e-15
    assert outcome.arithmetic == "cuda"


@pytest.mark.parametrize("equilibrate", [False, True])
def test_gmres_ir_with_all_stages_low(backend, equilibrate):
    A = rng(5).standard_normal((30, 30)) + 6 * np.eye(30)
    problem = rw.LinearSystem(A, A @ np.ones(30), x_true=np.ones(30))
    algorithm = rw.GmresIR(equilibrate=equilibrate)
    outcome = algorithm.run(problem, "bf16-fp32-tf32-fp64", backend)
    assert outcome.ferr < 1e-5


def test_the_ladder_on_a_device_ends_with_cusolver_and_qr(backend):
    first = rw.Action(("fp16", "fp64", "fp64", "fp64"), "lu/local")
    ladder = rw.VerifiedSolve().climb(first, backend)
    assert [f"{a.method}:{a[0]}" for a in ladder] == [
        "lu/local:fp16",
        "lu/local:fp16x2",
        "lu/local:fp64",
        "lu:fp64",
        "qr:fp64",
    ]


def test_unit_columns_of_a_block_on_the_device(backend):
    B = cupy.asarray(np.array([[1e-300, 0.0, 3.0], [2e-300, 0.0, 4.0]]))
    seen = []

    def solve(C):
        seen.append(np.abs(C.get()).max(axis=0))
        return Correction(C)

    assert np.array_equal(with_unit_columns(solve, B).Z.get(), B.get())
    assert (seen[0][[0, 2]] >= 1).all()
