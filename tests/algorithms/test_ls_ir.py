"""`LsIR`: refinement of least squares in four precisions, and the loop that learns them."""

from dataclasses import replace

import numpy as np
import pytest
from cases import BACKENDS
from rational import solved
from scipy import sparse

import roundwise as rw
from roundwise.algorithms.least_squares.augmented import AugmentedMatrix
from roundwise.algorithms.stage import Stage
from roundwise.problems import LeastSquares, random_least_squares

GATE = np.sqrt(80) * 2.0**-53


def problem(kappa=1e2, residual=1e-3, seed=0, m=60, n=20):
    return random_least_squares(m, n, kappa=kappa, residual=residual, rng=seed)


@pytest.mark.parametrize("method", ["qr", "cholesky"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_low_factors_reach_the_gate_in_few_steps(backend, method):
    outcome = rw.LsIR(method=method).run(problem(), "fp32-fp64-fp64-fp64", backend)
    assert outcome.nbe <= GATE
    assert 2 <= outcome.outer_iterations <= 6
    assert outcome.inner_iterations <= 30
    assert list(outcome.operations) == [
        ("factor", "fp32"),
        ("update", "fp64"),
        ("gmres", "fp64"),
        ("residual", "fp64"),
    ]
    assert all(tally.flops > 0 for tally in outcome.operations.values())


def test_precision_that_theory_asks_for():
    """QR needs kappa u_f below 1, Cholesky of A'A kappa^2 u_f."""
    easy, hard = problem(1e1), problem(1e5)
    for method in ("qr", "cholesky"):
        assert rw.LsIR(method=method).run(easy, "tf32-fp64-fp64-fp64").nbe <= GATE
    assert rw.LsIR(method="qr").run(hard, "fp32-fp64-fp64-fp64").nbe <= GATE
    broken = rw.LsIR(method="cholesky").run(hard, "bf16-fp64-fp64-fp64")
    assert broken.status is rw.OutcomeStatus.NOT_POSITIVE_DEFINITE
    assert rw.LsIR(method="cholesky").run(hard, "fp64-fp64-fp64-fp64").nbe <= GATE


def test_residuals_in_twice_the_precision_give_the_rational_solution():
    rng = np.random.default_rng(3)
    A, b = rng.integers(-99, 99, (12, 5)).astype(float), rng.integers(-99, 99, 12).astype(float)
    exact = np.array([float(v[0]) for v in solved(A.T @ A, (A.T @ b)[:, None])])
    outcome = rw.LsIR().run(LeastSquares(A, b, exact), "fp32-fp64-fp64-fp64x2", "native")
    assert outcome.ferr <= 4 * 2.0**-53


@pytest.mark.parametrize("fmt", ["bf16", "fp32", "fp64"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_qr_is_a_factorization_to_the_formats_precision(backend, fmt):
    made = rw.backends.get_backend(backend)
    if not made.supports(fmt):
        pytest.skip(f"{backend} does not run {fmt} here")
    T = problem(1e1).A
    Q, R = made.orthogonalized(T, fmt)
    u = rw.get_format(fmt).unit_roundoff
    assert np.array_equal(R, np.triu(R))
    assert np.linalg.norm(Q @ R - T) <= 60 * u * np.linalg.norm(T)
    assert np.linalg.norm(Q.T @ Q - np.eye(20)) <= 60 * np.sqrt(20) * u
    G = np.tril(made.gram(T, fmt).astype(float))
    assert np.linalg.norm(G - np.tril(T.T @ T)) <= 60 * u * np.linalg.norm(T) ** 2


def test_zero_columns_are_a_zero_pivot():
    A = problem().A.copy()
    A[:, 3] = 0
    outcome = rw.LsIR().run(LeastSquares(A, np.ones(60)), "fp32-fp64-fp64-fp64")
    assert outcome.status is rw.OutcomeStatus.ZERO_PIVOT


def test_the_augmented_matrix_is_what_it_says():
    backend = rw.backends.get_backend("native")
    T = problem().A
    stage = Stage("gmres", rw.FP64, backend)
    K = AugmentedMatrix(stage, backend.matrix(T, "fp64"), backend.matrix(T.T, "fp64"))
    whole = np.block([[np.eye(60), T], [T.T, np.zeros((20, 20))]])
    v = np.random.default_rng(0).standard_normal(80)
    assert K.matvec(v) == pytest.approx(whole @ v, rel=1e-12, abs=1e-12)


def test_problems_are_checked_frozen_and_told_apart():
    one = problem()
    assert one.n == 20
    assert one.fingerprint == problem().fingerprint != problem(seed=1).fingerprint
    assert not one.A.flags.writeable
    assert LeastSquares(sparse.csr_array(np.eye(5, 3)), np.ones(5)).density == pytest.approx(0.2)
    with pytest.raises(ValueError, match="as many rows"):
        LeastSquares(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match="pass b with 60 rows"):
        LeastSquares(one.A, np.ones(3))
    with pytest.raises(ValueError, match="NaN"):
        LeastSquares([[np.nan], [1.0]], [1.0, 1.0])
    with pytest.raises(ValueError, match="kappa"):
        problem(kappa=0.5)


def test_random_problems_have_the_kappa_and_the_residual_they_say():
    made = problem(1e6, 0.25)
    assert np.linalg.cond(made.A) == pytest.approx(1e6, rel=1e-6)
    x = np.linalg.lstsq(made.A, made.b, rcond=None)[0]
    assert np.linalg.norm(made.b - made.A @ x) == pytest.approx(0.25, rel=1e-8)


def test_bad_settings_name_the_fix():
    with pytest.raises(ValueError, match="'qr', 'cholesky'"):
        rw.LsIR(method="lu")
    with pytest.raises(ValueError, match="restart"):
        rw.LsIR(restart=0)
    sparse_problem = LeastSquares(sparse.csr_array(np.eye(5, 3)), np.ones(5))
    with pytest.raises(ValueError, match="cholesky"):
        rw.LsIR(method="qr").run(sparse_problem, "fp64-fp64-fp64-fp64")


def test_the_papers_loop_learns_and_decides_for_lstsq(tmp_path):
    training = [problem(10.0**k, 1e-3, k, 24, 6) for k in range(5)]
    training = [replace(p, x_true=np.linalg.lstsq(p.A, p.b)[0]) for p in training]
    tuner = rw.Tuner(rw.LsIR(), ["fp32", "fp64"], episodes=20).fit(training)
    action = tuner.predict(training[0])
    solution = rw.lstsq(training[0].A, training[0].b, policy=tuner, full_output=True)
    assert solution.attempts[0].action == f"qr:{action}"
    tuner.save(tmp_path / "ls.json")
    again = rw.Tuner.load(tmp_path / "ls.json")
    assert again.algorithm == rw.LsIR()
    assert again.predict(training[0]) == action
    wide = rw.lstsq(training[0].A.T, training[0].b[:6], policy=again)
    assert wide == pytest.approx(np.linalg.pinv(training[0].A.T) @ training[0].b[:6], rel=1e-9)
    other = rw.Tuner(rw.LuIR())
    with pytest.raises(ValueError, match="fit one for LsIR"):
        rw.lstsq(training[0].A, training[0].b, policy=other)


@pytest.mark.parametrize("power", [-30, 12, 18])
@pytest.mark.parametrize("action", ["fp16-fp16-fp16-fp16", "fp16-fp32-fp32-fp64"])
def test_the_size_of_b_changes_no_bit_in_formats_of_a_small_range(action, power):
    """b is scaled by powers of two before it is rounded: 2**18 is beyond fp16."""
    given = problem(1e2, 1e-2)
    outcome = rw.LsIR().run(given, action)
    scaled = rw.LsIR().run(replace(given, b=np.ldexp(given.b, power), x_true=None), action)
    assert (scaled.status, scaled.nbe) == (outcome.status, outcome.nbe)
    assert scaled.inner_iterations == outcome.inner_iterations
    assert np.array_equal(np.ldexp(scaled.x, -power), outcome.x)
