"""Bands and triangles: found or named, solved without an LU of the whole matrix, and verified."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from exact import passes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import roundwise as rw
from roundwise.backends.native.structured import structured_method, triangular_orders
from roundwise.solver import prepare
from roundwise.solver.structures import NAMES, named_part

N = 340


def full(n=N, seed=0):
    return np.random.default_rng(seed).standard_normal((n, n)) + n * np.eye(n)


def shuffled(A, seed=1):
    rng = np.random.default_rng(seed)
    return A[rng.permutation(len(A))][:, rng.permutation(len(A))]


STRUCTURED = {
    "diagonal": (np.diag(np.diag(full())), "banded"),
    "tridiagonal": (np.triu(np.tril(full(), 1), -1), "banded"),
    "band": (np.triu(np.tril(full(), 3), -8), "banded"),
    "weak diagonal": (np.triu(np.tril(full() - N * np.eye(N), 2), -2), "banded"),
    "lower": (np.tril(full()), "triangular"),
    "upper": (np.triu(full()), "triangular"),
    "permuted lower": (shuffled(np.tril(full())), "triangular"),
    "permuted rows": (np.tril(full())[::-1], "triangular"),
}


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
def test_structure_is_found_and_used(name, order):
    A, method = STRUCTURED[name]
    A = np.asarray(A, order=order)
    b = np.random.default_rng(2).standard_normal((N, 2))
    solution = rw.solve(A, b, full_output=True)
    assert solution.action == f"{method}:fp64-fp64-fp64-fp64"
    for c in range(2):
        assert passes(A, solution.x[:, c], b[:, c])
    F = rw.factor(A)
    assert F.format == f"{method} fp64"
    for trans, M in (("N", A), ("T", A.T)):
        x = F.solve(b[:, 0], trans)
        assert passes(M, x, b[:, 0])
    plain = rw.solve(A, b[:, 0])
    assert passes(A, plain, b[:, 0])
    assert rw.solve(A, b, assume_a="gen", full_output=True).action.startswith("lu:")


@pytest.mark.parametrize("name", STRUCTURED)
def test_factors_multiply_to_the_matrix(name):
    A, method = STRUCTURED[name]
    F = rw.backends.get_backend("native").analyse(A, method).factorize(A, rw.FP64)
    rows = slice(None) if F.perm is None else F.perm
    columns = slice(None) if F.order is None else F.order
    np.testing.assert_allclose(F.L @ F.U, A[rows][:, columns], atol=1e-12 * abs(A).max())
    assert F.pivots.min() > 0


def test_full_matrices_are_not_taken_for_structured_ones():
    assert structured_method(full()) is None
    holes = full() * (np.random.default_rng(3).random((N, N)) < 0.5)
    assert triangular_orders(holes) is None
    assert structured_method(holes) is None
    wide = np.triu(np.tril(full(), N // 4), -N // 4)
    assert structured_method(wide) is None


def test_a_singular_triangle_is_said_to_be_singular():
    A = np.tril(full())
    A[5, 5] = 0
    for matrix in (A, A.T, np.diag(np.diag(A)), shuffled(A)):
        with pytest.raises(rw.SolveFailed, match="singular"):
            rw.solve(matrix, np.ones(N))


def test_a_triangle_that_hides_its_condition_is_examined():
    """Kahan's matrix: no pivot is small, its inverse is large."""
    n, s = N, np.sin(1.2)
    A = np.triu(-np.cos(1.2) * np.ones((n, n)), 1) + np.eye(n)
    A *= (s ** np.arange(n))[:, None]
    solution = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            solution = rw.solve(A, np.ones(n), full_output=True)
        except rw.SolveFailed:
            return
    assert passes(A, solution.x, np.ones(n))
    assert solution.digits > 2 or told


def test_refactoring_keeps_the_method_and_the_gate():
    A, _ = STRUCTURED["band"]
    F = rw.factor(A)
    b = np.ones(N)
    F.refactor(2 * A)
    assert passes(2 * A, F.solve(b), b)
    F.refactor(full())  # the pattern of a dense matrix may change
    assert passes(full(), F.solve(b), b)
    F = rw.factor(np.tril(full()))
    F.refactor(full())
    assert passes(full(), F.solve(b), b)


# --- SciPy's names


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from([*NAMES, None]),
    n=st.integers(1, 7),
    lower=st.booleans(),
    transposed=st.booleans(),
    columns=st.sampled_from([None, 1, 3]),
    order=st.sampled_from("CF"),
    seed=st.integers(0, 9),
)
def test_names_mean_what_scipy_means(name, n, lower, transposed, columns, order, seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    if name in ("pos", "positive definite"):
        A = A @ A.T + n * np.eye(n)
        A = np.tril(A) if lower else np.triu(A)  # the other triangle is not read
    A = np.asarray(A + 2 * n * np.eye(n), order=order)
    b = rng.standard_normal(n if columns is None else (n, columns))
    options = {"assume_a": name, "lower": lower, "transposed": transposed}
    # SciPy 1.15.0 raises for tridiagonal systems of one or two rows; those are full matrices.
    tiny = name == "tridiagonal" and n <= 2
    peer = options | {"assume_a": "general"} if tiny else options
    expected = scipy.linalg.solve(A, b, **peer)
    np.testing.assert_allclose(rw.solve(A, b, **options), expected, rtol=1e-9, atol=1e-12)
    for policy in ("default", "fp64"):  # one compiled call, one by one
        stack = rw.solve(np.stack([A, A]), b, policy=policy, **options)
        np.testing.assert_allclose(stack, np.stack([expected] * 2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [5, N])
@pytest.mark.parametrize("name", NAMES)
def test_entries_that_a_name_excludes_are_not_read(name, n):
    A = full(n)
    b = np.ones(n)
    x = rw.solve(A, b, assume_a=name)
    part = {
        "upper triangular": np.triu,
        "lower triangular": np.tril,
        "diagonal": lambda A: np.diag(np.diag(A)),
        "tridiagonal": lambda A: np.triu(np.tril(A, 1), -1),
    }.get(name, lambda A: A)(A)
    if name in ("sym", "symmetric", "her", "hermitian", "pos", "positive definite"):
        part = np.triu(A) + np.triu(A, 1).T
    assert passes(part, x, b)
    F = rw.factor(A, assume_a=name)
    assert passes(part, F.solve(b), b)


def test_sparse_matrices_take_the_names_as_they_are():
    A = sparse.csr_array(np.tril(full(20)))
    for name in NAMES:
        if "upper" in name:
            continue
        x = rw.solve(A, np.ones(20), assume_a=name)
        assert passes(A.toarray(), x, np.ones(20))
    x = rw.solve(A, np.ones(20), transposed=True)
    assert passes(A.toarray().T, x, np.ones(20))


@pytest.mark.parametrize("bad", ["symetric", 3, ["pos"], ""])
def test_unknown_names_are_refused(bad):
    with pytest.raises(ValueError, match="'hermitian'"):
        rw.solve(np.eye(2), np.ones(2), assume_a=bad)


def test_overwriting():
    A, b = np.asfortranarray(full(6)), np.ones(6)
    kept = b.copy()
    x = rw.solve(A, b, overwrite_a=True, overwrite_b=True)
    assert x is b
    np.testing.assert_allclose(full(6) @ x, kept, rtol=1e-12)
    assert np.array_equal(A, full(6))
    for other in (np.ones(6, dtype=int), np.ones((6, 2)), [1.0] * 6):
        given = np.array(other)
        rw.solve(A, other, overwrite_b=True)
        assert np.array_equal(other, given)


@pytest.mark.parametrize("A", [np.eye(400) + np.eye(400, k=1), np.triu(np.ones((400, 400)))])
def test_a_named_format_that_a_structure_lacks_is_raised(A):
    solution = rw.solve(A, np.ones(400), policy="fp32", full_output=True)
    assert solution.action in ("banded:fp64-fp64-fp64-fp64", "triangular:fp64-fp64-fp64-fp64")
    assert "does not run in it here: fp64 instead" in solution.explain()


def test_the_part_that_is_meant_is_taken_once(monkeypatch):
    """Also of a stack whose systems are solved one by one: each pass reads all of A."""
    taken = []

    def counted(A, name, lower):
        taken.append(A.shape)
        return named_part(A, name, lower)

    monkeypatch.setattr(prepare, "named_part", counted)
    G = np.random.default_rng(0).standard_normal((3, 130, 130))
    A = G @ G.swapaxes(1, 2) + 130 * np.eye(130)
    x = rw.solve(np.triu(A), np.ones((130, 1)), assume_a="positive definite")
    assert taken == [A.shape]
    np.testing.assert_allclose(A @ x, np.ones((3, 130, 1)), rtol=1e-10)
