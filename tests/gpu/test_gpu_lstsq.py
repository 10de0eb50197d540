"""Least squares on a GPU: `make test-gpu` runs these where there is one."""

import numpy as np
import pytest

import roundwise as rw
from roundwise.backends.cuda.device import get_device, why_not

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=why_not())]

rng = np.random.default_rng


@pytest.fixture(scope="module")
def cupy():
    return get_device().xp


def problem(m, n, k=None, kappa=10.0, seed=0):
    long, short = max(m, n), min(m, n)
    U = np.linalg.qr(rng(seed).standard_normal((long, short)))[0]
    V = np.linalg.qr(rng(seed + 1).standard_normal((short, short)))[0]
    A = (U * np.logspace(0, -np.log10(kappa), short)) @ V.T
    return A if m >= n else A.T, rng(seed + 2).standard_normal(m if k is None else (m, k))


@pytest.mark.parametrize("shape", [(3000, 200), (200, 3000), (500, 499), (1, 5), (5, 1), (64, 64)])
@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("order", "CF")
def test_answers_are_the_processor_s(cupy, shape, k, order):
    A, b = problem(*shape, k)
    given = cupy.asarray(A, order=order), cupy.asarray(b)
    x = rw.lstsq(*given)
    assert isinstance(x, cupy.ndarray)
    np.testing.assert_allclose(x.get(), np.linalg.lstsq(A, b, rcond=None)[0], rtol=1e-8, atol=1e-10)
    solution = rw.lstsq(*given, full_output=True)
    assert cupy.array_equal(solution.x, x)
    assert solution.backward_error <= solution.tolerance
    assert solution.rank == min(shape)
    norms = np.linalg.norm(b - A @ x.get(), axis=0)
    np.testing.assert_allclose(solution.residual_norm, norms, atol=1e-11)


@pytest.mark.parametrize("kappa", [1e3, 1e6, 1e9, 1e11])
def test_ill_conditioned_problems_are_left_to_qr(cupy, kappa):
    A, b = problem(2000, 50, kappa=kappa)
    solution = rw.lstsq(cupy.asarray(A), cupy.asarray(b), full_output=True)
    assert solution.backward_error <= solution.tolerance
    assert ("qr" in solution.action) == (kappa > 1e8) or kappa == 1e6
    least = np.linalg.norm(b - A @ rw.lstsq(A, b))
    assert np.linalg.norm(b - A @ solution.x.get()) <= least * (1 + 1e-8)


def test_policies_types_and_tensors(cupy):
    A, b = problem(800, 90)
    expected = np.linalg.lstsq(A, b, rcond=None)[0]
    for policy in ("fp32", "qr:fp64-fp64-fp64-fp64", "cholesky:fp32-fp64-fp64-fp64"):
        x = rw.lstsq(cupy.asarray(A), cupy.asarray(b), policy=policy).get()
        np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-11)
    single = rw.lstsq(cupy.asarray(A.astype(np.float32)), cupy.asarray(b.astype(np.float32)))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.get(), expected, rtol=1e-3, atol=1e-5)
    there = rw.lstsq(A, b, device="cuda")
    assert isinstance(there, np.ndarray)
    torch = pytest.importorskip("torch")
    x = rw.lstsq(torch.tensor(A, device="cuda"), torch.tensor(b, device="cuda"))
    assert isinstance(x, torch.Tensor)
    np.testing.assert_allclose(x.cpu().numpy(), expected, rtol=1e-9, atol=1e-11)


def test_what_is_refused_names_the_remedy(cupy):
    A, b = problem(100, 10)
    A[:, 3] = A[:, 0]
    with pytest.raises(rw.SolveFailed, match=r"A\.get\(\)"):
        rw.lstsq(cupy.asarray(A), cupy.asarray(b))
