"""`solve` and `factor` behave as users of NumPy and SciPy expect."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from exact import backward_error, passes
from hard_systems import SPARSE_FORMATS, as_sparse, scaled_systems, spd, wilkinson
from scipy import sparse

import roundwise as rw
from roundwise.features import probe
from roundwise.policies import NeighbourPolicy
from roundwise.problems import poisson_2d, randsvd

U = 2.0**-53
N = 30
A = np.random.default_rng(0).standard_normal((N, N)) + 5 * np.eye(N)
b = np.random.default_rng(1).standard_normal(N)
x = np.linalg.solve(A, b)
POLICIES = ("default", "fp16", "fp32", "fp64")


def strided(M):
    padded = np.zeros((2 * len(M), 3 * M.shape[1]))
    padded[::2, ::3] = M
    return padded[::2, ::3]


def read_only(M):
    M = M.copy()
    M.flags.writeable = False
    return M


def unaligned(M):
    memory = np.zeros(M.nbytes + 1, dtype=np.uint8)[1:].view(np.float64).reshape(M.shape)
    memory[:] = M
    return memory


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": strided,
    "reversed": lambda M: M[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "unaligned": unaligned,
    "big-endian": lambda M: M.astype(">f8"),
    "np.matrix": lambda M: M.view(np.matrix),
    "lists": np.ndarray.tolist,
    "tuples": lambda M: tuple(map(tuple, M)),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layouts(layout, policy):
    given = LAYOUTS[layout](A)
    before = np.array(given).tobytes()
    answer = rw.solve(given, b, policy=policy)
    assert type(answer) is np.ndarray
    assert answer.dtype == np.float64
    np.testing.assert_allclose(answer, x, rtol=1e-12)
    assert np.array(given).tobytes() == before


@pytest.mark.parametrize("array", [True, False])
@pytest.mark.parametrize("fmt", SPARSE_FORMATS)
def test_sparse_formats(fmt, array):
    thin = np.where(np.abs(A) > 1, A, 0.0)
    given = as_sparse(thin, fmt, array)
    answer = rw.solve(given, b)
    assert type(answer) is np.ndarray
    assert given.format == fmt
    np.testing.assert_array_equal(given.toarray(), thin)
    np.testing.assert_allclose(answer, np.linalg.solve(thin, b), rtol=1e-10)


def test_sparse_duplicates_are_summed_and_stay():
    places = ([0, 0, 1, 1], [0, 0, 1, 0])
    given = sparse.coo_array(([1.0, 1.0, 4.0, 1.0], places), shape=(2, 2))
    np.testing.assert_allclose(rw.solve(given, [2.0, 5.0]), [1, 1])
    assert given.nnz == 4
    unsorted = sparse.csr_array(([1.0, 4.0, 3.0], [1, 0, 1], [0, 2, 3]), shape=(2, 2))
    np.testing.assert_allclose(rw.solve(unsorted, [5.0, 3.0]), [1, 1])
    assert unsorted.indices.tolist() == [1, 0, 1]


def test_sparse_right_hand_side():
    B = np.column_stack([b, np.eye(N)[0]])
    np.testing.assert_allclose(rw.solve(A, sparse.csc_array(B)), rw.solve(A, B), rtol=1e-11)
    X = rw.solve(sparse.csr_array(A), sparse.csc_array(B))  # sparse, as spsolve's
    assert isinstance(X, sparse.csc_array)
    np.testing.assert_allclose(X.toarray(), rw.solve(A, B), rtol=1e-11)


@pytest.mark.parametrize(
    ("kind", "other", "expected"),
    [
        ("f8", "f8", "f8"),
        ("f4", "f4", "f4"),
        (">f4", "f4", "f4"),
        ("f4", "f8", "f8"),
        ("f8", "f4", "f8"),
        ("f2", "f2", "f8"),
        ("i4", "i8", "f8"),
        ("u1", "f4", "f8"),
        ("?", "?", "f8"),
    ],
)
@pytest.mark.parametrize("policy", ["default", "fp32"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_dtypes(kind, other, expected, policy, form):
    if form is sparse.csr_array and kind in ("f2", ">f4"):
        pytest.skip("SciPy has no sparse matrices of these")
    M = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=kind)
    rhs = np.array([0, 1, 1], dtype=other)
    answer = rw.solve(form(M), rhs, policy=policy)
    assert answer.dtype == expected
    np.testing.assert_array_equal(answer, [0, 0, 1])


def test_a_float64_answer_passes_the_gate_of_float64():
    solution = rw.solve(A.astype("f4"), b, policy="fp32", full_output=True)
    assert solution.tolerance == np.sqrt(N) * U
    assert passes(A.astype("f4"), solution.x, b)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("k", [None, 0, 1, 3, 200])
@pytest.mark.parametrize("form", [np.asarray, sparse.csc_array])
def test_right_hand_sides(k, policy, form):
    shape = (N,) if k is None else (N, k)
    B = np.random.default_rng(2).standard_normal(shape)
    X = rw.solve(form(A), B, policy=policy)
    assert X.shape == shape
    np.testing.assert_allclose(X, np.linalg.solve(A, B), rtol=1e-9, atol=1e-13)


def test_one_unknown():
    for form in (np.asarray, sparse.csr_array):
        for policy in ("default", "fp32"):
            assert rw.solve(form([[4.0]]), [2.0], policy=policy).tolist() == [0.5]
    assert rw.solve([[4]], [[2, 1]]).tolist() == [[0.5, 0.25]]


@pytest.mark.parametrize(
    ("matrix", "rhs", "error", "message"),
    [
        (A[:, :3], b, ValueError, "square"),
        (sparse.csr_array(A[:, :3]), b, ValueError, "square"),
        (b, b, ValueError, "square"),
        (3.0, 4.0, ValueError, "square"),
        (A, 1.0, ValueError, "dimensions"),
        (A, b[:5], ValueError, f"pass b with {N} rows"),
        (A, b[None, :], ValueError, f"pass b with {N} rows"),
        (np.ones((2, 3, 3)), np.ones((4, 3, 1)), ValueError, "stacks of the same shape"),
        (np.where(A > 2, np.nan, A), b, ValueError, "NaN"),
        (np.where(A > 2, np.inf, A), b, ValueError, "infinite"),
        (sparse.csr_array(np.where(A > 2, np.nan, A)), b, ValueError, "NaN"),
        (A, np.where(b > 0, np.nan, b), ValueError, "NaN"),
        (A, np.where(b > 0, -np.inf, b), ValueError, "infinite"),
        (sparse.csr_array(A), np.where(b > 0, np.inf, b), ValueError, "infinite"),
        (A.astype(np.clongdouble), b, TypeError, "astype"),
        (A, b.astype(np.clongdouble), TypeError, "astype"),
        (A.astype(np.longdouble), b, TypeError, "astype"),
        (A, b.astype(np.longdouble), TypeError, "astype"),
        (A.astype(object), b, TypeError, "astype"),
        (A.astype(str), b, TypeError, "dtype"),
        (A.astype("m8[s]"), b, TypeError, "dtype"),
        (None, b, TypeError, "dtype"),
        (A, None, TypeError, "dtype"),
        ("A", "b", TypeError, "dtype"),
        ([[1, 2], [3]], [1, 2], ValueError, "inhomogeneous"),
        (np.ma.masked_greater(A, 1), b, TypeError, "masked"),
        (A, np.ma.masked_greater(b, 1), TypeError, "masked"),
    ],
)
def test_bad_input_is_refused(matrix, rhs, error, message):
    with pytest.raises(error, match=message):
        rw.solve(matrix, rhs)
    with pytest.raises(error, match=message):
        rw.solve(matrix, rhs, policy="fp32")


@pytest.mark.parametrize("tol", [0, 1, 2.0, -1e-8, np.nan, np.inf, "1e-8", [1e-8, 1e-9]])
def test_bad_tolerances(tol):
    for call in (lambda: rw.solve(A, b, tol=tol), lambda: rw.factor(A, tol=tol)):
        with pytest.raises((ValueError, TypeError)):
            call()


def test_bad_options():
    with pytest.raises(ValueError, match="assume_a"):
        rw.solve(A, b, assume_a="symetric")
    with pytest.raises(rw.UnknownNameError, match="fp32"):
        rw.solve(A, b, policy="fp33")
    for columns in (0, -1, 2.5, "3"):
        with pytest.raises(ValueError, match="at least 1"):
            rw.factor(A, columns=columns)


@pytest.mark.parametrize("policy", [fmt.name for fmt in rw.backends.native_formats()])
def test_formats_that_sparse_factors_do_not_have_are_raised(policy):
    """To the next higher one that they have."""
    solution = rw.solve(sparse.csr_array(A), b, policy=policy, full_output=True)
    np.testing.assert_allclose(solution.x, x, rtol=1e-12)
    first = rw.Action.parse(solution.attempts[0].action)
    assert first[0] == (rw.FP64 if policy == "fp64" else rw.FP32)
    assert first.method == "lu"
    assert f"You asked for {policy}" in solution.decision


@pytest.mark.parametrize("policy", [fmt.name for fmt in rw.backends.native_formats()])
@pytest.mark.parametrize("assume_a", ["gen", "pos"])
def test_the_format_that_was_asked_for_is_tried_first(policy, assume_a):
    solution = rw.solve(spd(N, 10), b, policy=policy, assume_a=assume_a, full_output=True)
    method = "lu" if assume_a == "gen" else "cholesky"
    assert solution.attempts[0].action == f"{method}:{policy}-fp64-fp64-fp64"
    assert solution.status == "accepted"


def test_tolerance_decides():
    M = np.random.default_rng(4).standard_normal((200, 200))
    rhs = M @ np.ones(200)
    loose = rw.solve(M, rhs, tol=1e-4, policy="fp32", full_output=True)
    assert loose.backward_error <= loose.tolerance == 1e-4
    tight = rw.solve(M, rhs, tol=2 * U, policy="fp32", full_output=True)
    assert backward_error(M, tight.x, rhs) <= 3 * U
    assert rw.solve(M, rhs, tol=0.5).shape == (200,)
    with pytest.raises(rw.SolveFailed, match=r"1\.0e-30"):
        rw.solve(M, rhs, tol=1e-30)


def test_cholesky_where_it_is_worth_a_try(monkeypatch):
    n = 80  # smaller systems are solved without a question
    S, b = spd(n, 100), np.random.default_rng(0).standard_normal(n)
    monkeypatch.setattr(probe, "cholesky_from", lambda: n + 1)
    assert rw.factor(S).format == "lu fp64"
    assert rw.factor(S, assume_a="pos").format == "lu fp64"  # by one call, as `solve`
    monkeypatch.setattr(NeighbourPolicy, "express_below", 0)
    assert rw.factor(S, assume_a="pos").format == "cholesky fp64"
    monkeypatch.setattr(probe, "cholesky_from", lambda: n)
    for assume_a in (None, "pos", "gen"):
        for policy in POLICIES:
            for form in (np.asarray, np.asfortranarray):
                answer = rw.solve(form(S), b, assume_a=assume_a, policy=policy)
                np.testing.assert_allclose(answer, np.linalg.solve(S, b), rtol=1e-10)
    factors = rw.factor(S)
    factors.solve(b)
    assert factors.format == "cholesky fp64"
    assert rw.factor(1e20 * S).format == "cholesky fp64"  # scaled as a whole: still symmetric
    assert rw.factor(S, assume_a="gen").format == "lu fp64"
    np.testing.assert_allclose(
        rw.solve(sparse.csr_array(S), b, assume_a="pos"), np.linalg.solve(S, b), rtol=1e-10
    )


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_wrong_assumption_costs_time_only(form):
    if form is not np.asarray:  # of a dense A one triangle is read, as SciPy does it
        nonsymmetric = rw.solve(form(A), b, assume_a="pos", full_output=True)
        np.testing.assert_allclose(nonsymmetric.x, x, rtol=1e-12)
    indefinite = A + A.T
    indefinite[np.diag_indices(N)] = 0.1
    solution = rw.solve(form(indefinite), b, assume_a="pos", policy="fp64", full_output=True)
    if form is np.asarray:  # sparse ones are factorized by their pattern
        assert solution.status == "escalated"
        assert solution.attempts[0].status is rw.OutcomeStatus.NOT_POSITIVE_DEFINITE
        assert "positive" in solution.attempts[0].reason
    assert passes(indefinite, solution.x, b)


def test_cholesky_is_given_up_at_once_only_where_more_bits_cannot_help():
    def attempts(A):
        solution = rw.solve(A, b, policy="fp32", assume_a="pos", full_output=True)
        assert passes(A, solution.x, b)
        return [(one.action.partition("-")[0], one.status.name) for one in solution.attempts]

    rng = np.random.default_rng(5)
    Q, _ = np.linalg.qr(rng.standard_normal((N, N)))
    below = np.linspace(1, 2, N)
    below[0] = 1e-10  # beside FP32's rounding errors, nobody knows its sign
    definite = (Q * below) @ Q.T
    definite += definite.T
    found = attempts(definite)
    assert found[0] == ("cholesky:fp32", "NOT_POSITIVE_DEFINITE")
    assert found[1] == ("cholesky:fp64", "CONVERGED")
    indefinite = (Q * np.linspace(-1, 2, N)) @ Q.T
    indefinite += indefinite.T
    found = attempts(indefinite)
    assert found == [("cholesky:fp32", "INDEFINITE"), ("lu:fp64", "CONVERGED")]


def test_the_story_of_a_solution():
    solution = rw.solve(A, b, policy="fp32", full_output=True)
    assert solution.status == "accepted"
    assert solution.action == "lu:fp32-fp64-fp64-fp64"
    assert 0 <= solution.backward_error <= solution.tolerance == np.sqrt(N) * U
    assert 1 <= solution.condition < 1e6
    assert 0 < solution.forward_error_bound < 1e-10
    assert solution.iterations >= 1
    assert solution.inner_iterations == 0
    assert set(solution.timings) == {"features", "factor", "refine", "verify"}
    assert solution.seconds == pytest.approx(sum(solution.timings.values()))
    (attempt,) = solution.attempts
    assert attempt.converged
    assert attempt.nbe == solution.backward_error
    assert attempt.x is None  # the solution has it
    story = solution.explain()
    for part in ("You asked for fp32", "accepted", "backward error", "condition", "Time: "):
        assert part in story
    assert repr(solution).startswith("Solution(accepted, lu:fp32-fp64-fp64-fp64, x of 30,")
    assert "\n" not in repr(solution)


def test_escalation_is_told_and_remembered():
    hard = rw.problems.randsvd(60, 1e14, 3, rng=0).A
    factors = rw.factor(hard, policy="fp16")
    assert repr(factors) == "Factorization(dense 60 x 60, lu fp16)"
    rhs = np.random.default_rng(0).standard_normal((60, 5))
    first = factors.solve(rhs[:, 0], full_output=True)
    assert first.status == "escalated"
    assert first.attempts[-1].converged
    assert all(attempt.reason for attempt in first.attempts[:-1])
    assert "fp16" in first.explain()
    assert factors.format != "lu fp16"
    factoring = []
    for column in rhs.T:
        again = factors.solve(column, full_output=True)
        assert again.status == "accepted"
        factoring.append(again.timings["factor"])
        assert passes(hard, again.x, column)
    assert min(factoring) < first.timings["factor"]  # a busy machine may stop one of them
    assert factors.solve(rhs).shape == rhs.shape
    assert factors.shape == (60, 60)


def test_threads_share_factors_while_they_climb():
    """FP32 factors lose half of the directions: every thread climbs, one makes the factors."""
    n, rng = 200, np.random.default_rng(0)
    A = randsvd(n, 1e12, 3, rng=rng).A
    B = rng.standard_normal((8, n))
    for _ in range(5):
        F = rw.factor(A, policy="fp32")
        with ThreadPoolExecutor(8) as pool:
            solutions = list(pool.map(partial(F.solve, full_output=True), B))
        assert all(s.backward_error <= s.tolerance for s in solutions)
        assert F.format == "lu fp64"
        assert [a.action for a in F.solve(B[0], full_output=True).attempts] == [
            "lu:fp64-fp64-fp64-fp64"
        ]


@pytest.mark.parametrize("policy", [None, 3, object()])
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(TypeError, match="'default', a format's name"):
        rw.solve(np.eye(3), np.ones(3), policy=policy)


def test_factors_do_not_follow_later_changes():
    for M in (A.copy(), np.asfortranarray(A), sparse.csr_array(A)):
        factors = rw.factor(M)
        entries = M.data if sparse.issparse(M) else M
        entries[:] = 1.0
        np.testing.assert_allclose(factors.solve(b), x, rtol=1e-12)
        entries[:] = 2.0
        np.testing.assert_allclose(factors.solve(b), x, rtol=1e-12)


@pytest.mark.parametrize("policy", POLICIES)
def test_growth_ends_with_qr(policy):
    grown = wilkinson(120)
    rhs = np.random.default_rng(0).standard_normal(120)
    solution = rw.solve(grown, rhs, policy=policy, full_output=True)
    assert passes(grown, solution.x, rhs)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_singular_matrices_fail_with_a_reason(form):
    for policy in ("default", "fp32"):
        with pytest.raises(np.linalg.LinAlgError) as caught:
            rw.solve(form([[1.0, 2.0], [2.0, 4.0]]), [1.0, 0.0], policy=policy)
        failure = caught.value
        assert isinstance(failure, rw.SolveFailed)
        assert isinstance(failure, rw.RoundwiseError)
        assert "singular" in failure.reason
        assert str(failure) == failure.reason
        assert failure.attempts
        assert failure.backward_error > 0.01


def test_failure_has_the_best_answer():
    with pytest.raises(rw.SolveFailed) as caught:
        rw.solve(A, b, tol=1e-25)
    failure = caught.value
    assert failure.backward_error == pytest.approx(backward_error(A, failure.x, b), rel=1)
    np.testing.assert_allclose(failure.x, x, rtol=1e-12)


def test_an_answer_that_its_type_cannot_hold():
    with pytest.raises(rw.SolveFailed, match=r"float32 cannot hold x.*float64"):
        rw.solve(np.full((1, 1), 1e-30, np.float32), np.full(1, 1e30, np.float32))
    for policy in ("default", "fp32"):
        with pytest.raises(rw.SolveFailed, match="float64 cannot hold x") as caught:
            rw.solve([[1e-200]], [1e200], policy=policy)
    _, last = caught.value.attempts  # one compiled call, one rung: no other factors help
    assert last.x is None
    with pytest.raises(rw.SolveFailed, match="float32 cannot hold x"):
        rw.solve(A.astype("f4"), b.astype("f4"), tol=1e-12)


@pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
def test_overflow_in_fp64_substitution_leads_to_qr():
    """U's entries decay from 1 to 1e-200: substitution overflows where QR, scaled, does not."""
    graded, rhs = {name: (M, v) for name, M, v in scaled_systems()}["graded up 200"]
    solution = rw.solve(graded, rhs, policy="fp64", full_output=True)
    at_once, first, last = solution.attempts
    assert not at_once.converged
    assert first.status is rw.OutcomeStatus.OVERFLOW
    assert rw.Action.parse(last.action).method == "qr"
    assert passes(graded, solution.x, rhs)


@pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
def test_scaled_sparse_matrices_keep_their_pattern():
    grid = poisson_2d(12).A
    rows, columns = 10.0 ** np.random.default_rng(0).uniform(-80, 80, (2, grid.shape[0]))
    scaled = sparse.csr_array(grid * rows[:, None] * columns)
    assert rw.factor(grid).action.method == rw.factor(scaled).action.method == "lu/left-looking"
    rhs = np.ones(grid.shape[0])
    assert passes(scaled, rw.solve(scaled, rhs), rhs)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_callers_error_settings_do_not_matter(policy):
    grades = np.logspace(0, -200, N)
    with np.errstate(all="raise"):
        for M in (A, np.ones((N, N)), grades[:, None] * A, A * grades, 1e200 * A):
            try:
                rw.solve(M, b, policy=policy)
            except rw.SolveFailed:
                assert M[0, 0] == 1.0  # the matrix of ones
