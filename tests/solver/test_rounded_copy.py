"""A's norms and its copy in FP32 by one pass, and what solves make of the copy."""

import math

import numpy as np
import pytest

import roundwise as rw
from roundwise import _kernels
from roundwise.backends import NativeBackend
from roundwise.backends.native import buffer_pool
from roundwise.backends.native.dense import has_own_lu
from roundwise.machine.threads import PASS
from roundwise.solver import decide
from roundwise.solver.policy_argument import parse_policy

native = NativeBackend()
own = pytest.mark.skipif(not has_own_lu(), reason="LU is LAPACK's here")


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 5), (8, 2), (129, 70), (700, 701)])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_both_are_those_of_single_passes(rows, columns, threads):
    rng = np.random.default_rng(rows)
    A = np.asfortranarray(rng.standard_normal((rows, columns)) * 10.0 ** rng.integers(-50, 50))
    rounded = np.full(A.shape, 7, np.float32, order="F")
    found = _kernels.native_norms_and_rounded(A, rounded, threads)
    assert found == _kernels.native_column_norms(A, threads)
    with np.errstate(over="ignore", under="ignore"):
        assert np.array_equal(rounded, A.astype(np.float32))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_what_is_not_finite_is_told_by_the_norms(value):
    A = np.ones((37, 20), order="F")
    A[36, 19] = value
    norm, largest = _kernels.native_norms_and_rounded(A, np.empty_like(A, np.float32), 1)
    assert np.array_equal([norm, largest], [36 + abs(value), abs(value)], equal_nan=True)


def test_which_matrices_have_such_a_copy():
    n = math.isqrt(PASS) + 1
    A = np.random.default_rng(0).standard_normal((n, n))
    sizes, rounded = native.sizes_and_rounded(A)
    assert sizes == native.sizes(A)
    assert np.array_equal(rounded.T, A.astype(np.float32))
    for other in (np.asfortranarray(A), A.astype(np.float32), A[: n // 2, : n // 2].copy()):
        assert native.sizes_and_rounded(other) == (native.sizes(other), None)


@pytest.fixture
def system():
    n = max(900, parse_policy("default").express_below)
    rng = np.random.default_rng(5)
    return rng.standard_normal((n, n)), rng.standard_normal(n)


@pytest.fixture
def many_threads(monkeypatch):
    monkeypatch.setattr(decide, "factorization_threads", lambda: 8)


@pytest.fixture
def converted(monkeypatch, many_threads):
    """The shapes of matrices that a pass of their own converts."""
    shapes, original = [], _kernels.native_convert

    def watched(x, y, fmt, threads):
        shapes.append(x.shape)
        original(x, y, fmt, threads)

    monkeypatch.setattr(_kernels, "native_convert", watched)
    return shapes


@own
@pytest.mark.parametrize("scale", [1.0, 2.0**60])
def test_a_solve_factorizes_the_copy_unless_a_is_scaled(system, converted, scale):
    A, b = system
    x = rw.solve(scale * A, b)
    is_converted = A.shape in converted
    assert is_converted == (scale != 1)
    other = rw.solve(scale * np.asfortranarray(A), b)  # converted by a pass of its own
    assert A.shape in converted
    np.testing.assert_allclose(x, other, rtol=1e-9)


@own
def test_positive_definite_systems_use_it_too(system, converted):
    A, b = system
    S = A @ A.T + len(A) * np.eye(len(A))
    np.testing.assert_allclose(S @ rw.solve(S, b), b, atol=1e-9)
    assert A.shape not in converted


@own
@pytest.mark.parametrize(
    ("policy", "uses"), [("default", True), ("fp32", True), ("bf16", True), ("fp64", False)]
)
@pytest.mark.parametrize("threads", [1, 8])
def test_formats_and_threads_decide(monkeypatch, system, policy, uses, threads):
    monkeypatch.setattr(decide, "factorization_threads", lambda: threads)
    if policy not in ["default", *(fmt.name for fmt in native.formats())]:
        pytest.skip(f"no {policy} here")
    made, original = [], _kernels.native_norms_and_rounded
    monkeypatch.setattr(
        _kernels,
        "native_norms_and_rounded",
        lambda *arguments: made.append(1) or original(*arguments),
    )
    A, b = system
    rw.solve(A, b, policy=policy)
    assert bool(made) == (uses and threads == 8)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_is_not_modified_and_fp64_does_not_use_it(many_threads, system, order):
    """Here FP32 fails, and FP64 follows."""
    A, b = system
    U, _, V = np.linalg.svd(A)
    hard = np.array(U * np.logspace(0, -13, len(A)) @ V, order=order)
    given = hard.copy()
    solution = rw.solve(hard, b, full_output=True)
    assert np.array_equal(hard, given)
    assert solution.backward_error <= solution.tolerance
    x = rw.solve(hard, b)
    assert np.array_equal(hard, given)
    assert np.abs(b - hard @ x).max() <= 1e-10 * np.abs(x).max()


@pytest.mark.skipif(not buffer_pool.KEEPS, reason="this system cannot keep memory")
def test_a_copy_that_is_not_used_leaves_its_memory(monkeypatch):
    monkeypatch.setattr(buffer_pool, "_kept", {})
    A = np.random.default_rng(0).standard_normal((1100, 1100))
    _, rounded = native.sizes_and_rounded(A)
    matrix = native.matrix(A, rw.FP64)
    matrix.offer(rounded)
    matrix.lu()
    assert [len(memory) for memory in buffer_pool._kept.values()] == [rounded.nbytes]
    assert np.array_equal(matrix.array, A)
