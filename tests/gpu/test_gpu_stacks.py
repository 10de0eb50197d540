"""Stacks of systems on a GPU: `make test-gpu` runs these where there is one."""

import numpy as np
import pytest
from exact import backward_error as exact_error

import roundwise as rw
from roundwise.backends.cuda.device import get_device, why_not
from roundwise.solver.stacks import StackedSolution

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=why_not())]

rng = np.random.default_rng
TYPES = [np.float64, np.float32, np.complex128, np.complex64]


@pytest.fixture(scope="module")
def cupy():
    return get_device().xp


def drawn(shape, dtype=np.float64, seed=0):
    x = rng(seed).standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng(seed + 1).standard_normal(shape)
    return x.astype(dtype)


def errors(A, X, B):
    """The backward errors of a stack, by residuals in extended precision."""
    wide = np.clongdouble if A.dtype.kind == "c" else np.longdouble
    R = B.astype(wide) - np.einsum("sij,sjk->sik", A.astype(wide), X.astype(wide))
    norms = np.abs(A).sum(axis=2).max(axis=1)[:, None]
    sizes = norms * np.abs(X).max(axis=1) + np.abs(B).max(axis=1)
    return (np.abs(R).max(axis=1) / sizes).max()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 8, 12, 16, 20, 27, 32, 33, 64, 65, 100, 129, 256, 300])
@pytest.mark.parametrize("columns", [1, 3, 11])
def test_every_answer_passes_the_gate(cupy, n, columns, dtype):
    count = 37 if n < 100 else 5
    A, B = drawn((count, n, n), dtype), drawn((count, n, columns), dtype, 7)
    X = rw.solve(cupy.asarray(A), cupy.asarray(B))
    assert isinstance(X, cupy.ndarray)
    assert X.dtype == dtype
    assert errors(A, X.get(), B) <= np.sqrt(n) * np.finfo(dtype).eps / 2 * (1 + 1e-6)


@pytest.mark.parametrize("n", [4, 24, 48])
def test_the_gate_in_exact_arithmetic(cupy, n):
    A, B = drawn((20, n, n)), drawn((20, n, 1))
    A[::2, -1] = A[::2, 0] + 1e-6 * A[::2, -1]
    X = rw.solve(cupy.asarray(A), cupy.asarray(B)).get()
    assert all(exact_error(*one) <= np.sqrt(n) * 2.0**-53 for one in zip(A, X, B, strict=True))


@pytest.mark.parametrize("n", [8, 100])
def test_shapes_are_numpys(cupy, n):
    A = drawn((3, 1, n, n)) + 4 * np.eye(n)
    for shape in ((n,), (4, n, 2), (3, 4, n, 1), (n, 3), (1, n, 1)):
        b = drawn(shape)
        X = rw.solve(cupy.asarray(A), cupy.asarray(b)).get()
        expected = np.linalg.solve(A, b)
        assert X.shape == expected.shape
        np.testing.assert_allclose(X, expected, rtol=1e-7, atol=1e-9)
    flat = A[:, 0]
    X = rw.solve(cupy.asarray(flat).swapaxes(1, 2), cupy.ones(n)).get()
    np.testing.assert_allclose(X, np.linalg.solve(flat.swapaxes(1, 2), np.ones(n)), rtol=1e-7)
    X = rw.solve(cupy.asarray(flat), cupy.ones(n), transposed=True).get()
    np.testing.assert_allclose(X, np.linalg.solve(flat.swapaxes(1, 2), np.ones(n)), rtol=1e-7)


@pytest.mark.parametrize("n", [6, 80])
def test_a_failed_system_is_named(cupy, n):
    A, b = drawn((2, 3, n, n)), drawn(n)
    A[1, 2, -1] = A[1, 2, 0]
    with pytest.raises(rw.SolveFailed, match=r"system \(1, 2\) of the stack"):
        rw.solve(cupy.asarray(A), cupy.asarray(b))
    A[1, 2] = np.eye(n)
    A[0, 1, 0] *= 1e-13  # badly scaled: solved by itself
    X = rw.solve(cupy.asarray(A), cupy.asarray(b)).get()
    assert all(exact_error(A[p], X[p], b) <= np.sqrt(n) * 2.0**-53 for p in np.ndindex(2, 3))
    A[0, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        rw.solve(cupy.asarray(A), cupy.asarray(b))


@pytest.mark.parametrize("n", [6, 80])
def test_what_is_told(cupy, n):
    A, b = drawn((4, n, n)), drawn((4, n, 2))
    plain = rw.solve(cupy.asarray(A), cupy.asarray(b))
    solution = rw.solve(cupy.asarray(A), cupy.asarray(b), full_output=True)
    assert isinstance(solution, StackedSolution)
    assert cupy.array_equal(solution.x, plain)
    assert solution.shape == (4,)
    assert solution.status == "accepted"
    assert solution.backward_error <= np.sqrt(n) * 2.0**-53
    assert solution[2].digits > 8
    assert isinstance(solution[2].x, cupy.ndarray)
    there = rw.solve(A, b, device="cuda", full_output=True)
    assert np.array_equal(there.x, plain.get())
    assert isinstance(there[0].x, np.ndarray)


@pytest.mark.parametrize("n", [6, 80, 600])
def test_factor_of_a_stack(cupy, n):
    A, b = drawn((3, n, n)), drawn((3, n, 2))
    F = rw.factor(cupy.asarray(A))
    np.testing.assert_allclose(
        F.solve(cupy.asarray(b)).get(), np.linalg.solve(A, b), rtol=1e-7, atol=1e-9
    )
    np.testing.assert_allclose(
        F.solve(cupy.asarray(b), "T").get(),
        np.linalg.solve(A.swapaxes(1, 2), b),
        rtol=1e-7,
        atol=1e-9,
    )
    other = A[::-1].copy()
    np.testing.assert_allclose(
        F.refactor(cupy.asarray(other)).solve(cupy.asarray(b)).get(),
        np.linalg.solve(other, b),
        rtol=1e-7,
        atol=1e-9,
    )


def test_torch(cupy):
    torch = pytest.importorskip("torch")
    A, b = drawn((5, 9, 9)), drawn((5, 9, 1))
    given = torch.tensor(A, device="cuda"), torch.tensor(b, device="cuda")
    X = rw.solve(*given)
    assert isinstance(X, torch.Tensor)
    assert torch.equal(X, rw.solve(*given, full_output=True).x)
    np.testing.assert_allclose(X.cpu().numpy(), np.linalg.solve(A, b), rtol=1e-8)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(rw.solve(*given), X)


def test_many_systems_in_one_call(cupy):
    A, b = drawn((200_000, 4, 4)), drawn((200_000, 4, 1))
    X = rw.solve(cupy.asarray(A), cupy.asarray(b)).get()
    suspicious = np.linalg.cond(A) > 1e6
    np.testing.assert_allclose(
        X[~suspicious], np.linalg.solve(A, b)[~suspicious], rtol=1e-6, atol=1e-6
    )
