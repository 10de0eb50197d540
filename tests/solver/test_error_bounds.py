"""No error is above its stated bound: judged in rational arithmetic.

``ROUNDWISE_BOUNDS`` in the environment says how many systems to draw: 100000 take about an hour.
"""

import math
import os
import warnings
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import rational
from scipy import linalg, sparse

import roundwise as rw
from roundwise.algorithms.conditioning import Conditioning, orthogonal_factors
from roundwise.algorithms.scaling import ScaledMatrix
from roundwise.backends.native import exact
from roundwise.problems import poisson_2d, randsvd
from roundwise.solver.trust.error_bound import ApproximateInverse, Prover, relative_errors
from roundwise.solver.trust.examining import FEW_DIGITS

SYSTEMS = int(os.environ.get("ROUNDWISE_BOUNDS", 300))
POLICIES = ("default", *(fmt.name for fmt in rw.backends.native_formats()))
U = 2.0**-53
BACKEND = rw.backends.get_backend("native")


def drawn_matrix(n, rng):
    """Of all condition numbers and kinds; some are singular, some nearly so."""
    kind = rng.integers(9)
    if kind <= 3:
        power = rng.uniform(0, 17 if kind == 3 else 8)
        return randsvd(n, 10.0**power, int(rng.integers(1, 6)), rng=rng).A if n > 1 else np.eye(1)
    if kind == 4:
        return rng.integers(-9, 10, (n, n)).astype(float)
    if kind == 5:
        return linalg.hilbert(n) + 10.0 ** rng.uniform(-20, 0) * np.eye(n)
    if kind == 6:
        A = rng.standard_normal((n, n))
        A[-1] = A[0] + 10.0 ** rng.uniform(-18, 0) * A[-1]
        return A
    if kind == 7:
        return np.tril(rng.standard_normal((n, n))) + 0.1 * np.eye(n)
    return rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.5) + np.eye(n)


def drawn_system(seed):
    """A, b and a policy: sizes 1 to 30, scales 1e-200 to 1e200, one column or several."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 31 if seed % 4 == 0 else 13))
    A = drawn_matrix(n, rng)
    if rng.random() < 0.2:
        A = A * 10.0 ** rng.uniform(-30, 30, (n, 1)) * 10.0 ** rng.uniform(-30, 30, n)
    if rng.random() < 0.3:
        A = A * 10.0 ** rng.uniform(-140, 140)
    columns = int(rng.integers(1, 4))
    B = rng.standard_normal((n, columns)) * 10.0 ** rng.uniform(-60, 60, columns)
    if rng.random() < 0.4:
        B = A @ rng.integers(-3, 4, (n, columns)).astype(float)
    if columns == 1:
        B = B[:, 0]
    if rng.random() < 0.3 and max(np.abs(A).max(), np.abs(B).max()) < 1e38:
        with np.errstate(under="ignore"):
            A, B = A.astype(np.float32), B.astype(np.float32)
    form = sparse.csr_array if rng.random() < 0.4 else np.asarray
    return form(A), B, POLICIES[seed % len(POLICIES)]


def solved(A, b, policy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rw.IllConditionedWarning)
        return rw.solve(A, b, policy=policy, full_output=True)


def check(A, b, policy):
    """What the solver says of its answer, once it is found to be true."""
    true = rational.solved(A, np.reshape(b, (len(b), -1)))
    try:
        solution = solved(A, b, policy)
    except rw.SolveFailed as failure:
        reason = failure.reason
    else:
        reason = ""
    assert ("determinant is zero" in reason) == (true is None)
    if reason:
        assert true is None or "cannot hold x" in reason or "A is not singular" in reason
        return "failed"
    bound = solution.forward_error_bound
    assert solution.condition >= 0.99
    if math.isinf(bound):
        assert solution.condition > 1e10 or "different sizes" in solution.error_source
        return "uncertain"
    error = rational.relative_error(np.reshape(solution.x, (len(b), -1)), true)
    assert error <= Fraction(bound)
    assert error == 0 or solution.digits <= max(0, -math.log10(error))
    return solution.error_kind


def test_no_error_is_above_its_bound():
    kinds = Counter()
    for seed in range(SYSTEMS):
        try:
            kinds[check(*drawn_system(seed))] += 1
        except AssertionError as error:
            raise AssertionError(f"system {seed}") from error
    assert kinds["bound"] > 0.75 * SYSTEMS
    assert kinds["uncertain"] + kinds["failed"] < 0.2 * SYSTEMS


def residual(A, X, B):
    """The rounded residual, and a bound of what was lost."""
    columns = [rational.residual(A, x, b) for x, b in zip(X.T, B.T, strict=True)]
    exact = np.array([[float(value) for value in column] for column in columns]).T
    return exact, U * np.abs(exact) + 2.0**-1074


def test_proved_errors_hold_entry_by_entry_and_are_sharp():
    looseness = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(1, 11)), int(rng.integers(1, 3))
        A, B = drawn_matrix(n, rng), rng.standard_normal((n, k))
        if rational.is_singular(A):
            continue
        X, R = np.linalg.solve(A, B), np.linalg.inv(A)
        if seed % 3 == 0:  # any X and R will do
            X, R = X * (1 + 1e-5 * rng.standard_normal((n, k))), R * (1 + 1e-5 * rng.random((n, n)))
        bounds, true = (
            ApproximateInverse.of(A, R).errors(X, *residual(A, X, B)),
            rational.solved(A, B),
        )
        for i, j in np.ndindex(n, k):
            error = abs(true[i][j] - Fraction(X[i, j]))
            assert math.isinf(bounds[i, j]) or error <= Fraction(bounds[i, j])
        error, told = rational.relative_error(X, true), relative_errors(bounds, X).max()
        assert math.isinf(told) or error <= Fraction(told)
        if error and np.linalg.cond(A) < 1e10:
            looseness.append(told / float(error))
    assert len(looseness) > 60
    assert np.median(looseness) < 1.01


def test_nothing_is_proved_with_a_poor_inverse_or_a_singular_matrix():
    A, x = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[1.0], [1.0]])
    for R in (np.eye(2), np.zeros((2, 2)), np.full((2, 2), np.nan), np.linalg.pinv(A)):
        assert np.isinf(ApproximateInverse.of(A, R).errors(x, x, 0 * x)).all()


def test_zero_is_known_to_be_right():
    solution = rw.solve([[2.0, 1.0], [1.0, 3.0]], [[0.0, 1.0], [0.0, 3.0]], full_output=True)
    assert solution.forward_error_bound < 4 * U
    only = rw.solve([[2.0, 1.0], [1.0, 3.0]], [0.0, 0.0], full_output=True)
    assert only.forward_error_bound == 0
    assert only.digits == 16


def test_errors_are_relative_to_the_scale_of_x_as_it_was_given():
    X, errors = np.array([[1.0], [1.0]]), np.array([[1e-10], [1e-3]])
    assert relative_errors(errors, X)[0] == pytest.approx(1e-3 / (1 - 1e-3))
    exponents = np.array([[1500], [-1500]])
    assert relative_errors(errors, X, exponents)[0] == pytest.approx(1e-10)
    assert np.isinf(relative_errors(np.ones((2, 1)), X)).all()
    assert relative_errors(np.zeros((2, 1)), 0 * X).tolist() == [0]
    assert np.isinf(relative_errors(errors, 0 * X)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_conditions_are_lower_bounds_and_close(policy):
    for seed, power in enumerate((0, 3, 6, 8, 10, 12)):
        A = randsvd(40, 10.0**power, 2, rng=seed).A
        true = float(np.linalg.norm(A, 1) * np.linalg.norm(np.linalg.inv(A), 1))
        condition = solved(A, A @ np.ones(40), policy).condition
        assert 0.5 * true < condition < 1.01 * true


@pytest.mark.parametrize("policy", ["default", "fp32", "fp64"])
@pytest.mark.parametrize("power", [2, 6, 8, 10])
def test_errors_of_large_systems_are_estimated(power, policy):
    """Of n = 300, too many for a proof: the error is known from integers x and exact b."""
    n, rng = 300, np.random.default_rng(power)
    A = np.round(randsvd(n, 10.0**power, 3, rng=power).A * 2.0**40)
    x_true = rng.integers(-8, 9, n).astype(float)
    b = np.array([int(sum(map(int.__mul__, map(int, row), map(int, x_true)))) for row in A])
    assert (b.astype(float).astype(int) == b).all()
    for form in (np.asarray, sparse.csr_array):
        solution = solved(form(A), b.astype(float), policy)
        assert solution.error_kind == "estimate"
        error = np.abs(solution.x - x_true).max() / np.abs(x_true).max()
        assert error <= solution.forward_error_bound < 1e6 * max(error, 10.0**power * U)
        assert 1 <= solution.digits <= 16


def test_hilbert_matrices_beyond_float64():
    A = linalg.hilbert(15)
    with pytest.warns(rw.IllConditionedWarning, match=r"no digit of x .* at least .*e\+1[678]"):
        solution = rw.solve(A, A @ np.ones(15), full_output=True)
    assert math.isinf(solution.forward_error_bound)
    assert solution.digits == 0
    assert 2**53 < solution.condition < 1e21  # a lower bound of 1e20 or so, beyond what FP64 tells
    story = solution.explain()
    assert "No digit of it is certain: A is singular to working precision, or close" in story
    assert "The condition number is at least" in story


def test_the_story_says_what_kind_of_number_it_is():
    A = np.diag([1.0, 2.0, 3.0]) + 1.0
    story = rw.solve(A, np.ones(3), full_output=True).explain()
    assert "Its relative error is at most" in story
    assert "proved" in story
    grid = poisson_2d(20)
    story = rw.solve(grid.A, grid.b, full_output=True).explain()
    assert "Its relative error is about" in story
    assert "estimated from one more correction" in story


def test_float32_answers_are_judged_as_they_are_returned():
    A = (np.eye(5) * 3 + 0.7).astype(np.float32)
    solution = rw.solve(A, np.ones(5, np.float32), full_output=True)
    true = rational.solved(A, np.ones((5, 1)))
    error = rational.relative_error(solution.x[:, None], true)
    assert 0 < error <= Fraction(solution.forward_error_bound) < 2 * error
    assert solution.digits == 7


# Warnings


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n", [11, 100])
def test_few_digits_are_warned_of_and_many_are_not(n, form, policy):
    for seed, power in enumerate((1, 5, 9, 18)):
        A = randsvd(n, 10.0**power, 2 + seed % 2, rng=seed).A
        b = np.random.default_rng(seed).standard_normal(n)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rw.solve(form(A), b, policy=policy)
            rw.factor(form(A), policy=policy).solve(b)
            solution = rw.solve(form(A), b, policy=policy, full_output=True)
        told = 2 + (solution.forward_error_bound > FEW_DIGITS)  # more residuals may save some
        assert len(caught) == (told if power == 18 else 0)
        assert all(one.filename == __file__ for one in caught)
        assert all(issubclass(one.category, linalg.LinAlgWarning) for one in caught)


def test_a_badly_scaled_matrix_is_no_reason_to_warn():
    A = np.diag(10.0 ** np.arange(0, -60, -6))
    np.testing.assert_allclose(rw.solve(A, np.ones(10)), 1 / np.diag(A))


def test_condition_estimates_of_low_factors():
    """FP16 factors cannot tell 1e-9 from 0; the vector that they lose is found all the same."""
    A = randsvd(50, 1e9, 2, rng=0).A
    true = np.linalg.cond(A, 1)
    for fmt in ("fp16", "fp32", "fp64"):
        estimate = Conditioning(A, BACKEND).estimate(BACKEND.matrix(A, fmt).lu())
        assert 0.01 * true < estimate.condition < 1.01 * true
        assert (estimate.rate > 0.25) == (fmt != "fp64")


def test_products_that_vanish_are_counted():
    """The last row times X is 199 products of 2**-1076, each of which float64 rounds to zero."""
    n = 200
    A = np.eye(n) - np.diag([0.0, *np.ones(n - 2)], 1)
    A[-1, 1:] = 2.0**-1000
    B, X = np.eye(n)[:, :1], np.full((n, 1), 2.0**-76)
    X[0] = 1.0  # B is A's solution: the other entries are wrong
    residual = exact.residual(A, X, B)
    assert not residual.any()
    prover = Prover(ScaledMatrix(A, BACKEND.sizes(A)[0]), BACKEND)
    errors = prover.errors(X, B, residual)
    assert np.isfinite(errors).all()
    assert (errors >= abs(X - B)).all()


@pytest.mark.parametrize("n", [1, 5, 512, 513, 516, 3000])
def test_few_columns_are_factorized_in_blocks_of_rows(n):
    """Q has orthonormal columns, R is a triangle, and Q R is the matrix; columns nearly agree."""
    rng = np.random.default_rng(n)
    Y = rng.standard_normal((n, 1)) + 1e-9 * rng.standard_normal((n, 6))
    Q, R = orthogonal_factors(Y)
    count = min(n, 6)
    assert Q.shape == (n, count)
    assert R.shape == (count, 6)
    bound = 100 * max(n, 6) * 2.0**-53
    assert np.abs(Q.T @ Q - np.eye(count)).max() <= bound
    assert np.abs(Q @ R - Y).max() <= bound * np.abs(Y).max()
    assert (np.tril(R, -1) == 0).all()
