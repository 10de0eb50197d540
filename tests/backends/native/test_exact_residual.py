"""Residuals in twice the precision, against rational arithmetic: their stated error bounds hold."""

from fractions import Fraction

import numpy as np
import pytest
import rational
from scipy import sparse

import roundwise as rw
import roundwise._kernels as _kernels
from roundwise.backends import NativeBackend, UnsupportedFormat
from roundwise.backends.native import exact

U = Fraction(1, 2**53)
SIZES = (1, 2, 3, 8, 9, 17, 33)


def hard_block(n, columns, seed):
    """A, X and B with entries of very different size, and residuals where nearly all cancels."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n)) * 2.0 ** rng.integers(-30, 30, (n, n))
    X = rng.standard_normal((n, columns)) * 2.0 ** rng.integers(-30, 30, (n, columns))
    B = A @ X
    if n > 2:  # rows that cancel: a product, its negative, and something far smaller
        A[0, :2], X[:2] = 2.0**60, np.array([1.0, -1.0])[:, None] * (1 + 2.0**-40)
        B[0] = A[0, 2:] @ X[2:]
    return A, X, B


def assert_within(R, A, X, B, error):
    for j in range(X.shape[1]):
        truth = rational.residual(A, X[:, j], B[:, j])
        x, b = (list(map(abs, rational.fractions(v[:, j]))) for v in (X, B))
        for i, row in enumerate(rational.fractions(np.abs(A))):
            size = sum(a * y for a, y in zip(row, x, strict=True)) + b[i]
            bound = U * abs(truth[i]) + Fraction(error) * size
            assert abs(Fraction(float(R[i, j])) - truth[i]) <= bound


@pytest.mark.parametrize("block", [exact.EXACT, 4, 8, 16])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("n", SIZES)
def test_dense_errors_are_within_the_bound(n, order, block, simd_level):
    A, X, B = hard_block(n, {17: 9, 33: 28}.get(n, 3), n)  # many columns are summed otherwise
    R = exact.residual(np.array(A, order=order), X, B, block)
    assert_within(R, A, X, B, exact.error_of(n, block))


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("n", SIZES)
def test_sparse_errors_are_within_the_bound(n, index, simd_level):
    A, X, B = hard_block(n, 3, n)
    A[np.random.default_rng(n).random((n, n)) < 0.5] = 0
    rows = sparse.csr_array(A)
    rows.indptr, rows.indices = rows.indptr.astype(index), rows.indices.astype(index)
    assert_within(exact.residual(rows, X, B), A, X, B, exact.error_of(n))


@pytest.mark.parametrize("order", "CF")
def test_threads_change_nothing(order):
    A, X, B = (np.array(v, order=order) for v in hard_block(400, 6, 0))
    a, transpose = (A.T, True) if order == "C" else (A, False)
    X, B = np.asfortranarray(X), np.asfortranarray(B)
    for block in (exact.EXACT, 8):
        results = []
        for threads in (1, 2, 3):
            R = np.empty_like(B)
            _kernels.native_exact_residual(a, transpose, X, B, R, block, threads)
            results.append(R.tobytes())
        assert len(set(results)) == 1


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("n", [300, 400])  # above 362 threads share the passes
def test_threads_do_not_change_a_backward_error(n, order):
    rng = np.random.default_rng(n)
    A = np.array(rng.standard_normal((n, n)), order=order)
    x, b = rng.standard_normal((2, n))
    a, transpose = (A.T, True) if order == "C" else (A, False)
    found = {
        _kernels.native_backward_error(a, transpose, x, b, 0, 1e-290, 1e290, threads)
        for threads in (1, 2, 3)
    }
    norm = np.abs(A).sum(axis=1).max() * np.abs(x).max() + np.abs(b).max()
    assert len(found) == 1
    assert found.pop() == pytest.approx(np.abs(b - A @ x).max() / norm, rel=1e-12)


def test_blocks_that_are_too_short_are_refused():
    """Columns of A are taken by fours: shorter blocks would be off by more than they say."""
    A, x, b = np.eye(3), np.ones(3), np.ones(3)
    for block in (-1, 1, 3):
        with pytest.raises(ValueError, match="at least 4 products"):
            exact.residual(A, x, b, block)
        with pytest.raises(ValueError, match="at least 4 products"):
            _kernels.native_backward_error(A.T, True, x, b, block, 1e-290, 1e290, 1)


def test_what_would_be_read_past_an_end_is_refused():
    tall = np.ones((3, 2), order="F")
    with pytest.raises(ValueError, match="not square"):
        _kernels.native_backward_error(tall, False, np.ones(2), np.ones(3), 0, 1e-290, 1e290, 1)
    for indptr, indices in (([0, 1, 2], [0, 2]), ([0, 1, 2], [-1, 0]), ([0, 9, 2], [0, 1])):
        for kind in (np.int32, np.int64):
            pattern = np.array(indptr, kind), np.array(indices, kind)
            x, b, r = np.ones((3, 2))
            with pytest.raises(ValueError, match="index is out of range"):
                _kernels.native_exact_sparse_residual(*pattern, np.ones(2), 2, x, b, r, 1)


def test_one_column_equals_many():
    A, X, B = hard_block(130, 7, 1)
    backend = NativeBackend()
    for fmt in ("fp64", "fp64x2"):
        for M in (A, np.asfortranarray(A), sparse.csr_array(A)):
            if fmt == "fp64" and isinstance(M, np.ndarray):
                continue  # sums of many columns are cut otherwise
            matrix = backend.matrix(M, fmt)
            together = backend.residual(matrix, X, B)
            single = [backend.residual(matrix, X[:, [j]], B[:, [j]]) for j in range(7)]
            np.testing.assert_array_equal(together, np.hstack(single))


def test_fp64_leaves_half_of_the_gate():
    """What FP64 residuals may be off by is at most half of the default tolerance, for every n."""
    for n in (*range(1, 1200), 10_000, 10**6):
        error = NativeBackend().residual_error(rw.FP64, n)
        assert error <= np.sqrt(n) * 2.0**-53 / 2


def test_nan_and_infinity_stay():
    A = np.eye(3)
    for bad in (np.nan, np.inf):
        X = np.array([[bad], [0.0], [0.0]])
        assert not np.isfinite(exact.residual(A, X, np.zeros((3, 1)))).all()


def test_fp64x2_is_for_residuals_alone():
    A, b = np.diag([1.0, 2.0, 3.0]), np.ones(3)
    system = rw.LinearSystem(A, b)
    assert rw.GmresIR().run(system, "fp32-fp64-fp64-fp64x2", "native").converged
    for action in ("fp64x2-fp64-fp64-fp64x2", "fp64-fp64x2-fp64-fp64x2", "fp64-fp64-fp64x2-fp64x2"):
        with pytest.raises(UnsupportedFormat, match="fp64x2"):
            rw.GmresIR().run(system, action, "native")
    for arithmetic in ("operation", "storage"):
        with pytest.raises(ValueError, match="fp64x2"):
            rw.GmresIR().run(system, "fp32-fp64-fp64-fp64x2", arithmetic)


def test_backward_error_of_small_systems(simd_level):
    """Integers: residual, norms and quotients of powers of two are exact."""
    rng = np.random.default_rng(0)
    for n in SIZES:
        A = rng.integers(-9, 10, (n, n)).astype(float)
        X, B = (np.asfortranarray(rng.integers(-9, 10, (n, 2)).astype(float)) for _ in range(2))
        sizes = abs(A).sum(axis=1).max() * abs(X).max(axis=0) + abs(B).max(axis=0)
        worst = (abs(B - A @ X).max(axis=0) / sizes).max()
        for M in (A, np.asfortranarray(A)):
            assert exact.backward_error(M, X, B) == worst
            assert exact.backward_error(M, X[:, 0], B[:, 0]) <= worst


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e301])
def test_backward_error_of_what_is_out_of_range_is_not_small(bad):
    A, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.ones(2)
    for where in range(3):
        operands = [A.copy(), b.copy(), b.copy()]
        operands[where].flat[0] = bad
        assert not exact.backward_error(*operands) <= 1
    assert exact.backward_error(A, np.zeros(2), np.zeros(2)) == np.inf
