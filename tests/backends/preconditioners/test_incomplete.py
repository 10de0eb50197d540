"""Incomplete factors against a plain dense definition of levels of fill."""

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.backends import ArithmeticFailure, Status
from roundwise.backends.preconditioners import STORED_IN, Incomplete
from roundwise.krylov import Residual, bicgstab, cg, products_of
from roundwise.machine import threads
from roundwise.problems import convection_diffusion_2d, poisson_2d
from roundwise.problems.pde import convection_diffusion_3d

each_format = pytest.mark.parametrize("fmt", STORED_IN, ids=str)


def scattered(n=40, seed=0):
    rng = np.random.default_rng(seed)
    A = sparse.random_array((n, n), density=0.08, rng=rng).toarray()
    return sparse.csr_array(A + np.diag(2.0 + rng.uniform(size=n)))


def by_definition(A, most):
    """ILU(k) as Saad (2003, 10.3.3) states it: drop entries whose level exceeds k, row by row."""
    A, n = A.toarray(), A.shape[0]
    level = np.where(A != 0, 0, 10**6)
    for i in range(n):
        for k in range(i):
            if level[i, k] > most:
                continue
            A[i, k] /= A[k, k]
            for j in range(k + 1, n):
                if level[k, j] <= most:
                    A[i, j] -= A[i, k] * A[k, j]
                    level[i, j] = min(level[i, j], level[i, k] + level[k, j] + 1)
        A[i, level[i] > most] = 0.0
    return np.tril(A, -1) + np.eye(n), np.triu(A), int((level <= most).sum())


MATRICES = {
    "scattered": scattered(),
    "convection": convection_diffusion_2d(6, 0.1, (1.0, 3.0)).A,
    "definite": poisson_2d(6).A,
}


@pytest.mark.parametrize("levels", [0, 1, 2])
@pytest.mark.parametrize("name", MATRICES)
def test_factors_are_those_of_the_definition(name, levels):
    A = MATRICES[name]
    L, U, entries = by_definition(A, levels)
    found = Incomplete(A, "fp64", levels)
    assert (found.entries, found.shift) == (entries, 0.0)
    M = found.apply(np.eye(A.shape[0]))
    expected = np.linalg.inv(L @ U)
    assert abs(M - expected).max() <= 1e-12 * abs(expected).max()


@pytest.mark.parametrize("definite", [False, True])
def test_without_a_limit_of_fill_they_are_complete(definite):
    A = MATRICES["definite" if definite else "scattered"]
    M = Incomplete(A, "fp64", levels=A.shape[0], definite=definite).apply(np.eye(A.shape[0]))
    assert abs(M @ A.toarray() - np.eye(A.shape[0])).max() < 1e-12


@each_format
def test_those_of_a_definite_matrix_are_symmetric_and_definite(fmt):
    M = Incomplete(poisson_2d(8).A, fmt, 1, definite=True).apply(np.eye(64))
    unit = 2.0**-50 if fmt == rw.FP64 else 2.0**-20 if fmt == rw.FP32 else fmt.unit_roundoff * 8
    assert abs(M - M.T).max() <= unit * abs(M).max()
    assert np.linalg.eigvalsh(M + M.T).min() > 0


@each_format
def test_iterations_of_bicgstab_and_cg(fmt):
    A = convection_diffusion_3d(14, 10.0)
    B = np.random.default_rng(0).standard_normal((A.shape[0], 1))
    found = bicgstab(products_of(A), B, Incomplete(A, fmt).apply, stop=Residual(1e-10), most=60)
    assert found.converged
    assert found.iterations <= 30
    A = poisson_2d(40).A
    B = np.random.default_rng(0).standard_normal((1600, 1))
    counts = []
    for levels in (0, 1, 2):
        M = Incomplete(A, fmt, levels, definite=True)
        run = cg(products_of(A), B, M.apply, stop=Residual(1e-10), most=200)
        assert run.converged
        counts.append(run.iterations)
    assert counts[2] < counts[1] < counts[0] <= 60


def test_a_pivot_that_fails_is_shifted():
    """Kershaw (1978): positive definite, and its incomplete Cholesky has a negative pivot."""
    A = np.array([[3.0, -2, 0, 2], [-2, 3, -2, 0], [0, -2, 3, -2], [2, 0, -2, 3]])
    assert np.linalg.eigvalsh(A).min() > 0
    found = Incomplete(sparse.csr_array(A), "fp64", definite=True)
    assert 0 < found.shift < 1
    M = found.apply(np.eye(4))
    assert np.linalg.eigvalsh(M + M.T).min() > 0


@each_format
def test_bits_depend_neither_on_threads_nor_on_instructions(fmt):
    """Of a matrix whose levels are wide enough to be shared: random entries, few of them."""
    rng = np.random.default_rng(0)
    n = 60_000
    off = sparse.random_array((n, n), density=0.7 / n, rng=rng)
    A = sparse.csr_array(off + sparse.diags_array(2 + rng.uniform(size=n)))
    R = rng.standard_normal((n, 2))
    before, level, found = threads.get_num_threads(), threads.get_simd_level(), set()
    try:
        for count in (1, 2, 5):
            rw.set_num_threads(count)
            for name in threads.simd_levels():
                threads.set_simd_level(name)
                found.add(Incomplete(A, fmt).apply(R).tobytes())
    finally:
        rw.set_num_threads(before)
        threads.set_simd_level(level)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("A", "definite", "status"),
    [
        (np.diag([1.0, 0.0]), False, Status.ZERO_PIVOT),
        (np.array([[0.0, 1.0], [1.0, 0.0]]), False, Status.ZERO_PIVOT),
        (np.diag([1.0, -1.0]), True, Status.NOT_POSITIVE_DEFINITE),
        (np.diag([1.0, np.nan]), False, Status.NONFINITE_INPUT),
    ],
)
def test_failures_have_names(A, definite, status):
    with pytest.raises(ArithmeticFailure) as failed:
        Incomplete(sparse.csr_array(A), definite=definite)
    assert failed.value.status is status


@pytest.mark.parametrize("size", [2.0**-1074, 2.0**-1060, 2.0**1022, 1.5 * 2.0**1023])
@pytest.mark.parametrize("fmt", ["fp64", "bf16"])
def test_residuals_at_the_ends_of_the_range_are_divided_by_powers_of_two_that_are_numbers(
    fmt, size
):
    M = Incomplete(sparse.eye_array(9, format="csr"), fmt)
    r = np.array([size, *np.zeros(8)])
    np.testing.assert_allclose(M.apply(r), r, rtol=2**-8 if fmt == "bf16" else 0)
