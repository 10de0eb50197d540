"""Our supernodal engines: factors against mathematics, pivots, threads, failures."""

import gc
import threading
from itertools import permutations

import numpy as np
import pytest
from hard_systems import arrow
from scipy import sparse
from scipy.sparse.linalg import spsolve

import roundwise as rw
from roundwise import _kernels
from roundwise.backends import ENGINES, ArithmeticFailure, NativeBackend, Status
from roundwise.backends.contract import ToRefine
from roundwise.backends.engines import structure, supernodal
from roundwise.backends.native.sparse import EngineAnalysis
from roundwise.problems import convection_diffusion_2d, laplace_3d, poisson_2d

KINDS = ["cholesky", "ldl", "lu"]
each_kind = pytest.mark.parametrize("kind", KINDS)
each_format = pytest.mark.parametrize("fmt", [rw.FP32, rw.FP64], ids=str)


def factors(A, kind, fmt=rw.FP64, ordering="amd"):
    A = sparse.csr_array(A)
    dtype = np.float32 if fmt == rw.FP32 else np.float64
    return ENGINES[kind].analyse(A, ordering).factorize(A.data.astype(dtype), fmt)


def random_symmetric(n, density, rng, shift=0.0):
    """A symmetric matrix with normally distributed entries, and a shift of its diagonal."""
    upper = sparse.triu(sparse.random_array((n, n), density=density, rng=rng,
                                            data_sampler=rng.standard_normal), 1)  # fmt: skip
    return sparse.csr_array(upper + upper.T + shift * sparse.eye_array(n))


def dominant(n, density, rng):
    """A symmetric matrix with a dominant diagonal."""
    A = random_symmetric(n, density, rng)
    return sparse.csr_array(A + sparse.diags_array(abs(A).sum(axis=1) + 1.0))


def definite(case, rng):
    return {
        "one": lambda: sparse.csr_array([[4.0]]),
        "diagonal": lambda: sparse.diags_array(rng.uniform(1, 2, 300)),
        "disconnected": lambda: sparse.block_diag([dominant(40, 0.1, rng), dominant(30, 0.3, rng)]),
        "arrow": lambda: arrow(200),
        "dense": lambda: dominant(300, 1.0, rng),
        "2-D": lambda: poisson_2d(30).A,
        "3-D": lambda: laplace_3d(9),
        "random": lambda: dominant(500, 0.01, rng),
    }[case]()


CASES = ["one", "diagonal", "disconnected", "arrow", "dense", "2-D", "3-D", "random"]


@each_kind
@each_format
@pytest.mark.parametrize("case", CASES)
def test_factors_and_solutions_are_backward_stable(kind, fmt, case):
    rng = np.random.default_rng(7)
    A = sparse.csr_array(definite(case, rng))
    A.data = A.data.astype(np.float32 if fmt == rw.FP32 else np.float64).astype(np.float64)
    n, u = A.shape[0], fmt.unit_roundoff
    F = factors(A, kind, fmt)
    L, U = F.L, F.U
    difference = abs(A[F.perm][:, F.order] - L @ U).max()
    assert difference <= 10 * np.sqrt(n) * u * (abs(L) @ abs(U)).max()
    assert sparse.triu(L, 1).nnz == 0
    if kind == "cholesky":
        np.testing.assert_array_equal(F.pivots, L.diagonal())
    else:
        np.testing.assert_array_equal(L.diagonal(), 1.0)
        np.testing.assert_array_equal(F.pivots, abs(U.diagonal()))
        assert F.replaced_pivots == 0
    B = rng.standard_normal((n, 7))
    for transpose, T in ((False, A), (True, A.T)):
        X = F.solve(B, transpose)
        size = abs(T).sum(axis=1).max() * abs(X).max(axis=0) + abs(B).max(axis=0)
        assert (abs(T @ X - B).max(axis=0) <= 20 * np.sqrt(n) * u * size).all()
        # A block of right-hand sides is solved in other groups, not with other sums per entry.
        np.testing.assert_allclose(F.solve(B[:, 3], transpose), X[:, 3], rtol=1e4 * u)


def test_exact_factors_of_integers():
    """L of small integers with powers of two on its diagonal: nothing is rounded."""
    rng = np.random.default_rng(0)
    n = 150
    L = sparse.tril(sparse.random_array((n, n), density=0.03, rng=rng), -1).toarray()
    L = np.where(L > 0, rng.integers(-2, 3, (n, n)), 0.0) + np.diag(2.0 ** rng.integers(0, 3, n))
    F = factors(L @ L.T, "cholesky", ordering="natural")
    np.testing.assert_array_equal(F.perm, F.order)
    found = F.L.toarray()
    np.testing.assert_array_equal(found @ found.T, (L @ L.T)[F.perm][:, F.perm])
    # A dense matrix has one order of elimination: the factor is the given one.
    L = np.tril(rng.integers(-2, 3, (140, 140)).astype(float), -1) + np.diag(
        2.0 ** rng.integers(0, 3, 140)
    )
    F = factors(L @ L.T, "cholesky", ordering="natural")
    np.testing.assert_array_equal(F.perm, np.arange(140))
    np.testing.assert_array_equal(F.L.toarray(), L)


@pytest.mark.parametrize("fmt", [rw.FP32, rw.FP64], ids=str)
def test_structure_is_what_the_analysis_predicts(fmt):
    A = poisson_2d(20).A
    F = factors(A, "cholesky", fmt)
    assert F.L.nnz == F.entries
    columns = np.diff(F.L.indptr).astype(float)
    assert F.flops == np.sum(columns**2)
    lu = factors(A, "lu", fmt)
    assert lu.entries == 2 * F.entries - A.shape[0] == lu.L.nnz + lu.U.nnz - A.shape[0]


@each_kind
@each_format
def test_threads_do_not_change_a_bit(kind, fmt):
    rng = np.random.default_rng(3)
    A = laplace_3d(14)
    B = rng.standard_normal((A.shape[0], 9))
    results = []
    for threads in (1, 2, 3, 4):
        rw.set_num_threads(threads)
        F = factors(A, kind, fmt)
        results.append((F._storage, F.solve(B), F.solve(B[:, 0], transpose=True)))
    for storage, X, x in results[1:]:
        assert np.array_equal(storage, results[0][0])
        assert np.array_equal(X, results[0][1])
        assert np.array_equal(x, results[0][2])


@each_kind
def test_threads_solve_with_one_large_block(kind):
    """A dense matrix has no subtrees that threads could share, and more threads than columns."""
    A = dominant(900, 1.0, np.random.default_rng(0))
    B = np.random.default_rng(1).standard_normal((900, 5))
    rw.set_num_threads(4)
    F = factors(A, kind)
    for transpose in (False, True):
        X = F.solve(B, transpose)
        assert abs(A @ X - B).max() <= 1e-12 * abs(A).sum(axis=1).max() * abs(X).max()


@pytest.mark.parametrize("level", _kernels.available_levels())
def test_every_instruction_set(level):
    A = convection_diffusion_2d(25, 0.1, (3.0, -2.0)).A
    b = np.ones(A.shape[0])
    active = _kernels.active_level()
    try:
        _kernels.set_level(level)
        for fmt in (rw.FP32, rw.FP64):
            x = factors(A, "lu", fmt).solve(b)
            y = factors(A + A.T, "ldl", fmt).solve(b)
            z = factors(poisson_2d(25).A, "cholesky", fmt).solve(b)
            for T, solution in ((A, x), (A + A.T, y), (poisson_2d(25).A, z)):
                size = abs(T).sum(axis=1).max() * abs(solution).max()
                assert abs(T @ solution - b).max() <= 100 * fmt.unit_roundoff * size
    finally:
        _kernels.set_level(active)


@each_kind
def test_refactorizing_is_factorizing(kind):
    A = poisson_2d(15).A
    other = A.copy()
    other.data = A.data * 3.0
    analysis = ENGINES[kind].analyse(A, "amd")
    analysis.factorize(A.data, rw.FP64)
    again = analysis.factorize(other.data, rw.FP64)
    assert np.array_equal(again.L.toarray(), factors(other, kind).L.toarray())


def test_a_plan_outlives_the_analysis_that_it_reads():
    A = sparse.csr_array(np.diag(np.full(200, 4.0)) + np.eye(200, k=1) + np.eye(200, k=-1))
    analysis = ENGINES["cholesky"].analyse(A, "amd")
    plan, expected = analysis.plan, analysis.factorize(A.data, rw.FP64)._storage
    del analysis
    gc.collect()
    storage, index = np.empty(plan.stored), np.zeros(200, dtype=np.int32)
    _kernels.supernodal_factorize(plan, A.data, storage, index, 0.0, np.inf, 1)
    assert np.array_equal(np.nan_to_num(storage), np.nan_to_num(expected))


@each_kind
def test_nothing_to_factorize(kind):
    F = factors(sparse.csr_array((0, 0)), kind)
    assert F.solve(np.zeros(0)).shape == (0,)
    assert F.solve(np.zeros((0, 3)), transpose=True).shape == (0, 3)
    assert F.L.shape == F.U.shape == (0, 0)
    assert factors(sparse.eye_array(4), kind).solve(np.ones((4, 0))).shape == (4, 0)


@each_kind
def test_indices_of_64_bits(kind):
    A = poisson_2d(8).A
    wide = A.copy()
    wide.indices, wide.indptr = A.indices.astype(np.int64), A.indptr.astype(np.int64)
    b = np.arange(64.0)
    assert np.array_equal(factors(wide, kind).solve(b), factors(A, kind).solve(b))


def test_an_empty_row_is_a_failure():
    A = sparse.csr_array(([1.0, 2.0], ([0, 2], [0, 2])), shape=(3, 3))
    for kind in ("ldl", "lu"):
        with pytest.raises(rw.backends.ArithmeticFailure) as failure:
            factors(A, kind)
        assert failure.value.status is Status.ZERO_PIVOT
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        factors(A, "cholesky")
    assert (failure.value.status, failure.value.column) == (Status.NOT_POSITIVE_DEFINITE, 1)


# Cholesky's failures


def test_cholesky_stops_at_the_first_pivot_that_is_not_positive():
    rng = np.random.default_rng(5)
    A = laplace_3d(12)
    for column in rng.integers(0, A.shape[0], 5):
        bad = A.copy()
        bad[column, column] = -1.0
        failures = set()
        for threads in (1, 3):
            rw.set_num_threads(threads)
            with pytest.raises(rw.backends.ArithmeticFailure) as failure:
                factors(bad, "cholesky")
            assert failure.value.status is Status.NOT_POSITIVE_DEFINITE
            failures.add(failure.value.column)
        assert failures == {column}  # no pivot before it is negative: they are minors of A


OVERFLOWS = {
    "cholesky": [[1e-36, 1e30], [1e30, 1.0]],
    "ldl": [[3e38, 2.9e38], [2.9e38, -3e38]],
    "lu": [[3e38, 3e38], [-3e38, 3e38]],
}


def kernel_result(kind, A):
    """What the kernel says of an FP32 matrix as it is, without scaling."""
    A = sparse.csr_array(np.array(A, dtype=np.float32))
    plan = ENGINES[kind].analyse(A, "natural").plan
    storage = np.empty(plan.stored, dtype=np.float32)
    index = np.zeros(A.shape[0], dtype=np.int32)
    return _kernels.supernodal_factorize(plan, A.data, storage, index, 0.0, np.inf, 1)


@each_kind
def test_overflow_is_a_status(kind):
    overflow = next(code for code, s in supernodal.FAILURES.items() if s is Status.OVERFLOW)
    assert kernel_result(kind, OVERFLOWS[kind])[:2] == (overflow, 1)
    assert kernel_result(kind, [[1.0, 0.5], [0.5, np.inf]])[0] == overflow
    assert kernel_result(kind, [[1.0, np.nan], [np.nan, 2.0]])[0] == overflow


def test_overflow_in_a_solve_is_a_status():
    A = 1e-30 * poisson_2d(5).A
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        factors(A, "cholesky", rw.FP32).solve(np.full(25, 1e30))
    assert failure.value.status is Status.OVERFLOW


def test_narrowing_can_overflow():
    A = 1e80 * poisson_2d(5).A
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        factors(A, "cholesky").to(rw.FP32)
    assert failure.value.status is Status.OVERFLOW


# LDL' and its pivots


@pytest.mark.parametrize("seed", range(4))
def test_indefinite_matrices(seed):
    """Zero diagonal: without 2 x 2 pivots, the first one would be zero."""
    rng = np.random.default_rng(seed)
    A = random_symmetric(120, 1.0, rng)
    F = factors(A, "ldl")
    assert (F._pivots < 0).any()
    assert F.replaced_pivots == 0
    difference = abs(A[F.perm][:, F.order] - F.L @ F.U).max()
    assert difference <= 100 * 2.0**-53 * (abs(F.L) @ abs(F.U)).max()
    x = rng.standard_normal(120)
    assert abs(F.solve(A @ x) - x).max() <= 1e-8
    # D has the inertia of A.
    U, L = F.U.toarray(), F.L.toarray()
    D = U @ np.linalg.inv(L.T)
    eigenvalues = np.linalg.eigvalsh((D + D.T) / 2)
    assert np.count_nonzero(eigenvalues > 0) == np.count_nonzero(
        np.linalg.eigvalsh(A.toarray()) > 0
    )


def test_a_saddle_point_matrix():
    rng = np.random.default_rng(1)
    H, G = dominant(200, 0.02, rng), sparse.random_array((60, 200), density=0.05, rng=rng)
    G = G + sparse.eye_array(60, 200)
    A = sparse.csr_array(sparse.block_array([[H, G.T], [G, None]]))
    b = rng.standard_normal(260)
    for kind in ("ldl", "lu"):
        x = factors(A, kind).solve(b)
        assert abs(A @ x - b).max() <= 1e-8 * abs(A).max() * abs(x).max()


# Static pivoting


def test_tiny_pivots_are_replaced_and_counted():
    """A singular matrix: its last pivot would be about zero."""
    ring = sparse.diags_array([2.0] * 50, format="lil")
    for i in range(50):
        ring[i, (i + 1) % 50] = ring[(i + 1) % 50, i] = -1.0
    for kind in ("ldl", "lu"):
        F = factors(ring, kind)
        assert F.replaced_pivots == 1
        assert F.pivots.min() == pytest.approx(2.0**-26.5 * 2.0, rel=0.5)


@pytest.mark.parametrize("seed", range(3))
def test_matching_makes_a_zero_diagonal_large(seed):
    rng = np.random.default_rng(seed)
    n = 200
    A = sparse.random_array((n, n), density=0.02, rng=rng).tolil()
    cycle = rng.permutation(n)
    A[cycle, np.roll(cycle, 1)] = 5.0
    A.setdiag(0.0)
    A = sparse.csr_array(A)
    A.eliminate_zeros()
    matched = structure.matched_rows(structure.Lines(A))
    assert sorted(matched) == list(range(n))
    assert (abs(A[matched].diagonal()) == 5.0).all()
    b = rng.standard_normal(n)
    F = factors(A, "lu")
    assert F.replaced_pivots == 0
    np.testing.assert_allclose(F.solve(b), spsolve(A.tocsc(), b), rtol=1e-8)
    np.testing.assert_allclose(F.solve(b, True), spsolve(A.T.tocsc(), b), rtol=1e-8)


def test_matching_has_the_largest_product():
    rng = np.random.default_rng(2)
    for _ in range(5):
        A = np.where(rng.random((5, 5)) < 0.6, 10.0 ** rng.uniform(-3, 3, (5, 5)), 0.0)
        A[np.arange(5), rng.permutation(5)] = 1.0
        products = [np.prod(A[list(p), np.arange(5)]) for p in permutations(range(5))]
        csr = sparse.csr_array(A)
        matched = structure.matched_rows(structure.Lines(csr))
        if matched is None:  # strong enough as it is
            continue
        assert np.prod(A[matched].diagonal()) == pytest.approx(max(products), rel=1e-12)


def test_no_matching_where_it_is_not_needed_or_impossible():
    A = poisson_2d(6).A
    assert structure.matched_rows(structure.Lines(A)) is None
    singular = sparse.csr_array(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
    assert structure.matched_rows(structure.Lines(singular)) is None
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        factors(singular, "lu")
    assert failure.value.status is rw.backends.Status.ZERO_PIVOT


@pytest.mark.parametrize("kind", ["ldl", "lu"])
def test_bad_scaling_is_undone(kind):
    """A = S P S with powers of two in S: the same factors, scaled, and nothing replaced."""
    rng = np.random.default_rng(4)
    P = poisson_2d(12).A
    S = sparse.diags_array(2.0 ** rng.integers(-40, 40, 144))
    A = sparse.csr_array(S @ P @ S)
    F = factors(A, kind)
    assert F.replaced_pivots == 0
    L, U = F.L.toarray(), F.U.toarray()
    difference = abs(L @ U - A.toarray()[F.perm][:, F.order])
    assert (difference <= 100 * 2.0**-53 * (abs(L) @ abs(U))).all()
    b = rng.uniform(1, 2, 144)
    for transpose in (False, True):
        x = S @ F.solve(S @ b, transpose)
        np.testing.assert_allclose(x, factors(P, kind).solve(b), rtol=1e-12)


# Interruption


@each_kind
@pytest.mark.parametrize("fastest", [0.0, np.inf])  # by the counts, and by the clock
def test_a_factorization_stops_at_its_limit(monkeypatch, kind, fastest):
    monkeypatch.setattr(supernodal, "FASTEST", fastest)
    A = poisson_2d(40).A
    analysis = ENGINES[kind].analyse(A, "amd")
    with pytest.raises(ArithmeticFailure) as caught:
        analysis.factorize(A.data, rw.FP64, 1e-9)
    assert caught.value.status is Status.STOPPED
    monkeypatch.undo()
    for seconds in (1e3, np.inf):
        x = analysis.factorize(A.data, rw.FP64, seconds).solve(np.ones(1600))
        np.testing.assert_allclose(A @ x, 1.0, rtol=1e-10)


def test_a_limit_needs_no_thread(monkeypatch):
    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    A = poisson_2d(40).A
    analysis = EngineAnalysis(rw.backends.get_backend("native"), A, "cholesky/amd")
    x = analysis.factorize(A, rw.FP64, 1e3).solve(np.ones(1600))
    np.testing.assert_allclose(A @ x, 1.0, rtol=1e-10)


# Values


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_symmetry_is_that_of_every_entry(index, dtype):
    """One entry changed, added or turned to NaN, and A is no longer symmetric."""
    rng = np.random.default_rng(0)
    A = sparse.csr_array(sparse.random_array((40, 40), density=0.1, rng=rng, dtype=dtype))
    S = sparse.csr_array(A + A.T)

    def symmetric(M):
        M = sparse.csr_array(M)
        M.sum_duplicates()
        indices = M.indptr.astype(index), M.indices.astype(index)
        return _kernels.sparse_is_symmetric(*indices, M.data.astype(dtype))

    assert symmetric(S)
    assert symmetric(sparse.csr_array((5, 5)))
    assert not symmetric(A)
    rows = np.repeat(np.arange(40), np.diff(S.indptr))
    for e in np.flatnonzero(rows != S.indices)[::7]:
        changed = S.copy()
        changed.data[e] *= 1.5
        assert not symmetric(changed)
        changed.data[e] = np.nan
        assert not symmetric(changed)
    empty = np.argwhere((S.toarray() == 0) & ~np.eye(40, dtype=bool))
    for i, j in empty[::200]:
        added = S.tolil()
        added[i, j] = 1.0
        assert not symmetric(added)


@pytest.mark.parametrize("symmetric", [False, True])
def test_balanced_rows_and_columns_have_similar_largest_entries(symmetric):
    """Three sweeps leave an eighth of the exponents: 2^80 becomes at most 2^11."""
    rng = np.random.default_rng(1)
    n = 60
    A = sparse.csr_array(np.eye(n) + (rng.random((n, n)) < 0.1))
    A = sparse.csr_array(A + A.T)
    e, f = rng.integers(-40, 40, (2, n))
    f = e if symmetric else f
    rows = np.repeat(np.arange(n), np.diff(A.indptr))
    values = np.ldexp(A.data, e[rows] + f[A.indices])
    found = structure.balancing(A, values, symmetric)
    assert found is not None
    scaled = structure.scaled_by(A, values, found)
    assert np.array_equal(scaled, np.ldexp(values, found[0][rows] + found[1][A.indices]))
    for maxima in (
        np.maximum.reduceat(scaled, A.indptr[:-1]),
        sparse.csr_array((scaled, A.indices, A.indptr), shape=A.shape).max(axis=0).toarray(),
    ):
        assert np.log2(maxima).max() - np.log2(maxima).min() <= 12
    assert structure.balancing(A, A.data, symmetric) is None


def test_values_are_counted():
    A = poisson_2d(4).A
    analysis = ENGINES["cholesky"].analyse(A, "amd")
    with pytest.raises(ValueError, match="pass one number for each"):
        analysis.factorize(A.data[:-1], rw.FP64)


@pytest.mark.parametrize("fmt", ["fp32", "fp64"])
@pytest.mark.parametrize("shape", [(300,), (300, 1), (300, 4)])
def test_refinement_by_one_call(fmt, shape):
    """X is as good as was asked for, R its residual; what cannot be is refused."""
    rng, backend = np.random.default_rng(3), NativeBackend()
    A = poisson_2d(20).A[:300][:, :300]
    A.sort_indices()
    factors = backend.analyse(A, "cholesky/amd").factorize(A, fmt)
    B, target = np.asfortranarray(rng.standard_normal(shape)), 1e-15
    norm = float(abs(A).sum(axis=1).max())
    matrix = backend.matrix(A, "fp64")
    found = factors.refined(ToRefine(matrix, norm, B, target))
    assert found.X.shape == found.R.shape == B.shape
    X = found.X.reshape(300, -1)
    R = backend.residual(matrix, X, B.reshape(300, -1))
    assert np.array_equal(found.R.reshape(300, -1), R)
    sizes = norm * abs(X).max(axis=0) + abs(B.reshape(300, -1)).max(axis=0)
    assert (found.errors <= target).all()
    np.testing.assert_allclose(abs(R).max(axis=0), found.errors * sizes, rtol=1e-12)
    assert found.error == found.errors.max()
    assert (len(found.history) > 0) == (fmt == "fp32")
    assert factors.refined(ToRefine(matrix, norm, B, target), transpose=True) is None
    assert factors.refined(ToRefine(matrix, norm, B * np.nan, target)) is None
    assert factors.refined(ToRefine(matrix, norm, B, 1e-30)) is None
    assert (factors.refined(ToRefine(matrix, norm, B, target, 0)) is None) == (fmt == "fp32")
