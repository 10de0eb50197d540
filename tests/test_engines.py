"""Sparse engines: one analysis serves many factorizations, as accurately as a fresh one."""

import numpy as np
import pytest
from cases import ENGINES
from scipy import sparse

import roundwise as rw
from roundwise.backends import ENGINES as LISTED
from roundwise.backends import NativeBackend, Status
from roundwise.backends.emulated import ordering as superlu_calls
from roundwise.backends.engines import Engine, Symbolic
from roundwise.problems import convection_diffusion_2d, poisson_2d

native = NativeBackend()
each_method = pytest.mark.parametrize("method", native.methods(sparse=True))
each_ordering = pytest.mark.parametrize(
    ("engine", "ordering"),
    [pytest.param(e, o, id=f"{e.name}/{o}") for e in ENGINES for o in e.orderings],
)


def scattered(n=60, seed=0):
    """A sparse matrix with an unsymmetric pattern and rows that must be exchanged."""
    rng = np.random.default_rng(seed)
    A = sparse.random_array((n, n), density=0.05, rng=rng).toarray()
    A[np.arange(n), np.roll(np.arange(n), 1)] += 2.0
    return sparse.csr_array(A)


PATTERNS = {
    "symmetric": poisson_2d(9).A,
    "nearly": convection_diffusion_2d(8, 0.1, (3.0, -2.0)).A,
    "scattered": scattered(),
    "one": sparse.csr_array([[3.0]]),
}
each_pattern = pytest.mark.parametrize("A", PATTERNS.values(), ids=PATTERNS)


def check(F, A, fmt):
    """Backward errors of a few n u, of solves with A and A' and of the factors themselves."""
    n, u = A.shape[0], fmt.unit_roundoff
    B = np.random.default_rng(1).standard_normal((n, 2))
    for transpose, T in ((False, A), (True, A.T)):
        for b in (B, B[:, 0]):
            x = F.solve(b, transpose)
            assert x.shape == b.shape
            size = abs(T).sum(axis=1).max() * abs(x).max() + abs(b).max()
            assert abs(T @ x - b).max() <= 20 * np.sqrt(n) * u * size
    difference = abs(A[F.perm][:, F.order] - F.L @ F.U)
    assert difference.max() <= 20 * u * (abs(F.L) @ abs(F.U)).max()


def varied(A, rng):
    """Other values for a pattern, symmetric where they were."""
    d = rng.uniform(0.9, 1.1, A.shape[0])
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return A.data * (d[rows] * d[A.indices])


@each_ordering
@each_pattern
def test_one_analysis_many_values_and_formats(engine, ordering, A):
    if engine.symmetric and abs(A - A.T).max() > 0:
        pytest.skip("this engine is for symmetric matrices")
    symbolic = engine.analyse(A, ordering)
    rng = np.random.default_rng(0)
    for fmt in (*engine.formats, *engine.formats):
        dtype = np.float32 if fmt == rw.FP32 else np.float64
        values = varied(A, rng).astype(dtype)
        F = symbolic.factorize(values, fmt)
        assert (F.fmt, F.is_sparse, F.shape) == (fmt, True, A.shape)
        check(F, sparse.csr_array((values, A.indices, A.indptr), dtype=np.float64), fmt)
        if fmt == rw.FP32:
            check(F.to(rw.FP64), sparse.csr_array((values, A.indices, A.indptr)), rw.FP32)


@each_ordering
def test_singular_values_are_a_status_and_leave_the_analysis_usable(engine, ordering):
    A = PATTERNS["symmetric"]
    expected = Status.NOT_POSITIVE_DEFINITE if engine.name == "cholesky" else Status.ZERO_PIVOT
    for ready in (False, True):
        symbolic = engine.analyse(A, ordering)
        if ready:
            symbolic.factorize(A.data, rw.FP64)
        with pytest.raises(rw.ArithmeticFailure) as failure:
            symbolic.factorize(np.zeros(A.nnz), rw.FP64)
        assert failure.value.status is expected
        check(symbolic.factorize(A.data, rw.FP64), A, rw.FP64)


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
