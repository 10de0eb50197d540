"""The gate as a theorem: ``||b - A x|| <= tol (||A|| ||x|| + ||b||)`` in rational arithmetic.

Of complex numbers moduli count. Set ROUNDWISE_FUZZ_SYSTEMS=100000 for the long version.
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
from roundwise.algorithms.accuracy import backward_errors, upper_bounds
from roundwise.algorithms.scaling import moderate, scaled_columns
from roundwise.backends import native_formats
from roundwise.backends.native import exact
from roundwise.backends.real_form import RealForm, expanded, real_columns

SYSTEMS = int(os.environ.get("ROUNDWISE_FUZZ_SYSTEMS", "600"))
POLICIES = ("default", *(fmt.name for fmt in native_formats()))
COMPLEX_POLICIES = ("default", "fp32", "fp64")
U = 2.0**-53
FORMS = {"dense": np.asarray, "sparse": sparse.csr_array, "Fortran": np.asfortranarray}
each_kind = pytest.mark.parametrize(
    ("is_complex", "policy"),
    [(False, policy) for policy in POLICIES] + [(True, policy) for policy in COMPLEX_POLICIES],
)
real_and_complex = pytest.mark.parametrize("is_complex", [False, True])


def gaussian(rng, is_complex, *shape):
    numbers = rng.standard_normal(shape)
    return numbers + 1j * rng.standard_normal(shape) if is_complex else numbers


def shifted(Z, exponents):
    """``2**exponents Z``, both parts of a complex Z; what over- or underflows does."""
    with np.errstate(all="ignore"):
        if Z.dtype.kind != "c":
            return np.ldexp(Z, exponents)
        result = np.empty(Z.shape, dtype=complex)
        result.real, result.imag = np.ldexp(Z.real, exponents), np.ldexp(Z.imag, exponents)
        return result


def drawn_system(rng, is_complex):
    """A and b: benign, ill-conditioned, badly scaled, small integers; real, imaginary, Hermitian.

    n = 1 to 30, and to 16 if they are complex.
    """
    n, columns = int(rng.integers(1, 17 if is_complex else 31)), int(rng.choice([1, 1, 1, 3]))
    kind, A = rng.integers(8 if is_complex else 5), gaussian(rng, is_complex, n, n)
    if kind == 1:
        left, _, right = np.linalg.svd(A)
        A = left * np.logspace(0, -rng.uniform(0, 16), n) @ right
    elif kind == 2:
        A = A * 10.0 ** rng.integers(-8, 9, (n, 1)) * 10.0 ** rng.integers(-8, 9, n)
    elif kind == 3:
        A = A * 2.0 ** int(rng.integers(-900, 900))
    elif kind == 4:
        A = rng.integers(-9, 10, (n, n)) + 10.0 * np.eye(n) * rng.integers(2)
    elif kind == 5:
        A = A.real + 0j
    elif kind == 6:
        A = 1j * A.real
    elif kind == 7:
        A = A @ A.conj().T + 0.1 * np.eye(n)
    if rng.random() < 0.3:
        A = np.where(rng.random((n, n)) < 3 / n, A, 0) + np.diag(np.diag(A))
    b = gaussian(rng, is_complex, n, columns)
    if rng.random() < 0.5:
        with np.errstate(all="ignore"):
            product = A @ b
        b = product if np.isfinite(product).all() else b
    return A, b[:, 0] if columns == 1 else b


def quietly(f, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args, **kwargs)


@each_kind
@pytest.mark.parametrize("form", FORMS)
def test_no_answer_is_above_the_gate(form, is_complex, policy):
    rng = np.random.default_rng([len(form), len(policy), is_complex])
    solved, count = 0, SYSTEMS // (25 if is_complex else 3 * len(POLICIES))
    for _ in range(count):
        A, b = drawn_system(rng, is_complex)
        try:
            x = quietly(rw.solve, FORMS[form](A), b, policy=policy)
        except rw.SolveFailed:
            continue
        solved += 1
        assert x.dtype == (np.complex128 if is_complex else np.float64)
        assert x.shape == b.shape
        assert rational.passes_gate(A, x, b, math.sqrt(len(A)) * U)
    assert solved > count / 2


@real_and_complex
@pytest.mark.parametrize("tol", [2.0**-54, 1e-16, 1e-12, 1e-3])
def test_any_tolerance_holds_exactly(tol, is_complex):
    rng = np.random.default_rng(5)
    solved = 0
    for i in range(16 if is_complex else 40):
        A, b = drawn_system(rng, is_complex)
        A = A.real if i % 4 == 0 else A  # a real A with complex b is another path
        for accuracy in ("backward", "forward"):
            try:
                solution = quietly(rw.solve, A, b, tol=tol, accuracy=accuracy, full_output=True)
            except rw.SolveFailed:
                continue
            solved += 1
            assert rational.passes_gate(A, solution.x, b, tol)
            if is_complex:  # what is reported is an upper bound of the exact backward error
                assert rational.passes_gate(A, solution.x, b, solution.backward_error)
                assert solution.backward_error <= solution.tolerance
                assert solution.tolerance == pytest.approx(tol, rel=1e-15)
    assert solved > (8 if is_complex else 20)


@pytest.mark.parametrize(
    ("is_complex", "columns", "policy"),
    [(False, columns, policy) for columns in (1, 5) for policy in POLICIES]
    + [(True, 1, "fp32"), (True, 1, "fp64")],
)
def test_larger_systems_and_many_columns(is_complex, columns, policy):
    """Blocks of residuals in float64: the bound counts their rounding errors, too."""
    rng, n = np.random.default_rng(columns), 204 if is_complex else 110
    A, b = gaussian(rng, is_complex, n, n), gaussian(rng, is_complex, n, columns)
    solution = rw.solve(A, b, policy=policy, full_output=True)
    assert rational.passes_gate(A, solution.x, b, math.sqrt(n) * U)
    if not is_complex:
        # What is reported is the exact backward error up to what its rounding errors may be.
        most = upper_bounds(solution.backward_error, n, exact.error_of(n, exact.block_for(n)))
        assert rational.passes_gate(A, solution.x, b, most)


@real_and_complex
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_single_precision_answers(form, is_complex):
    rng, dtype = np.random.default_rng(0), np.complex64 if is_complex else np.float32
    for n in (1, 2, 5, 20, 60 if is_complex else 120):
        A, b = (gaussian(rng, is_complex, *shape).astype(dtype) for shape in ((n, n), (n,)))
        x = rw.solve(FORMS[form](A), b)
        assert x.dtype == dtype
        assert rational.passes_gate(A, x, b, math.sqrt(n) * 2.0**-24)


def test_stacked_systems():
    rng = np.random.default_rng(1)
    A, b = rng.standard_normal((20, 4, 4)), rng.standard_normal((20, 4, 2))
    for A_i, x, b_i in zip(A, rw.solve(A, b), b, strict=True):
        assert rational.passes_gate(A_i, x, b_i, 2 * U)


@pytest.mark.parametrize("lowest", [955, 960, -40])
def test_transposed_solves_of_huge_matrices(lowest):
    """Half of the unknowns vanish, so that the norm of x is that of the tiny half."""
    rng = np.random.default_rng(0)
    A, b = np.zeros((6, 6)), np.zeros(6)
    A[:3, :3] = np.ldexp(rng.uniform(0.5, 1, (3, 3)), 1024 if lowest < 0 else 1000)
    A[3:, 3:] = np.ldexp(rng.uniform(0.5, 1, (3, 3)), lowest)
    b[:3] = rng.standard_normal(3)
    for policy in POLICIES:
        x = rw.factor(A, policy=policy).solve(b, "T")
        assert rational.passes_gate(A.T, x, b, math.sqrt(6) * U)


def test_a_tiny_x_is_refused_though_its_rows_residual_is_tiny():
    """Row 1 weighs 2**-1060, which is raised to 2**-1000; half of b is left there."""
    A, b = np.diag([2.0**1000, 2.0**-60]), np.array([0.0, 2.0**-60])
    matrix = moderate(A, 2.0**1000, 2.0**1000)
    columns = scaled_columns(b, matrix)
    Y = np.array([[2.0**-950], [0.0]])
    R = exact.residual(matrix.A, Y, columns.B)
    sizes = matrix.solution_norms(Y), matrix.residual_norms(columns.B)
    assert backward_errors(matrix.residual_norms(R), matrix.norm, *sizes)[0] > 0.25


def far_apart(rng, n):
    """n exponents over most of float64's range: none, a few, anywhere, two groups, or one."""
    return [
        np.zeros(n, dtype=int),
        rng.integers(-20, 20, n),
        rng.integers(-1060, 1015, n),
        np.where(rng.random(n) < 0.5, rng.integers(-1060, -900), rng.integers(900, 1015)),
        np.full(n, rng.integers(-1070, 1020)),
    ][rng.integers(5)]


def extreme_system(rng, is_complex):
    """A and b with subnormal and huge entries, zero blocks and zero columns of b."""
    n, columns = int(rng.integers(1, 7 if is_complex else 9)), int(rng.choice([1, 3, 9]))
    A = np.where(rng.random((n, n)) < 0.6, gaussian(rng, is_complex, n, n), 0.0)
    A += np.diag(rng.uniform(0.5, 1, n) * (np.exp(2j * rng.random(n)) if is_complex else 1))
    if rng.random() < 0.3:
        A[: n // 2, n // 2 :] = A[n // 2 :, : n // 2] = 0
    most = 1015 if is_complex else 1020
    A = shifted(A, np.clip(far_apart(rng, n)[:, None] + far_apart(rng, n), -1100, most))
    b = np.where(rng.random((n, columns)) < 0.4, 0.0, gaussian(rng, is_complex, n, columns))
    return A, shifted(b, np.clip(far_apart(rng, n)[:, None], -1100, most))


@pytest.mark.parametrize(
    ("is_complex", "trans"), [(False, "N"), (False, "T"), *((True, trans) for trans in "NTH")]
)
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_extreme_systems(form, is_complex, trans):
    """A solve, a factorization and a refactorization: what they return passes the gate."""
    rng = np.random.default_rng([len(form), ord(trans), is_complex])
    solved = 0
    for _ in range(25 if is_complex else 40):
        A, b = extreme_system(rng, is_complex)
        all_formats = form == "dense" and not is_complex
        policy = str(rng.choice(POLICIES if all_formats else ("default", "fp32")))
        given, right = FORMS[form](A), {"N": A, "T": A.T, "H": A.conj().T}[trans]
        try:
            F = quietly(rw.factor, given / 3, policy=policy).refactor(given)
            answers = [quietly(F.solve, b, trans)]
            answers.append(quietly(rw.factor(given, policy=policy).solve, b, trans))
            if trans == "N":
                answers.append(quietly(rw.solve, given, b, policy=policy))
        except rw.SolveFailed:
            continue
        solved += 1
        for x in answers:
            assert rational.passes_gate(right, x, b, math.sqrt(len(A)) * U)
    assert solved > 5


@pytest.mark.parametrize("block", [exact.EXACT, 4])
def test_the_residual_of_a_complex_system_is_as_exact_as_it_says(block):
    rng, n = np.random.default_rng(block), 12
    A, x = gaussian(rng, True, n, n), gaussian(rng, True, n, 2)
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
