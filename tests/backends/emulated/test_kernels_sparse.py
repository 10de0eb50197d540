"""Sparse kernels give the same entries as the dense ones."""

import numpy as np
import pytest
import reference
from cases import FORMATS, ODD_FORMATS, same_bits
from exact import backward_error
from scipy import sparse

import roundwise as rw
from roundwise.backends import OperationBackend
from roundwise.backends.emulated.ordering import colamd

operation = rw.backends.get_backend("operation")


def sparse_matrix(n, seed=0, density=0.15, dtype=np.float64):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n)) * (rng.random((n, n)) < density) + np.diag(rng.uniform(1, 2, n))
    return A.astype(dtype)


@pytest.mark.parametrize("fmt", FORMATS + ODD_FORMATS, ids=str)
def test_matvec_equals_the_dense_kernel(fmt):
    A = sparse_matrix(30)[:, :20]
    x, y = np.random.default_rng(1).standard_normal((2, 30))
    S, D = operation.matrix(sparse.csr_array(A), fmt), operation.matrix(A, fmt)
    assert np.array_equal(S.matvec(x[:20]), D.matvec(x[:20]))
    assert np.array_equal(S.matvec(y, transpose=True), D.matvec(y, transpose=True))


@pytest.mark.parametrize("fmt", FORMATS + ODD_FORMATS, ids=str)
def test_lu_equals_the_reference_on_the_permuted_matrix(fmt):
    A = rw.round_to(sparse_matrix(16, seed=2), fmt)
    F = operation.matrix(sparse.csc_matrix(A), fmt).lu()
    # With the rows in the order of pivots, the reference interchanges nothing.
    permuted = A[F.perm][:, F.order]
    packed, perm = reference.lu(fmt, permuted)
    assert np.array_equal(perm, np.arange(16))
    assert np.array_equal(F.U.toarray(), np.triu(packed))
    assert np.array_equal(F.L.toarray(), np.tril(packed, -1) + np.eye(16))
    B = rw.round_to(np.random.default_rng(3).standard_normal((16, 2)), fmt)
    X, Y = F.solve(B), F.solve(B, transpose=True)
    identity = np.arange(16)
    for j in range(2):
        x = reference.solve(fmt, packed, identity, B[F.perm, j])
        assert np.array_equal(X[F.order, j], x)
        y = reference.solve_transposed(fmt, packed, identity, B[F.order, j])
        assert np.array_equal(Y[F.perm, j], y)


@pytest.mark.parametrize("backend", ["operation", "storage"])
def test_fp64_solves_as_well_as_superlu(backend):
    A = sparse.random_array(
        (400, 400), density=0.01, rng=np.random.default_rng(0)
    ) + sparse.eye_array(400)
    b = np.random.default_rng(1).standard_normal(400)
    F = rw.backends.get_backend(backend).matrix(A, rw.FP64).lu()
    for transpose, matrix in ((False, A), (True, A.T)):
        x = F.solve(b, transpose=transpose)
        assert backward_error(matrix, x, b) <= 1e-15
    # LU = PAQ, and stays sparse.
    permuted = sparse.csr_array(A)[F.perm][:, F.order]
    assert abs((F.L @ F.U - permuted).toarray()).max() <= 1e-14
    assert F.L.nnz + F.U.nnz < 0.4 * 400**2


@pytest.mark.parametrize(
    "convert", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_array]
)
def test_any_sparse_format_gives_the_same(convert):
    A = sparse_matrix(25)
    expected = operation.matrix(sparse.csr_array(A), rw.BF16).lu().solve(np.ones(25))
    assert same_bits(operation.matrix(convert(A), rw.BF16).lu().solve(np.ones(25)), expected)


def test_duplicates_are_summed_before_rounding():
    entries = ([1.0, 2.0**-9, 2.0**-9, 3.0], ([0, 0, 0, 1], [0, 0, 0, 1]))
    A = sparse.coo_array(entries, shape=(2, 2))
    assert operation.matrix(A, rw.BF16).matvec(np.array([1.0, 0.0]))[0] == 1.0
    entries = ([1.0, 2.0**-8, 2.0**-8, 3.0], ([0, 0, 0, 1], [0, 0, 0, 1]))
    A = sparse.coo_array(entries, shape=(2, 2))
    assert operation.matrix(A, rw.BF16).matvec(np.array([1.0, 0.0]))[0] == 1 + 2.0**-7


def test_threshold_pivoting_keeps_the_diagonal():
    A = np.array([[1.0, 2.0], [4.0, 1.0]])
    for threshold, swapped in ((1.0, True), (0.25, False), (0.26, True)):
        F = OperationBackend(pivot_threshold=threshold).matrix(sparse.csr_array(A), rw.FP64).lu()
        first = F.order[0]
        if first == 0:
            assert (F.perm[0] == 1) == swapped
    with pytest.raises(ValueError, match="choose 0 < pivot_threshold <= 1"):
        OperationBackend(pivot_threshold=0)


def test_colamd_reduces_fill_and_survives_singular_values():
    line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(20, 20))
    grid = sparse.csr_array(sparse.kronsum(line, line))  # fills its band in its own order
    F = operation.matrix(grid, rw.FP64).lu()
    assert F.L.nnz + F.U.nnz < 0.8 * 2 * 20 * 400
    singular = sparse.csc_array(np.ones((3, 3)))
    assert sorted(colamd(singular)) == [0, 1, 2]
    assert colamd(sparse.csc_array(np.diag([1.0, 0.0, 2.0]))) is None


@pytest.mark.parametrize("backend", ["operation", "storage"])
@pytest.mark.parametrize("A", [np.ones((3, 3)), np.diag([1.0, 0.0, 2.0])])
def test_singular_matrices_are_named(backend, A):
    with pytest.raises(rw.backends.ArithmeticFailure) as error:
        rw.backends.get_backend(backend).matrix(sparse.csr_array(A), rw.FP64).lu()
    assert error.value.status is rw.backends.Status.ZERO_PIVOT


@pytest.mark.parametrize("fmt", FORMATS + ODD_FORMATS, ids=str)
def test_cholesky_equals_the_dense_kernel(fmt):
    A = sparse_matrix(18, density=0.1) / 8
    A = rw.round_to((A + A.T) / 2 + 1.5 * np.eye(18), fmt)
    F = operation.matrix(sparse.csr_array(A), fmt).cholesky()
    D = operation.matrix(A[F.order][:, F.order], fmt).cholesky()
    assert np.array_equal(F.L.toarray(), D.L)
    b = rw.round_to(np.random.default_rng(1).uniform(-1, 1, (18, 2)), fmt)
    assert np.array_equal(F.solve(b)[F.order], D.solve(b[F.order]))


@pytest.mark.parametrize("backend", ["operation", "storage"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_cholesky_refuses_what_is_not_positive_definite(backend, convert):
    for A in (-np.eye(3), np.ones((3, 3)) - 2 * np.eye(3), np.diag([1.0, 0.0, 1.0])):
        with pytest.raises(rw.backends.ArithmeticFailure) as error:
            rw.backends.get_backend(backend).matrix(convert(A), rw.FP64).cholesky()
        assert error.value.status is rw.backends.Status.NOT_POSITIVE_DEFINITE


@pytest.mark.parametrize("backend", ["operation", "storage"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_cholesky_solves_in_fp64(backend, convert):
    line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(12, 12))
    A = sparse.kronsum(line, line).toarray()
    b = np.arange(1.0, 145.0)
    F = rw.backends.get_backend(backend).matrix(convert(A), rw.FP64).cholesky()
    np.testing.assert_allclose(A @ F.solve(b), b, rtol=1e-12)
    np.testing.assert_allclose(A @ F.to(rw.FP32).solve(b), b, rtol=1e-3)


def test_cholesky_reads_the_lower_triangle_alone():
    A = np.array([[4.0, 1, 1, 1], [1, 3, 0, 0], [1, 0, 5, 0], [1, 0, 0, 6]])
    b = np.ones(4)
    for backend in ("operation", "storage"):
        for convert in (np.asarray, sparse.csr_array):
            F = rw.backends.get_backend(backend).matrix(convert(np.tril(A)), rw.FP64).cholesky()
            np.testing.assert_allclose(A @ F.solve(b), b, rtol=1e-14)


def test_duplicates_are_summed_in_float64():
    entries = (np.array([1.0, 2.0**-30], np.float32), ([0, 0], [0, 0]))
    M = operation.matrix(sparse.coo_array(entries, shape=(1, 1)), rw.FP64)
    assert M.matvec(np.ones(1))[0] == 1 + 2.0**-30
    entries = (np.array([100, 100], np.int8), ([0, 0], [0, 0]))
    assert rw.LinearSystem(sparse.coo_array(entries, shape=(1, 1)), [1.0]).A[0, 0] == 200
