"""`accuracy="forward"`: right to a few units in the last place wherever it says so."""

import warnings
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from express_calls import express
from scipy import sparse

import roundwise as rw
from roundwise.backends import native_formats
from roundwise.backends.native import exact
from roundwise.problems import poisson_2d, randsvd
from roundwise.solver.solution import joined

U = 2.0**-53


def exact_system(n, kappa, seed, mode=2):
    """A, x and b with ``A x = b`` exactly: entries on a grid, x of small integers."""
    rng = np.random.default_rng([n, seed])
    A = np.round(randsvd(n, kappa, mode, rng=rng).A * 2.0**49) / 2.0**49
    x = rng.integers(-2, 3, n).astype(float)
    x[0] = 2.0
    b = -exact.residual(A, x, np.zeros(n))
    assert abs(b).max() < 16  # a sum of multiples of 2**-49: float64 holds it
    return A, x, b


def error(x, x_true):
    return abs(x - x_true).max() / abs(x_true).max()


def solved(A, b, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rw.solve(A, b, accuracy="forward", full_output=True, **options)


@pytest.mark.parametrize("policy", ["default", "bf16", "fp32", "fp64"])
@pytest.mark.parametrize("kappa", [1e1, 1e4, 1e7, 1e10, 1e13, 1e15])
def test_errors_are_a_few_units_in_the_last_place(kappa, policy):
    if policy == "bf16" and rw.BF16 not in native_formats():
        pytest.skip("this processor has no BF16 instructions")
    for seed, n in enumerate((1, 2, 10, 50, 120, 300)):
        A, x, b = exact_system(n, kappa if n > 1 else 1.0, seed)
        solution = solved(A, b, policy=policy)
        if kappa <= 1e10:
            assert solution.accuracy == "forward"
        if solution.accuracy == "forward":
            assert error(solution.x, x) <= 4 * U
            assert solution.action.endswith("fp64x2")


@pytest.mark.parametrize("kappa", [1e5, 1e6, 1e7, 1e9, 1e11, 1e13])
def test_low_factors_find_the_direction_that_they_have_lost(kappa):
    """One singular value that FP32 hardly sees costs some substitutions, and no FP64 factors."""
    A, x, b = exact_system(200, kappa, 0)
    solution = solved(A, b, policy="fp32")
    assert solution.action == "lu:fp32-fp64-fp64-fp64x2"
    first, last = solution.attempts  # one compiled call does not look for the direction
    assert (first.action, first.converged, last.converged) == (last.action, False, True)
    assert solution.iterations <= 6
    assert error(solution.x, x) <= 4 * U


@pytest.mark.parametrize("mode", [1, 2, 3, 4, 5])
def test_all_kinds_of_singular_values(mode):
    A, x, b = exact_system(150, 1e9, mode, mode)
    for M in (A, np.asfortranarray(A), sparse.csr_array(A)):
        solution = solved(M, b)
        assert solution.accuracy == "forward"
        assert error(solution.x, x) <= 4 * U


def test_lapack_is_far_less_accurate():
    """Else the other tests would prove nothing."""
    A, x, b = exact_system(120, 1e10, 0)
    assert error(np.linalg.solve(A, b), x) > 1e5 * U


def test_many_columns_and_factor():
    A, _, _ = exact_system(80, 1e8, 0)
    X = np.random.default_rng(0).integers(-2, 3, (80, 5)).astype(float)
    B = -exact.residual(A, X, np.zeros((80, 5)))
    assert error(rw.solve(A, B, accuracy="forward"), X) <= 4 * U
    F = rw.factor(A, accuracy="forward")
    assert error(F.solve(B[:, 0]), X[:, 0]) <= 4 * U
    assert error(F.solve(B), X) <= 4 * U


def test_sparse_systems():
    A = poisson_2d(30).A  # integers
    x = np.random.default_rng(1).integers(-9, 10, A.shape[0]).astype(float)
    assert error(rw.solve(A, A @ x, accuracy="forward"), x) <= 4 * U


def test_beyond_reach_is_said():
    """Hilbert's matrix: FP64 factors cannot tell it from a singular one."""
    A = 1 / (np.arange(20)[:, None] + np.arange(20) + 1.0)
    solution = solved(A, A.sum(axis=1))
    assert solution.accuracy == "backward"
    assert "full accuracy" in solution.explain()
    with pytest.warns(rw.IllConditionedWarning):
        rw.solve(A, A.sum(axis=1), accuracy="forward")


def test_outcomes_say_fp64x2():
    A, _, b = exact_system(60, 1e11, 0, mode=3)
    problem = rw.LinearSystem(A, b)
    algorithm = rw.VerifiedSolve(accuracy="forward")
    space = algorithm.action_space()
    assert {action[-1] for action in space} == {rw.get_format("fp64x2")}
    outcome = algorithm.run(problem, "lu:fp64-fp64-fp64-fp64x2", "native")
    assert outcome.converged
    assert outcome.action == "lu:fp64-fp64-fp64-fp64x2"
    # FP32 factors cannot; residuals in FP64 cannot either.
    assert not algorithm.run(problem, "lu:fp32-fp64-fp64-fp64x2", "native").converged
    assert not algorithm.run(problem, "lu:fp64-fp64-fp64-fp64", "native").converged


def test_the_learner_can_choose_fp64x2():
    space = rw.VerifiedSolve().action_space(["fp32", "fp64", "fp64x2"])
    assert {str(action[-1]) for action in space} == {"fp64", "fp64x2"}
    assert str(space[space.safe]) == "lu:fp64-fp64-fp64-fp64x2"


def test_other_words_are_refused():
    for call in (
        lambda **o: rw.solve(np.eye(2), np.ones(2), **o),
        lambda **o: rw.factor(np.eye(2), **o),
    ):
        with pytest.raises(ValueError, match="choose 'backward' or 'forward'"):
            call(accuracy="full")


def test_blocks_of_columns_claim_full_accuracy_only_together():
    A, b = np.diag([1.0, 2.0]), np.ones((2, 1))
    one = rw.solve(A, b, accuracy="forward", full_output=True)
    short = replace(one, accuracy="backward")
    for parts in ([one, short], [short, one]):
        assert joined(parts, (2, 2)).accuracy == "backward"
    assert joined([one, one], (2, 2)).accuracy == "forward"


def test_a_solver_refines_to_full_accuracy_and_learns_nothing_from_it():
    A, x, b = exact_system(300, 1e6, 0)
    solver = rw.Solver()
    before = repr(solver)
    solution = solver.solve(A, b, accuracy="forward", full_output=True)
    assert solution.accuracy == "forward"
    assert error(solution.x, x) <= 4 * U
    assert error(solver.factor(A, accuracy="forward").solve(b), x) <= 4 * U
    assert repr(solver) == before
    with pytest.raises(ValueError, match="accuracy"):
        solver.solve(A, b, accuracy="full")


def test_nothing_is_claimed_of_numbers_too_small_for_53_bits():
    assert solved([[3.0]], [2.0**-1030], tol=1e-6).accuracy == "backward"  # x is subnormal
    A, x, b = exact_system(20, 1e3, 0)
    far = np.ones(20)
    far[3] = 2.0**-1000
    scaled = solved(far[:, None] * A, far * b)  # the compiled call scales the row
    assert scaled.accuracy == "forward"
    assert error(scaled.x, x) <= 4 * U
    sparse_rows = sparse.csr_array(far[:, None] * A)
    scaled = solved(sparse_rows, far * b)  # made dense, by the same call
    assert scaled.accuracy == "forward"
    assert error(scaled.x, x) <= 4 * U
    far = np.ones(400)
    far[3] = 2.0**-1000
    large = sparse.csr_array(far[:, None] * poisson_2d(20).A)  # products vanish
    assert solved(large, far * np.ones(400)).accuracy == "backward"


@pytest.mark.parametrize("policy", ["fp32", "fp64"])
def test_columns_of_very_different_sizes_claim_nothing_and_bound_nothing(policy):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((5, 5))
    A *= np.ldexp(1.0, np.array([0, 0, -900, 0, -900]))
    A *= np.ldexp(1.0, np.array([-120, 950, 900, 900, 930]))[:, None]
    solution = solved(A, A @ np.ones(5), policy=policy)
    assert solution.accuracy == "backward"
    assert solution.error_kind == "bound" or np.isinf(solution.forward_error_bound)


@pytest.mark.parametrize("kappa", [1e14, 1e15])
def test_a_direction_that_low_factors_hide_is_warned_of(kappa):
    """Corrections do not show it, as b is A times a moderate x: pivots do."""
    A, x, b = exact_system(600, kappa, 0)
    with pytest.warns(rw.IllConditionedWarning):
        found = rw.solve(A, b, policy="fp32")
    assert error(found, x) > 1e-4


def test_well_conditioned_systems_are_not_warned_of():
    for kappa in (1e2, 1e6, 1e10):
        A, _, b = exact_system(400, kappa, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error", rw.IllConditionedWarning)
            rw.solve(A, b, policy="fp32")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64])
@pytest.mark.parametrize("n", [1, 2, 9, 40])
def test_small_systems_take_one_call_whoever_asks(n, dtype):
    rng = np.random.default_rng(n)
    A, B = rng.standard_normal((2, 3, n, n)).astype(dtype)
    if A.dtype.kind == "c":
        A, B = A + 1j * B, B - 1j * A
    b, options = B[0, :, 0], {"accuracy": "forward"}
    u = np.finfo(dtype).eps / 2
    for one in A:
        exact_x = mpmath_solution(one, b)
        x = rw.solve(one, b, **options)
        assert abs(x - exact_x).max() <= 2 * u * abs(exact_x).max()
        solution = rw.solve(one, b, full_output=True, **options)
        assert solution.action == "lu:fp64-fp64-fp64-fp64x2"
        assert solution.accuracy == "forward"
        F = rw.factor(one, **options)
        found = F.solve(b, full_output=True)
        assert found.action == str(F.action) == solution.action
        assert found.accuracy == "forward"
        for other in (solution.x, found.x, F.solve(b), rw.Solver().solve(one, b, **options)):
            np.testing.assert_array_equal(other, x)
        across = F.solve(b, "T")
        assert abs(across - mpmath_solution(one.T, b)).max() <= 2 * u * abs(across).max()
    X = rw.solve(A, b, **options)
    for x, one in zip(X, A, strict=True):
        np.testing.assert_array_equal(x, rw.solve(one, b, **options))
    np.testing.assert_array_equal(rw.factor(A, **options).solve(b), X)
    stack = rw.solve(A, b, full_output=True, **options)
    assert {part.accuracy for part in stack} == {"forward"}
    np.testing.assert_array_equal(stack.x, X)


def mpmath_solution(A, b):
    """The solution of a system, to the last bit of float64."""
    with mpmath.workdps(60):
        return np.array([complex(x) for x in mpmath.lu_solve(mpmath.matrix(A), mpmath.matrix(b))])


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("n", [2, 6, 30])
def test_one_call_claims_nothing_where_factors_have_lost_a_direction(n, dtype):
    """Singular to working precision: corrections hardly show the error along the lost direction."""
    rng = np.random.default_rng(n)
    for _ in range(20):
        A = rng.standard_normal((n, n)).astype(dtype)
        A[:, 0] = A[:, 1:].sum(axis=1) * (1 + 2.0**-52)
        b = A @ np.ones(n)
        assert express(A, b, forward=True) is None


def test_one_call_scales_and_claims_full_accuracy():
    rng = np.random.default_rng(0)
    for n in (2, 7, 30):
        A, x, b = exact_system(n, 1e3, n)
        rows, columns = (2.0 ** rng.integers(-150, 150, n) for _ in range(2))
        scaled, right = A * rows[:, None] * columns, b * rows
        found = express(scaled, right, forward=True)
        assert found is not None
        worst = abs(x / columns).max()
        assert abs(found.x - x / columns).max() <= 4 * U * worst
        assert found.forward
