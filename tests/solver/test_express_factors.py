"""Small dense matrices whose factors are kept: one compiled call solves and verifies."""

import itertools
import warnings

import numpy as np
import pytest
import rational
from express_calls import express
from test_express import ORDERS, TYPES, drawn

import roundwise as rw
from roundwise.backends.native.dense import has_own_lu

FORMATS = ("fp64", "fp32")


def across(A, trans):
    return {"N": A, "T": A.T, "H": A.conj().T}[trans]


@pytest.mark.parametrize(("first", "second"), list(itertools.product(TYPES, TYPES)))
@pytest.mark.parametrize("n", [1, 3, 9, 18])
def test_factors_give_the_bits_of_solve(first, second, n):
    rng = np.random.default_rng(n)
    A, B = drawn(rng, (n, n), first) + 3 * np.eye(n, dtype=first), drawn(rng, (n, 2), second)
    F = rw.factor(A)
    assert np.array_equal(F.solve(B), rw.solve(A, B))
    for trans in "NTH":
        found = F.solve(B, trans, full_output=True)
        assert found.x.dtype == np.linalg.solve(A, B).dtype
        assert np.array_equal(found.x, F.solve(B, trans))
        assert rational.passes_gate(across(A, trans), found.x, B, found.backward_error)
        assert found.backward_error <= found.tolerance * (1 + 1e-15)
        assert found.digits >= 3


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [2, 17, 70])
def test_fp32_factors_pass_the_same_gate(dtype, n):
    """The action that is told is the one that was run: FP32 factors, refined in FP64."""
    rng = np.random.default_rng(n)
    A, b = drawn(rng, (n, n), dtype) + n * np.eye(n, dtype=dtype), drawn(rng, n, dtype)
    found = rw.solve(A, b, policy="fp32", full_output=True)
    assert found.action == "lu:fp32-fp64-fp64-fp64"
    assert "You asked for fp32" in found.explain()
    assert found.backward_error <= found.tolerance
    assert np.array_equal(found.x, rw.solve(A, b, policy="fp32"))
    assert np.array_equal(found.x, rw.factor(A, policy="fp32").solve(b))
    assert np.array_equal(found.x, rw.Solver("fp32").solve(A, b))
    if found.x.dtype in (np.float64, np.complex128):
        assert found.iterations >= 1
    small = slice(0, 6)
    if n <= 17:
        assert rational.passes_gate(A, found.x, b, found.backward_error)
    assert np.allclose(found.x[small], np.linalg.solve(A, b)[small], rtol=1e-4)


def test_fp32_factors_that_may_have_lost_a_pivot_are_left_to_the_general_path():
    A = rw.problems.randsvd(20, 1e12, 3, rng=0).A
    b = A @ np.ones(20)
    assert express(A, b, factor="fp32") is None
    found = rw.solve(A, b, policy="fp32", full_output=True)
    assert found.backward_error <= found.tolerance
    assert "You asked for fp32" in found.explain()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("trans", ["N", "T"])
def test_badly_scaled_matrices(dtype, trans):
    rng, n = np.random.default_rng(1), 6
    rows, columns = 2.0 ** rng.integers(-300, 300, (2, n))
    A = drawn(rng, (n, n), dtype) * rows[:, None] * columns
    b = drawn(rng, n, dtype) * (rows if trans == "N" else columns)
    found = rw.factor(A).solve(b, trans, full_output=True)
    assert found.status == "accepted"
    assert rational.passes_gate(across(A, trans), found.x, b, found.backward_error)
    huge = drawn(rng, (n, n), dtype)
    found = rw.factor(huge).solve(huge @ np.full(n, 1e250), full_output=True)  # only b is
    assert found.status == "accepted"


def test_a_matrix_and_its_order_in_memory_may_change_afterwards():
    rng = np.random.default_rng(2)
    A, b = rng.standard_normal((7, 7)), rng.standard_normal(7)
    expected = rw.solve(A, b)
    for form in ORDERS.values():
        given = form(A).copy() if form is not ORDERS["read-only"] else form(A)
        F = rw.factor(given)
        if given.flags.writeable:
            given[...] = 0
        assert np.array_equal(F.solve(b), expected)


def test_refactor_goes_on_with_another_matrix():
    rng = np.random.default_rng(3)
    A, b = rng.standard_normal((9, 9)), rng.standard_normal(9)
    F = rw.factor(np.eye(9))
    assert np.array_equal(F.refactor(A).solve(b), rw.solve(A, b))
    assert np.array_equal(F.solve(b, "T"), rw.solve(A.T, b))
    assert np.array_equal(
        F.refactor((9 * A).astype(int)).solve(b), rw.solve((9 * A).astype(int), b)
    )
    with pytest.raises(ValueError, match="9 x 9, A is 8 x 8"):
        F.refactor(np.eye(8))
    with pytest.raises(TypeError, match="A is complex"):
        F.refactor(1j * A)
    hilbert = 1 / (1.0 + np.add.outer(np.arange(9), np.arange(9)))
    assert np.allclose(hilbert @ F.refactor(hilbert).solve(b), b, atol=1e-4)
    assert np.array_equal(F.refactor(A).solve(b), rw.solve(A, b))
    complex_F = rw.factor(1j * A)
    assert complex_F.refactor(A).solve(b).dtype == np.complex128


def test_what_is_refused_is_told_as_ever():
    with pytest.raises(ValueError, match="A has NaN"):
        rw.factor(np.full((3, 3), np.nan))
    with pytest.raises(rw.SolveFailed, match="A is singular"):
        rw.factor(np.ones((3, 3))).solve(np.ones(3))
    F = rw.factor(np.eye(3))
    with pytest.raises(ValueError, match="b has NaN"):
        F.solve(np.full(3, np.inf))
    with pytest.raises(np.linalg.LinAlgError, match="b has 4 rows"):
        F.solve(np.ones(4))
    with pytest.raises(ValueError, match="trans"):
        F.solve(np.ones(3), "X")
    assert F.solve(np.ones((3, 0))).shape == (3, 0)
    assert np.array_equal(F.solve([1, 2, 3]), [1, 2, 3])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("policy", ["default", *FORMATS])
def test_stacks_are_loops_over_the_same_kernel(dtype, policy):
    rng = np.random.default_rng(4)
    A, B = drawn(rng, (5, 6, 6), dtype), drawn(rng, (5, 6, 2), dtype)
    A[2] = 1
    A[2] += np.diag(np.arange(6) * 1e-13).astype(dtype)  # its pivots are suspicious, or zero
    if np.finfo(dtype).bits == 32:
        A[2] = np.eye(6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rw.IllConditionedWarning)
        F = rw.factor(A, policy=policy)
        plain = rw.solve(A, B, policy=policy)
        told = rw.solve(A, B, policy=policy, full_output=True)
        assert np.array_equal(plain, told.x)
        assert np.array_equal(plain, F.solve(B))
        for i in range(5):
            assert np.array_equal(plain[i], rw.solve(A[i], B[i], policy=policy))
            assert np.array_equal(told[i].x, plain[i])
            assert told[i].backward_error <= told[i].tolerance
        for trans in "TH":
            found = F.solve(B, trans, full_output=True)
            assert np.array_equal(found.x, F.solve(B, trans))
            for i in (0, 1, 3, 4):
                assert rational.passes_gate(
                    across(A[i], trans), found.x[i], B[i], found[i].tolerance
                )
                assert np.array_equal(found[i].x, found.x[i])
    assert told[0].digits >= 2


def test_factors_of_a_stack_report_bad_matrices_and_go_on_with_others():
    A = np.stack([np.eye(3), np.full((3, 3), np.nan)])
    with pytest.raises(ValueError, match="A has NaN"):
        rw.factor(A)
    A[1] = 2 * np.eye(3)
    F = rw.factor(A)
    assert np.array_equal(F.solve(np.ones(3)), [[1, 1, 1], [0.5, 0.5, 0.5]])
    assert np.array_equal(F.refactor(2 * A).solve(np.ones(3))[0], np.full(3, 0.5))
    A[1] = 0
    with pytest.raises(rw.SolveFailed, match=r"system \(1,\) of the stack: A is singular"):
        F.refactor(A).solve(np.ones(3))


def exact_errors(A, x, b):
    """Backward errors of columns, in longdouble: products of single precision are exact there."""
    wide = np.clongdouble if A.dtype.kind == "c" else np.longdouble
    W, X, B = (np.asarray(M).astype(wide) for M in (A, x, b))
    sizes = abs(W).sum(axis=1).max() * abs(X).max(axis=0) + abs(B).max(axis=0)
    return abs(B - W @ X).max(axis=0) / sizes


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("trans", ["N", "T", "H"])
@pytest.mark.parametrize("columns", [1, 9, 40])
def test_single_precision_is_factorized_and_judged_in_single_precision(dtype, trans, columns):
    """Numbers of one sign round to one side: the bound must hold for sums of these, too."""
    rng, n = np.random.default_rng(5), 417
    A = abs(rng.standard_normal((n, n)))
    A = (A * (1 + 1j) if dtype == np.complex64 else A) + 3 * np.sqrt(n) * np.eye(n)
    A = A.astype(dtype)
    X = np.ones((n, columns)) + 0.01 * rng.standard_normal((n, columns))
    meant = across(A, trans)
    B = (meant.astype(np.result_type(dtype, np.float64)) @ X).astype(dtype)
    F = rw.factor(A)
    assert F.format == "lu fp32" or not has_own_lu()
    found = F.solve(B, trans, full_output=True)
    assert found.x.dtype == dtype
    assert np.array_equal(found.x, F.solve(B, trans))
    assert exact_errors(meant, found.x, B).max() <= found.backward_error <= found.tolerance
    assert np.allclose(found.x, X, rtol=1e-2)


def test_short_sums_that_say_too_little_are_followed_by_others():
    """With so small a tolerance no column passes by short sums alone."""
    rng, n = np.random.default_rng(6), 300
    A = (rng.standard_normal((n, n)) + n * np.eye(n)).astype(np.float32)
    B = rng.standard_normal((n, 8)).astype(np.float32)
    tolerance = 3 * 2.0**-24
    found = rw.factor(A, tol=tolerance).solve(B, full_output=True)
    assert exact_errors(A, found.x, B).max() <= found.backward_error <= tolerance


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_factors_in_single_precision_do_not_hide_that_a_matrix_is_singular(dtype):
    rng, n = np.random.default_rng(7), 300
    A = drawn(rng, (n, n), dtype)
    A[-1] = A[:4].sum(axis=0)  # rounded: the last pivot is lost in FP32
    A[:, 0] = 0
    A[0] = A[1]
    with pytest.raises(rw.SolveFailed, match="singular"):
        rw.factor(A).solve(np.ones(n, dtype))
    nearly = drawn(rng, (n, n), dtype)
    nearly[0] = nearly[1] * (1 + 2.0**-20)
    nearly[0, 0] += 1e-3
    F = rw.factor(nearly)
    b = drawn(rng, n, dtype)
    assert exact_errors(nearly, F.solve(b)[:, None], b[:, None]).max() <= np.sqrt(n) * 2.0**-24


def test_double_columns_of_a_single_matrix_are_answered_in_double():
    rng, n = np.random.default_rng(8), 300
    A = (rng.standard_normal((n, n)) + np.sqrt(n) * np.eye(n)).astype(np.float32)
    b = rng.standard_normal((n, 7))
    x = rw.factor(A).solve(b)
    assert x.dtype == np.float64
    assert exact_errors(A, x, b).max() <= np.sqrt(n) * 2.0**-53


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
@pytest.mark.parametrize("power", [-90, 60, -400])
def test_units_of_b_change_nothing_but_the_exponents_of_x(dtype, power):
    """Columns of very different units, and zeros, beside each other."""
    if dtype == np.float32:
        power = max(power, -90) // 2
    rng, n = np.random.default_rng(9), 280
    A = drawn(rng, (n, n), dtype) + np.sqrt(n).astype(np.float32) * np.eye(n, dtype=dtype)
    B = drawn(rng, (n, 3), dtype)
    B[:, 2] = 0
    units = np.array([1.0, 2.0**power, 1.0]).astype(B.real.dtype)
    F = rw.factor(A)
    assert np.array_equal(F.solve(B * units), F.solve(B) * units)
    assert np.array_equal(rw.solve(A, B * units), rw.solve(A, B) * units)
    for trans in "TH":
        assert np.array_equal(F.solve(B * units, trans), F.solve(B, trans) * units)


def test_an_answer_that_would_vanish_is_not_returned_as_zero():
    rng, n = np.random.default_rng(10), 280
    A = (rng.standard_normal((n, n)) + np.sqrt(n) * np.eye(n)) * 2.0**500
    b = rng.standard_normal(n) * 2.0**-700
    with pytest.raises(rw.SolveFailed):
        print(rw.factor(A).solve(b))
