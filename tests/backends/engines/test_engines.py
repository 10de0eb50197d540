"""Sparse engines: one analysis serves many factorizations, as accurately as a fresh one."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cases import ENGINES, engine_methods
from scipy import sparse

import roundwise as rw
from roundwise.backends import ENGINES as LISTED
from roundwise.backends import NativeBackend, Status
from roundwise.backends.emulated import ordering as superlu_calls
from roundwise.backends.engines import Engine, Symbolic
from roundwise.problems import convection_diffusion_2d, laplace_3d, poisson_2d

native = NativeBackend(sparse_on="auto")
ITERATING = tuple(f"{engine.name}/" for engine in LISTED.values() if engine.stops_at)
FACTORIZING = [m for m in native.methods(sparse=True) if not m.startswith(ITERATING)]
each_method = pytest.mark.parametrize("method", FACTORIZING)
each_ordering = pytest.mark.parametrize(("engine", "ordering"), engine_methods())


def scattered(n=60, seed=0):
    """A sparse matrix with an unsymmetric pattern and rows that must be exchanged."""
    rng = np.random.default_rng(seed)
    A = sparse.random_array((n, n), density=0.05, rng=rng).toarray()
    A[np.arange(n), np.roll(np.arange(n), 1)] += 2.0
    return sparse.csr_array(A)


def saddle_point():
    """Symmetric and indefinite; a quarter of the diagonal is zero, and not stored."""
    A, n = poisson_2d(6).A.toarray(), 36
    B = np.eye(n)[: n // 3]
    return sparse.csr_array(np.block([[A, B.T], [B, np.zeros((n // 3, n // 3))]]))


DEFINITE = {
    "2-D": poisson_2d(9).A,
    "3-D": laplace_3d(5),
    "one": sparse.csr_array([[3.0]]),
    "diagonal": sparse.csr_array(np.diag([1.0, 4.0, 0.5])),
}
SYMMETRIC = DEFINITE | {
    "indefinite": sparse.csr_array(poisson_2d(6).A - 2.5 * sparse.eye_array(36)),
    "saddle point": saddle_point(),
    "exchange": sparse.csr_array([[0.0, 2.0], [2.0, 0.0]]),
    "minus one": sparse.csr_array([[-1.0]]),
}
ANY = SYMMETRIC | {
    "nearly symmetric": convection_diffusion_2d(8, 0.1, (3.0, -2.0)).A,
    "scattered": scattered(),
    "zero diagonal": sparse.csr_array(np.roll(np.diag([3.0, -1.0, 2.0, 5.0]), 1, axis=0)),
}
STRONG = DEFINITE | {"convection": convection_diffusion_2d(8, 0.1, (3.0, -2.0)).A}
SUITED = {"positive definite": DEFINITE, "symmetric": SYMMETRIC, "any": ANY}
SUITED["with a strong diagonal"] = STRONG
ACCURATE = 20
"""Backward errors may be this many times ``sqrt(n) u``."""


def with_values(A, values):
    return sparse.csr_array((values, A.indices, A.indptr), shape=A.shape)


def other_values(A, rng):
    """``D A D`` with a random diagonal D, symmetric to the last bit if A is."""
    d = rng.uniform(0.8, 1.2, A.shape[0])
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return A.data * (d[rows] * d[A.indices])


def factors(engine, ordering, A, fmt=rw.FP64):
    dtype = np.float32 if fmt == rw.FP32 else np.float64
    return engine.analyse(A, ordering).factorize(A.data.astype(dtype), fmt)


def check(F, A, u):
    """Backward errors of a few n u, of solves with A and A' and of the factors if they show.

    Replaced pivots make the factors those of a matrix at a distance of about sqrt(u).
    """
    n, u = A.shape[0], np.sqrt(u) if F.replaced_pivots else u
    B = np.random.default_rng(1).standard_normal((n, 2))
    for transpose, T in ((False, A), (True, A.T)):
        for b in (B, B[:, 0]):
            x = F.solve(b, transpose)
            assert (x.shape, x.dtype) == (b.shape, np.float64)
            size = abs(T).sum(axis=1).max() * abs(x).max() + abs(b).max()
            assert abs(T @ x - b).max() <= ACCURATE * np.sqrt(n) * u * size
    if F.perm is not None:
        difference = abs(A[F.perm][:, F.order] - F.L @ F.U)
        assert difference.max() <= ACCURATE * u * (abs(F.L) @ abs(F.U)).max()


GROWTH = {"klu": 1000}
"""KLU takes a diagonal pivot a thousandth the size of the largest: entries may grow as much."""


def roundoff(engine, fmt=rw.FP64):
    return max(fmt.unit_roundoff * GROWTH.get(engine.name, 1), engine.stops_at)


@each_ordering
def test_one_analysis_many_values_and_formats(engine, ordering):
    rng = np.random.default_rng(0)
    for A in SUITED[engine.suits].values():
        symbolic, kept = engine.analyse(A, ordering), []
        for fmt in (*engine.formats, *engine.formats):
            dtype = np.float32 if fmt == rw.FP32 else np.float64
            values = other_values(A, rng).astype(dtype)
            matrix = with_values(A, values.astype(np.float64))
            F = symbolic.factorize(values, fmt)
            values[:] = np.nan  # factors do not depend on the caller's array
            assert (F.fmt, F.is_sparse, F.shape) == (fmt, True, A.shape)
            assert F.method == f"{engine.name}/{ordering}"
            assert F.entries >= A.shape[0]
            kept.append((F, matrix))
        for F, matrix in kept:  # all stay valid beside each other
            u = roundoff(engine, F.fmt)
            check(F, matrix, u)
            if F.fmt == rw.FP32:
                check(F.to(rw.FP64), matrix, u)
                check(F.to(rw.FP64).to(rw.FP32), matrix, u)
            assert F.to(F.fmt) is F


@each_ordering
def test_values_are_rounded_to_the_format(engine, ordering):
    """An engine that took FP64 numbers for FP32 ones would read, or write, beyond its arrays."""
    A = DEFINITE["2-D"]
    for fmt in engine.formats:
        F = engine.analyse(A, ordering).factorize(A.data, fmt)
        check(F, A, roundoff(engine, fmt))


@each_ordering
def test_errors_are_of_the_order_of_n_u_kappa(engine, ordering):
    """And refinement makes them of the order of kappa u, whatever the format of the factors."""
    for A in SUITED[engine.suits].values():
        n, kappa = A.shape[0], np.linalg.cond(A.toarray(), np.inf)
        x_true = np.random.default_rng(2).uniform(1, 2, n)
        b = A @ x_true
        for fmt in engine.formats:
            F = factors(engine, ordering, A, fmt)
            x = F.solve(b)
            u = roundoff(engine, fmt)
            u = np.sqrt(u) if F.replaced_pivots else u
            assert abs(x - x_true).max() <= ACCURATE * n * u * kappa * 2
            for _ in range(8 if F.replaced_pivots else 3):
                x = x + F.solve(b - A @ x)
            assert abs(x - x_true).max() <= ACCURATE * n * rw.FP64.unit_roundoff * kappa


@each_ordering
def test_blocks_of_any_layout(engine, ordering):
    A = DEFINITE["2-D"]
    F = factors(engine, ordering, A)
    B = np.random.default_rng(3).standard_normal((A.shape[0], 3))
    one_by_one = np.column_stack([F.solve(b) for b in B.T])
    for layout in (np.ascontiguousarray, np.asfortranarray, lambda M: np.repeat(M, 2, 1)[:, ::2]):
        b = layout(B)
        kept = b.copy()
        np.testing.assert_allclose(F.solve(b), one_by_one, rtol=1e-12)
        np.testing.assert_array_equal(b, kept)
    assert F.solve(B[:, :0]).shape == (A.shape[0], 0)
    assert not F.solve(np.zeros((A.shape[0], 2))).any()
    single = B.astype(np.float32)
    bits = 1e-12 if engine.results_depend_on_threads else 0
    np.testing.assert_allclose(F.solve(single), F.solve(single.astype(np.float64)), rtol=bits)
    with pytest.raises(ValueError, match=r"b has shape \(3,\); pass \(81,\)"):
        F.solve(np.ones(3))


@each_ordering
def test_extreme_sizes(engine, ordering):
    for fmt in engine.formats:
        for size in (1e150, 1e-150) if fmt == rw.FP64 else (1e30, 1e-30):
            A = DEFINITE["2-D"] * size
            F = factors(engine, ordering, A, fmt)
            x = F.solve(np.full(A.shape[0], size))
            residual = abs(DEFINITE["2-D"] @ x - 1).max()
            assert residual <= ACCURATE * 9 * roundoff(engine, fmt) * (8 * abs(x).max() + 1)


@each_ordering
def test_wide_indices(engine, ordering):
    A = DEFINITE["2-D"].copy()
    A.indices, A.indptr = A.indices.astype(np.int64), A.indptr.astype(np.int64)
    check(factors(engine, ordering, A), A, roundoff(engine))


BREAKDOWNS = {Status.ZERO_PIVOT, Status.NOT_POSITIVE_DEFINITE}


@each_ordering
def test_singular_values_are_a_status_and_leave_the_analysis_usable(engine, ordering):
    A = DEFINITE["2-D"]
    empty_row = A.toarray()
    empty_row[40] = empty_row[:, 40] = 0
    rows = np.repeat(np.arange(81), np.diff(A.indptr))
    for ready in (False, True):
        for values in (np.zeros(A.nnz), empty_row[rows, A.indices]):
            symbolic = engine.analyse(A, ordering)
            if ready:
                symbolic.factorize(A.data, rw.FP64)
            with pytest.raises(rw.backends.ArithmeticFailure) as failure:
                symbolic.factorize(values, rw.FP64)
            assert failure.value.status in BREAKDOWNS
            check(symbolic.factorize(A.data, rw.FP64), A, roundoff(engine))


@each_ordering
def test_structural_singularity_is_a_status(engine, ordering):
    """Three rows with entries in two columns alone, and a row without entries."""
    for places in ([[1, 1, 0], [1, 1, 0], [1, 1, 0]], [[1, 1, 0], [1, 1, 0], [0, 0, 0]]):
        A = sparse.csr_array(np.array(places) * np.random.default_rng(0).uniform(1, 2, (3, 3)))
        with pytest.raises(rw.backends.ArithmeticFailure) as failure:
            factors(engine, ordering, A)
        assert failure.value.status in BREAKDOWNS | {Status.UNSUITED}


@each_ordering
def test_singular_by_its_values_alone(engine, ordering):
    """A failure, or replaced pivots, or a huge answer: what else rounding errors may leave."""
    laplacian = DEFINITE["2-D"].toarray()
    laplacian -= np.diag(laplacian.sum(1))
    for dense in (np.ones((2, 2)), laplacian):
        A = sparse.csr_array(dense)
        b = np.random.default_rng(4).standard_normal(len(dense))
        try:
            F = factors(engine, ordering, A)
            x = F.solve(b)
        except rw.backends.ArithmeticFailure as failure:
            assert failure.status in BREAKDOWNS | {Status.SLOW_CONVERGENCE}  # noqa: PT017
        else:
            assert F.replaced_pivots or abs(x).max() >= 1e12


@pytest.mark.parametrize(("engine", "ordering"), engine_methods("symmetric", "positive definite"))
def test_matrices_that_are_not_symmetric_are_refused(engine, ordering):
    A = DEFINITE["2-D"].copy()
    A.data[1] += 1e-10
    for matrix in (A, ANY["scattered"], ANY["zero diagonal"]):
        with pytest.raises(rw.backends.ArithmeticFailure) as failure:
            factors(engine, ordering, matrix)
        assert failure.value.status is Status.UNSUITED


@pytest.mark.parametrize(("engine", "ordering"), engine_methods("positive definite"))
def test_matrices_that_are_not_definite_are_refused(engine, ordering):
    """At the latest in a solve, where that iterates."""
    for name in ("indefinite", "exchange", "minus one", "saddle point"):
        A = SYMMETRIC[name]
        with pytest.raises(rw.backends.ArithmeticFailure) as failure:
            factors(engine, ordering, A).solve(np.arange(1.0, A.shape[0] + 1))
        slow = {Status.SLOW_CONVERGENCE, Status.INDEFINITE} if engine.stops_at else set()
        assert failure.value.status in {Status.NOT_POSITIVE_DEFINITE} | slow


@each_ordering
def test_what_is_not_finite_is_refused(engine, ordering):
    A = DEFINITE["2-D"]
    F = factors(engine, ordering, A)
    for bad in (np.nan, np.inf):
        b = np.ones((81, 2))
        b[3, 1] = bad
        with pytest.raises(rw.backends.ArithmeticFailure) as failure:
            F.solve(b)
        assert failure.value.status is Status.NONFINITE_INPUT
        wrong = A.copy()
        wrong.data[5] = bad
        analysis = native.analyse(A, f"{engine.name}/{ordering}")
        with pytest.raises(rw.backends.ArithmeticFailure) as failure:
            analysis.factorize(wrong, rw.FP64)
        assert failure.value.status is Status.NONFINITE_INPUT
    check(F, A, roundoff(engine))


@each_ordering
def test_threads_share_an_analysis_and_factors(engine, ordering):
    A = poisson_2d(20).A
    rng = np.random.default_rng(5)
    b = rng.standard_normal(400)
    values = [other_values(A, rng) for _ in range(16)]
    symbolic = engine.analyse(A, ordering)
    shared = symbolic.factorize(A.data, rw.FP64)

    def work(data):
        F = symbolic.factorize(data, rw.FP64)
        check(F, with_values(A, data), roundoff(engine))
        return [shared.solve(b, transpose) for transpose in (False, True, False)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, values))
    for answer in answers:
        np.testing.assert_allclose(answer, [shared.solve(b)] * 3, rtol=1e-10)


@each_ordering
def test_the_number_of_threads_changes_no_bit_where_the_engine_says_so(engine, ordering, threads):
    A = laplace_3d(14)
    answers = []
    for count in (1, 2):
        threads(count)
        answers.append(factors(engine, ordering, A).solve(np.ones(A.shape[0])))
    if engine.results_depend_on_threads:
        np.testing.assert_allclose(answers[0], answers[1], rtol=1e-12)
    else:
        np.testing.assert_array_equal(answers[0], answers[1])


@each_ordering
def test_nothing_is_printed(engine, ordering, capfd):
    A = DEFINITE["2-D"]
    symbolic = engine.analyse(A, ordering)
    symbolic.factorize(A.data, rw.FP64).solve(np.ones(81))
    with pytest.raises(rw.backends.ArithmeticFailure):
        symbolic.factorize(np.zeros(A.nnz), rw.FP64)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("engine", "ordering"), engine_methods())
def test_hidden_factors_say_where_to_look(engine, ordering):
    F = factors(engine, ordering, DEFINITE["2-D"])
    if F.perm is None:
        for name in ("L", "U"):
            with pytest.raises(NotImplementedError, match="factorize by superlu/colamd"):
                getattr(F, name)


def test_engines_are_listed_where_installed():
    assert {engine.name: engine for engine in ENGINES if engine.installed} == LISTED
    assert "superlu" in LISTED
    for engine in ENGINES:
        assert engine.installed or engine.remedy.startswith("pip install ")
        assert engine.suits in SUITED


def test_the_order_is_found_once(monkeypatch):
    seen = []
    original = superlu_calls.splu

    def spy(A, **options):
        seen.append(options["permc_spec"])
        return original(A, **options)

    monkeypatch.setattr(superlu_calls, "splu", spy)
    A = poisson_2d(12).A
    for ordering, name in (("mmd", "MMD_AT_PLUS_A"), ("colamd", "COLAMD")):
        seen.clear()
        analysis = native.analyse(A, f"superlu/{ordering}")
        fills = [analysis.factorize(A, fmt).entries for fmt in ("fp32", "fp64", "fp64")]
        assert seen == [name, "NATURAL", "NATURAL"]
        assert len(set(fills)) == 1


@each_method
def test_entries_that_are_zero_belong_to_the_pattern(method):
    A = poisson_2d(5).A
    stored = A.copy()
    stored.data = np.where(stored.data == 4.0, 4.0, 0.0)
    analysis = native.analyse(A, method)
    for matrix in (A, stored, A):
        x = analysis.factorize(matrix, rw.FP64).solve(np.ones(25))
        np.testing.assert_allclose(matrix @ x, 1.0, rtol=1e-13)


@pytest.mark.parametrize("method", [m for m in native.methods(True) if "/" in m])
def test_another_pattern_is_refused(method):
    analysis = native.analyse(poisson_2d(4).A, method)
    for other in (sparse.eye_array(16), sparse.eye_array(4)):
        with pytest.raises(ValueError, match=r"another pattern .*; analyse A"):
            analysis.factorize(other, rw.FP64)
    with pytest.raises(ValueError, match="pass a square matrix"):
        native.analyse(sparse.csr_array(np.ones((2, 3))), method)


class DenseEngine(Engine):
    """The smallest engine: LU of the dense array."""

    name, orderings, formats = "dense", ("natural",), (rw.FP64,)

    def analyse(self, pattern, ordering):
        class Prepared(Symbolic):
            def factorize(self, values, fmt):
                A = sparse.csr_array((values, pattern.indices, pattern.indptr), pattern.shape)
                return native.matrix(A.toarray(), fmt).lu()

        return Prepared()


def test_an_engine_is_one_class_and_one_line(monkeypatch):
    monkeypatch.setitem(LISTED, "dense", DenseEngine())
    assert native.methods(sparse=True)[-1] == "dense/natural"
    A = scattered(20)
    analysis = native.analyse(A, "dense/natural")
    np.testing.assert_allclose(A @ analysis.factorize(A, "fp64").solve(np.ones(20)), 1, rtol=1e-12)
    with pytest.raises(rw.backends.UnsupportedFormat, match="not run in fp32; use fp64"):
        analysis.factorize(A, "fp32")
