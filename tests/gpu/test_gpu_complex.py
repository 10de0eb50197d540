"""Complex systems on a GPU: `make test-gpu` runs these where there is one."""

import numpy as np
import pytest

import roundwise as rw
from roundwise.backends.cuda.device import get_device, why_not

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=why_not())]

rng = np.random.default_rng


@pytest.fixture(scope="module")
def cupy():
    return get_device().xp


def drawn(shape, seed=0, dtype=complex):
    x = rng(seed).standard_normal(shape) + 1j * rng(seed + 1).standard_normal(shape)
    return x.astype(dtype)


def error(A, x, b):
    """The backward error, by a residual in extended precision of at most 64 rows."""
    rows = np.unique(np.linspace(0, len(A) - 1, 64).astype(int))
    r = b[rows] - A[rows].astype(np.clongdouble) @ x
    size = np.abs(A).sum(axis=1).max() * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
    return (np.abs(r).max(axis=0) / size).max()


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
@pytest.mark.parametrize(("n", "order"), [(1, "C"), (100, "F"), (255, "C"), (257, "F"), (900, "C")])
def test_every_answer_passes_the_gate(cupy, n, dtype, order):
    A, b = drawn((n, n), 0, dtype), drawn((n, 3), 5, dtype)
    limit = np.sqrt(n) * np.finfo(dtype).eps / 2 * (1 + 1e-6)
    given = cupy.asarray(A, order=order), cupy.asarray(b)
    x = rw.solve(*given)
    assert x.dtype == dtype
    assert error(A, x.get(), b) <= limit
    solution = rw.solve(*given, full_output=True)
    assert cupy.array_equal(solution.x, x)
    F = rw.factor(given[0])
    for trans, M in (("N", A), ("T", A.T), ("H", A.conj().T)):
        assert error(M, F.solve(given[1], trans).get(), b) <= limit


@pytest.mark.parametrize("n", [40, 300])
def test_all_that_can_be_asked(cupy, n):
    A, b = drawn((n, n)), drawn(n, 5)
    given = cupy.asarray(A), cupy.asarray(b)
    limit = np.sqrt(n) * 2.0**-53
    assert error(A.T, rw.solve(*given, transposed=True).get(), b) <= limit
    assert error(A, rw.solve(*given, accuracy="forward").get(), b) <= limit
    upper = np.triu(A) + 9 * np.eye(n)
    x = rw.solve(cupy.asarray(upper), given[1], assume_a="upper triangular").get()
    assert error(upper, x, b) <= limit
    M = A @ A.conj().T + n * np.eye(n)
    solution = rw.solve(cupy.asarray(M), given[1], assume_a="her", full_output=True)
    assert error((M + M.conj().T) / 2, solution.x.get(), b) <= 2 * limit
    assert error(A.real, rw.solve(given[0].real, given[1]).get(), b) <= limit
    assert error(A, rw.solve(given[0], given[1].real).get(), b.real) <= limit
    F = rw.factor(given[0])
    np.testing.assert_allclose([*F.slogdet()], [*np.linalg.slogdet(A)], rtol=1e-8)
    np.testing.assert_allclose(F.inv().get() @ A, np.eye(n), atol=1e-9)
    real = rw.factor(given[0].real)
    np.testing.assert_allclose([*real.slogdet()], [*np.linalg.slogdet(A.real)], rtol=1e-8)


def test_singular_ones_fail_by_name(cupy):
    A = drawn((5, 5))
    A[-1] = A[0]
    with pytest.raises(rw.SolveFailed, match="singular"):
        rw.solve(cupy.asarray(A), cupy.ones(5))


def test_torch(cupy):
    torch = pytest.importorskip("torch")
    A, b = drawn((300, 300)), drawn(300)
    x = rw.solve(torch.tensor(A, device="cuda"), torch.tensor(b, device="cuda"))
    assert x.dtype == torch.complex128
    assert error(A, x.cpu().numpy(), b) <= np.sqrt(300) * 2.0**-53
