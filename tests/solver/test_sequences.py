"""Sequences of matrices with one pattern, systems with the transpose, and many right-hand sides."""

import gc
import pickle
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from exact import backward_error, passes
from scipy import sparse

import roundwise as rw
from roundwise.backends import ENGINES, get_backend
from roundwise.backends.engines.superlu import SuperLUEngine
from roundwise.problems import laplace_3d, poisson_2d
from roundwise.solver import factorization, inputs, patterns

U = 2.0**-53
RNG = np.random.default_rng(5)
N = 60
DENSE = RNG.standard_normal((N, N)) + np.diag(np.geomspace(1, 50, N))


def thin(values):
    return np.where(np.add.outer(3 * np.arange(N), np.arange(N)) % 7 < 2, values, 0.0) + 9 * np.eye(
        N
    )


SPARSE = sparse.csr_array(thin(DENSE))
SUPERLU = "superlu/colamd:fp64-fp64-fp64-fp64"  # what an analysis of the pattern serves
KINDS = {"dense": DENSE, "Fortran": np.asfortranarray(DENSE), "sparse": SPARSE}


@pytest.fixture
def analysed(monkeypatch):
    """The matrices that SuperLU's patterns were analysed of."""
    seen = []
    analyse = SuperLUEngine.analyse

    def counted(self, pattern, ordering):
        seen.append(pattern)
        return analyse(self, pattern, ordering)

    monkeypatch.setattr(SuperLUEngine, "analyse", counted)
    return seen


@pytest.mark.parametrize("policy", ["default", "fp32", "fp64"])
@pytest.mark.parametrize("kind", KINDS)
def test_refactor_solves_with_the_new_matrix(kind, policy):
    A, b = KINDS[kind], RNG.standard_normal((N, 2))
    F = rw.factor(A, policy=policy)
    F.solve(b)
    for scale in (-0.3, 2.0**300, 1e-200):
        other = A * scale
        assert F.refactor(other) is F
        assert passes(other, F.solve(b), b)
    F = rw.factor(A).refactor(A)  # before anything was solved
    assert passes(A, F.solve(b), b)


def test_refactor_copies_the_matrix():
    for A in (DENSE.copy(), SPARSE.copy()):
        F = rw.factor(np.eye(N)) if isinstance(A, np.ndarray) else rw.factor(2 * A)
        F.refactor(A)
        kept = A.copy()
        (A if isinstance(A, np.ndarray) else A.data)[:] = np.nan
        assert passes(kept, F.solve(np.ones(N)), np.ones(N))


def watched(A):
    """Tells whether the array with the numbers of a sparse matrix is still there."""
    return weakref.ref(A.data if A.data.base is None else A.data.base)


@pytest.mark.parametrize("method", [f"{e.name}/{e.orderings[-1]}" for e in ENGINES.values()])
def test_an_analysis_keeps_no_numbers(method):
    A = sparse.csr_array(2.0 * poisson_2d(20).A)
    numbers = watched(A)
    analysis = get_backend("native").analyse(A, method)
    del A
    gc.collect()
    assert numbers() is None
    B = poisson_2d(20).A
    x = analysis.factorize(B, "fp64").solve(np.ones(400))
    np.testing.assert_allclose(B @ x, 1, rtol=1e-6)


def test_refactoring_keeps_nothing_of_earlier_numbers():
    A = laplace_3d(16)  # large enough to be analysed before the method is chosen
    F = rw.factor(A)
    F.solve(np.ones(16**3))
    numbers = watched(F._factored.matrix.A)
    F.refactor(2.0 * A).solve(np.ones(16**3))
    gc.collect()
    assert numbers() is None


def test_a_pattern_is_analysed_once(analysed):
    A = poisson_2d(40).A
    F = rw.factor(A, policy=SUPERLU)
    for k in range(4):
        F.refactor(A + 0.01 * k * sparse.diags_array(A.diagonal()))
        F.solve(np.ones(A.shape[0]))
    assert len(analysed) == 1


def test_the_stored_entries_are_the_pattern():
    zero = SPARSE.copy()
    zero.data[5] = 0.0  # is stored
    F = rw.factor(SPARSE)
    b = np.ones(N)
    assert passes(zero, F.refactor(zero).solve(b), b)
    zero.eliminate_zeros()
    with pytest.raises(ValueError, match=f"{SPARSE.nnz - 1} and {SPARSE.nnz} of them.*store zeros"):
        F.refactor(zero)
    assert passes(SPARSE, rw.factor(SPARSE).solve(b), b)


def test_the_form_of_a_sparse_matrix_does_not_matter():
    other = SPARSE * 1.5
    unsorted = other.copy()
    for row in range(N):
        part = slice(other.indptr[row], other.indptr[row + 1])
        unsorted.indices[part], unsorted.data[part] = (
            other.indices[part][::-1],
            other.data[part][::-1],
        )
    unsorted.has_canonical_format = unsorted.has_sorted_indices = False
    coo = other.tocoo()
    rows, columns = (np.concatenate([index, index]) for index in (coo.row, coo.col))
    halves = np.concatenate([coo.data / 2, coo.data / 2])
    wide = other.copy()
    wide.indptr, wide.indices = wide.indptr.astype(np.int64), wide.indices.astype(np.int64)
    F, b = rw.factor(SPARSE), RNG.standard_normal(N)
    given = {
        "csc": other.tocsc(),
        "coo": coo,
        "duplicates": sparse.coo_array((halves, (rows, columns)), shape=other.shape),
        "unsorted": unsorted,
        "int64": wide,
        "matrix": sparse.csr_matrix(other),
    }
    for form in given.values():
        assert passes(other, F.refactor(form).solve(b), b)
    for form in given.values():  # the first matrix may be of any form, too
        assert passes(SPARSE, rw.factor(form).refactor(SPARSE).solve(b), b)


def test_another_shape_or_kind_is_refused_and_changes_nothing():
    other_pattern = SPARSE.T.tocsr()
    refused = {
        "60 x 60, A is 2 x 2": (DENSE, np.eye(2)),
        "is dense, A is sparse": (DENSE, SPARSE),
        "is sparse, A is dense": (SPARSE, DENSE),
        "other entries": (SPARSE, other_pattern),
        "square": (DENSE, DENSE[:, :3]),
        "NaN": (DENSE, np.full((N, N), np.nan)),
    }
    for message, (first, second) in refused.items():
        F = rw.factor(first)
        with pytest.raises(ValueError, match=message):
            F.refactor(second)
        assert passes(first, F.solve(np.ones(N)), np.ones(N))


def test_a_singular_matrix_fails_and_the_next_one_is_solved():
    for A in (DENSE, SPARSE):
        F = rw.factor(A)
        F.solve(np.ones(N))
        with pytest.raises(rw.SolveFailed):
            F.refactor(0 * A).solve(np.ones(N))
        assert passes(A, F.refactor(A).solve(np.ones(N)), np.ones(N))


def test_a_raised_format_is_tried_again_after_some_refactorizations():
    hard = rw.problems.randsvd(N, 1e14, 3, rng=0).A
    easy, b = np.eye(N) + 0.01 * DENSE / 50, np.ones(N)
    F = rw.factor(hard, policy="fp32")
    F.solve(b)
    assert F.format == "lu fp64"
    for _ in range(factorization.RETRY_AFTER - 1):
        F.refactor(easy).solve(b)
        assert F.format == "lu fp64"
    F.refactor(easy)
    while F.action[0] != rw.FP32:  # one rung at a time
        F.refactor(easy)
    assert passes(easy, F.solve(b), b)
    assert F.format == "lu fp32"


def test_values_that_want_another_matching_get_it(monkeypatch):
    # The diagonal is large in the first matrix and zero in the second.
    first = sparse.csr_array(9 * np.eye(N) + 1e-3 * sparse.eye_array(N, k=1) + thin(DENSE))
    second = first.copy()
    second.setdiag(0.0)
    from roundwise.backends.engines.supernodal import LuEngine

    lu = rw.Action.parse("lu/amd:fp64-fp64-fp64-fp64")
    made = []
    analyse = LuEngine.analyse
    monkeypatch.setattr(LuEngine, "analyse", lambda *args: made.append(1) or analyse(*args))
    F, b = rw.factor(first, policy=lu), RNG.standard_normal(N)
    F.solve(b)
    F.refactor(first * 2).solve(b)
    assert len(made) == 1
    assert passes(second, F.refactor(second).solve(b), b)
    assert len(made) <= 2


def test_threads_solve_while_another_refactors():
    b = RNG.standard_normal(N)
    for A in (DENSE, SPARSE):
        F = rw.factor(A)
        matrices = [A * scale for scale in (1.0, 2.0, 4.0)]
        expected = [rw.solve(matrix, b) for matrix in matrices]

        def one(k, F=F, matrices=matrices):
            return None if k % 5 else F.refactor(matrices[k % 3]), F.solve(b)

        with ThreadPoolExecutor(4) as pool:
            answers = [x for _, x in pool.map(one, range(60))]
        assert all(min(np.abs(x - y).max() for y in expected) <= 1e-13 for x in answers)


TRANSPOSED = ("T", "H", 1, 2, True, np.int64(1))


@pytest.mark.parametrize("policy", ["default", "fp32", "fp64"])
@pytest.mark.parametrize("kind", KINDS)
def test_transposed_solves(kind, policy):
    A, b = KINDS[kind], RNG.standard_normal((N, 3))
    F = rw.factor(A, policy=policy)
    for trans in TRANSPOSED:
        assert passes(A.T, F.solve(b, trans), b)
        assert passes(A.T, F.solve(b[:, 0], trans=trans), b[:, 0])
    for trans in ("N", 0, False):
        assert np.array_equal(F.solve(b, trans), F.solve(b))
    assert passes(A, F.solve(b), b)
    other = A * 3
    assert passes(other.T, F.refactor(other).solve(b, "T"), b)


@pytest.mark.parametrize("name", ["n", "X", 3, -1, None, 1.0, [1]])
def test_unknown_transpositions_are_refused(name):
    with pytest.raises(ValueError, match="choose 'N' or 0"):
        rw.factor(DENSE).solve(np.ones(N), name)


@pytest.mark.parametrize("kind", KINDS)
def test_transposed_solves_of_badly_scaled_matrices(kind):
    """Rows of so different sizes that they are scaled; norms are those of A' as given."""
    rows = np.ldexp(1.0, (np.arange(N) * 37 % 120) - 60)
    A = KINDS[kind] * rows[:, None]
    A = sparse.csr_array(A) if kind == "sparse" else A
    b = RNG.standard_normal(N) * 2.0**80
    solution = rw.factor(A).solve(b, "T", full_output=True)
    assert passes(A.T, solution.x, b)
    # The report is that of the transpose, up to what rounding adds.
    true = backward_error(A.T, solution.x, b)
    room = 0.9  # the express call sums in blocks, and counts that
    assert true <= solution.backward_error <= true + room * np.sqrt(N) * U
    x_true = np.linalg.solve(KINDS["dense"].T if kind != "sparse" else SPARSE.toarray().T, b) / rows
    assert np.abs(solution.x - x_true).max() <= 1e-11 * np.abs(x_true).max()


def test_transposed_solves_climb_together():
    hard = rw.problems.randsvd(N, 1e14, 3, rng=0).A
    F = rw.factor(hard, policy="fp32")
    solution = F.solve(np.ones(N), "T", full_output=True)
    assert solution.status == "escalated"
    assert F.format == "lu fp64"
    assert F.solve(np.ones(N), full_output=True).status == "accepted"


@pytest.mark.parametrize("method", ["lu", "cholesky", "qr"])
def test_transposed_factors(method):
    native = rw.backends.get_backend("native")
    A = DENSE if method != "cholesky" else DENSE @ DENSE.T
    from roundwise.backends.permuted import TransposedFactors

    factors = TransposedFactors(native.analyse(A, method).factorize(A, "fp64"))
    b = RNG.standard_normal(N)
    np.testing.assert_allclose(A.T @ factors.solve(b), b, atol=1e-9)
    np.testing.assert_allclose(A @ factors.solve(b, transpose=True), b, atol=1e-9)
    perm = slice(None) if factors.perm is None else factors.perm
    order = slice(None) if factors.order is None else factors.order
    np.testing.assert_allclose((A.T)[perm][:, order], factors.L @ factors.U, atol=1e-8)


@pytest.mark.parametrize("trans", ["N", "T"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_blocks_of_columns_give_what_all_at_once_do(kind, trans, monkeypatch):
    A, B = KINDS[kind], RNG.standard_normal((N, 75))
    F = rw.factor(A, policy=SUPERLU if kind == "sparse" else "lu:fp64-fp64-fp64-fp64")
    whole = F.solve(B, trans, full_output=True)
    monkeypatch.setattr(inputs, "BLOCK", 5 * N)
    monkeypatch.setattr(inputs, "LEAST_COLUMNS", 5)
    blocks = F.solve(B, trans, full_output=True)
    assert blocks.x.shape == B.shape
    assert passes(A if trans == "N" else A.T, blocks.x, B)
    np.testing.assert_allclose(blocks.x, whole.x, rtol=1e-12, atol=1e-14)
    assert blocks.backward_error <= blocks.tolerance
    assert len(blocks.attempts) == 15
    assert F.solve(B[:, :0]).shape == (N, 0)


def test_a_bad_entry_in_the_last_block_is_found_before_any_work(monkeypatch):
    monkeypatch.setattr(inputs, "BLOCK", 5 * N)
    monkeypatch.setattr(inputs, "LEAST_COLUMNS", 5)
    B = np.ones((N, 20))
    B[3, -1] = np.inf
    F = rw.factor(DENSE, policy="lu:fp64-fp64-fp64-fp64")
    with pytest.raises(ValueError, match="NaN or infinite"):
        F.solve(B)
    assert F._factored._factors is None


def test_many_columns_need_little_memory_beside_b_and_x(monkeypatch):
    monkeypatch.setattr(inputs, "BLOCK", 2**16)
    A = poisson_2d(30).A
    F = rw.factor(A)
    B = np.ones((A.shape[0], 2000), order="F")
    F.solve(B[:, 0])
    tracemalloc.start()
    try:
        F.solve(B)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= B.nbytes + 20 * 8 * 2**16  # x, and twenty arrays of one block


def test_a_solver_analyses_a_pattern_once(analysed):
    A, b = poisson_2d(60).A, RNG.standard_normal(3600)
    other = sparse.csr_array(A + sparse.eye_array(3600, k=7))
    solver = rw.Solver(policy=SUPERLU, learn=False)
    for k in range(3):
        for M in (A, other):
            M = M * (1 + 0.1 * k)
            x = solver.solve(M.tocoo() if k == 1 else M, b)
            assert np.abs(b - M @ x).max() <= 1e-12 * np.abs(x).max()
    assert len(analysed) == 2


def test_a_solver_keeps_few_patterns(analysed):
    solver, b = rw.Solver(policy=SUPERLU, learn=False), np.ones(N)
    for k in range(5):
        solver.solve(SPARSE + sparse.eye_array(N, k=k + 3), b)
    assert len(solver._patterns) == patterns.MOST
    solver.solve(SPARSE + sparse.eye_array(N, k=3), b)  # has been forgotten
    assert len(analysed) == 6


def test_a_solver_does_not_depend_on_arrays_of_its_caller(analysed):
    solver, b = rw.Solver(policy=SUPERLU, learn=False), np.ones(N)
    A = SPARSE.copy()
    solver.solve(A, b)
    A.indices[:] = 0
    A.data[:] = np.nan
    assert passes(SPARSE, solver.solve(SPARSE, b), b)
    assert len(analysed) == 1


def test_an_analysis_outlives_a_failure(analysed):
    solver, b = rw.Solver(policy=SUPERLU, learn=False), np.ones(N)
    with pytest.raises(rw.SolveFailed):
        solver.solve(0 * SPARSE, b)
    assert passes(SPARSE, solver.solve(SPARSE, b), b)
    assert len(analysed) == 1


def test_a_copy_of_a_solver_starts_without_patterns():
    solver = rw.Solver(policy=SUPERLU, learn=False)
    solver.solve(SPARSE, np.ones(N))
    twin = pickle.loads(pickle.dumps(solver._patterns))
    assert (len(solver._patterns), len(twin)) == (1, 0)


def test_threads_share_a_solver():
    solver, b = rw.Solver(policy=SUPERLU, learn=False), RNG.standard_normal(N)
    scales = np.linspace(1, 2, 40)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda scale: solver.solve(SPARSE * scale, b), scales))
    for scale, x in zip(scales, answers, strict=True):
        assert passes(SPARSE * scale, x, b)
    assert len(solver._patterns) <= patterns.MOST
