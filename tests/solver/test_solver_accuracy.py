"""No silent wrong answers: every x that is returned is judged in exact arithmetic.

The judge allows for its own rounding, a few u relative to the backward error, and no more. Whatever
NumPy or SciPy solves to the same backward error must be solved, too, unless A is singular to
working precision, where luck decides.
"""

import csv
import itertools
import math
import os
import warnings
from pathlib import Path

import exact
import hard_systems
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import spsolve

import roundwise as rw
from roundwise.algorithms.conditioning import Conditioning
from roundwise.backends import get_backend, native_formats
from roundwise.backends.engines.supernodal import SupernodalFactors
from roundwise.problems import laplace_3d, poisson_2d, randsvd

pytestmark = pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
U = 2.0**-53
POLICIES = ("default", *(fmt.name for fmt in native_formats()))
MATRICES = Path(
    os.environ.get("ROUNDWISE_MATRICES", Path(__file__).parents[3] / "shared" / "matrices")
)


def judge(A, b, **options):
    """The answer, or None if the solver says that it failed; an error if it lies."""
    tolerance = math.sqrt(len(b)) * U
    try:
        x = rw.solve(A, b, **options)
    except rw.SolveFailed as failure:
        told = failure
    else:
        told = None
    if told is not None:
        assert told.reason
        assert not told.backward_error <= tolerance or "determinant is zero" in told.reason
        return None
    assert x.shape == np.shape(b)
    assert exact.passes(A, x, b)
    return x


def peer_solves(A, b):
    """Whether NumPy or SciPy reach the same backward error, and A is not nearly singular."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            x = spsolve(A.tocsc(), b) if sparse.issparse(A) else np.linalg.solve(A, b)
    except (np.linalg.LinAlgError, RuntimeError):  # SuperLU aborts
        return False
    if not exact.passes(A, x, b):
        return False
    return np.linalg.cond(A.toarray() if sparse.issparse(A) else A, 1) < 0.1 / U


def check(A, b, **options):
    assert judge(A, b, **options) is not None or not peer_solves(A, b)


HARD = {
    name: (A, b)
    for name, A, b in itertools.chain(
        hard_systems.growth_systems(),
        hard_systems.structured_systems(),
        hard_systems.scaled_systems(),
        hard_systems.near_singular_systems(),
        hard_systems.singular_systems(),
    )
}


@pytest.mark.parametrize("policy", POLICIES)
def test_hard_systems(policy):
    for A, b in HARD.values():
        check(A, b, policy=policy)


@pytest.mark.parametrize("policy", ["default", "fp32"])
def test_hard_systems_as_sparse_ones(policy):
    for A, b in HARD.values():
        if len(A) <= 120:
            check(sparse.csr_array(A), b, policy=policy)


@pytest.mark.parametrize("name", [name for name in HARD if "1e+-" in name])
def test_badly_scaled_systems_are_solved(name):
    A, b = HARD[name]
    for policy in POLICIES:
        assert judge(A, b, policy=policy) is not None


@pytest.mark.parametrize("mode", [1, 2, 3, 4, 5])
def test_randsvd_of_all_condition_numbers(mode):
    for seed, (n, power) in enumerate(itertools.product((2, 9, 30, 60), range(17))):
        problem = randsvd(n, 10.0**power, mode, rng=100 * mode + seed)
        policy = POLICIES[seed % len(POLICIES)]
        assert judge(problem.A, problem.b, policy=policy) is not None
        assert judge(problem.A, np.ones(n), policy=policy) is not None


@pytest.mark.parametrize("mode", [1, 2, 3, 4, 5])
def test_randsvd_above_the_crossover(mode):
    for power in (2, 9, 15):
        problem = randsvd(420, 10.0**power, mode, rng=mode)
        assert judge(problem.A, problem.b) is not None


def test_many_columns_are_judged_one_by_one():
    for power in (3, 8, 13):
        problem = randsvd(40, 10.0**power, 3, rng=power)
        B = np.column_stack([problem.b, problem.A[:, 0], np.zeros(40), 1e-200 * problem.b])
        B = np.hstack([B, np.random.default_rng(power).standard_normal((40, 4))])
        for policy in POLICIES:
            X = rw.solve(problem.A, B, policy=policy)
            for x, b in zip(X.T, B.T, strict=True):
                assert exact.passes(problem.A, x, b)


def test_pde():
    problem = poisson_2d(30)
    for options in ({}, {"policy": "fp32"}, {"assume_a": "pos"}):
        assert judge(problem.A, problem.b, **options) is not None


def shared_matrices():
    if not MATRICES.is_dir():
        return []
    with (MATRICES / "index.csv").open() as file:
        return [row["name"] for row in csv.DictReader(file)]


@pytest.mark.skipif(not MATRICES.is_dir(), reason="no ../shared/matrices; set ROUNDWISE_MATRICES")
@pytest.mark.parametrize("name", shared_matrices())
def test_application_matrices(name):
    problem = rw.problems.read_matrix_market(MATRICES / f"{name}.mtx.gz")
    b = np.random.default_rng(0).standard_normal(problem.n)
    assert judge(problem.A, b, policy="fp32") is not None


def test_a_lying_gate_would_be_caught():
    A, b = HARD["Wilkinson 120"]
    assert exact.backward_error(A, np.linalg.solve(A, b), b) > 10 * math.sqrt(120) * U


@pytest.fixture
def substitutions(monkeypatch):
    """The numbers of columns that factors of our sparse engine solve for."""
    columns, solve = [], SupernodalFactors._solve_factored

    def counted(self, b, transpose):
        columns.append(b.shape[1])
        return solve(self, b, transpose)

    monkeypatch.setattr(SupernodalFactors, "_solve_factored", counted)
    return columns


def estimate_by_low_factors(A):
    native = get_backend("native")
    factors = native.analyse(A, "lu/amd").factorize(A, "fp32")
    return Conditioning(A, native).estimate(factors)


def test_low_factors_that_have_lost_nothing_are_not_searched(substitutions):
    m = 16
    found = estimate_by_low_factors(laplace_3d(m))
    in_two_norm = 1 / np.tan(np.pi / (2 * m + 2)) ** 2
    assert in_two_norm / 4 < found.condition < m**1.5 * in_two_norm
    assert found.rate < 1e-4
    assert sum(substitutions) < 24  # at most 20 are of LAPACK's estimator


def test_a_direction_that_low_factors_have_lost_is_found(substitutions):
    """All rows of the matrix sum up to 1e-9, which FP32 takes for nothing."""
    n = 400
    rows = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tolil()
    rows[0, 0] = rows[n - 1, n - 1] = 1.0
    A = sparse.csr_array(rows + 1e-9 * sparse.eye_array(n))
    found = estimate_by_low_factors(A)
    assert 1e9 < found.condition < 1.01 * n * 4e9
    assert sum(substitutions) > 24
