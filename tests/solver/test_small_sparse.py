"""Small sparse systems are solved at once, through the same gate."""

from contextlib import suppress

import numpy as np
import pytest
from exact import backward_error, passes, solution
from scipy import sparse

import roundwise as rw
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native import exact, small_sparse
from roundwise.problems import convection_diffusion_2d, poisson_2d
from roundwise.problems.pde import laplace_3d
from roundwise.solver import express_sparse as express_module
from roundwise.solver.prepare import AT_ONCE, Wanted

U = 2.0**-53
RNG = np.random.default_rng(2)
N = 80  # smaller ones are solved as dense systems
A = sparse.random_array((N, N), density=0.1, rng=RNG) + sparse.diags_array(np.arange(1.0, N + 1))
B = RNG.standard_normal((N, 3))


def is_at_once(told):
    """Whether a call without a decision found the answer: nothing was looked at before."""
    return told.timings["features"] == 0.0


def solved_at_once(A, b):
    """What `solve` returns with and without `full_output`, found so."""
    told = rw.solve(A, b, full_output=True)
    assert is_at_once(told)
    assert told.decision == AT_ONCE
    x = rw.solve(A, b)
    np.testing.assert_array_equal(x, told.x, strict=True)
    return x


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
@pytest.mark.parametrize("b", [B, B[:, 0], B[:, :1], np.asfortranarray(B), B[:, ::2]])
def test_answers_pass_the_gate(form, b):
    x = solved_at_once(form(A), b)
    assert x.shape == b.shape
    for xj, bj in zip(np.atleast_2d(x.T), np.atleast_2d(b.T), strict=True):
        assert passes(A.toarray(), xj, bj)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_errors_are_exact(form):
    """Against rational arithmetic, for an x that solves nothing."""
    M, x, sums = A.asformat(form), RNG.standard_normal(N), np.empty(N)
    residuals = np.empty(N)
    error, by_row = exact.sparse_backward_errors(M, x, B[:, 0].copy(), sums, residuals)
    dense = A.toarray()
    rows = np.abs(dense).sum(axis=1)
    np.testing.assert_allclose(sums, rows, rtol=1e-14)
    assert error == pytest.approx(backward_error(dense, x, B[:, 0]), rel=1e-12)
    np.testing.assert_allclose(residuals, B[:, 0] - dense @ x, atol=1e-12)
    r = np.abs(B[:, 0] - dense @ x)
    assert by_row == pytest.approx((r / (rows * np.abs(x).max() + np.abs(B[:, 0]))).max(), rel=1e-9)


def test_what_fails_goes_the_ordinary_way():
    singular = sparse.csr_array(np.ones((3, 3)))
    empty_row = sparse.csr_array(np.diag([1.0, 0.0, 2.0]))
    for M in (singular, empty_row, sparse.csc_array(empty_row), sparse.csr_array((3, 3))):
        with pytest.raises(rw.SolveFailed):
            rw.solve(M, np.arange(3.0))
    for bad in (np.nan, np.inf):
        for M, b in ((A * bad, B), (A, B * bad)):
            with pytest.raises(ValueError, match="NaN or infinite"):
                rw.solve(sparse.csr_array(M), b)
    for shape in ((N + 1,), (N, 1, 1)):
        with pytest.raises(ValueError, match="b has"):
            rw.solve(sparse.csr_array(A), np.ones(shape))


def test_huge_and_tiny_numbers_are_scaled_first():
    for scale in (2.0**-1000, 2.0**1000):
        M = sparse.csr_array(A * scale)
        np.testing.assert_allclose(rw.solve(M, B), rw.solve(A.tocsr(), B) / scale, rtol=1e-12)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_the_callers_matrix_stays_as_it_is(form):
    unsorted, wide = A.asformat(form).copy(), A.asformat(form).copy()
    for part in (unsorted.indices, unsorted.data):
        part[:2] = part[1::-1].copy()
    unsorted.has_sorted_indices = unsorted.has_canonical_format = False
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    strided = A.asformat(form).copy()
    strided.data = np.repeat(strided.data, 2)[::2]
    for given in (A.asformat(form), unsorted, wide, strided):
        before = [part.copy() for part in (given.data, given.indices, given.indptr)]
        np.testing.assert_allclose(rw.solve(given, B), np.linalg.solve(given.toarray(), B))
        after = (given.data, given.indices, given.indptr)
        assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize("policy", ["fp64", "fp32", "bf16", "fp16", "fp32-fp64-fp64-fp64"])
@pytest.mark.parametrize("M", [poisson_2d(20).A, A.tocsr(), sparse.csr_array(A)[:20, :20]])
def test_a_format_that_is_asked_for_is_that_of_the_factors(policy, M):
    """What sparse factors do not have is raised to FP32."""
    b = RNG.standard_normal(M.shape[0])
    solution = rw.solve(M, b, policy=policy, full_output=True)
    assert is_at_once(solution)
    factor = "fp64" if policy == "fp64" else "fp32"
    assert solution.action.split(":")[1] == f"{factor}-fp64-fp64-fp64"
    assert (solution.attempts[-1].outer_iterations > 0) == (factor == "fp32")
    assert solution.decision.startswith(f"You asked for {policy} first.")
    assert solution.decision.endswith("fp32 instead.") == (policy in ("bf16", "fp16"))
    assert passes(M.toarray(), solution.x, b)
    assert np.array_equal(rw.solve(M, b, policy=policy), solution.x)
    F = rw.factor(M, policy=policy)
    assert F.format.endswith(factor)
    assert passes(M.toarray(), F.solve(b), b)


def test_an_action_that_is_asked_for_is_left_to_the_general_way():
    solution = rw.solve(A.tocsr(), B, policy="superlu/mmd:fp32-fp64-fp64-fp64", full_output=True)
    assert solution.attempts[0].action == "superlu/mmd:fp32-fp64-fp64-fp64"
    assert not is_at_once(solution)


def test_reports_are_of_the_same_answer():
    solution = rw.solve(A.tocsr(), B, full_output=True)
    assert np.array_equal(solution.x, rw.solve(A.tocsr(), B))
    assert solution.action == "lu:fp64-fp64-fp64-fp64"  # a dense one, as so much of it fills in
    M = poisson_2d(20).A
    assert rw.solve(M, np.ones(400), full_output=True).action.startswith("lu/left-looking:fp64")
    assert solution.backward_error <= solution.tolerance
    assert solution.digits > 10
    changed = rw.solve(M := A.tocsr(), B, full_output=True)
    M.data[0] *= 2
    with pytest.raises(ValueError, match="has changed"):
        changed.condition  # noqa: B018


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.int64])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr", "dia"])
def test_every_type_and_format_is_solved_at_once(dtype, form):
    M = sparse.csr_array(poisson_2d(12).A * (1000.0 if dtype is np.int64 else 1.0)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        M = sparse.csr_array(M * (1 + 2j)).astype(dtype)
    x = np.arange(1.0, 145.0)
    b = (M.toarray() @ x).astype(dtype)
    found = solved_at_once(M.asformat(form), b)
    single = dtype in (np.float32, np.complex64)
    assert found.dtype == (
        np.result_type(dtype, np.float32) if single else np.result_type(dtype, 1.0)
    )
    np.testing.assert_allclose(found, x, rtol=1e-3 if single else 1e-9)


def test_arrays_with_gaps_are_solved_at_once():
    spread = np.zeros(2 * A.nnz)
    spread[::2] = A.tocsr().data
    strided = A.tocsr()
    strided.data = spread[::2]
    x = solved_at_once(strided, B[:, 0])
    assert passes(A.toarray(), x, B[:, 0])


def test_invalid_indices_are_refused():
    M = A.tocsc()
    M.indices = M.indices.copy()
    M.indices[3] = N
    with pytest.raises(ValueError, match="out of range"):
        exact.sparse_backward_errors(M, np.ones(N), np.ones(N), np.empty(N), np.empty(N))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int32])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok"])
def test_tiny_matrices_and_those_without_zeros_are_solved_as_dense_ones(form, dtype):
    for M in (np.eye(90) + np.ones((90, 90)), np.diag(np.arange(1.0, 20.0)), np.eye(1)):
        M = M.astype(dtype)
        b = np.arange(float(len(M))).astype(np.float32 if dtype == np.int32 else dtype)
        solution = rw.solve(sparse.csr_array(M).asformat(form), b, full_output=True)
        dense = rw.solve(M, b, assume_a="general")
        np.testing.assert_array_equal(solution.x, dense, strict=True)
        assert solution.digits > 4
        assert is_at_once(solution)


def test_what_is_not_square_or_too_large_is_not_made_dense(monkeypatch):
    """Neither 3 x 10^9 places, nor a quarter of a million entries that no express call takes."""

    def refuse(lu, dtype):
        raise AssertionError(f"a matrix with n = {lu.n} is made dense")

    monkeypatch.setattr(express_module, "dense_of", refuse)
    wide = sparse.csr_array((np.ones(3), ([0, 1, 2], [0, 1, 2])), shape=(3, 10**9))
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        rw.solve(wide, np.ones(3))
    asked = Wanted(small=0, most=90)
    assert express_module.attempt_sparse(poisson_2d(40).A, np.ones(1600), asked) is not None


def weak(n, rng):
    """A random matrix whose diagonal, which no assignment of rows can avoid, is tiny."""
    W = sparse.random_array((n, n), density=6 / n, rng=rng, data_sampler=rng.standard_normal)
    return sparse.csr_array(W + sparse.diags_array(np.full(n, 1e-7)))


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("dense_lines", ["rows", "columns", "none"])
def test_weak_diagonals_are_left_to_partial_pivoting(form, dense_lines, monkeypatch):
    """Of the matrix or its transpose: where rows are dense, the other one fills in less."""
    n, rng = 2500, np.random.default_rng(3)
    W = weak(n, rng).tolil()
    if dense_lines != "none":
        lines = rng.standard_normal((4, n))
        W[:4] = lines
        if dense_lines == "columns":
            W = W.T.tolil()
    W, given = sparse.csr_array(W).asformat(form), []
    W.sum_duplicates()

    def noted(columns, **options):
        given.append((columns, options))
        return superlu(columns, **options)

    superlu = small_sparse.superlu
    monkeypatch.setattr(small_sparse, "superlu", noted)
    b = W @ np.ones(n)
    told = rw.solve(W, b, full_output=True)
    assert is_at_once(told)
    x = told.x
    ((columns, options),) = given
    assert options["permc_spec"] == "COLAMD"
    turned = (columns != sparse.csc_array(W.T)).nnz > 0  # rows of A are what was read
    assert turned == (dense_lines == "columns")
    assert abs(W @ x - b).max() <= 1e-9 * abs(b).max()


@pytest.fixture
def factorizations(monkeypatch):
    """The kinds of supernodal factorizations that were made at once."""
    made = []

    class Noted(small_sparse.SupernodalSymbolic):
        def factorize(self, *args, **options):
            made.append(self.kind)
            return super().factorize(*args, **options)

    monkeypatch.setattr(small_sparse, "SupernodalSymbolic", Noted)
    return made


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("A", "kind"),
    [
        (laplace_3d(10), "cholesky"),
        (poisson_2d(65).A, "cholesky"),
        (-laplace_3d(12), "ldl"),
        (laplace_3d(11) + 0.1 * sparse.eye_array(11**3, k=1), "lu"),
    ],
)
def test_much_work_is_left_to_dense_panels(A, kind, form, index, factorizations):
    A = A.asformat(form).copy()
    A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    X = np.random.default_rng(0).standard_normal((A.shape[0], 2))
    B = A @ X
    told = rw.solve(A, B, full_output=True)
    assert is_at_once(told)
    assert factorizations == [kind]
    np.testing.assert_allclose(told.x, X, atol=1e-8)


def test_an_indefinite_matrix_with_a_positive_diagonal(factorizations):
    A = poisson_2d(65).A
    A = sparse.csr_array(A - 0.37 * sparse.diags_array(A.diagonal()))
    told = rw.solve(A, A @ np.ones(A.shape[0]), full_output=True)
    assert is_at_once(told)
    assert factorizations == ["cholesky", "ldl"]
    np.testing.assert_allclose(told.x, 1.0, atol=1e-6)


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("A", [poisson_2d(65).A, convection_diffusion_2d(65, 0.1, (3.0, 5.0)).A])
def test_a_look_goes_on_with_the_order_that_was_found(A, form, monkeypatch):
    monkeypatch.setattr(small_sparse, "DECISION", -1.0)
    seen, know_of = [], Orders.know_of

    def noted(self, others):
        know_of(self, others)
        seen.append((self, dict(self._analysed)))

    monkeypatch.setattr(Orders, "know_of", noted)
    A = A.asformat(form)
    told = rw.solve(A, A @ np.ones(A.shape[0]), full_output=True)
    ((taken, analysed),) = seen
    assert not is_at_once(told)
    assert analysed["amd"] is taken.symbolic("amd")
    fresh = Orders(sparse.csr_array(A), strong=True)
    assert np.array_equal(taken.symbolic("amd").order, fresh.symbolic("amd").order)
    np.testing.assert_allclose(told.x, 1.0, atol=1e-8)


def test_a_solver_that_learns_is_given_the_choice(factorizations):
    A = laplace_3d(18)
    solver = rw.Solver()
    told = solver.solve(A, A @ np.ones(A.shape[0]), full_output=True)
    np.testing.assert_allclose(told.x, 1.0, atol=1e-8)
    assert not is_at_once(told)
    assert factorizations == []


def graded(n, spread, seed):
    """A sparse matrix whose lines are in random order, and whose diagonal falls to 10^-spread."""
    rng = np.random.default_rng([n, seed])
    off = sparse.random_array((n, n), density=min(1, 4 / n), rng=rng) * 0.3
    M = sparse.csr_array(off + sparse.diags_array(np.logspace(0, -spread, n)))
    return M[rng.permutation(n)][:, rng.permutation(n)], rng.standard_normal((n, 3))


@pytest.mark.filterwarnings("ignore::roundwise.exceptions.IllConditionedWarning")
@pytest.mark.parametrize("policy", ["default", "fp32"])
@pytest.mark.parametrize("spread", [0, 6, 12])
@pytest.mark.parametrize("n", [1, 2, 7, 30, 70])
def test_full_accuracy_at_once(n, spread, policy):
    """x is right to a few units in the last place, against 60 decimal digits."""
    M, b = graded(n, spread, 0)
    for form, columns in (("csr", b[:, 0]), ("csc", b), ("coo", b[:, :1])):
        for transposed in (False, True):
            given = M.asformat(form)
            told = rw.solve(
                *(given, columns), accuracy="forward", policy=policy, full_output=True,
                transposed=transposed,
            )  # fmt: skip
            exactly = np.array(
                [solution(M.T if transposed else M, one) for one in np.atleast_2d(columns.T)]
            ).T.reshape(columns.shape)
            assert (told.accuracy == "forward" and is_at_once(told)) or spread > 0
            if told.accuracy == "forward":
                assert (abs(told.x - exactly).max(axis=0) <= 4 * U * abs(exactly).max(axis=0)).all()
            assert told.action.endswith("fp64x2")
            same = rw.solve(
                given, columns, accuracy="forward", policy=policy, transposed=transposed
            )
            assert np.array_equal(same, told.x)
            told = rw.factor(M, accuracy="forward", policy=policy).solve(
                columns, trans="NT"[transposed], full_output=True
            )
            if told.accuracy == "forward":
                assert (abs(told.x - exactly).max(axis=0) <= 4 * U * abs(exactly).max(axis=0)).all()


def test_full_accuracy_of_other_types():
    M, b = graded(40, 8, 1)
    C, c = sparse.csr_array(M * (1 + 0.5j)), b + 1j * b[::-1]
    for A, right in ((C, b), (M, c), (C, c)):
        x = rw.solve(A, right, accuracy="forward")
        parts = sparse.block_array([[A.real, -A.imag], [A.imag, A.real]]).tocsr()
        right = np.concatenate([right.real, right.imag])
        exactly = np.array([solution(parts, one) for one in right.T]).T
        error = abs(np.concatenate([x.real, x.imag]) - exactly).max(axis=0)
        assert (error <= 8 * U * abs(exactly).max(axis=0)).all()
    single = rw.solve(M.astype(np.float32), b.astype(np.float32), accuracy="forward")
    exactly = np.array([solution(M.astype(np.float32), one) for one in b.astype(np.float32).T]).T
    assert single.dtype == np.float32
    assert (abs(single - exactly).max(axis=0) <= 2.0**-23 * abs(exactly).max(axis=0)).all()


@pytest.mark.parametrize("accuracy", ["backward", "forward"])
@pytest.mark.parametrize("n", [5, 70, 400])
def test_low_factors_do_not_hide_a_singular_matrix(n, accuracy):
    """Rounded to FP32 it has an inverse; b is in its range, so that some x has no residual."""
    rng = np.random.default_rng(n)
    M = sparse.random_array((n, n), density=4 / n, rng=rng) + sparse.diags_array(1 + rng.random(n))
    M = np.round(M.toarray() * 2.0**20) / 2.0**20
    M[-1] = M[0] + M[1]  # exactly
    b = M @ rng.integers(-3, 4, n)
    for policy in ("fp32", "fp64", "default"):
        with suppress(rw.SolveFailed, rw.IllConditionedWarning):
            told = rw.solve(
                sparse.csr_array(M), b, policy=policy, accuracy=accuracy, full_output=True
            )
            assert not is_at_once(told)


def test_a_solver_judges_by_the_tolerance_of_each_call():
    """Factors that it has kept do not bring the tolerance of an earlier call along."""
    solver, M = rw.Solver(), poisson_2d(20).A
    b = RNG.standard_normal(400)
    assert passes(M, solver.solve(M, b, tol=1e-3), b)
    told = solver.solve(M, b, full_output=True)
    assert told.tolerance == pytest.approx(20 * U)
    assert solver.solve(M, b, tol=1e-3, full_output=True).tolerance == 1e-3
    assert np.array_equal(solver.solve(M, b, transposed=True), rw.solve(M.T, b))
    assert solver.solve(M, b, accuracy="forward", full_output=True).accuracy == "forward"
