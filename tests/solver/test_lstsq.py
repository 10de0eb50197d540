"""`roundwise.lstsq`: answers judged by mathematics, and by the gate's statement in rationals."""

from fractions import Fraction

import numpy as np
import pytest
from rational import fractions, solved
from scipy import sparse

import roundwise as rw
from roundwise import _kernels
from roundwise.algorithms.base import Shared
from roundwise.algorithms.least_squares import at_once
from roundwise.algorithms.least_squares.augmented import AugmentedSystem
from roundwise.algorithms.least_squares.certificate import judged
from roundwise.algorithms.least_squares.ls_ir import LsIR, residual_of_both
from roundwise.algorithms.least_squares.rank import condition_bound
from roundwise.algorithms.least_squares.scaling import scaled_least_squares
from roundwise.algorithms.least_squares.verified_lstsq import attempt
from roundwise.algorithms.stage import Stages
from roundwise.backends import NativeBackend
from roundwise.backends.native.orthogonal import gram
from roundwise.problems import random_least_squares

RNG = np.random.default_rng(7)


def graded(m, n, kappa, residual, seed=0):
    problem = random_least_squares(m, n, kappa=kappa, residual=residual, rng=seed)
    return problem.A, problem.b


def lauchli(n, mu):
    return np.vstack([np.ones((1, n)), mu * np.eye(n)])


def tall(m=40, n=8, seed=1):
    return np.random.default_rng(seed).standard_normal((m, n))


def adversarial():
    """Name, A and b of problems that have broken least squares solvers."""
    A = tall()
    b = np.random.default_rng(2).standard_normal(40)
    Q = np.linalg.qr(A, mode="complete")[0]
    yield "m = n", A[:8], b[:8]
    yield "m >> n", tall(3000, 3), np.cos(np.arange(3000.0))
    for kappa in 10.0 ** np.arange(16):
        for residual in (0.0, 1e-6, 1.0, 1e3):
            yield f"kappa {kappa:.0e}, residual {residual:.0e}", *graded(60, 20, kappa, residual)
        C, c = graded(60, 20, kappa, 1.0)
        yield f"wide, kappa {kappa:.0e}", C.T, c[:20]
    yield "zero b", A, 0 * b
    yield "b in range", A, A @ np.arange(8.0)
    yield "b orthogonal to range", A, Q[:, 20]
    yield "duplicate columns", np.hstack([A, A[:, :3]]), b
    yield "duplicate rows, wide", np.vstack([A.T, A.T[:2]]), b[:10]
    yield "zero columns", np.hstack([A, np.zeros((40, 2))]), b
    yield "zero rows, wide", np.vstack([A.T, np.zeros((1, 40))]), b[:9]
    yield "zero A", 0 * A, b
    for scale in (1e300, 1e-300):
        yield f"A times {scale}", A * scale, b
        yield f"b times {scale}", A, b * scale
        yield f"both times {scale}", A * scale, b * scale
        yield f"wide A times {scale}", A.T * scale, b[:8]
    yield "columns from 1e-300 to 1e300", A * np.logspace(-300, 300, 8), b
    yield "rows from 1e-100 to 1e100, wide", (A * np.logspace(-100, 100, 8)).T, b[:8]
    for mu in (1e-4, 1e-7, 1e-8, 1e-10, 1e-13, 1e-15, 1e-17):
        yield f"Lauchli {mu}", lauchli(5, mu), np.arange(6.0)
        yield f"Lauchli wide {mu}", lauchli(5, mu).T, np.arange(5.0)
    for n in (4, 8, 12, 16, 20):
        yield f"Vandermonde {n}", np.vander(np.linspace(0, 1, 40), n), b
        yield f"Hilbert {n}", 1 / (np.arange(2 * n)[:, None] + np.arange(n) + 1.0), b[: 2 * n]
    yield "n = 1", A[:, :1], b
    yield "1 x n", A[:, :1].T, b[:1]
    yield "1 x 7, shortest in a few u", np.logspace(-8, 8, 7)[None, :] / 3, np.array([2.0071100925])
    yield "1 x 1", np.array([[3.0]]), np.array([2.0])
    yield "2 x 1", np.array([[1.0], [1e-9]]), np.array([1.0, 1.0])


ADVERSARIAL = list(adversarial())


@pytest.mark.parametrize(
    ("A", "b"), [case[1:] for case in ADVERSARIAL], ids=[c[0] for c in ADVERSARIAL]
)
def test_answers_pass_the_gate(A, b):
    given = A.copy(), b.copy()
    solution = rw.lstsq(A, b, full_output=True)
    assert np.array_equal(A, given[0])
    assert np.array_equal(b, given[1])
    assert solution.backward_error <= solution.tolerance
    m, n = A.shape
    dropped = np.sqrt(min(m, n) - solution.rank) * max(m, n) * 2.0**-52
    assert solution.tolerance == pytest.approx(max(6, np.sqrt(m + n)) * 2.0**-53 + dropped)
    assert solution.is_unique == (solution.rank == n)
    assert solution.x.shape == (n,)
    assert np.isfinite(solution.x).all()


def normwise_error(A, b, x, s):
    """eta^2 of the theorem for the witness s, in rational arithmetic, squares of norms throughout.

    (||A|| ||x|| + ||b||)^2 is at least ||A||^2 ||x||^2 + ||b||^2, which makes this an upper bound.
    """
    A, b, x, s = (fractions(np.asarray(v, dtype=float)) for v in (A, b, x, s))
    square = sum(a * a for row in A for a in row)
    dot = lambda u, v: sum(p * q for p, q in zip(u, v, strict=True))  # noqa: E731
    f = [bi - si - dot(row, x) for row, bi, si in zip(A, b, s, strict=True)]
    h = [dot(column, s) for column in zip(*A, strict=True)]
    first = dot(f, f) / (square * dot(x, x) + dot(b, b))
    return first + (dot(h, h) / (square * dot(s, s)) if any(s) else 0)


def test_the_perturbation_of_the_theorem_makes_x_a_solution():
    """docs/least-squares.md: E and db, in rationals, for an x and an s that are far from right."""
    rng = np.random.default_rng(5)
    A, b = rng.integers(-9, 9, (6, 3)), rng.integers(-9, 9, 6)
    x, s = rng.integers(-9, 9, 3), rng.integers(-9, 9, 6)
    A, b, x, s = (np.array(fractions(v.astype(float)), dtype=object) for v in (A, b, x, s))
    theta = Fraction(2, 7)  # any number: the theorem takes ||b|| / (||A|| ||x|| + ||b||)
    r = b - A @ x
    Pr = r - s * (s @ r) / (s @ s)
    E = (1 - theta) * np.outer(Pr, x) / (x @ x) - np.outer(s, s @ A) / (s @ s)
    db = -theta * Pr
    residual = b + db - (A + E) @ x
    assert not ((A + E).T @ residual).any()
    size = sum((E * E).ravel())
    h = A.T @ s
    assert size == (1 - theta) ** 2 * (Pr @ Pr) / (x @ x) + (h @ h) / (s @ s)


def test_the_perturbation_of_minimum_norm_makes_x_the_shortest_solution():
    rng = np.random.default_rng(6)
    A, b = rng.integers(-9, 9, (3, 6)), rng.integers(-9, 9, 3)
    x, y = rng.integers(-9, 9, 6), rng.integers(-9, 9, 3)
    A, b, x, y = (np.array(fractions(v.astype(float)), dtype=object) for v in (A, b, x, y))
    y = y * (x @ x) / (y @ b)  # alpha y
    theta = Fraction(2, 7)
    r, g = b - A @ x, x - A.T @ y
    Pr = r - y * (y @ r) / (y @ y)
    E = np.outer(y, g) / (y @ y) + (1 - theta) * np.outer(Pr, x) / (x @ x)
    assert not ((A + E) @ x - (b - theta * Pr)).any()
    assert not ((A + E).T @ y - x).any()  # x is in the range of (A + E)': the shortest
    assert sum((E * E).ravel()) == (g @ g) / (y @ y) + (1 - theta) ** 2 * (Pr @ Pr) / (x @ x)


@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_in_rational_arithmetic(seed):
    """What the gate compares is at least the theorem's eta, computed without rounding."""
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(3, 12)), int(rng.integers(1, 3))
    A = rng.standard_normal((m, n)) * 10.0 ** rng.uniform(-3, 3, (1, n))
    b = rng.standard_normal(m)
    x = np.linalg.lstsq(A, b, rcond=None)[0] * (1 + 10.0 ** rng.uniform(-17, -8))
    s = (b - A @ x) * (1 + 1e-16 * rng.standard_normal(m))
    B = np.concatenate([b, np.zeros(n)])[:, None]
    system = AugmentedSystem(A, B, False, np.ones(n), float(np.linalg.norm(A)))
    bound = Fraction(float(judged(system, np.concatenate([s, x])[:, None])[0][0]))
    exact = min(normwise_error(A, b, x, s), normwise_error(A, b, x, 0 * s))
    # The rational eta has a divisor that is smaller by up to sqrt(2): compare squares with 2.
    assert 2 * bound**2 >= exact


@pytest.mark.parametrize("shape", [(5, 2), (7, 7), (12, 4)])
def test_integer_problems_have_the_rational_solution(shape):
    rng = np.random.default_rng(shape[0])
    A = rng.integers(-20, 20, shape).astype(float)
    b = rng.integers(-20, 20, shape[0]).astype(float)
    true = solved(A.T @ A, (A.T @ b)[:, None])  # products of small integers are exact
    expected = np.array([float(value[0]) for value in true])
    kappa = np.linalg.cond(A)
    error = np.linalg.norm(rw.lstsq(A, b) - expected)
    assert error <= 50 * kappa**2 * 2.0**-53 * np.linalg.norm(expected)


@pytest.mark.parametrize("shape", [(2, 5), (4, 12)])
def test_integer_problems_have_the_rational_shortest_solution(shape):
    rng = np.random.default_rng(shape[1])
    A = rng.integers(-20, 20, shape).astype(float)
    b = rng.integers(-20, 20, shape[0]).astype(float)
    y = solved(A @ A.T, b[:, None])
    expected = [sum(Fraction(a) * v[0] for a, v in zip(column, y, strict=True)) for column in A.T]
    expected = np.array([float(value) for value in expected])
    assert rw.lstsq(A, b) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_columns_of_any_scale_keep_full_rank_and_the_scaled_solution():
    A, b = tall(), np.arange(40.0)
    powers = np.array([0, 900, -900, 30, -30, 500, -500, 3])
    x = rw.lstsq(A, b)
    solution = rw.lstsq(np.ldexp(A, powers), b, full_output=True)
    assert solution.rank == 8
    assert np.ldexp(solution.x, powers) == pytest.approx(x, rel=1e-12)


def test_rank_and_shortest_solution_as_numpy():
    A = np.hstack([tall(), tall()[:, :2] @ np.array([[1.0, 2.0], [3.0, 4.0]])])
    b = np.arange(40.0)
    expected, _, rank, _ = np.linalg.lstsq(A, b, rcond=None)
    solution = rw.lstsq(A, b, full_output=True)
    assert (solution.rank, solution.is_unique) == (rank, False)
    assert solution.x == pytest.approx(expected, rel=1e-10)
    assert solution.action == "qr:fp64-fp64-fp64-fp64"
    assert "shortest" in solution.explain()


def test_rcond_decides_what_counts_as_zero():
    A, b = graded(40, 6, 1e5, 1.0)
    assert rw.lstsq(A, b, full_output=True).rank == 6
    solution = rw.lstsq(A, b, rcond=1e-3, full_output=True)
    expected, _, rank, _ = np.linalg.lstsq(A, b, rcond=1e-3)
    assert solution.rank == rank == 3
    assert solution.x == pytest.approx(expected, rel=1e-9)
    assert solution.backward_error <= solution.tolerance
    assert solution.tolerance == pytest.approx(np.sqrt(3) * 1e-3)


@pytest.mark.parametrize("shape", [(30, 7), (7, 30), (9, 9)])
@pytest.mark.parametrize(
    "policy", ["default", "fp32", "fp64", "qr:fp32-fp64-fp64-fp64", "svd:fp64-fp64-fp64-fp64"]
)
def test_policies_change_the_way_and_not_the_answer(shape, policy):
    rng = np.random.default_rng(3)
    A, B = rng.standard_normal(shape), rng.standard_normal((shape[0], 4))
    solution = rw.lstsq(A, B, policy=policy, full_output=True)
    assert solution.x == pytest.approx(np.linalg.lstsq(A, B, rcond=None)[0], rel=1e-9, abs=1e-10)
    assert solution.backward_error <= max(6, np.sqrt(sum(shape))) * 2.0**-53
    if policy != "default":
        assert "You asked for" in solution.decision


@pytest.mark.parametrize(("name", "runs"), [("bf16", "fp32"), ("fp16", "fp32"), ("fp64x2", "fp64")])
def test_a_format_that_does_not_run_here_is_the_next_that_does(name, runs):
    A, b = graded(60, 10, 1e2, 1e-3)
    solution = rw.lstsq(A, b, policy=name, full_output=True)
    assert solution.action == f"qr:{runs}-fp64-fp64-fp64"
    assert solution.decision.startswith(f"You asked for {name} first.")
    assert f"{runs} instead" in solution.decision


def test_low_precision_factors_are_refined():
    A, b = graded(200, 30, 1e2, 1e-3)
    for policy, steps in (("fp32", 1), ("qr:fp32-fp64-fp64-fp64", 1)):
        solution = rw.lstsq(A, b, policy=policy, full_output=True)
        assert solution.status == "accepted"
        assert solution.action.endswith("fp32-fp64-fp64-fp64")
        assert steps <= solution.iterations <= 4


def test_escalation_is_told():
    A, b = graded(60, 10, 1e11, 1.0)
    solution = rw.lstsq(A, b, policy="fp32", full_output=True)
    assert solution.status == "escalated"
    assert [a.action.partition("-")[0] for a in solution.attempts] == ["qr:fp32", "qr:fp64"]
    assert "failed" in solution.explain()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_sparse(layout, transpose):
    A = sparse.random_array((200, 40), density=0.05, rng=np.random.default_rng(1))
    A = sparse.coo_array(A + sparse.eye_array(200, 40)).asformat(layout)
    A = A.T if transpose else A
    b = np.random.default_rng(2).standard_normal(A.shape[0])
    solution = rw.lstsq(A, b, full_output=True)
    assert solution.action.startswith("cholesky/amd:fp64")
    assert solution.x == pytest.approx(np.linalg.lstsq(A.toarray(), b, rcond=None)[0], abs=1e-12)


def test_sparse_without_full_rank_is_made_dense_or_refused(monkeypatch):
    A = sparse.csr_array(sparse.eye_array(60, 20))
    A = sparse.csr_array(sparse.hstack([A, A[:, [0]]]))
    solution = rw.lstsq(A, np.arange(60.0), full_output=True)
    assert solution.rank == 20
    assert solution.action.startswith("svd")
    monkeypatch.setattr("roundwise.solver.least_squares.LARGEST_DENSE", 10)
    with pytest.raises(rw.SolveFailed, match="toarray"):
        rw.lstsq(A, np.arange(60.0))


def test_float32_answers_pass_float32s_gate():
    A, b = tall().astype(np.float32), np.arange(40, dtype=np.float32)
    solution = rw.lstsq(A, b, full_output=True)
    assert solution.x.dtype == np.float32
    assert solution.tolerance == np.sqrt(48) * 2.0**-24
    assert rw.lstsq(A, b.astype(float)).dtype == np.float64


@pytest.mark.parametrize(
    "shapes", [((0, 3), (0,)), ((4, 0), (4,)), ((4, 2), (4, 0)), ((0, 0), (0, 2))]
)
def test_empty_problems_as_numpy(shapes):
    A, b = map(np.zeros, shapes)
    expected, _, rank, _ = np.linalg.lstsq(A, b, rcond=None)
    solution = rw.lstsq(A, b, full_output=True)
    assert np.array_equal(solution.x, expected)
    assert rw.lstsq(A, b).shape == expected.shape
    if b.size or not A.size:
        assert solution.rank == rank


@pytest.mark.parametrize(
    ("A", "b", "error", "text"),
    [
        (np.array([[1.0, np.nan]]), [1.0], ValueError, "A has NaN"),
        ([[1.0, 2.0]], [np.inf], ValueError, "b has NaN"),
        ([[1.0], [2.0]], [1.0], np.linalg.LinAlgError, "pass b with 2 rows"),
        ([1.0, 2.0], [1.0], np.linalg.LinAlgError, "pass a matrix"),
        ([[1.0]], [[[1.0]]], np.linalg.LinAlgError, "3 dimensions"),
        (np.eye(2) * 1j, [1.0, 1.0], TypeError, "numpy.linalg.lstsq"),
        (sparse.csr_array([[np.inf, 1.0]]), [1.0], ValueError, "A has NaN"),
    ],
)
def test_bad_input_names_the_fix(A, b, error, text):
    with pytest.raises(error, match=text):
        rw.lstsq(A, b)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rcond": -1.0}, ValueError, "rcond"),
        ({"tol": 2.0}, ValueError, "tol"),
        ({"policy": "fp8"}, Exception, "fp8"),
        ({"policy": 3}, TypeError, "Tuner"),
        ({"policy": "lu:fp64-fp64-fp64-fp64"}, ValueError, "cholesky, qr, svd"),
        ({"policy": "qr:fp17-fp64-fp64-fp64"}, KeyError, "fp17"),
        ({"policy": "qr:fp32-fp64"}, ValueError, "give one for factor, update, gmres, residual"),
    ],
)
def test_bad_options_name_the_fix(options, error, text):
    with pytest.raises(error, match=text):
        rw.lstsq(tall(), np.arange(40.0), **options)


def test_scaled_problem_is_the_given_one():
    """Scaling by powers of two is exact: the scaled x, scaled back, is the same x."""
    A, b = np.ldexp(tall(), [700, -700, 0, 1, 2, 3, 4, 5]), np.arange(40.0)
    scaled = scaled_least_squares(A, b[:, None])
    X = np.ldexp(1.0, np.arange(48) % 7)[:, None]
    x = scaled.solution(X)
    assert np.array_equal(scaled.with_solution(X, x), X)
    f, _ = scaled.system.parts(scaled.system.B)
    left = scaled.system.T @ scaled.system.x(X)[:, 0]
    shift = (np.frexp(f[:, 0])[1] - np.frexp(b)[1])[1]
    assert np.ldexp(left, -shift) == pytest.approx(A @ x[:, 0], rel=1e-13)


def test_nothing_that_is_unknown_passes_the_gate():
    system = scaled_least_squares(tall(), np.ones((40, 1))).system
    for value in (np.nan, np.inf):
        for place in (0, 45):
            X = np.ones((48, 1))
            X[place] = value
            assert not (judged(system, X)[0] < np.inf).any()


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_answers_that_float64_cannot_hold_are_refused(scale):
    with pytest.raises(rw.SolveFailed, match="scale A and b"):
        rw.lstsq(tall() / scale, np.ones(40) * scale)
    with pytest.raises(rw.SolveFailed, match="scale A and b"):
        rw.lstsq(tall().T / scale, np.ones(8) * scale)


@pytest.mark.parametrize("policy", ["bf16", "qr:bf16-fp64-fp64-fp64", ["bf16", "fp64"]])
def test_formats_below_fp32_are_raised_to_it(policy):
    if rw.BF16 not in rw.backends.get_backend("native").formats():
        pytest.skip("no bf16 here")
    A, b = np.random.default_rng(3).standard_normal((30, 7)), np.ones(30)
    solution = rw.lstsq(A, b, policy=policy, full_output=True)
    assert solution.attempts[0].action.endswith(":fp32-fp64-fp64-fp64")
    np.testing.assert_allclose(solution.x, np.linalg.lstsq(A, b)[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("A", "b"), [case[1:] for case in ADVERSARIAL], ids=[c[0] for c in ADVERSARIAL]
)
def test_full_output_has_the_same_bits_and_reading_it_changes_none(A, b):
    solution = rw.lstsq(A, b, full_output=True)
    residual, size = residual_and_size(A, b, solution.x)
    assert solution.residual_norm == pytest.approx(residual, rel=1e-12, abs=1e-28 * size)
    assert solution.condition >= 0.1
    assert np.array_equal(solution.x, rw.lstsq(A, b))


def residual_and_size(A, b, x):
    """||b - A x|| without rounding errors but the last ones, and the largest |A| |x| + |b|."""
    A, b, x = map(fractions, (A, b, x))
    products = [[a * v for a, v in zip(row, x, strict=True)] for row in A]
    r = [bi - sum(row) for row, bi in zip(products, b, strict=True)]
    sizes = [abs(bi) + sum(map(abs, row)) for row, bi in zip(products, b, strict=True)]
    largest = max(map(abs, r))
    norm = np.linalg.norm([float(ri / largest) for ri in r]) if largest else 0.0
    return float(largest) * norm, float(max(sizes))


def test_what_is_read_later_needs_neither_a_nor_b():
    A, b = (given.copy() for given in graded(30, 6, 1e3, 1.0))
    expected = np.linalg.norm(b - A @ np.linalg.lstsq(A, b)[0]), np.linalg.cond(A)
    solution = rw.lstsq(A, b, full_output=True)
    A[:], b[:], solution.x[:] = 0.0, 0.0, 0.0
    assert solution.residual_norm == pytest.approx(expected[0], rel=1e-12)
    assert expected[1] / 10 <= solution.condition <= 10 * expected[1]


@pytest.mark.parametrize("shape", [(6, 1), (20, 5), (40, 12), (300, 60), (7, 7), (9, 30)])
@pytest.mark.parametrize("method", ["cholesky", "qr"])
def test_the_diagonal_of_r_bounds_the_condition_number(shape, method):
    rng = np.random.default_rng(shape)
    A = rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 3, shape[1])
    scaled = scaled_least_squares(A, np.ones((shape[0], 1)))
    action = rw.Action(["fp64"] * 4, method)
    stages = residual_of_both(Stages(LsIR.stages, action, NativeBackend()))
    M = attempt(scaled, stages, Shared(), 1e-12, np.float64).M
    condition = np.linalg.cond(scaled.system.T / scaled.system.weights)
    assert condition <= condition_bound(scaled.system, M) * (1 + 1e-9)
    if min(shape) <= 5:
        assert condition_bound(scaled.system, M) <= 1e3 * condition


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(1, 1), (94, 86), (500, 64), (130, 130), (600, 200)])
@pytest.mark.parametrize("fmt", [rw.FP32, rw.FP64])
def test_products_in_blocks_are_those_of_the_whole(shape, order, fmt):
    T = np.array(np.random.default_rng(shape).integers(-9, 9, shape), np.float64, order=order)
    assert np.array_equal(np.tril(gram(T, fmt)), np.tril(T.T @ T))  # small integers: no rounding


def test_the_answer_is_of_the_class_of_b():
    class Measured(np.ndarray):
        pass

    A, b = tall(), np.arange(40.0)
    x = rw.lstsq(A, b.view(Measured))
    assert type(x) is Measured
    assert np.array_equal(x, rw.lstsq(A, b))
    assert type(rw.lstsq(A, b.view(Measured), full_output=True).x) is Measured


def test_the_answer_is_labelled_as_b():
    pandas = pytest.importorskip("pandas")
    A, b = tall(), np.arange(40.0)
    x = rw.lstsq(A, b)
    names = list("abcdefgh")
    labelled = rw.lstsq(pandas.DataFrame(A, columns=names), pandas.Series(b, name="b"))
    assert isinstance(labelled, pandas.Series)
    assert (list(labelled.index), labelled.name) == (names, "b")
    assert np.array_equal(labelled, x)
    unlabelled = rw.lstsq(A, pandas.Series(b, name="b"), full_output=True).x
    assert isinstance(unlabelled, pandas.Series)
    assert np.array_equal(unlabelled, x)
    assert list(unlabelled.index) == list(range(8))


@pytest.mark.parametrize("policy", ["default", "fp32"])
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (17, 17), (40, 23), (5, 30), (70, 66)])
@pytest.mark.parametrize("k", [None, 1, 5, 19])
def test_one_compiled_call_for_every_type_layout_and_shape(shape, k, dtype, layout, policy):
    rng = np.random.default_rng(shape)
    A = rng.integers(-50, 50, shape).astype(dtype)
    b = rng.integers(-50, 50, shape[:1] if k is None else (shape[0], k)).astype(dtype)
    expected = np.linalg.lstsq(A.astype(float), b.astype(float))[0]
    wide = np.zeros((shape[0], 2 * shape[1]), dtype)
    wide[:, ::2] = A
    given = {"C": A, "F": np.asfortranarray(A), "strided": wide[:, ::2]}[layout]
    solution = rw.lstsq(given, b, policy=policy, full_output=True)
    assert solution.action.startswith("qr:")
    assert solution.x.dtype == (np.float32 if dtype == np.float32 else np.float64)
    relative = 2.0**-20 if dtype == np.float32 else 2.0**-45
    size = np.linalg.norm(expected) or 1.0
    assert np.linalg.norm(solution.x - expected) <= relative * np.linalg.cond(A) ** 2 * size
    assert np.array_equal(solution.x, rw.lstsq(given, b, policy=policy))
    again = rw.lstsq(given.tolist(), b.tolist(), policy=policy)  # by the four steps
    assert np.array_equal(solution.x, again) or dtype == np.float32


@pytest.mark.parametrize("dependent", [[0], [3], [1, 4], [0, 1, 2, 5], [7], [6, 7]])
@pytest.mark.parametrize("shape", [(12, 8), (8, 8), (8, 30), (100, 8)])
@pytest.mark.parametrize("consistent", [False, True])
def test_dependent_columns_are_found_wherever_they_are(shape, dependent, consistent):
    """Integers: sums of others are exact, so that the rank is known."""
    rng = np.random.default_rng([*shape, *dependent])
    T = rng.integers(-9, 9, (max(shape), 8)).astype(float)
    others = [j for j in range(8) if j not in dependent]
    T[:, dependent] = T[:, others] @ rng.integers(-1, 2, (len(others), len(dependent)))
    A = T if shape[0] >= shape[1] else T.T
    b = A @ np.ones((shape[1], 3)) if consistent else rng.standard_normal((shape[0], 3))
    solution = rw.lstsq(A, b, full_output=True)
    expected, _, rank, _ = np.linalg.lstsq(A, b)
    assert solution.rank == rank == 8 - len(dependent)
    assert solution.action.startswith("qr:")
    assert solution.x == pytest.approx(expected, rel=1e-10, abs=1e-10)
    assert np.array_equal(solution.x, rw.lstsq(A, b))


@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
def test_singular_values_near_rcond_are_computed(shape):
    """No gap: the SVD tells which count as zero, as in NumPy."""
    A, _ = graded(max(shape), min(shape), 1e6, 1.0)
    A = A if shape[0] >= shape[1] else A.T
    b = np.random.default_rng(3).standard_normal(shape[0])
    values = np.linalg.svd(A, compute_uv=False)
    rcond = float(np.sqrt(values[5] * values[6]) / values[0])
    solution = rw.lstsq(A, b, rcond=rcond, full_output=True)
    assert solution.rank == 6
    assert solution.action.startswith("svd:")
    assert solution.x == pytest.approx(np.linalg.lstsq(A, b, rcond=rcond)[0], rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("single", [False, True])
def test_qr_of_every_level_and_any_threads(level, single, monkeypatch):
    if level not in _kernels.available_levels():
        pytest.skip("not on this processor")
    before = _kernels.active_level()
    A, b = tall(300, 150), np.random.default_rng(4).standard_normal((300, 40))
    expected = np.linalg.lstsq(A, b)[0]
    action = "qr:fp32-fp64-fp64-fp64" if single else "qr:fp64-fp64-fp64-fp64"
    _kernels.set_level(level)
    try:
        found = []
        for threads in (1, 2, 3):
            monkeypatch.setattr(at_once, "threads_for", lambda *_, t=threads: t)
            found.append(rw.lstsq(A, b, policy=action))
    finally:
        _kernels.set_level(before)
    assert found[0] == pytest.approx(expected, rel=1e-9, abs=1e-11)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_the_compiled_call_refuses_shapes_that_do_not_match():
    gate = at_once.gate_of(4, 3, False, 1e-12, 1e-14)
    A, b, norms = np.ones((4, 3)), np.ones(4), np.empty(1)
    for arrays in ((A, b[:3], np.empty(3)), (A, b, np.empty(4)), (A, b, np.empty((3, 1)))):
        with pytest.raises(ValueError, match="pass"):
            _kernels.tall_solve(*arrays, norms, *gate, 1)
    with pytest.raises(ValueError, match="float32 or float64"):
        _kernels.tall_solve(A.astype(int), b, np.empty(3), norms, *gate, 1)
