"""`randsvd` and `random_sparse_spd` against their definitions."""

import numpy as np
import pytest
import scipy.sparse as sp

from roundwise.problems import random_sparse_spd, randsvd
from roundwise.problems.generators import haar_orthogonal

U64 = 2.0**-53


def defined_singular_values(n, kappa, mode):
    i = np.arange(n)
    return {
        1: np.where(i == 0, 1.0, 1.0 / kappa),
        2: np.where(i == n - 1, 1.0 / kappa, 1.0),
        3: kappa ** (-i / (n - 1)),
        4: 1.0 - i / (n - 1) * (1.0 - 1.0 / kappa),
    }[mode]


@pytest.mark.parametrize("mode", [1, 2, 3, 4])
@pytest.mark.parametrize(("n", "kappa"), [(2, 10.0), (40, 1.0), (57, 1e6), (30, 1e10)])
def test_randsvd_singular_values_are_those_of_the_mode(mode, n, kappa):
    problem = randsvd(n, kappa, mode, rng=3)
    s = np.linalg.svd(problem.A, compute_uv=False)
    # Weyl: forming A and the SVD perturb each singular value by a few n * u * norm(A).
    np.testing.assert_allclose(s, defined_singular_values(n, kappa, mode), rtol=0, atol=8 * n * U64)
    assert problem.meta["kappa"] == kappa


def test_randsvd_mode_5_is_log_uniform():
    kappa, n = 1e6, 400
    s = np.linalg.svd(randsvd(n, kappa, 5, rng=0).A, compute_uv=False)
    exponent = np.sort(-np.log(s) / np.log(kappa))
    assert exponent[0] >= -1e-12
    assert exponent[-1] <= 1 + 1e-6
    # Kolmogorov-Smirnov distance from the uniform law; 1.95 / sqrt(n) has p = 0.001
    distance = np.max(np.abs(exponent - (np.arange(n) + 0.5) / n))
    assert distance < 1.95 / np.sqrt(n)


def test_randsvd_default_is_the_mode_of_the_paper():
    s = np.linalg.svd(randsvd(20, 100.0, rng=0).A, compute_uv=False)
    np.testing.assert_allclose(s, defined_singular_values(20, 100.0, 2), atol=1e-14)


def test_randsvd_solution_and_right_hand_side():
    problem = randsvd(200, 1e3, rng=5)
    residual = np.abs(problem.A @ problem.x_true - problem.b)
    bound = 2 * problem.n * U64 * (np.abs(problem.A) @ np.abs(problem.x_true))
    assert np.all(residual <= bound)
    # 200 N(0, 1) entries: mean and variance within 4 standard errors
    assert abs(np.mean(problem.x_true)) < 4 / np.sqrt(200)
    assert abs(np.var(problem.x_true) - 1) < 4 * np.sqrt(2 / 200)


@pytest.mark.parametrize("mode", [1, 2, 3, 4, 5])
def test_randsvd_with_one_unknown(mode):
    problem = randsvd(1, 1e5, mode, rng=0)
    assert abs(problem.A[0, 0]) == 1.0


def test_randsvd_beyond_double_precision_is_defined():
    problem = randsvd(50, 1e20, rng=0)
    assert np.linalg.cond(problem.A) > 1e15


def test_haar_orthogonal_is_orthogonal():
    Q = haar_orthogonal(120, rng=0)
    np.testing.assert_allclose(Q.T @ Q, np.eye(120), atol=1e-13)


def test_haar_orthogonal_is_uniform():
    rng = np.random.default_rng(0)
    angles = []
    determinants = []
    for _ in range(2000):
        Q = haar_orthogonal(2, rng=rng)
        angles.append(np.arctan2(Q[1, 0], Q[0, 0]))
        determinants.append(np.linalg.det(Q))
    # The first column is uniform on the circle (LAPACK's own signs fill half of it),
    # rotations and reflections are equally likely.
    uniform = np.sort(np.asarray(angles)) / (2 * np.pi) + 0.5
    assert np.max(np.abs(uniform - (np.arange(2000) + 0.5) / 2000)) < 1.95 / np.sqrt(2000)
    assert abs(np.mean(determinants)) < 4 / np.sqrt(2000)


@pytest.mark.parametrize(
    "make", [lambda rng: randsvd(30, 1e4, rng=rng), lambda rng: random_sparse_spd(90, rng=rng)]
)
def test_generators_repeat_with_the_seed_and_advance_a_generator(make):
    assert make(7).fingerprint == make(7).fingerprint
    assert make(7).fingerprint == make(np.random.default_rng(7)).fingerprint
    assert make(7).fingerprint != make(8).fingerprint
    rng = np.random.default_rng(7)
    assert make(rng).fingerprint != make(rng).fingerprint


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: randsvd(0, 10.0, rng=0), ValueError, "n >= 1"),
        (lambda: randsvd(2.5, 10.0, rng=0), TypeError, "n is 2.5; pass an integer"),
        (lambda: randsvd(5, 0.5, rng=0), ValueError, "kappa >= 1"),
        (lambda: randsvd(5, np.inf, rng=0), ValueError, "finite"),
        (lambda: randsvd(5, 10.0, 6, rng=0), ValueError, "pass 1, 2, 3, 4 or 5"),
        (lambda: randsvd(5, 10.0, rng=None), TypeError, r"numpy\.random\.Generator or an integer"),
        (lambda: randsvd(5, 10.0), TypeError, "rng"),
        (lambda: random_sparse_spd(5, 1.5, rng=0), ValueError, "between 0 and 1"),
        (lambda: random_sparse_spd(5, -0.1, rng=0), ValueError, "density >= 0"),
        (lambda: random_sparse_spd(5, 0.1, 0.0, rng=0), ValueError, "beta > 0"),
    ],
)
def test_bad_arguments_name_the_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(("n", "density"), [(60, 0.01), (150, 0.01), (80, 0.05)])
def test_random_sparse_spd_structure(n, density):
    beta = 1e-3
    problem = random_sparse_spd(n, density, beta, rng=1)
    A = problem.A
    assert problem.is_sparse
    assert (A != A.T).nnz == 0
    assert np.all(A.diagonal() >= beta)
    eigenvalues = np.linalg.eigvalsh(A.toarray())
    assert eigenvalues[0] >= beta * (1 - 1e-9)
    # E trace(A0 A0^T) = number of entries, variance 2 per entry
    entries = np.floor(density * n * n)
    trace = np.sum(A.diagonal() - beta)
    assert abs(trace - entries) < 5 * np.sqrt(2 * entries)
    np.testing.assert_array_equal(A @ problem.x_true, problem.b)


def test_random_sparse_spd_with_empty_rows_has_beta_as_smallest_eigenvalue():
    problem = random_sparse_spd(100, 0.01, 1e-2, rng=0)  # 100 entries in 100 rows
    assert np.linalg.eigvalsh(problem.A.toarray())[0] == pytest.approx(1e-2, rel=1e-9)


def test_random_sparse_spd_counts_its_entries():
    # density 1 leaves no empty place: A0 is a full Gaussian matrix and so is A
    assert random_sparse_spd(30, 1.0, rng=0).density == 1.0
    # floor(0.009 * 100) = 0 entries leave beta I
    identity = random_sparse_spd(10, 0.009, 2.0, rng=0).A
    assert (identity != 2.0 * sp.identity(10, format="csr")).nnz == 0
    # floor(0.29 * 10**2) = 29, though 0.29 * 100 < 29 in binary: the trace of A0 A0^T is a
    # sum of 29 squares of N(0, 1), of mean 29 and variance 58
    traces = [random_sparse_spd(10, 0.29, 1.0, rng=seed).A.trace() - 10 for seed in range(2000)]
    assert abs(np.mean(traces) - 29) < 4 * np.sqrt(2 * 29 / 2000)
