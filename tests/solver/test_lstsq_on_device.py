"""`lstsq` on a GPU, without one: see `fake_cupy`."""

import fake_cupy as cupy
import host_device
import numpy as np
import pytest

import roundwise as rw

rng = np.random.default_rng


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    return host_device.install(monkeypatch)


def problem(m, n, k=None, kappa=10.0, seed=0):
    U = np.linalg.qr(rng(seed).standard_normal((max(m, n), min(m, n))))[0]
    V = np.linalg.qr(rng(seed + 1).standard_normal((min(m, n), min(m, n))))[0]
    A = (U * np.logspace(0, -np.log10(kappa), min(m, n))) @ V.T
    A = A if m >= n else A.T
    return A, rng(seed + 2).standard_normal(m if k is None else (m, k))


@pytest.mark.parametrize("shape", [(60, 7), (7, 60), (30, 29), (1, 5), (5, 1), (12, 12)])
@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("order", "CF")
def test_answers_are_the_processor_s(shape, k, order):
    A, b = problem(*shape, k)
    x = rw.lstsq(cupy.asarray(A, order=order), cupy.asarray(b))
    assert isinstance(x, cupy.ndarray)
    np.testing.assert_allclose(
        x.get(), np.linalg.lstsq(A, b, rcond=None)[0], rtol=1e-10, atol=1e-12
    )
    solution = rw.lstsq(cupy.asarray(A), cupy.asarray(b), full_output=True)
    assert np.array_equal(solution.x.get(), x.get()) or order == "F"
    assert solution.backward_error <= solution.tolerance
    assert solution.rank == min(shape)
    assert solution.attempts[0].arithmetic == "cuda"
    r = b - A @ x.get()
    np.testing.assert_allclose(solution.residual_norm, np.linalg.norm(r, axis=0), atol=1e-13)


@pytest.mark.parametrize(
    "policy", ["fp32", "qr:fp64-fp64-fp64-fp64", "cholesky:fp32-fp64-fp64-fp64"]
)
@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
def test_policies_change_the_way_and_not_the_answer(policy, shape):
    A, b = problem(*shape)
    x = rw.lstsq(cupy.asarray(A), cupy.asarray(b), policy=policy).get()
    np.testing.assert_allclose(x, np.linalg.lstsq(A, b, rcond=None)[0], rtol=1e-10, atol=1e-12)


def test_a_large_condition_number_is_left_to_qr():
    A, b = problem(50, 6, kappa=1e11)
    solution = rw.lstsq(cupy.asarray(A), cupy.asarray(b), full_output=True)
    assert "qr" in solution.action
    assert len(solution.attempts) == 2
    np.testing.assert_allclose(solution.x.get(), rw.lstsq(A, b), rtol=1e-4)


def test_columns_of_any_scale():
    A, b = problem(40, 5, 2)
    scales = np.ldexp(1.0, [300, -300, 0, 50, -70])
    x = rw.lstsq(cupy.asarray(A * scales), cupy.asarray(b * 1e200)).get()
    np.testing.assert_allclose(x * scales[:, None], 1e200 * rw.lstsq(A, b), rtol=1e-10)
    x = rw.lstsq(cupy.asarray((A * scales).T.copy()), cupy.asarray(b[:5] * scales[:, None])).get()
    np.testing.assert_allclose(x, rw.lstsq(A.T, b[:5]), rtol=1e-9)


def test_other_kinds_and_types():
    A, b = (y.astype(np.float32) for y in problem(30, 4))
    x = rw.lstsq(cupy.asarray(A), cupy.asarray(b))
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.get(), rw.lstsq(A, b), rtol=1e-5)
    there = rw.lstsq(A, b, device="cuda")
    assert isinstance(there, np.ndarray)
    whole = rng(0).integers(-9, 9, (20, 3))
    x = rw.lstsq(cupy.asarray(whole), cupy.ones(20)).get()
    np.testing.assert_allclose(x, rw.lstsq(whole, np.ones(20)), rtol=1e-12)


def test_what_is_refused_names_the_remedy():
    A, b = problem(30, 4)
    dependent = A.copy()
    dependent[:, 3] = dependent[:, 0]
    with pytest.raises(rw.SolveFailed, match=r"A\.get\(\)"):
        rw.lstsq(cupy.asarray(dependent), cupy.asarray(b))
    with pytest.raises(ValueError, match="b has NaN or infinite"):
        rw.lstsq(cupy.asarray(A), cupy.asarray(np.full(30, np.nan)))
    with pytest.raises(ValueError, match="A has NaN or infinite"):
        rw.lstsq(cupy.asarray(A * np.inf), cupy.asarray(b))
    with pytest.raises(TypeError, match="complex"):
        rw.lstsq(cupy.asarray(A * 1j), cupy.asarray(b))
    with pytest.raises(TypeError, match=r"cupy\.asarray\(b\)"):
        rw.lstsq(cupy.asarray(A), b)
    with pytest.raises(np.linalg.LinAlgError, match="rows"):
        rw.lstsq(cupy.asarray(A), cupy.asarray(b[:5]))
