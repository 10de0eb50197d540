"""`roundwise` on a GPU: `make test-gpu` runs these where there is one."""

import hard_systems
import numpy as np
import pytest

import roundwise as rw
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.backends.cuda.backend import FORMATS
from roundwise.backends.cuda.device import get_device, why_not
from roundwise.backends.native import exact
from roundwise.formats import FP64X2
from roundwise.solver.places import DeviceMemoryError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=why_not())]

rng = np.random.default_rng
METHODS = ("lu", "lu/tournament", "lu/local", "lu/butterfly", "lu/diagonal", "cholesky", "qr")


@pytest.fixture(scope="module")
def cupy():
    return get_device().xp


@pytest.fixture(scope="module")
def backend():
    return rw.backends.get_backend("cuda")


def system(n, columns=None, seed=0, shift=0.0):
    A = rng(seed).standard_normal((n, n)) + shift * np.eye(n)
    return A, rng(seed + 1).random(n if columns is None else (n, columns))


def backward_error(A, x, b):
    """In twice the precision, by the processor's kernel: these systems are large for `exact`."""
    X, B = (y.reshape(len(A), -1) for y in (x, b))
    R = exact.residual(np.ascontiguousarray(A), X, B)
    size = np.abs(A).sum(axis=1).max() * np.abs(X).max(axis=0) + np.abs(B).max(axis=0)
    return (np.abs(R).max(axis=0) / size).max()


@pytest.mark.parametrize("n", [1, 2, 31, 64, 65, 255, 257, 1000, 1537, 2049])
@pytest.mark.parametrize("columns", [None, 1, 7])
@pytest.mark.parametrize("order", "CF")
def test_answers_agree_with_the_processor_s_to_the_backward_error(cupy, n, columns, order):
    A, b = system(n, columns)
    x = rw.solve(cupy.asarray(A, order=order), cupy.asarray(b))
    assert isinstance(x, cupy.ndarray)
    assert x.shape == b.shape
    assert backward_error(A, x.get(), b) <= default_tolerance(n)


@pytest.mark.parametrize("fmt", [fmt.name for fmt in FORMATS])
@pytest.mark.parametrize("n", [100, 2000])
def test_every_format_leads_through_the_gate(cupy, fmt, n):
    A, b = system(n, shift=3 * np.sqrt(n))
    solution = rw.solve(cupy.asarray(A), cupy.asarray(b), policy=fmt, full_output=True)
    assert solution.backward_error <= solution.tolerance
    assert backward_error(A, solution.x.get(), b) <= default_tolerance(n)
    assert len(solution.attempts) == 1, solution.explain()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("order", "CF")
def test_factors_solve_both_ways(cupy, backend, method, fmt, order):
    if not backend.runs(method, fmt):
        pytest.skip(f"{method} does not run in {fmt}")
    n = 333
    M = rng(0).standard_normal((n, n))
    A = M + M.T + 60 * np.eye(n)
    if method != "cholesky":
        A[0, -1] += 1.0
    given = cupy.asarray(A, order=order)
    factors = backend.analyse(given, method).factorize(given, fmt)
    b = rng(1).random((n, 2))
    for transpose in (False, True):
        X = factors.solve(cupy.asarray(b), transpose=transpose).get()
        exactly = np.linalg.solve(A.T if transpose else A, b)
        error = np.abs(X - exactly).max() / np.abs(exactly).max()
        assert error < 50 * fmt.unit_roundoff * np.linalg.cond(A)
    assert np.array_equal(given.get(), A)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("n", [1, 7, 100, 1003])
def test_residuals_have_the_error_that_is_claimed(cupy, backend, n, order):
    A, X, B = rng(0).standard_normal((n, n)), rng(1).random((n, 3)), rng(2).random((n, 3))
    B = A @ X + 1e-15 * B  # so that most digits cancel
    expected = exact.residual(A, X, B)
    sizes = np.abs(A) @ np.abs(X) + np.abs(B)
    for fmt in (rw.FP64, FP64X2):
        matrix = backend.matrix(cupy.asarray(A, order=order), fmt)
        R = backend.residual(matrix, cupy.asarray(X), cupy.asarray(B)).get()
        bound = 2 * (2.0**-53 * np.abs(expected) + backend.residual_error(fmt, n) * sizes)
        assert (np.abs(R - expected) <= bound).all()


def test_sizes_of_a_matrix(cupy, backend):
    A = rng(0).standard_normal((301, 301))
    for given in (cupy.asarray(A), cupy.asarray(A, order="F"), cupy.asarray(A).T):
        norm, largest = backend.sizes(given)
        host = given.get()
        assert norm == pytest.approx(np.abs(host).sum(axis=1).max(), rel=1e-13)
        assert largest == np.abs(host).max()


@pytest.mark.parametrize("policy", ["default", "fp16x2", "fp16", "fp64"])
def test_the_same_input_gives_the_same_bits_twice(cupy, policy):
    A, b = (cupy.asarray(x) for x in system(1777))
    first = rw.solve(A, b, policy=policy).get()
    for _ in range(3):
        assert np.array_equal(rw.solve(A, b, policy=policy).get(), first)


HARD = [
    *hard_systems.growth_systems(),
    *hard_systems.structured_systems(),
    *hard_systems.scaled_systems(),
    *hard_systems.near_singular_systems(),
    *hard_systems.singular_systems(),
]


@pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
@pytest.mark.parametrize("policy", ["default", "fp16x2", "fp16"])
def test_hard_systems_give_answers_or_named_failures(cupy, policy):
    for name, A, b in HARD:
        try:
            x = rw.solve(cupy.asarray(A), cupy.asarray(b), policy=policy).get()
        except rw.SolveFailed:
            with pytest.raises(rw.SolveFailed):
                rw.solve(A, b)
        else:
            assert np.isfinite(x).all(), name


def test_overflow_of_fp16_is_a_status(cupy, backend):
    """Wilkinson's matrix: U grows to 2**(n - 1), beyond FP32's range."""
    n = 300
    A, b = hard_systems.with_random_b(hard_systems.wilkinson(n))
    problem = rw.LinearSystem(A, b)
    outcome = rw.VerifiedSolve().run(problem, "lu/local:fp16-fp64-fp64-fp64", backend)
    assert not outcome.converged
    assert outcome.reason
    x = rw.solve(cupy.asarray(A), cupy.asarray(b), policy="fp16").get()
    assert backward_error(A, x, b) <= default_tolerance(n)


@pytest.mark.parametrize("n", [3, 40, 1100])
def test_singular_matrices_fail_by_name(cupy, n):
    A = cupy.ones((n, n))
    with pytest.raises(rw.SolveFailed, match="singular"):
        rw.solve(A, cupy.arange(n, dtype=np.float64))


def test_streams(cupy):
    A, b = system(900)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        given = cupy.asarray(A), cupy.asarray(b)
        x = rw.solve(*given)
    stream.synchronize()
    assert backward_error(A, x.get(), b) <= default_tolerance(900)
    F = rw.factor(cupy.asarray(A))
    first = F.solve(cupy.asarray(b)).get()
    with cupy.cuda.Stream(non_blocking=True):
        assert np.array_equal(F.solve(cupy.asarray(b)).get(), first)


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    A, b = system(700, 3)
    given = torch.tensor(A, device="cuda"), torch.tensor(b, device="cuda")
    x = rw.solve(*given)
    assert isinstance(x, torch.Tensor)
    assert x.is_cuda
    assert x.dtype == torch.float64
    assert backward_error(A, x.cpu().numpy(), b) <= default_tolerance(700)
    with torch.cuda.stream(torch.cuda.Stream()):
        again = rw.solve(*given)
        assert torch.equal(again, x)
    solution = rw.factor(given[0]).solve(given[1], full_output=True)
    assert isinstance(solution.x, torch.Tensor)
    assert solution.digits > 8
    with pytest.raises(TypeError, match="processor's memory"):
        rw.solve(given[0], b)
    with pytest.raises(TypeError, match="detach"):
        rw.solve(given[0].clone().requires_grad_(), given[1])


def test_mixed_devices_are_refused(cupy):
    A, b = system(9)
    with pytest.raises(TypeError, match=r"cupy\.asarray\(b\)"):
        rw.solve(cupy.asarray(A), b)
    with pytest.raises(TypeError, match=r"b\.get\(\)"):
        rw.solve(A, cupy.asarray(b))


def test_numpy_goes_there_and_back(cupy):
    A, b = system(500)
    x = rw.solve(A, b, device="cuda")
    assert isinstance(x, np.ndarray)
    assert backward_error(A, x, b) <= default_tolerance(500)


def test_float32(cupy):
    A, b = (x.astype(np.float32) for x in system(600))
    x = rw.solve(cupy.asarray(A), cupy.asarray(b))
    assert x.dtype == np.float32
    error = backward_error(A.astype(np.float64), x.get().astype(np.float64), b.astype(np.float64))
    assert error <= default_tolerance(600, rw.FP32)


def test_a_factorization_solves_again_transposed_and_renewed(cupy):
    A, b = system(1600)
    F = rw.factor(cupy.asarray(A))
    for _ in range(3):
        assert backward_error(A, F.solve(cupy.asarray(b)).get(), b) <= default_tolerance(1600)
    x = F.solve(cupy.asarray(b), trans="T").get()
    assert backward_error(np.ascontiguousarray(A.T), x, b) <= default_tolerance(1600)
    other, _ = system(1600, seed=5)
    x = F.refactor(cupy.asarray(other)).solve(cupy.asarray(b)).get()
    assert backward_error(other, x, b) <= default_tolerance(1600)


def test_full_accuracy(cupy):
    n = 300
    U, V = (np.linalg.qr(rng(s).standard_normal((n, n)))[0] for s in (1, 2))
    A, b = (U * np.logspace(0, -9, n)) @ V, rng(3).random(n)
    x = rw.solve(cupy.asarray(A), cupy.asarray(b), accuracy="forward").get()
    np.testing.assert_allclose(x, rw.solve(A, b, accuracy="forward"), rtol=1e-14)


@pytest.mark.parametrize("algorithm", [rw.GmresIR.paper(), rw.LuIR(), rw.CgIR()], ids=str)
def test_research_algorithms_run_on_the_device(backend, algorithm):
    n = 200
    M = rng(0).standard_normal((n, n))
    A = M @ M.T + n * np.eye(n)
    problem = rw.LinearSystem(A, A @ np.ones(n), x_true=np.ones(n))
    action = "-".join(["fp32", *["fp64"] * (len(algorithm.stages) - 1)])
    outcome = algorithm.run(problem, action, backend)
    assert outcome.converged
    assert outcome.ferr < 1e-13


def test_memory_that_does_not_suffice_is_a_clear_error(cupy):
    pool = cupy.get_default_memory_pool()
    before = pool.get_limit()
    A, b = (cupy.asarray(x) for x in system(2500))
    pool.free_all_blocks()  # what it keeps for reuse would still be given out
    pool.set_limit(size=pool.used_bytes() + 10_000_000)
    try:
        with pytest.raises(DeviceMemoryError, match="does not suffice"):
            rw.solve(A, b)
    finally:
        pool.set_limit(size=before)


def test_solver_and_explain(cupy):
    solver = rw.Solver()
    A, b = (cupy.asarray(x) for x in system(1600))
    for _ in range(3):
        solution = solver.solve(A, b, full_output=True)
    assert "On the GPU" in solution.explain()
