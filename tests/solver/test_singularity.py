"""Singular means singular, and only then: judged by integers, for integers know."""

import warnings
from functools import cache

import numpy as np
import pytest
import rational
from scipy import sparse

import roundwise as rw
from roundwise.solver.trust import singularity
from roundwise.solver.trust.singularity import Singularity, examine, vanishes_modulo

FORMS = (np.asarray, sparse.csr_array)
POLICIES = ("default", *(fmt.name for fmt in rw.backends.native_formats()))
ONE_TO_NINE = np.arange(1.0, 10).reshape(3, 3)


def integers_of_rank(n, rank, rng, largest=9):
    """Random integers whose last rows are combinations of the others."""
    A = rng.integers(-largest, largest + 1, (n, n)).astype(float)
    A[rank:] = rng.integers(-2, 3, (n - rank, rank)) @ A[:rank]
    return A[rng.permutation(n)]


def singular_matrices():
    yield ONE_TO_NINE
    yield np.zeros((1, 1))
    for seed in range(40):
        rng, n = np.random.default_rng(seed), seed + 1
        yield integers_of_rank(n, max(0, n - 1 - seed % 3), rng)
        A = rng.standard_normal((n + 1, n + 1))
        A[-1] = A[seed % n]
        yield A  # equal rows
        A = rng.standard_normal((n + 1, n + 1))
        A[:, -1] = -(2.0 ** (seed - 20)) * A[:, seed % n]
        yield A  # parallel columns
        yield integers_of_rank(n, n - 1, rng) * 2.0 ** rng.integers(-300, 300, (n, 1))


def nonsingular_matrices():
    """Close to singular ones; those that are not are rare accidents, and left out."""
    yield np.array([[1.0, 1.0], [1.0, 1 + 2.0**-52]])
    yield np.diag([1.0, 1e-300])
    for seed in range(40):
        rng, n = np.random.default_rng(seed), seed + 1
        A = integers_of_rank(n, n - 1, rng)
        A[rng.integers(n), rng.integers(n)] += 1
        yield A
        A = rng.standard_normal((n + 1, n + 1))
        A[-1] = A[seed % n]
        A[-1, 0] = np.nextafter(A[-1, 0], 2)
        yield A
        yield A * 2.0 ** rng.integers(-150, 150, (n + 1, 1)) * 2.0 ** rng.integers(-150, 150, n + 1)


@cache
def judged(matrices):
    """The matrices, each with whether it is singular: rational arithmetic takes seconds."""
    return [(A, rational.is_singular(A)) for A in matrices()]


@pytest.mark.parametrize("form", FORMS)
def test_exact_matrices_are_told_apart(form):
    expected = {True: Singularity.SINGULAR, False: Singularity.NONSINGULAR}
    told = []
    for A, truth in (*judged(singular_matrices), *judged(nonsingular_matrices)):
        assert examine(form(A)) is expected[truth]
        told.append(truth)
    assert 150 < sum(told) < len(told) - 100


def test_determinants_modulo_a_prime():
    """All 2 x 2 matrices modulo 5 and 7, and products of triangles with a known determinant."""
    for p in (5, 7):
        for entries in np.ndindex(p, p, p, p):
            a, b, c, d = entries
            A = np.array(entries, dtype=float).reshape(2, 2)
            assert vanishes_modulo(p, A) == ((a * d - b * c) % p == 0)
    p, rng = 16777213, np.random.default_rng(0)
    for n in (1, 63, 64, 65, 128, 150):
        for zero in (None, 0, n // 2, n - 1):
            L = np.tril(rng.integers(0, p, (n, n)).astype(object), -1) + np.eye(n, dtype=int)
            U = np.triu(rng.integers(1, p, (n, n)).astype(object))
            if zero is not None:
                U[zero, zero] = 0
            A = (L @ U % p)[rng.permutation(n)]
            assert vanishes_modulo(p, A.astype(float)) == (zero is not None)


def test_primes_that_divide_the_determinant_do_not_decide(monkeypatch):
    """The first primes divide this determinant; another one shows that it is not zero."""
    primes = singularity._random_primes()
    first = [next(primes) for _ in range(3)]
    assert all(all(p % d for d in range(2, 4097)) for p in first)
    assert len(set(first)) == 3
    assert examine(np.diag([float(first[0]), first[1] * 1.0, 1.0])) is Singularity.NONSINGULAR
    monkeypatch.setattr(singularity, "RISK", 1.0)
    assert examine(np.diag([float(first[0]), 1.0])) is not Singularity.UNDECIDED


def test_large_matrices_are_undecided_unless_their_pattern_tells():
    n = singularity.EXAMINED_UP_TO + 1
    A = sparse.eye_array(n, format="csr")
    assert examine(A) is Singularity.UNDECIDED
    A.data[5] = 0.0
    assert examine(A) is Singularity.SINGULAR


@pytest.mark.parametrize("full_output", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", FORMS)
def test_singular_matrices_raise_even_if_some_x_solves_the_system(form, policy, full_output):
    for k, A in enumerate(singular_matrices()):
        n = len(A)
        for b in (A @ np.ones(n), np.arange(1.0, n + 1)):
            if k % 7 == POLICIES.index(policy):
                with pytest.raises(rw.SolveFailed, match="A is singular: its determinant is zero"):
                    rw.solve(form(A), b, policy=policy, full_output=full_output)
                with pytest.raises(rw.SolveFailed, match="A is singular: its determinant is zero"):
                    rw.factor(form(A), policy=policy).solve(b)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", FORMS)
def test_nonsingular_matrices_are_not_called_singular(form, policy):
    """They are solved, if NumPy's answer passes the gate, or it is said that nothing reached it."""
    solved, reasons = 0, []
    for A, singular in judged(nonsingular_matrices):
        if singular:
            continue
        b = np.arange(1.0, len(A) + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rw.IllConditionedWarning)
            try:
                rw.solve(form(A), b, policy=policy)
            except rw.SolveFailed as failure:
                reasons.append(failure.reason)
            else:
                solved += 1
    assert not any("A is singular" in reason for reason in reasons)
    assert len(reasons) <= (0 if form is np.asarray else solved / 20)  # QR is for dense matrices


def test_a_matrix_whose_pivot_vanishes_is_solved_by_qr():
    """Its determinant is 2**-52; elimination rounds the last pivot to zero."""
    A = np.array([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    A[2, 2] = np.nextafter(1.0, 2)
    assert not rational.is_singular(A)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rw.IllConditionedWarning)
        solution = rw.solve(A, A @ [1.0, 2.0, 3.0], full_output=True)
    assert solution.backward_error <= solution.tolerance
