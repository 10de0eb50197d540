"""The gate of complex systems, with moduli in the norms: checked without rounding errors.

Residuals are rational numbers, and square roots are rounded against the answer.
"""

import math
import os
import warnings
from fractions import Fraction

import numpy as np
import pytest
import rational
from scipy import sparse

import roundwise as rw
from roundwise.backends.native import exact
from roundwise.backends.real_form import RealForm, expanded, real_columns

SYSTEMS = int(os.environ.get("ROUNDWISE_FUZZ_SYSTEMS", "240"))
U = 2.0**-53


def gaussian(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def drawn_system(rng):
    """A and b, n = 1 to 16: benign, real, imaginary, ill-conditioned, badly scaled, Hermitian."""
    n, columns = int(rng.integers(1, 17)), int(rng.choice([1, 1, 3]))
    kind, A = rng.integers(7), gaussian(rng, n, n)
    if kind == 1:
        A = A.real + 0j
    elif kind == 2:
        A = 1j * A.real
    elif kind == 3:
        left, _, right = np.linalg.svd(A)
        A = left * np.logspace(0, -rng.uniform(0, 16), n) @ right
    elif kind == 4:
        A = A * 10.0 ** rng.integers(-8, 9, (n, 1)) * 10.0 ** rng.integers(-8, 9, n)
    elif kind == 5:
        A = A * 2.0 ** int(rng.integers(-900, 900))
    elif kind == 6:
        A = A @ A.conj().T + 0.1 * np.eye(n)
    if rng.random() < 0.3:
        A = np.where(rng.random((n, n)) < 3 / n, A, 0) + np.diag(np.diag(A))
    b = gaussian(rng, n, columns)
    return A, b[:, 0] if columns == 1 else b


def quietly(f, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args, **kwargs)


@pytest.mark.parametrize("policy", ["default", "fp32", "fp64"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "Fortran"])
def test_no_answer_is_above_the_gate(kind, policy):
    rng = np.random.default_rng([len(kind), len(policy), 18])
    solved, count = 0, SYSTEMS // 9
    for _ in range(count):
        A, b = drawn_system(rng)
        form = {"dense": np.asarray, "sparse": sparse.csc_array, "Fortran": np.asfortranarray}
        try:
            x = quietly(rw.solve, form[kind](A), b, policy=policy)
        except rw.SolveFailed:
            continue
        solved += 1
        assert x.dtype == np.complex128
        assert x.shape == b.shape
        assert rational.passes_gate(A, x, b, math.sqrt(len(A)) * U)
    assert solved > count / 2


@pytest.mark.parametrize("tol", [2.0**-54, 1e-12, 1e-3])
def test_any_tolerance_holds_exactly(tol):
    rng = np.random.default_rng(5)
    solved = 0
    for i in range(16):
        A, b = drawn_system(rng)
        A = A.real if i % 4 == 0 else A  # a real A with complex b is another path
        for accuracy in ("backward", "forward"):
            try:
                solution = quietly(rw.solve, A, b, tol=tol, accuracy=accuracy, full_output=True)
            except rw.SolveFailed:
                continue
            solved += 1
            assert rational.passes_gate(A, solution.x, b, tol)
            # What is reported is an upper bound of the exact backward error.
            assert rational.passes_gate(A, solution.x, b, solution.backward_error)
            assert solution.backward_error <= solution.tolerance == pytest.approx(tol, rel=1e-15)
    assert solved > 8


def test_residuals_that_are_summed_in_blocks():
    """n = 240 has blocks of products in float64, whose errors the bound counts."""
    rng = np.random.default_rng(1)
    n = 240
    A, b = gaussian(rng, n, n), gaussian(rng, n)
    for policy in ("fp32", "fp64"):
        x = rw.solve(A, b, policy=policy)
        assert rational.passes_gate(A, x, b, math.sqrt(n) * U)


def test_complex64_answers():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 20, 60):
        A, b = gaussian(rng, n, n).astype("c8"), gaussian(rng, n).astype("c8")
        for form in (np.asarray, sparse.csr_array):
            x = rw.solve(form(A), b)
            assert x.dtype == np.complex64
            assert rational.passes_gate(A, x, b, math.sqrt(n) * 2.0**-24)


def far_apart(rng, n):
    return [
        np.zeros(n, dtype=int),
        rng.integers(-20, 20, n),
        rng.integers(-1060, 1010, n),
        np.full(n, rng.integers(-1070, 1015)),
    ][rng.integers(4)]


def shifted(Z, exponents):
    with np.errstate(all="ignore"):
        result = np.empty(Z.shape, dtype=complex)
        result.real, result.imag = np.ldexp(Z.real, exponents), np.ldexp(Z.imag, exponents)
    return result


@pytest.mark.parametrize("trans", "NTH")
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_extreme_systems(kind, trans):
    """Subnormal and huge parts; a factorization and a refactorization as well."""
    rng = np.random.default_rng([len(kind), ord(trans)])
    solved = 0
    for _ in range(25):
        n, columns = int(rng.integers(1, 7)), int(rng.choice([1, 3]))
        A = np.where(rng.random((n, n)) < 0.6, gaussian(rng, n, n), 0.0)
        A += np.diag(rng.uniform(0.5, 1, n) * np.exp(2j * rng.random(n)))
        A = shifted(A, np.clip(far_apart(rng, n)[:, None] + far_apart(rng, n), -1100, 1015))
        b = shifted(gaussian(rng, n, columns), np.clip(far_apart(rng, n)[:, None], -1100, 1015))
        given = A if kind == "dense" else sparse.csr_array(A)
        right = {"N": A, "T": A.T, "H": A.conj().T}[trans]
        policy = str(rng.choice(["default", "fp32"]))
        try:
            F = quietly(rw.factor, given / 3, policy=policy).refactor(given)
            answers = [quietly(F.solve, b, trans)]
            if trans == "N":
                answers.append(quietly(rw.solve, given, b, policy=policy))
        except rw.SolveFailed:
            continue
        solved += 1
        for x in answers:
            assert rational.passes_gate(right, x, b, math.sqrt(n) * U)
    assert solved > 5


@pytest.mark.parametrize("block", [exact.EXACT, 4])
def test_the_residual_is_as_exact_as_it_says(block):
    rng = np.random.default_rng(block)
    n = 12
    A, x = gaussian(rng, n, n), gaussian(rng, n, 2)
    b = A @ x  # so that nearly everything cancels
    forms = [RealForm(A)] + ([expanded(sparse.csr_array(A))] if block == exact.EXACT else [])
    for form in forms:
        arguments = (block,) if isinstance(form, RealForm) else ()
        R = exact.residual(form, real_columns(x), real_columns(b), *arguments)
        sizes = np.abs(A) @ np.abs(x) + np.abs(b)
        for k in range(2):
            for i, parts in enumerate(rational.complex_residual(A, x[:, k], b[:, k])):
                for found, true in zip(R[2 * i : 2 * i + 2, k], parts, strict=True):
                    error = abs(Fraction(float(found)) - true)
                    bound = exact.error_of(2 * n, block) * sizes[i, k]
                    assert error <= Fraction(U) * abs(true) * 2 + Fraction(float(bound))
