"""Singular systems whose null space is named: solutions, the shortest ones, and refusals."""

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw


def path(n):
    """The Laplacian of a path: A v = 0 for constants alone."""
    diagonal = np.r_[1.0, np.full(n - 2, 2.0), 1.0]
    return sparse.diags_array(
        [-np.ones(n - 1), diagonal, -np.ones(n - 1)], offsets=[-1, 0, 1]
    ).tocsr()


def grid(m):
    """A pure Neumann problem on a square."""
    one = sparse.eye_array(m)
    return (sparse.kron(path(m), one) + sparse.kron(one, path(m))).tocsr()


def one_way(n, rng=0):
    """The generator of a Markov chain with states that are never entered again."""
    rates = np.random.default_rng(rng).random((n, n))
    rates[:, 3] = 0.0
    return np.diag(rates.sum(axis=1)) - rates


KINDS = {
    "sparse": grid(12),
    "dense": grid(12).toarray(),
    "large": grid(40),
    "two parts": sparse.block_diag([grid(6), grid(9)]).tocsr(),
    "unsymmetric": one_way(30),
    "sparse unsymmetric": sparse.csr_array(one_way(30)),
    "complex": sparse.csr_array(one_way(30) * (1 + 0.5j)),
    "dense complex": one_way(30) * (1 + 0.5j),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [None, 3])
def test_the_shortest_solution_is_found(kind, columns):
    A, rng = KINDS[kind], np.random.default_rng(1)
    n = A.shape[0]
    b = A @ rng.standard_normal(n if columns is None else (n, columns))
    solution = rw.solve(A, b, nullspace="constants", full_output=True)
    assert solution.backward_error <= solution.tolerance
    assert solution.x.shape == b.shape
    dense = A if isinstance(A, np.ndarray) else A.toarray()
    shortest = np.linalg.lstsq(dense, b, rcond=1e-12)[0]
    assert np.allclose(solution.x, shortest, atol=1e-9 * np.abs(shortest).max())
    assert np.array_equal(solution.x, rw.solve(A, b, nullspace="constants"))


def test_null_vectors_of_any_kind():
    rng = np.random.default_rng(2)
    Q = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    values = np.r_[0.0, 0.0, np.linspace(-1, 2, 38)]
    A, V = (Q * values) @ Q.T, Q[:, :2] @ rng.standard_normal((2, 2))
    A = (A + A.T) / 2
    b = A @ rng.standard_normal(40)
    x = rw.solve(A, b, nullspace=V * [1e-200, 1e100])
    assert np.allclose(A @ x, b, atol=1e-13)
    assert np.abs(V.T @ x).max() < 1e-13
    phases = np.exp(1j * np.arange(25.0))
    H = sparse.diags_array(phases) @ path(25) @ sparse.diags_array(phases.conj())
    x = rw.solve(H.tocsr(), H @ np.arange(25.0), nullspace=phases)
    assert abs(phases.conj() @ x) < 1e-12


def test_a_singular_system_that_is_found_to_be_one_names_the_remedy():
    b = path(30) @ np.arange(30.0)
    for A in (path(30), path(30).toarray()):
        with pytest.raises(rw.SolveFailed, match=r"singular.*nullspace='constants'"):
            rw.solve(A, b)
        assert np.allclose(A @ rw.solve(A, b, nullspace="constants"), b)


def test_b_outside_the_range_is_named():
    b = np.zeros(144)
    b[7] = 1.0
    with pytest.raises(rw.SolveFailed, match=r"not in the range of A: 6\.9e-03 of it is outside"):
        rw.solve(grid(12), b, nullspace="constants")
    with pytest.raises(rw.SolveFailed, match="not in the range"):
        rw.solve(one_way(20), np.arange(20.0), nullspace="constants")


def test_what_is_no_null_space_is_refused():
    A, b = grid(5), np.zeros(25)
    for wrong, words in (
        ("ones", "pass 'constants'"),
        (np.arange(25.0), "A v is not zero"),
        (np.zeros(25), "column of zeros"),
        (np.ones((25, 2)), "dependent"),
        (np.ones(24), "pass 25 rows"),
        (np.full(25, np.nan), "NaN"),
    ):
        with pytest.raises(ValueError, match=words):
            rw.solve(A, b, nullspace=wrong)
    with pytest.raises(ValueError, match="A v is not zero"):
        rw.solve(np.eye(4), np.ones(4), nullspace="constants")
    assert not rw.solve(A, b, nullspace="constants").any()


def test_a_larger_null_space_than_the_named_one_fails():
    two = sparse.block_diag([grid(5), grid(5)]).tocsr()
    b = two @ np.arange(50.0)
    with pytest.raises(rw.SolveFailed, match="null"):
        rw.solve(two, b, nullspace=np.ones(50), policy="fp64")


def test_single_precision_and_tol():
    A = grid(12).astype(np.float32)
    b = (A @ np.arange(144, dtype=np.float32)).astype(np.float32)
    solution = rw.solve(A, b, nullspace="constants", full_output=True)
    assert solution.x.dtype == np.float32
    assert solution.backward_error <= 12 * 2.0**-24
    assert rw.solve(grid(12), np.asarray(b, float), nullspace="constants", tol=1e-3).shape == (144,)
