"""Bands and triangles by one call: exact backward errors, what is read, and what is refused."""

import pickle
import warnings

import mpmath
import numpy as np
import pytest
import scipy.linalg
from express_calls import express
from hypothesis import given, settings
from hypothesis import strategies as st

import roundwise as rw
from roundwise.backends.native.structured import (
    BAND,
    LOWER,
    NONE,
    PERHAPS_PERMUTED,
    UPPER,
    Found,
    look_at,
    triangular_orders,
)
from roundwise.machine.threads import get_simd_level, set_simd_level, simd_levels
from roundwise.solver.express import EXPRESS_TYPES, ExpressAnswer
from roundwise.solver.express_factors import dense_factors
from roundwise.solver.express_structured import TOLD, UNKNOWN
from roundwise.solver.prepare import Wanted

pytestmark = pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")

KINDS = {
    "diagonal": lambda A: np.diag(np.diag(A)),
    "tridiagonal": lambda A: np.triu(np.tril(A, 1), -1),
    "lower triangular": np.tril,
    "upper triangular": np.triu,
    "band": lambda A: np.triu(np.tril(A, 3), -2),
    "lower band": lambda A: np.triu(np.tril(A), -2),
    "Hessenberg": lambda A: np.triu(A, -1),
}
ORDERS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "reversed": lambda A: np.ascontiguousarray(A[::-1, ::-1])[::-1, ::-1],
    "strided": lambda A: np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3],
    "unaligned": lambda A: _unaligned(A),
}


def _unaligned(A):
    memory = np.empty(A.nbytes + 1, np.uint8)
    moved = memory[1:].view(A.dtype).reshape(A.shape)
    moved[...] = A
    return moved


def drawn(n, dtype, seed=0, diagonal=2.0):
    """A matrix whose triangles are well conditioned, and of which no entry is zero."""
    rng = np.random.default_rng([seed, n])
    A = rng.standard_normal((n, n)) / np.sqrt(n)
    if np.dtype(dtype).kind == "c":
        A = A + 1j * rng.standard_normal((n, n)) / np.sqrt(n)
    return (A + diagonal * np.eye(n)).astype(dtype)


def columns(n, k, dtype, seed=1):
    rng = np.random.default_rng([seed, n, k or 0])
    shape = (n,) if k is None else (n, k)
    b = rng.standard_normal(shape)
    return (b + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else b).astype(dtype)


def exact_error(A, x, b):
    """The largest backward error of the columns, in 50 digits."""
    with mpmath.workdps(50):
        M = [[mpmath.mpmathify(complex(v)) for v in row] for row in A]
        norm = max(mpmath.fsum(map(abs, row)) for row in M)
        X, B = x.reshape(len(A), -1), b.reshape(len(A), -1)
        worst = mpmath.mpf(0)
        for c in range(X.shape[1]):
            xs = [mpmath.mpmathify(complex(v)) for v in X[:, c]]
            bs = [mpmath.mpmathify(complex(v)) for v in B[:, c]]
            rows = (
                abs(right - mpmath.fsum(a * y for a, y in zip(row, xs, strict=True) if a != 0))
                for row, right in zip(M, bs, strict=True)
            )
            size = norm * max(map(abs, xs)) + max(map(abs, bs))
            worst = max(worst, max(rows) / size)
        return float(worst)


def holds(A, found, b):
    """The bound that the gate compared is one, and within the tolerance."""
    assert isinstance(found, ExpressAnswer)
    assert found.backward_error <= found.tolerance
    error = exact_error(A, found.x, b)
    root = np.sqrt(2) if b.dtype.kind == "c" and A.dtype.kind != "c" else 1
    return error <= found.backward_error * (1 + 1e-9) * root / root


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", EXPRESS_TYPES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 7, 13, 26, 41])
def test_answers_pass_the_gate_exactly(kind, dtype, n):
    A = KINDS[kind](drawn(n, dtype))
    rng = np.random.default_rng(n)
    for place, order in enumerate(ORDERS.values()):
        given_A = order(A)
        for b_type in EXPRESS_TYPES:
            k = [None, 1, 3, 9, 20][int(rng.integers(5))] if n < 40 else None
            b = columns(n, k, b_type, place)
            kept = given_A.copy(), b.copy()
            found = express(given_A, b, zeros=UNKNOWN)
            assert holds(A, found, b)
            assert found.x.shape == b.shape
            assert found.x.dtype == np.result_type(dtype, b_type)
            assert np.array_equal(given_A, kept[0])
            assert np.array_equal(b, kept[1])


@pytest.mark.parametrize("dtype", EXPRESS_TYPES, ids=str)
@pytest.mark.parametrize("k", [None, 5])
def test_sums_of_blocks_pass_too(dtype, k):
    n = 230
    for kind in KINDS:
        A, b = KINDS[kind](drawn(n, dtype)), columns(n, k, dtype)
        for order in ("C", "F"):
            found = express(ORDERS[order](A), b, zeros=UNKNOWN)
            assert found.method in ("banded", "triangular")
            wide = np.clongdouble
            r = abs(b - (A.astype(wide) @ found.x.astype(wide))).max(axis=0)
            size = abs(A.astype(wide)).sum(axis=1).max() * abs(found.x.astype(wide)).max(axis=0)
            size = size + abs(b).max(axis=0)
            room = n * 2.0**-60  # of long double
            assert (r <= (found.backward_error + room) * size).all()
            assert found.backward_error <= found.tolerance


@pytest.mark.parametrize("level", simd_levels())
def test_every_instruction_set(level):
    before = get_simd_level()
    set_simd_level(level)
    try:
        for dtype in EXPRESS_TYPES:
            for kind in KINDS:
                A, b = KINDS[kind](drawn(29, dtype)), columns(29, 3, dtype)
                assert holds(A, express(A, b, zeros=UNKNOWN), b)
                single = express(np.asfortranarray(A), b[:, 0].copy(), zeros=UNKNOWN)
                assert holds(A, single, b[:, 0])
    finally:
        set_simd_level(before)


@pytest.mark.parametrize("name", [name for name in TOLD if name != "banded"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [1, 5, 60, 330])
def test_entries_that_the_name_excludes_are_not_read(name, transposed, n):
    A = drawn(n, np.float64)
    meant = KINDS[name](A)
    damaged = np.where(meant != 0, A, np.nan)
    b = columns(n, None, np.float64)
    x = rw.solve(damaged, b, assume_a=name, transposed=transposed)
    assert np.array_equal(x, rw.solve(meant, b, assume_a=name, transposed=transposed))
    told = rw.solve(damaged, b, assume_a=name, transposed=transposed, full_output=True)
    assert np.array_equal(told.x, x)
    solved = scipy.linalg.solve(meant.T if transposed else meant, b)
    np.testing.assert_allclose(x, solved, rtol=1e-10, atol=1e-12)
    assert told.forward_error_bound < 1e-10


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused_where_they_are_read(name, value):
    A = KINDS.get(name, KINDS["band"])(drawn(50, np.float64))
    A[31, 31] = value
    for assume_a in (name, None):
        with pytest.raises(ValueError, match=r"finite|NaN|infinite"):
            rw.solve(A, np.ones(50), assume_a=assume_a)
        with pytest.raises(ValueError, match=r"finite|NaN|infinite"):
            rw.factor(A, assume_a=assume_a).solve(np.ones(50))
    with pytest.raises(ValueError, match=r"finite|NaN|infinite"):
        rw.solve(KINDS.get(name, KINDS["band"])(drawn(50, np.float64)), np.full(50, value))


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_singular_matrices_are_said_to_be_so(name, dtype):
    A = KINDS.get(name, KINDS["band"])(drawn(60, dtype))
    A[:, 20] = 0
    for solve in (
        lambda: rw.solve(A, np.ones(60)),
        lambda: rw.solve(A, np.ones(60), assume_a=name),
        lambda: rw.factor(A, assume_a=name).solve(np.ones(60)),
    ):
        with pytest.raises(rw.SolveFailed, match="singular"):
            solve()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
@pytest.mark.parametrize("trans", ["N", "T", "H", 0, 1, 2])
def test_factors_solve_with_the_transposes(kind, dtype, trans):
    A, b = KINDS[kind](drawn(37, dtype)), columns(37, 4, dtype)
    factors = dense_factors(A, Wanted(zeros=UNKNOWN, small=0, most=0))
    assert factors.method in ("banded", "triangular")
    meant = {"T": A.T, 1: A.T, "H": A.conj().T, 2: A.conj().T}.get(trans, A)
    assert holds(meant, factors.solve(b, trans), b)
    F = rw.factor(A)
    assert F.format == f"{factors.method} fp64"
    assert np.array_equal(F.solve(b, trans), factors.solve(b, trans).x)
    assert np.array_equal(F.solve(b, trans, full_output=True).x, F.solve(b, trans))


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_permuted_triangles(dtype, order):
    rng = np.random.default_rng(5)
    n = 90
    A = np.tril(drawn(n, dtype))[rng.permutation(n)][:, rng.permutation(n)]
    assert look_at(A).kind == PERHAPS_PERMUTED
    rows, places = triangular_orders(A)
    assert np.array_equal(A[rows][:, places], np.tril(A[rows][:, places]))
    A, b = ORDERS[order](A), columns(n, 3, dtype)
    found = express(A, b, zeros=UNKNOWN)
    assert found.method == "triangular"
    assert holds(A, found, b)
    F = rw.factor(A)
    for trans, meant in (("N", A), ("T", A.T), ("H", A.conj().T)):
        assert holds(
            meant, dense_factors(A, Wanted(zeros=UNKNOWN, small=0, most=0)).solve(b, trans), b
        )
        assert np.array_equal(F.solve(b, trans, full_output=True).x, F.solve(b, trans))
    told = rw.solve(A, b, full_output=True)
    assert np.array_equal(told.x, rw.solve(A, b))
    assert told.condition > 1


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_look_agrees_with_scipy(data):
    n = data.draw(st.integers(1, 70))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    below, above = (data.draw(st.integers(0, n - 1)) for _ in range(2))
    A = np.triu(np.tril(rng.standard_normal((n, n)), above), -below)
    A *= rng.random((n, n)) < data.draw(st.sampled_from([1.0, 0.5, 0.05]))
    A[A == 0] *= -1.0  # a negative zero is one
    A = A.astype(data.draw(st.sampled_from(EXPRESS_TYPES)))
    if A.dtype.kind == "c" and data.draw(st.booleans()):
        A = A * 1j
    given_A = ORDERS[data.draw(st.sampled_from(list(ORDERS)))](A)
    found, (low, high) = look_at(given_A), scipy.linalg.bandwidth(A)
    if found.kind in (BAND, LOWER, UPPER):
        assert (found.below, found.above) == (low, high)
        assert found.kind != LOWER or high == 0
        assert found.kind != UPPER or low == 0
    else:
        assert min(low, high) > 0
        assert 24 * low * (low + high) > n * n


def test_full_matrices_have_no_structure():
    for n in (30, 200):
        assert look_at(drawn(n, np.float64)).kind == NONE
        assert express(drawn(n, np.complex128), np.ones(n), zeros=UNKNOWN).method == "lu"
    holes = drawn(200, np.float64) * (np.random.default_rng(3).random((200, 200)) < 0.5)
    assert triangular_orders(holes) is None
    assert triangular_orders(np.zeros((64, 64))) is None


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_change_bits(kind):
    A, b = KINDS[kind](drawn(240, np.float64)), columns(240, 130, np.float64)
    before, answers = rw.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            rw.set_num_threads(threads)
            answers.append(rw.solve(A, b))
    finally:
        rw.set_num_threads(before)
    assert all(np.array_equal(answers[0], x) for x in answers[1:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("power", [-1040, -900, -300, 300, 900])
def test_numbers_far_from_one(kind, power):
    A, b = KINDS[kind](drawn(40, np.float64)), columns(40, 2, np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaled = np.ldexp(A, power)
        x = rw.solve(scaled, np.ldexp(b, max(power, -900)))
    exact = np.linalg.solve(np.ldexp(scaled, 1000 if power < 0 else -power), b)
    shift = max(power, -900) + (1000 if power < 0 else -power)
    np.testing.assert_allclose(x, np.ldexp(exact, shift), rtol=1e-9)


def test_columns_of_zeros_and_no_columns():
    for kind in KINDS.values():
        A = kind(drawn(50, np.float64))
        b = columns(50, 3, np.float64)
        b[:, 1] = 0
        x = rw.solve(A, b)
        assert not x[:, 1].any()
        assert x[:, 0].all()
        assert rw.solve(A, b[:, :0]).shape == (50, 0)
        assert not rw.solve(A, np.zeros(50)).any()


def test_integers_other_bytes_and_read_only_arrays():
    A = np.round(10 * KINDS["band"](drawn(50, np.float64))).astype(int)
    b = np.arange(50)
    x = rw.solve(A, b)
    for form in (np.float64, ">f8", np.int64, np.float16):
        given_A, given_b = A.astype(form), b.astype(form)
        given_A.flags.writeable = given_b.flags.writeable = False
        assert np.array_equal(rw.solve(given_A, given_b), x)
        assert np.array_equal(rw.factor(given_A).solve(given_b), x)


def test_a_band_as_wide_as_the_matrix_is_solved_as_any_other():
    A, b = drawn(40, np.float64), columns(40, 2, np.float64)
    assert rw.solve(A, b, assume_a="banded", full_output=True).action.startswith("lu:")
    found = express(A, b, zeros=Found(BAND, 39, 39))
    assert holds(A, found, b)


def test_growth_of_pivots_is_corrected_or_refused():
    n = 60  # every pivot is interchanged
    A = np.diag(np.full(n, 1e-14)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    b = columns(n, 2, np.float64)
    assert holds(A, express(A, b, zeros=UNKNOWN), b)


def test_solver_and_stacks():
    A, b = KINDS["tridiagonal"](drawn(80, np.complex128)), columns(80, 2, np.complex128)
    x = rw.solve(A, b)
    solver = rw.Solver()
    assert np.array_equal(solver.solve(A, b), x)
    assert np.array_equal(solver.solve(A, b, assume_a="tridiagonal"), x)
    assert np.array_equal(solver.solve(A.T, b, transposed=True), x)
    stack = np.stack([A, A])
    for assume_a in (None, "tridiagonal"):
        np.testing.assert_allclose(rw.solve(stack, b, assume_a=assume_a)[1], x, rtol=1e-12)


@pytest.mark.parametrize("kind", ["lower triangular", "tridiagonal"])
def test_a_copy_of_a_factorization_has_its_structure(kind):
    A, b = KINDS[kind](drawn(60, np.float64)), columns(60, 2, np.float64)
    F = rw.factor(A)
    copy = pickle.loads(pickle.dumps(F))
    assert np.array_equal(copy.solve(b), F.solve(b))
    assert np.array_equal(F.refactor(2 * A).solve(b), rw.solve(2 * A, b))
