"""Krylov methods against mathematics: known iteration counts, dense definitions, named failures."""

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise import krylov
from roundwise.krylov import BLOCKS, KrylovStatus, Residual

POSITIVE = {
    "cg": krylov.cg,
    "minres": krylov.minres,
    "bicgstab": krylov.bicgstab,
    "gmres": krylov.gmres,
}
WITH_NORM = ("cg", "bicgstab")


def columns(n, k, rng=0):
    return np.asfortranarray(np.random.default_rng(rng).standard_normal((n, k)))


def with_eigenvalues(values, rng=1):
    """A symmetric matrix with these eigenvalues."""
    n = len(values)
    Q = np.linalg.qr(np.random.default_rng(rng).standard_normal((n, n)))[0]
    A = (Q * values) @ Q.T
    return (A + A.T) / 2


@pytest.mark.parametrize("distinct", [1, 2, 5, 9])
def test_cg_and_minres_take_as_many_steps_as_there_are_eigenvalues(distinct):
    A = with_eigenvalues(np.repeat(np.linspace(1, 3, distinct), 6))
    B = columns(len(A), 3)
    for method in (krylov.cg, krylov.minres):
        found = method(A.__matmul__, B, stop=Residual(1e-11))
        assert found.converged
        assert found.iterations == distinct


@pytest.mark.parametrize("distinct", [2, 4, 8])
def test_minres_on_indefinite_matrices_takes_as_many_steps_as_there_are_eigenvalues(distinct):
    values = np.concatenate([np.linspace(-3, -1, distinct // 2), np.linspace(1, 2, distinct // 2)])
    A = with_eigenvalues(np.repeat(values, 5))
    found = krylov.minres(A.__matmul__, columns(len(A), 2), stop=Residual(1e-11))
    assert found.converged
    assert found.iterations == distinct


def test_minres_starts_again_where_rounding_errors_have_spoiled_its_recurrence():
    A = with_eigenvalues(np.concatenate([np.linspace(-1, -0.1, 30), np.linspace(0.1, 3, 70)]))
    B, norm = columns(100, 1), np.abs(A).sum(axis=1).max()
    stop = krylov.BackwardError(50 * 2.0**-53, norm, np.abs(B).max(axis=0))
    start = 1e4 * columns(100, 1, rng=5)  # so much larger than x, that ||A|| ||z|| u is not small
    found = krylov.minres(A.__matmul__, B, stop=stop, start=start)
    assert found.converged
    assert found.iterations < 400


def test_minres_has_the_least_residual_of_the_krylov_space():
    A, b = with_eigenvalues(np.linspace(-1, 2, 25)), columns(25, 1)
    found = krylov.minres(A.__matmul__, b, stop=Residual(1e-8))
    space = b
    for norm in [norms[0] for norms in found.history[1:9]]:
        images = A @ space
        least = np.linalg.norm(b - images @ np.linalg.lstsq(images, b)[0])
        assert norm == pytest.approx(least, rel=1e-6)
        space = np.linalg.qr(np.hstack([space, A @ space[:, -1:]]))[0]


def test_cg_has_the_least_error_in_the_norm_of_A():
    A, b = with_eigenvalues(np.geomspace(1, 50, 20)), columns(20, 1)
    x = np.linalg.solve(A, b)
    space = b
    for steps in range(1, 7):
        found = krylov.cg(A.__matmul__, b, stop=Residual(0.0), most=steps)
        assert found.statuses == (KrylovStatus.ITERATION_LIMIT,)
        best = space @ np.linalg.solve(space.T @ A @ space, space.T @ b)
        assert np.allclose(found.X, best, rtol=1e-8)
        assert (x - found.X).T @ A @ (x - found.X) <= (x.T @ A @ x)
        space = np.hstack([space, A @ space[:, -1:]])


@pytest.mark.parametrize("name", POSITIVE)
def test_the_residuals_of_the_history_are_those_of_x(name):
    A, B = rw.problems.poisson_2d(15).A, columns(225, 2)
    for most in (3, 17):
        found = POSITIVE[name](krylov.products_of(A), B, stop=Residual(1e-13), most=most)
        assert np.allclose(found.history[-1], np.linalg.norm(B - A @ found.X, axis=0), rtol=1e-9)
        assert len(found.history) == most + 1


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("kappa", [1e2, 1e6, 1e10])
def test_x_gets_as_accurate_as_by_a_direct_method(name, kappa):
    A = with_eigenvalues(np.concatenate([np.geomspace(1 / kappa, 1, 8), np.full(92, 1.0)]))
    B, norm = columns(100, 2), np.abs(A).sum(axis=1).max()
    stop = krylov.BackwardError(100 * 2.0**-53, norm, np.abs(B).max(axis=0))
    given = {"norm": norm} if name in WITH_NORM else {}
    found = POSITIVE[name](A.__matmul__, B, stop=stop, **given)
    assert found.converged
    R, X = np.abs(B - A @ found.X).max(axis=0), np.abs(found.X).max(axis=0)
    assert (110 * 2.0**-53 * (norm * X + np.abs(B).max(axis=0)) >= R).all()


@pytest.mark.parametrize("name", POSITIVE)
def test_a_preconditioner_that_is_the_inverse_needs_one_step(name):
    A = with_eigenvalues(np.geomspace(1, 1e4, 40))
    inverse = np.linalg.inv(A)
    M = ((inverse + inverse.T) / 2).__matmul__
    found = POSITIVE[name](A.__matmul__, columns(40, 3), M, stop=Residual(1e-8))
    assert found.converged
    assert found.iterations == 1


@pytest.mark.parametrize("name", POSITIVE)
def test_columns_are_solved_as_if_alone(name):
    A, B = rw.problems.poisson_2d(12).A, columns(144, 4)
    B[:, 1] = 0
    B[:, 2] *= 1e-100
    found = POSITIVE[name](krylov.products_of(A), B, stop=Residual(1e-9))
    assert found.converged
    assert not found.X[:, 1].any()
    for j in (0, 2, 3):
        alone = POSITIVE[name](krylov.products_of(A), B[:, [j]], stop=Residual(1e-9))
        assert np.allclose(found.X[:, j], alone.X[:, 0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", POSITIVE)
def test_a_start_near_the_solution_saves_steps(name):
    A, B = rw.problems.poisson_2d(12).A, columns(144, 2)
    exact = np.linalg.solve(A.toarray(), B)
    run = POSITIVE[name]
    found = run(krylov.products_of(A), B, stop=Residual(1e-10))
    near = run(krylov.products_of(A), B, stop=Residual(1e-10), start=exact * (1 + 1e-6))
    assert near.converged
    assert near.iterations < found.iterations
    there = run(krylov.products_of(A), B, stop=Residual(1e-10), start=exact)
    assert (there.iterations, there.products) == (0, 2 if name == "gmres" else 1)


@pytest.mark.parametrize("M", [None, "jacobi"])
def test_gmres_has_the_least_residual_of_the_krylov_space(M):
    A, b = np.random.default_rng(3).standard_normal((30, 30)) + 8 * np.eye(30), columns(30, 1)
    inverse = np.eye(30) if M is None else np.diag(1 / np.diag(A))
    apply = None if M is None else inverse.__matmul__
    found = krylov.gmres(A.__matmul__, b, apply, stop=Residual(1e-10), restart=40)
    space = b / np.linalg.norm(b)
    for norm in [norms[0] for norms in found.history[1:15]]:
        images = A @ inverse @ space
        least = np.linalg.norm(b - images @ np.linalg.lstsq(images, b)[0])
        assert norm == pytest.approx(least, rel=1e-6)
        space = np.linalg.qr(np.hstack([space, A @ inverse @ space[:, -1:]]))[0]


def test_full_gmres_solves_in_n_steps_whatever_the_matrix():
    shift = np.roll(np.eye(12), 1, axis=0)  # no residual but the last is smaller than the first
    b = np.eye(12)[:, :1]
    found = krylov.gmres(shift.__matmul__, b, stop=Residual(1e-12), restart=12)
    assert (found.iterations, found.converged) == (12, True)
    stuck = krylov.gmres(shift.__matmul__, b, stop=Residual(1e-12), restart=5)
    assert stuck.status is KrylovStatus.STAGNATED


def test_flexible_cg_bears_a_preconditioner_that_changes():
    A, B = rw.problems.poisson_2d(20).A.tocsr(), columns(400, 2)
    calls = []

    def M(R):
        calls.append(1)
        return R * (1.0 + 0.5 * (len(calls) % 3))

    found = krylov.cg(krylov.products_of(A), B, M, stop=Residual(1e-9), flexible=True)
    assert found.converged
    assert found.iterations < 150


def test_failures_are_named():
    B = columns(4, 1)
    A = np.diag([1.0, -1.0, 2.0, 3.0])
    assert krylov.cg(A.__matmul__, B).status is KrylovStatus.INDEFINITE
    negative = krylov.cg((A @ A).__matmul__, B, lambda R: -R)
    assert negative.status is KrylovStatus.INDEFINITE_PRECONDITIONER
    negative = krylov.minres(A.__matmul__, B, lambda R: -R)
    assert negative.status is KrylovStatus.INDEFINITE_PRECONDITIONER
    zero = np.zeros((4, 4)).__matmul__
    assert krylov.cg(zero, B).status is KrylovStatus.BREAKDOWN
    assert krylov.minres(zero, B).status is KrylovStatus.STAGNATED
    assert krylov.bicgstab(zero, B).status is KrylovStatus.BREAKDOWN
    assert krylov.gmres(zero, B).status is KrylovStatus.STAGNATED
    turned = np.array([[0.0, 1.0], [-1.0, 0.0]]).__matmul__
    assert krylov.bicgstab(turned, np.ones((2, 1), order="F")).status is KrylovStatus.BREAKDOWN
    for method in POSITIVE.values():
        nan = method(lambda X: X * np.nan, B)
        assert nan.status is KrylovStatus.NONFINITE
        assert np.isfinite(nan.X).all()
        assert method(A.__matmul__, B * np.nan).status is KrylovStatus.NONFINITE
        assert method((A @ A).__matmul__, B, stop=Residual(1e-30)).status in (
            *(KrylovStatus.STAGNATED, KrylovStatus.BREAKDOWN),
            *(KrylovStatus.CONVERGED, KrylovStatus.ITERATION_LIMIT),
        )


def test_a_singular_inconsistent_system_does_not_converge():
    path = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(50, 50)).tolil()
    path[0, 0] = path[-1, -1] = 1.0  # a graph Laplacian: its null space is the constants
    b = np.zeros((50, 1), order="F")
    b[3] = 1.0
    for method in (krylov.cg, krylov.minres):
        assert not method(krylov.products_of(path.tocsr()), b, stop=Residual(1e-10)).converged
        consistent = b - b.mean()
        assert method(krylov.products_of(path.tocsr()), consistent, stop=Residual(1e-10)).converged


def test_the_watch_sees_every_iteration_and_ends_it():
    A, B = rw.problems.poisson_2d(12).A, columns(144, 1)
    seen = []

    def watch(iteration, sizes):
        seen.append((iteration, float(sizes.two[0])))
        return iteration == 7

    found = krylov.cg(krylov.products_of(A), B, stop=Residual(1e-10), watch=watch)
    assert found.status is KrylovStatus.STOPPED
    assert [step for step, _ in seen] == list(range(1, 8))
    assert np.allclose(found.history[-1], np.linalg.norm(B - A @ found.X, axis=0))


@pytest.mark.parametrize("n", [1, 5, 4096, 4097, 70_001])
@pytest.mark.parametrize("k", [1, 3])
def test_kernels_compute_what_they_say_on_any_number_of_threads(n, k):
    P, Q, X, R = (columns(n, k, rng) for rng in range(4))
    a, b = np.linspace(0.5, 2, k), np.linspace(-1, 1, k)
    wanted = X + a * P, R - a * Q
    results = []
    before = rw.get_num_threads()
    try:
        for threads in (1, 2, 5):
            rw.set_num_threads(threads)
            Z, left, sizes = BLOCKS.step(a, P, Q, X.copy("F"), R.copy("F"))
            dots = BLOCKS.dots(P, Q)
            combined = BLOCKS.combine(a, P, b, X.copy("F"))
            results.append([np.array(x).tobytes() for x in (Z, left, *sizes, dots, combined)])
            assert np.allclose(Z, wanted[0])
            assert np.allclose(left, wanted[1])
            assert np.allclose(sizes.two, np.linalg.norm(left, axis=0))
            assert np.array_equal(sizes.largest, np.abs(left).max(axis=0))
            assert np.array_equal(sizes.x_largest, np.abs(Z).max(axis=0))
            assert np.allclose(dots, (P * Q).sum(axis=0), atol=1e-9 * n)
            assert np.allclose(combined, a * P + b * X)
    finally:
        rw.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_products_of_sparse_matrices(index):
    A = sparse.random_array((9000, 7000), density=2e-3, rng=0, format="csr")
    A = sparse.csr_array((A.data, A.indices.astype(index), A.indptr.astype(index)), A.shape)
    X = columns(7000, 3)
    assert np.allclose(krylov.products_of(A)(X), A @ X, rtol=1e-13, atol=1e-13)
    A.indices[5] = 7000
    with pytest.raises(ValueError, match="out of range"):
        krylov.products_of(A)(X)


def test_what_is_written_does_not_overlap_what_is_read():
    X, one = columns(50, 4), np.ones(3)
    with pytest.raises(ValueError, match="overlaps"):
        BLOCKS.combine(one, X[:, 1:], one, X[:, :-1])
    with pytest.raises(ValueError, match="overlaps"):
        BLOCKS.step(one, X[:, 1:], X[:, 1:], np.asfortranarray(X[:, 1:]), X[:, :-1])
    assert np.array_equal(BLOCKS.combine(2.0, X, 1.0, X.copy(order="F")), 3 * X)
    Y = X.copy(order="F")
    assert np.array_equal(BLOCKS.combine(2.0, Y, 1.0, Y), 3 * X)
