"""The gate as a theorem: ``||b - A x|| <= tol (||A|| ||x|| + ||b||)`` in rational arithmetic.

Set ROUNDWISE_FUZZ_SYSTEMS=100000 for the long version.
"""

import math
import os
import warnings

import numpy as np
import pytest
import rational
from scipy import sparse

import roundwise as rw
from roundwise.algorithms.accuracy import backward_errors, upper_bounds
from roundwise.algorithms.scaling import moderate, scaled_columns
from roundwise.backends import native_formats
from roundwise.backends.native import exact

SYSTEMS = int(os.environ.get("ROUNDWISE_FUZZ_SYSTEMS", "600"))
POLICIES = ("default", *(fmt.name for fmt in native_formats()))


def drawn_system(rng):
    """A and b, n = 1 to 30: benign, ill-conditioned, badly scaled, or small integers."""
    n, columns = int(rng.integers(1, 31)), int(rng.choice([1, 1, 1, 3]))
    kind = rng.integers(5)
    A = rng.standard_normal((n, n))
    if kind == 1:
        U, _, V = np.linalg.svd(A)
        A = U * np.logspace(0, -rng.uniform(0, 16), n) @ V
    elif kind == 2:
        A = A * 10.0 ** rng.integers(-8, 9, (n, 1)) * 10.0 ** rng.integers(-8, 9, n)
    elif kind == 3:
        A = np.ldexp(A, int(rng.integers(-900, 900)))
    elif kind == 4:
        A = rng.integers(-9, 10, (n, n)).astype(float) + 10 * np.eye(n) * rng.integers(2)
    if rng.random() < 0.3:
        A = np.where(rng.random((n, n)) < 3 / n, A, 0) + np.diag(np.diag(A))
    b = rng.standard_normal((n, columns))
    if rng.random() < 0.5:
        with np.errstate(all="ignore"):
            product = A @ b
        b = product if np.isfinite(product).all() else b
    return A, b[:, 0] if columns == 1 else b


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["dense", "sparse", "Fortran"])
def test_no_answer_is_above_the_gate(kind, policy):
    rng = np.random.default_rng([len(kind), POLICIES.index(policy)])
    solved = 0
    count = SYSTEMS // (3 * len(POLICIES))
    for _ in range(count):
        A, b = drawn_system(rng)
        n = len(A)
        A = {"dense": A, "sparse": sparse.csr_array(A), "Fortran": np.asfortranarray(A)}[kind]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x = rw.solve(A, b, policy=policy)
        except rw.SolveFailed:
            continue
        solved += 1
        assert rational.passes_gate(A, x, b, math.sqrt(n) * 2.0**-53)
    assert solved > count / 2


@pytest.mark.parametrize("tol", [2.0**-54, 1e-16, 1e-12, 1e-3])
def test_any_tolerance_holds_exactly(tol):
    rng = np.random.default_rng(5)
    solved = 0
    for _ in range(40):
        A, b = drawn_system(rng)
        for accuracy in ("backward", "forward"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    x = rw.solve(A, b, tol=tol, accuracy=accuracy)
            except rw.SolveFailed:
                continue
            solved += 1
            assert rational.passes_gate(A, x, b, tol)
    assert solved > 20


@pytest.mark.parametrize("columns", [1, 5])
def test_larger_systems_and_many_columns(columns):
    """Blocks of residuals in float64: the bound counts their rounding errors, too."""
    rng = np.random.default_rng(columns)
    n = 110
    A, b = rng.standard_normal((n, n)), rng.standard_normal((n, columns))
    for policy in POLICIES:
        solution = rw.solve(A, b, policy=policy, full_output=True)
        assert rational.passes_gate(A, rw.solve(A, b, policy=policy), b, math.sqrt(n) * 2.0**-53)
        # What is reported is the exact backward error up to what its rounding errors may be.
        most = upper_bounds(solution.backward_error, n, exact.error_of(n, exact.block_for(n)))
        assert rational.passes_gate(A, solution.x, b, most)


def test_float32_answers():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 20, 120):
        A, b = rng.standard_normal((n, n)).astype("f4"), rng.standard_normal(n).astype("f4")
        x = rw.solve(A, b)
        assert x.dtype == np.float32
        assert rational.passes_gate(A, x, b, math.sqrt(n) * 2.0**-24)


def test_stacked_systems():
    rng = np.random.default_rng(1)
    A, b = rng.standard_normal((20, 4, 4)), rng.standard_normal((20, 4, 2))
    for A_i, x, b_i in zip(A, rw.solve(A, b), b, strict=True):
        assert rational.passes_gate(A_i, x, b_i, 2 * 2.0**-53)


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
        assert rational.passes_gate(A.T, x, b, math.sqrt(6) * 2.0**-53)


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


@np.errstate(all="ignore")
def extreme_system(rng):
    """A and b with subnormal and huge entries, zero blocks and zero columns of b."""
    n, columns = int(rng.integers(1, 9)), int(rng.choice([1, 3, 9]))
    A = np.where(rng.random((n, n)) < 0.6, rng.standard_normal((n, n)), 0.0)
    A += np.diag(rng.uniform(0.5, 1, n))
    if rng.random() < 0.3:
        A[: n // 2, n // 2 :] = A[n // 2 :, : n // 2] = 0
    A = np.ldexp(A, np.clip(far_apart(rng, n)[:, None] + far_apart(rng, n), -1100, 1020))
    b = np.where(rng.random((n, columns)) < 0.4, 0.0, rng.standard_normal((n, columns)))
    return A, np.ldexp(b, np.clip(far_apart(rng, n)[:, None], -1100, 1020))


@pytest.mark.parametrize("trans", "NT")
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_extreme_systems(kind, trans):
    """A solve, a factorization and a refactorization: what they return passes the gate."""
    rng = np.random.default_rng([len(kind), ord(trans)])
    solved = 0
    for _ in range(40):
        A, b = extreme_system(rng)
        policy = str(rng.choice(POLICIES if kind == "dense" else ("default", "fp32")))
        given = A if kind == "dense" else sparse.csr_array(A)
        right = A if trans == "N" else A.T
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                F = rw.factor(given / 3, policy=policy).refactor(given)
                answers = [F.solve(b, trans), rw.factor(given, policy=policy).solve(b, trans)]
                if trans == "N":
                    answers.append(rw.solve(given, b, policy=policy))
        except rw.SolveFailed:
            continue
        solved += 1
        for x in answers:
            assert rational.passes_gate(right, x, b, math.sqrt(len(A)) * 2.0**-53)
    assert solved > 5
