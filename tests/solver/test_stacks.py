"""Stacks of systems: NumPy's broadcasting, one compiled call, and the gate for each of them."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rational
from exact import backward_error
from hypothesis import given, settings
from hypothesis import strategies as st

import roundwise as rw
from roundwise import _kernels
from roundwise.solver import stacks

U = 2.0**-53
SHAPES = st.sampled_from([(), (1,), (3,), (0,), (2, 3), (1, 3), (2, 1), (0, 3), (2, 1, 3)])


@settings(max_examples=150, deadline=None)
@given(
    first=SHAPES,
    second=SHAPES,
    n=st.integers(0, 5),
    k=st.sampled_from([None, 0, 1, 3]),
    rows=st.sampled_from([0, 0, 0, 1]),
    seed=st.integers(0, 99),
)
def test_shapes_and_errors_are_numpys(first, second, n, k, rows, seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((*first, n, n)) + 4 * np.eye(n)
    b = rng.standard_normal((n + rows,) if k is None else (*second, n + rows, k))
    try:
        expected = np.linalg.solve(A, b)
    except ValueError:
        with pytest.raises(ValueError, match="pass"):
            rw.solve(A, b)
        return
    x = rw.solve(A, b)
    assert x.shape == expected.shape
    assert x.dtype == expected.dtype
    np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 16, 33, 127, 128, 129, 150])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_answer_passes_the_gate(n, k, dtype):
    rng = np.random.default_rng(n)
    A = rng.standard_normal((4, n, n)).astype(dtype)
    b = rng.standard_normal((4, n, k)).astype(dtype)
    x = rw.solve(A, b)
    assert x.dtype == dtype
    u = U if dtype == np.float64 else 2.0**-24
    for i in range(4):
        for c in range(k):
            assert backward_error(A[i], x[i, :, c], b[i, :, c]) <= np.sqrt(n) * u


def test_memory_orders_and_strides():
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((3, 4, 5, 5)), rng.standard_normal((3, 4, 5, 2))
    expected = np.linalg.solve(A, b)
    for form in (
        np.asfortranarray,
        lambda x: x[::-1][::-1],
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x.astype(x.dtype.newbyteorder("S")),
    ):
        np.testing.assert_allclose(rw.solve(form(A), form(b)), expected, rtol=1e-9)
    across = np.swapaxes(A, -1, -2)
    np.testing.assert_allclose(rw.solve(across, b), np.linalg.solve(across, b), rtol=1e-9)


def test_threads_share_systems_and_change_no_bit():
    rng = np.random.default_rng(1)
    A, b = rng.standard_normal((2000, 4, 4)), rng.standard_normal((2000, 4))[..., None]
    answers = []
    for threads in (1, 2, 5):
        rw.set_num_threads(threads)
        answers.append(rw.solve(A, b))
    assert all(np.array_equal(x, answers[0]) for x in answers)


def test_a_stack_beside_other_callers_is_solved_in_its_kernel(monkeypatch):
    """The LU of a system in a stack is never cut short, as one by several threads may be."""
    rng = np.random.default_rng(3)
    A, b = rng.standard_normal((48, 150, 150)), rng.standard_normal((48, 150, 1))
    expected = rw.solve(A, b)
    stop, all_passed = threading.Event(), []

    def others():
        while not stop.is_set():
            _kernels.native_symmetric(np.ones((600, 600), order="F"), 3)

    original = _kernels.express_solve_stack

    def watched(*arguments):
        original(*arguments)
        all_passed.append(bool(np.isfinite(arguments[5]).all()))

    monkeypatch.setattr(_kernels, "express_solve_stack", watched)
    monkeypatch.setattr(stacks, "factorization_threads", lambda: 3)
    with ThreadPoolExecutor(3) as pool:
        try:
            for _ in range(3):
                pool.submit(others)
            for _ in range(20):
                assert np.array_equal(rw.solve(A, b), expected)
        finally:
            stop.set()
    assert len(all_passed) >= 20
    assert all(all_passed)


def test_hard_systems_in_a_stack_go_the_ordinary_way():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((5, 12, 12))
    A[1] = 1 / (1.0 + np.add.outer(np.arange(12), np.arange(12)))  # Hilbert's
    A[2] *= 1e250
    A[3] *= 1e-250
    b = np.ones(12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rw.IllConditionedWarning)
        x = rw.solve(A, b)
        alone = np.stack([rw.solve(one, b) for one in A])
    assert np.array_equal(x[1], alone[1])  # what the compiled call does not accept, `solve` gives
    np.testing.assert_allclose(x, alone, rtol=1e-9)


def test_ill_conditioned_systems_warn():
    A = np.stack([np.eye(14), 1 / (1.0 + np.add.outer(np.arange(14), np.arange(14)))])
    with pytest.warns(rw.IllConditionedWarning):
        rw.solve(A, np.ones(14))


def test_failures_name_the_system():
    A = np.broadcast_to(np.eye(3), (2, 2, 3, 3)).copy()
    A[1, 0, 2, 2] = 0
    with pytest.raises(rw.SolveFailed, match=r"system \(1, 0\) of the stack: A is singular"):
        rw.solve(A, np.ones(3))
    A[1, 0, 2, 2] = np.nan
    with pytest.raises(ValueError, match="A has NaN"):
        rw.solve(A, np.ones(3))
    with pytest.raises(ValueError, match="b has NaN"):
        rw.solve(np.stack([np.eye(2)] * 3), np.full((3, 2, 1), np.inf))


def test_one_matrix_for_many_is_factored_once():
    rng = np.random.default_rng(3)
    A, b = rng.standard_normal((5, 5)), rng.standard_normal((2, 3, 5, 4))
    np.testing.assert_allclose(rw.solve(A, b), np.linalg.solve(A, b), rtol=1e-9)
    np.testing.assert_allclose(rw.solve(A[None], b), np.linalg.solve(A[None], b), rtol=1e-9)


@pytest.mark.parametrize("assume_a", ["gen", "sym", "pos", "diagonal", "upper triangular"])
@pytest.mark.parametrize("policy", ["default", "fp32"])
def test_options_hold_for_each(assume_a, policy):
    rng = np.random.default_rng(4)
    A = rng.standard_normal((3, 6, 6))
    A = A @ A.swapaxes(-1, -2) + np.eye(6)
    x = rw.solve(A, np.ones(6), assume_a=assume_a, policy=policy)
    alone = [rw.solve(one, np.ones(6), assume_a=assume_a) for one in A]
    np.testing.assert_allclose(x, alone, rtol=1e-10)
    exact = rw.solve(A, np.ones(6), assume_a=assume_a, accuracy="forward")
    np.testing.assert_allclose(exact, alone, rtol=1e-10)


def test_a_stacked_solution_has_all_stories():
    rng = np.random.default_rng(5)
    A, b = rng.standard_normal((2, 3, 4, 4)), rng.standard_normal((3, 4, 2))
    solution = rw.solve(A, b, full_output=True)
    assert isinstance(solution, rw.solver.StackedSolution)
    np.testing.assert_allclose(solution.x, np.linalg.solve(A, b), rtol=1e-9)
    assert solution.shape == (2, 3)
    errors = [solution[i, j].backward_error for i in range(2) for j in range(3)]
    assert solution.backward_error == max(errors) <= 2 * U
    assert solution.condition >= 1
    assert solution.forward_error_bound >= solution[0, 0].forward_error_bound
    assert solution.status == "accepted"
    assert solution.seconds > 0
    assert "6 systems" in solution.explain()
    vectors = rw.solve(A, b[0, :, 0], full_output=True)
    assert vectors.x.shape == (2, 3, 4)
    with pytest.raises(ValueError, match="leave out full_output"):
        rw.solve(A[:0], b, full_output=True)


def test_factored_stacks():
    rng = np.random.default_rng(6)
    A, b = rng.standard_normal((2, 3, 4, 4)), rng.standard_normal((3, 4, 2))
    F = rw.factor(A)
    np.testing.assert_allclose(F.solve(b), np.linalg.solve(A, b), rtol=1e-9)
    np.testing.assert_allclose(F.solve(b[0, :, 0]), np.linalg.solve(A, b[0, :, 0]), rtol=1e-9)
    across = np.linalg.solve(A.swapaxes(-1, -2), b)
    np.testing.assert_allclose(F.solve(b, "T"), across, rtol=1e-9)
    assert F.solve(b, full_output=True)[1, 2].status == "accepted"
    assert F[1, 2].shape == (4, 4)
    np.testing.assert_allclose(F.refactor(2 * A).solve(b), np.linalg.solve(A, b) / 2, rtol=1e-9)
    with pytest.raises(ValueError, match="stack of shape"):
        F.refactor(A[0])


def test_the_kernel_refuses_what_would_leave_its_arrays():
    A, b, x = np.ones((2, 3, 3)), np.ones((2, 3, 1)), np.empty((2, 3, 1))
    which, passed = np.arange(2), np.empty(2)
    rest = ("fp64", 1e-16, 1.0, 0.0, 0.0, 1e-10, 1e-264, 1e300, 0, False, 1)
    call = _kernels.express_solve_stack
    for bad in (
        (A, b[:, :2], which, which, x, passed),
        (A, b, which + 1, which, x, passed),
        (A, b, which, which - 1, x, passed),
        (A, b, which, which, x[:1], passed),
        (A, b, which, which, x, passed[:1]),
        (A, b, which, which, x.astype(np.float32), passed),
        (A.astype(int), b, which, which, x, passed),
    ):
        with pytest.raises(ValueError, match="pass"):
            call(*(np.ascontiguousarray(one) for one in bad), *rest)


@pytest.mark.parametrize("n", [3, 40, 300])
def test_reports_of_a_stack_have_the_bits_of_plain_answers(n):
    rng = np.random.default_rng(n)
    A, b = rng.standard_normal((3, n, n)), rng.standard_normal((3, n, 2))
    for matrices in (A, A[:1], A[0]):  # one each, one for all, one for all without a stack
        solution = rw.solve(matrices, b, full_output=True)
        np.testing.assert_array_equal(solution.x, rw.solve(matrices, b))
        assert solution.shape == (3,)
        assert solution[2].backward_error <= np.sqrt(n) * 2.0**-53


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64])
@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize("k", [1, 3])
def test_tiny_systems_side_by_side_have_the_bits_of_single_solves(n, k, dtype):
    """21 systems fill no whole number of vectors; some are refused there: scaled, or singular."""
    rng = np.random.default_rng(n)

    def numbers(*shape):
        parts = rng.standard_normal((2, *shape))
        is_complex = np.dtype(dtype).kind == "c"
        return (parts[0] + 1j * parts[1] if is_complex else parts[0]).astype(dtype)

    A, B = numbers(21, n, n), numbers(21, n, k)
    A[3] *= 2.0**-40
    A[4] = np.eye(n)
    A[5] = A[5][::-1] * (np.arange(1, n + 1) * 1e3)
    B[6] = 0
    A[7, 0] *= 1e15  # rows of different sizes, where pivots look suspicious
    X = rw.solve(A, B)
    told = rw.solve(A, B, full_output=True)
    assert np.array_equal(told.x, X)
    for i in range(21):
        assert np.array_equal(X[i], rw.solve(A[i], B[i]))
        assert rational.passes_gate(A[i], X[i], B[i], told[i].tolerance)
        assert told[i].backward_error <= told[i].tolerance
    assert np.array_equal(rw.solve(A, B[0]), np.stack([rw.solve(one, B[0]) for one in A]))
    strided = np.asfortranarray(A.transpose(1, 2, 0)).transpose(2, 0, 1)
    assert np.array_equal(rw.solve(strided, B), X)
    if n > 1:
        A[11, 1] = A[11, 0]
        with pytest.raises(rw.SolveFailed, match=r"system \(11,\) of the stack: A is singular"):
            rw.solve(A, B)
    A[12, 0, 0] = np.nan
    A[11] = np.eye(n)
    with pytest.raises(ValueError, match="NaN"):
        rw.solve(A, B)
