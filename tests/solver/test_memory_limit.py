"""``memory=``: what does not fit is not chosen, and where nothing fits, no work is done."""

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.problems import laplace_3d
from roundwise.problems.pde import convection_diffusion_3d
from roundwise.solver import decide, memory_forecast
from roundwise.solver.memory_forecast import InsufficientMemory, memory_in_bytes

REST = "fp64-fp64-fp64"


@pytest.fixture(scope="module")
def cube():
    return laplace_3d(26)


@pytest.fixture(scope="module")
def shifted():
    """Definite, and with positive entries off the diagonal: the direct way is the default."""
    A = laplace_3d(24)
    signs = np.where(np.arange(A.shape[0]) % 3, 1.0, -1.0)
    return sparse.csr_array(sparse.diags_array(signs) @ A @ sparse.diags_array(signs))


def solved(A, **options):
    b = np.random.default_rng(0).standard_normal((A.shape[0],))
    solution = rw.solve(A, b, full_output=True, **options)
    norm = abs(A).sum(axis=1).max() if sparse.issparse(A) else np.abs(A).sum(axis=1).max()
    allowed = np.sqrt(len(b)) * 2.0**-53 * (norm * abs(solution.x).max() + abs(b).max())
    assert abs(b - A @ solution.x).max() <= 1.01 * allowed
    return solution


def test_words_for_bytes():
    assert memory_in_bytes(None) is None
    for given, expected in {
        "4GB": 4e9,
        "512MiB": 2.0**29,
        "1.5 g": 1.5e9,
        "2TiB": 2.0**41,
        "10kB": 1e4,
        "1KiB": 1024.0,
        "100": 100.0,
        "100B": 100.0,
        np.int64(7): 7.0,
        2.5: 2.5,
        float("inf"): float("inf"),
    }.items():
        assert memory_in_bytes(given) == expected
    for wrong in ("", "GB", "4 apples", "-1GB", "iB", "1iB", 0, -1, float("nan")):
        with pytest.raises(ValueError, match="memory"):
            memory_in_bytes(wrong)
    for wrong in (True, [1], b"4GB", 1j):
        with pytest.raises(TypeError, match="memory"):
            rw.solve(np.eye(2), np.ones(2), memory=wrong)


def test_multigrid_where_no_factorization_fits(shifted):
    assert not solved(shifted).action.startswith("multigrid")
    solution = solved(shifted, memory="9.5MB")
    assert solution.action.startswith("multigrid/sa")
    assert "no factorization" in solution.decision
    x = rw.factor(shifted, memory="9.5MB").solve(np.ones(shifted.shape[0]))
    assert (x == rw.Solver().solve(shifted, np.ones(shifted.shape[0]), memory="9.5MB")).all()


def test_a_lower_format_where_the_higher_one_does_not_fit(cube):
    solution = solved(np.random.default_rng(1).standard_normal((500, 500)), memory="3MB")
    assert solution.action.startswith("lu:fp32")
    A = convection_diffusion_3d(20, 10.0)
    assert solved(A, memory="13MB").action.startswith(("lu/amd:fp32", "ilu"))


def test_nothing_fits(cube):
    b = np.ones(cube.shape[0])
    with pytest.raises(InsufficientMemory) as failed:
        rw.solve(cube, b, memory="1MB")
    for name in ("multigrid/sa", "cholesky/amd", "ldl/amd", "superlu/colamd"):
        assert name in str(failed.value)
        assert failed.value.forecasts[f"{name}:fp64"] > 1e6
    assert isinstance(failed.value, MemoryError)
    dense = np.eye(300) + 0.1
    for A, method in ((dense, "lu"), (dense + 0.1j, "lu"), (dense[None], "lu")):
        with pytest.raises(InsufficientMemory, match=f"{method} .*B in "):
            rw.solve(A, np.ones(300), memory="100kB")
        with pytest.raises(InsufficientMemory):
            rw.factor(A, memory="100kB").solve(np.ones(300))


def test_complex_numbers_count_twice():
    A = np.random.default_rng(2).standard_normal((200, 200)) + 1j * np.eye(200)
    needed = 4 * 2 * 200 * (200 + 200)
    solved(A, memory=needed)
    with pytest.raises(InsufficientMemory):
        rw.solve(A, np.ones(200), memory=needed - 1)


def test_a_method_that_is_asked_for_must_fit(cube):
    b = np.ones(cube.shape[0])
    asked = f"cholesky/amd:fp64-{REST}"
    with pytest.raises(InsufficientMemory, match="cholesky/amd"):
        rw.solve(cube, b, policy=asked, memory="13MB")
    both = [asked, f"multigrid/sa:fp32-{REST}"]
    assert solved(cube, policy=both, memory="13MB").action == both[1]


@pytest.mark.parametrize("memory", ["1GB", 10**9, None])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_small_systems(n, memory):
    A = np.eye(n) + 0.1
    for one in (A, sparse.csr_array(A), A + 0.1j, sparse.csc_array(A) * 1j, np.asfortranarray(A)):
        x = rw.solve(one, np.ones(n), memory=memory)
        assert np.allclose(one @ x, np.ones(n))
    assert rw.solve(A[None], np.ones((1, n, 2)), memory=memory).shape == (1, n, 2)
    singular = np.zeros((n, n))
    with pytest.raises(rw.SolveFailed):
        rw.solve(singular, np.ones(n), memory=memory)


def test_large_solves_ask_what_is_free(monkeypatch, shifted):
    asked = []

    def free():
        asked.append(1)
        return 9.5e6

    monkeypatch.setattr(memory_forecast, "free_memory", free)
    solved(np.random.default_rng(3).standard_normal((700, 700)))
    assert not asked  # far below what anybody asks for
    monkeypatch.setattr(decide, "UNASKED", 1e6)
    assert solved(shifted).action.startswith("multigrid/sa")
    assert asked


def test_a_vain_attempt_ends_with_the_forecasts():
    """Multigrid is all that fits, and A is not positive definite though it looks so."""
    n = 24**3
    A = sparse.csr_array(laplace_3d(24) - 0.5 * sparse.eye_array(n))
    b = np.random.default_rng(4).standard_normal(n)
    assert (A.diagonal() > 0).all()
    with pytest.raises(InsufficientMemory, match="ldl/amd"):
        rw.solve(A, b, memory="9.5MB")
