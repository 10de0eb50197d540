"""Dense systems refined and judged by one compiled call: real and complex, of both precisions."""

import numpy as np
import pytest

import roundwise as rw
from roundwise import _kernels
from roundwise.algorithms.accuracy import default_tolerance, holds_in_single, rounded_errors
from roundwise.backends import NativeBackend
from roundwise.backends.contract import ToRefine
from roundwise.backends.permuted import TransposedFactors
from roundwise.backends.real_form import RealForm, complex_columns, real_columns

native = NativeBackend()
TYPES = ["float32", "float64", "complex64", "complex128"]


def drawn(rng, dtype, *shape):
    parts = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        parts = parts + 1j * rng.standard_normal(shape)
    return parts.astype(dtype)


def tolerance_of(n, dtype):
    single = dtype in ("float32", "complex64")
    return default_tolerance(n, rw.FP32 if single else rw.FP64)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [None, 1, 7])
@pytest.mark.parametrize("policy", ["default", "lu:fp32-fp64-fp64-fp64", "fp64"])
def test_every_transpose_passes_the_gate_with_the_bits_of_full_output(dtype, columns, policy):
    rng, n = np.random.default_rng(7), 310
    A = drawn(rng, dtype, n, n)
    b = drawn(rng, dtype, *((n,) if columns is None else (n, columns)))
    F, tolerance = rw.factor(A, policy=policy), tolerance_of(n, dtype)
    for trans, meant in (("N", A), ("T", A.T), ("H", A.conj().T)):
        told = F.solve(b, trans, full_output=True)
        x = F.solve(b, trans)
        assert x.dtype == dtype
        assert x.shape == b.shape
        assert x.tobytes() == told.x.tobytes()
        assert told.backward_error <= tolerance
        residual = b.astype(np.clongdouble) - meant.astype(np.clongdouble) @ x.astype(
            np.clongdouble
        )
        norm = np.abs(meant).astype(np.longdouble).sum(axis=1).max()
        size = norm * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
        assert np.all(np.abs(residual).max(axis=0) <= tolerance * size)
        assert np.isfinite(told.forward_error_bound)  # nothing has changed since
        if trans == "N":
            again = rw.solve(A, b, policy=policy)
            assert again.tobytes() == rw.solve(A, b, policy=policy, full_output=True).x.tobytes()


def test_the_transpose_is_solved_by_the_same_factors(monkeypatch):
    rng, n = np.random.default_rng(1), 300
    made = []
    original = _kernels.native_lu
    monkeypatch.setattr(_kernels, "native_lu", lambda *a: (made.append(1), original(*a))[1])
    A, b = rng.standard_normal((n, n)), rng.standard_normal(n) + 1j * rng.standard_normal(n)
    F = rw.factor(A)
    for trans, meant in (("N", A), ("T", A.T), ("H", A.T)):
        np.testing.assert_allclose(meant @ F.solve(b, trans), b, atol=1e-9)
    assert len(made) <= 1  # none where LAPACK's serves


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_refused_is_solved_by_the_four_steps(dtype):
    """Singular, hardly regular, badly scaled A; NaN."""
    rng, n = np.random.default_rng(2), 280
    A, b = drawn(rng, dtype, n, n), drawn(rng, dtype, n)
    singular = A.copy()
    singular[:, 5] = singular[:, 6]
    with pytest.raises(rw.SolveFailed):
        rw.solve(singular, b)
    with pytest.raises(rw.SolveFailed):
        rw.factor(singular).solve(b)
    with pytest.raises(ValueError, match="NaN"):
        rw.factor(A).solve(b * np.nan)
    power = 1e30 if np.dtype(dtype).itemsize <= 8 and dtype != "float64" else 1e200
    for x in (rw.solve(A * power, b), rw.factor(A * power).solve(b)):
        assert np.abs(A @ (x * power) - b).max() <= 1e4 * np.finfo(dtype).eps * np.abs(b).max()


@pytest.mark.parametrize("fmt", [rw.FP32, rw.FP64], ids=str)
@pytest.mark.parametrize("adjoint", [False, True])
def test_columns_corrected_by_themselves_keep_x_and_residual_together(fmt, adjoint):
    """A target that only some columns miss at first: X, R and the errors belong together."""
    rng, n, k = np.random.default_rng(3), 260, 9
    A, B = drawn(rng, "complex128", n, n), drawn(rng, "complex128", n, k)
    B[:, 0] = A @ np.ones(n)
    form = RealForm(A)
    factors = native.matrix(form, fmt).lu()
    M, meant = native.matrix(form, rw.FP64), A
    if adjoint:
        factors, M, meant = TransposedFactors(factors), native.matrix(form.T, rw.FP64), A.conj().T
    norm = float((np.abs(meant.real) + np.abs(meant.imag)).sum(axis=1).max() / 2**0.5)
    columns = np.asfortranarray(real_columns(B))
    once = factors.refined(ToRefine(M, norm, columns, 1.0))  # whatever comes first
    assert once.history == []
    target = float(np.median(once.errors))
    found = factors.refined(ToRefine(M, norm, columns, target))
    assert len(found.history) >= 2
    assert np.all(found.errors <= target)
    X, R = complex_columns(found.X), complex_columns(found.R)
    bound = 2.0**-53 * (n + 40) * (norm * np.abs(X).max(axis=0) * 1.5 + np.abs(B).max(axis=0))
    assert np.all(np.abs(B - meant @ X - R).max(axis=0) <= bound)
    good = once.errors <= target
    assert good.any()
    assert np.array_equal(X[:, good], complex_columns(once.X)[:, good])


@pytest.mark.parametrize("is_complex", [False, True])
def test_rounding_to_single_precision_adds_no_more_than_the_bound(is_complex):
    """Backward errors of x before and after, in extended precision, also of tiny numbers."""
    rng, n = np.random.default_rng(11), 6
    for trial in range(40):
        scale = 10.0 ** rng.integers(-45, 10) if trial % 2 else 1.0
        A, x = drawn(rng, "complex128", n, n), scale * drawn(rng, "complex128", n)
        if not is_complex:
            A, x = A.real, x.real.copy()
        x[rng.integers(n)] *= 10.0 ** -rng.integers(1, 30)
        b = A @ x
        rounded = x.astype(np.complex64 if is_complex else np.float32)
        largest = np.array([max(np.abs(rounded.real).max(), np.abs(rounded.imag).max())])
        if not holds_in_single(largest):
            assert largest < 2.0**-126
            continue
        wide = np.clongdouble
        norm = float((np.abs(A.real) + np.abs(A.imag)).sum(axis=1).max())
        norm /= 2**0.5 if is_complex else 1.0
        before, after = (
            float(
                np.abs(b.astype(wide) - A.astype(wide) @ v.astype(wide)).max()
                / (norm * np.abs(v.astype(wide)).max() + np.abs(b).max())
            )
            for v in (x, rounded)
        )
        assert after <= rounded_errors(before, is_complex)
