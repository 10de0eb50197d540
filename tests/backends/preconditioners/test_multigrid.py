"""Multigrid by smoothed aggregation, judged by its mathematics."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.backends import ArithmeticFailure, Status
from roundwise.backends.preconditioners import STORED_IN, Multigrid
from roundwise.krylov import KrylovStatus, Residual, cg, products_of
from roundwise.machine import threads
from roundwise.problems import laplace_3d, poisson_2d

each_format = pytest.mark.parametrize("fmt", STORED_IN, ids=str)


def weighted(A, spread, seed=0):
    """The Laplacian of the same graph with conductances over so many powers of ten."""
    upper = sparse.triu(A, 1).tocoo()
    w = 10.0 ** np.random.default_rng(seed).uniform(-spread / 2, spread / 2, upper.nnz)
    off = sparse.coo_array((w, (upper.row, upper.col)), A.shape)
    off = sparse.csr_array(off + off.T)
    rest = np.asarray(A.sum(axis=1)).ravel()
    return sparse.csr_array(sparse.diags_array(off.sum(axis=1) + rest) - off)


def elasticity(n):
    """Springs between neighbours in a square, clamped on the left, and the rigid motions."""
    points = np.array([(i, j) for i in range(n) for j in range(n)], dtype=float)
    K = np.zeros((2 * n * n, 2 * n * n))
    for p, x in enumerate(points):
        for q, y in enumerate(points):
            if p < q and abs(x - y).max() == 1:
                d = (y - x) / np.linalg.norm(y - x)
                block = np.outer(d, d)
                for a, b, sign in ((p, p, 1), (q, q, 1), (p, q, -1), (q, p, -1)):
                    K[2 * a : 2 * a + 2, 2 * b : 2 * b + 2] += sign * block
    motions = np.zeros((2 * n * n, 3))
    motions[0::2, 0] = motions[1::2, 1] = 1.0
    motions[0::2, 2], motions[1::2, 2] = -points[:, 1], points[:, 0]
    free = np.repeat(points[:, 0] > 0, 2)
    return sparse.csr_array(K[np.ix_(free, free)]), motions[free]


def matrices(hierarchy):
    return [
        [sparse.csr_array((v, i, s), shape=shape) for s, i, v, shape in kind]
        for kind in hierarchy._hierarchy.kept
    ]


def dense_cycle(hierarchy):
    n = hierarchy.n
    return hierarchy.apply(np.asfortranarray(np.eye(n)))


def iterations(A, hierarchy, rtol=1e-10):
    b = np.random.default_rng(1).standard_normal((A.shape[0], 1))
    found = cg(products_of(A), b, hierarchy.apply, stop=Residual(rtol), most=100)
    assert found.status is KrylovStatus.CONVERGED
    return found.iterations


def rational(A):
    return [[Fraction(float(x)) for x in row] for row in A.toarray()]


def times(A, B):
    columns = list(zip(*B, strict=True))
    return [[sum(a * b for a, b in zip(r, c, strict=True) if a and b) for c in columns] for r in A]


def test_coarse_matrices_are_galerkin_products_in_rationals():
    A = weighted(poisson_2d(6).A, 2)
    fine, P, R = matrices(Multigrid(A, "fp64", coarsest=5, keep=True))
    assert len(fine) > 1
    for level in range(len(fine) - 1):
        exact = times(times(rational(R[level]), rational(fine[level])), rational(P[level]))
        exact = np.array([[float(x) for x in row] for row in exact])
        scale = abs(R[level]).sum(1).max() * abs(fine[level]).max() * abs(P[level]).sum(1).max()
        assert abs(exact - fine[level + 1].toarray()).max() <= 1e-14 * scale
        assert (R[level].toarray() == P[level].toarray().T).all()


def test_coarse_spaces_hold_the_near_null_space():
    """Without smoothing P coarse = B; a step of Jacobi keeps it where A B = 0."""
    A = sparse.csr_array(weighted(poisson_2d(8).A, 1))
    A = sparse.csr_array(A - sparse.diags_array(A @ np.ones(64)))  # singular: rows sum to 0
    fine, P, _ = matrices(Multigrid(A, "fp64", coarsest=10, theta=0.0, keep=True))
    constant = (
        np.sqrt(np.asarray(fine[0].diagonal()) / np.asarray(A.diagonal())) ** -1
    )  # scaled by 2^-k
    left = constant - P[0] @ np.linalg.lstsq(P[0].toarray(), constant, rcond=None)[0]
    assert abs(left).max() <= 1e-12 * abs(constant).max()


@each_format
def test_a_cycle_is_symmetric_and_definite(fmt):
    M = dense_cycle(Multigrid(weighted(poisson_2d(10).A, 2), fmt, coarsest=10))
    unit = {"fp64": 2.0**-53}.get(fmt.name, 2.0**-24)
    assert abs(M - M.T).max() <= 200 * unit * abs(M).max()
    assert np.linalg.eigvalsh(M + M.T).min() > 0


@each_format
@pytest.mark.parametrize("spread", [0, 2, 6])
def test_rounding_costs_no_iterations(fmt, spread):
    A = weighted(laplace_3d(14), spread)
    exactly = iterations(A, Multigrid(A, "fp64"))
    assert exactly <= {0: 12, 2: 16, 6: 40}[spread]
    assert iterations(A, Multigrid(A, fmt)) <= exactly + 1


def test_iterations_hardly_grow_with_the_size():
    counts = [iterations(A, Multigrid(A)) for A in (poisson_2d(n).A for n in (60, 120, 240))]
    assert counts[-1] <= counts[0] + 4
    assert max(counts) <= 16


def test_the_first_levels_can_be_as_small_as_the_dense_one():
    A = poisson_2d(7).A
    M = dense_cycle(Multigrid(A, "fp64", coarsest=49))  # nothing but the dense inverse
    assert abs(M @ A.toarray() - np.eye(49)).max() < 1e-13
    one = Multigrid(sparse.csr_array([[4.0]]), "bf16")
    assert one.apply(np.array([1.0]))[0] == 0.25


def test_rigid_motions_serve_elasticity():
    A, motions = elasticity(14)
    plain = iterations(A, Multigrid(A, "fp64", nodes=2, coarsest=20))
    rigid = iterations(A, Multigrid(A, "fp64", motions, nodes=2, coarsest=20))
    assert rigid <= min(plain, 25)


@each_format
def test_bits_depend_neither_on_threads_nor_on_instructions(fmt):
    A = weighted(laplace_3d(30), 2)  # several tasks for each thread
    R = np.random.default_rng(0).standard_normal((A.shape[0], 2))
    before, level, found = threads.get_num_threads(), threads.get_simd_level(), set()
    try:
        for count in (1, 2, 5):
            rw.set_num_threads(count)
            for name in threads.simd_levels():
                threads.set_simd_level(name)
                found.add(Multigrid(A, fmt).apply(R).tobytes())
    finally:
        rw.set_num_threads(before)
        threads.set_simd_level(level)
    assert len(found) == 1


def test_columns_do_not_matter_to_each_other_and_scales_not_at_all():
    A = poisson_2d(20).A
    hierarchy = Multigrid(A)
    R = np.random.default_rng(0).standard_normal((400, 3))
    Z = hierarchy.apply(R)
    for j in range(3):
        assert (hierarchy.apply(R[:, j]) == Z[:, j]).all()
    assert (hierarchy.apply(R * 2.0**500) == Z * 2.0**500).all()
    assert (Multigrid(A * 2.0**-600).apply(R) == Z * 2.0**600).all()
    assert (hierarchy.apply(np.zeros(400)) == 0).all()
    assert np.isnan(hierarchy.apply(np.full(400, np.nan))).all()


def test_what_is_nearly_diagonal_or_connects_everything_is_only_smoothed():
    rng = np.random.default_rng(0)
    diagonal = sparse.diags_array(rng.uniform(1, 1e6, 1000), format="csr")
    assert len(Multigrid(diagonal).levels) == 1
    assert iterations(diagonal, Multigrid(diagonal)) <= 3
    ends = rng.integers(0, 2000, (2, 12_000))
    graph = sparse.coo_array((np.ones(12_000), ends), shape=(2000, 2000)).tocsr()
    graph = sparse.csr_array(graph + graph.T)
    graph.setdiag(0)
    A = sparse.csr_array(sparse.diags_array(graph.sum(axis=1) + 0.01) - graph)
    hierarchy = Multigrid(A)
    assert hierarchy.entries <= 3 * A.nnz
    assert iterations(A, hierarchy) <= 40


@pytest.mark.parametrize(
    ("A", "status"),
    [
        (np.diag([1.0, -1.0, 1.0]), Status.NOT_POSITIVE_DEFINITE),
        (np.diag([1.0, 0.0, 1.0]), Status.NOT_POSITIVE_DEFINITE),
        (np.diag([1.0, np.nan, 1.0]), Status.NONFINITE_INPUT),
        (np.diag([1.0, np.inf, 1.0]), Status.NONFINITE_INPUT),
        (np.array([[1.0, 3.0], [3.0, 1.0]]), Status.NOT_POSITIVE_DEFINITE),
    ],
)
def test_failures_have_names(A, status):
    with pytest.raises(ArithmeticFailure) as failed:
        Multigrid(sparse.csr_array(A))
    assert failed.value.status is status


def test_arguments_that_do_not_fit_are_refused():
    A = poisson_2d(5).A
    with pytest.raises(ValueError, match="divisor"):
        Multigrid(A, nodes=2)
    with pytest.raises(ValueError, match="stored in"):
        Multigrid(A, "fp64x2")
    with pytest.raises(ValueError, match="25 rows"):
        Multigrid(A, near_nullspace=np.ones(24))
    with pytest.raises(ValueError, match="25 numbers"):
        Multigrid(A).apply(np.ones(24))


def test_a_near_nullspace_may_have_more_columns_than_aggregates_have_unknowns():
    """And takes no memory that grows with the square of its columns."""
    A, rng = poisson_2d(40).A, np.random.default_rng(0)
    with pytest.raises(ArithmeticFailure):  # the next level would be as large
        Multigrid(A, near_nullspace=rng.standard_normal((1600, 1000)), coarsest=20)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_near_nullspace_that_is_not_finite_is_refused(wrong):
    with pytest.raises(ValueError, match=r"finite|NaN"):
        Multigrid(poisson_2d(10).A, near_nullspace=np.full((100, 1), wrong))
