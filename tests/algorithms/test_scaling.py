"""Scaling by powers of two changes no digit; backward errors and the gate at their edges."""

import itertools
import math

import exact
import numpy as np
import pytest
from scipy import sparse

from roundwise.algorithms.accuracy import ErrorMeasure, backward_errors, default_tolerance, passes
from roundwise.algorithms.scaling import (
    equilibrated,
    moderate,
    plain_columns,
    scaled_columns,
    scaled_down,
    scaled_system,
    shifted,
)
from roundwise.backends import get_backend
from roundwise.formats import FP32, FP64
from roundwise.problems import LinearSystem

BACKEND = get_backend("operation")
FORMS = [np.asarray, sparse.csr_array]
N = 12


def matrix(kind, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((N, N)) * (rng.random((N, N)) < 0.7) + 3 * np.eye(N)
    exponents = rng.integers(-150, 150, (2, N))
    match kind:
        case "plain":
            return A
        case "huge":
            return np.ldexp(A, 950)
        case "tiny":
            return np.ldexp(A, -950)
        case "rows":
            return np.ldexp(A, exponents[0][:, None])
        case "rows and columns":
            return np.ldexp(A, exponents[0][:, None] + exponents[1])
        case "zero rows":
            A[3] = A[:, 5] = 0.0
            return np.ldexp(A, exponents[0][:, None])
    raise ValueError(kind)


KINDS = ["plain", "huge", "tiny", "rows", "rows and columns", "zero rows"]
WAYS = {
    "moderate": lambda A: moderate(A, *BACKEND.sizes(A)),
    "scaled_down": lambda A: scaled_down(A, *BACKEND.sizes(A)),
    "equilibrated": equilibrated,
}


def dense(A):
    return A.toarray() if sparse.issparse(A) else A


def undone(scaled):
    """The matrix that was given, from a scaled one and its exponents, exactly."""
    rows = np.zeros(scaled.n, int) if scaled.rows is None else scaled.rows.astype(int)
    columns = np.zeros(scaled.n, int) if scaled.columns is None else scaled.columns.astype(int)
    return np.ldexp(dense(scaled.A), rows[:, None] + columns)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_scaling_is_by_powers_of_two(form, kind, way):
    A = matrix(kind)
    given = form(A)
    scaled = WAYS[way](given)
    assert sparse.issparse(scaled.A) == sparse.issparse(given)
    np.testing.assert_array_equal(undone(scaled), A)
    np.testing.assert_array_equal(dense(given), A)  # the caller's matrix stays
    if scaled.rows is None:
        assert scaled.A is given


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_equilibrated_lines_have_their_largest_entry_below_one(form, kind):
    A = matrix(kind)
    scaled = np.abs(dense(equilibrated(form(A)).A))
    nonzero = np.abs(A).max(axis=0) > 0
    columns = scaled.max(axis=0)[nonzero]
    assert ((columns >= 0.5) & (columns < 1)).all()
    assert (scaled.max(axis=1) < 1).all()
    assert not scaled[:, ~nonzero].any()


@pytest.mark.parametrize("form", FORMS)
def test_moderate_scales_no_more_than_it_must(form):
    assert WAYS["moderate"](form(matrix("plain"))).rows is None
    whole = WAYS["moderate"](form(matrix("huge")))
    assert whole.columns is None
    assert len(set(whole.rows.tolist())) == 1  # a symmetric matrix stays symmetric
    by_lines = WAYS["moderate"](form(matrix("rows and columns")))
    assert by_lines.columns is not None
    assert np.abs(dense(by_lines.A)).max() < 1
    down = WAYS["scaled_down"](form(matrix("huge")))
    assert down.columns is None
    assert np.abs(dense(down.A)).max() < 1
    for kind in ("plain", "tiny", "rows"):
        assert WAYS["scaled_down"](form(matrix(kind))).rows is None
    assert WAYS["moderate"](form(np.zeros((2, 2)))).rows is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "zero rows"])
@pytest.mark.parametrize("way", ["moderate", "equilibrated"])
def test_backward_errors_are_those_of_the_given_system(form, kind, way):
    """Of a poor x, against rational arithmetic."""
    A, rng = matrix(kind), np.random.default_rng(1)
    scaled = WAYS[way](form(A))
    b = np.ldexp(rng.standard_normal(N), rng.integers(-30, 30))
    columns = scaled_columns(b, scaled)
    # A poor solution of the scaled system, and what it is of the given one.
    X = np.linalg.solve(dense(scaled.A), columns.B) * (1 + 1e-3 * rng.standard_normal((N, 1)))
    x = columns.solution(X)
    if not np.isfinite(x).all() or (x == 0).any():
        pytest.skip("float64 cannot hold x")
    np.testing.assert_array_equal(columns.scaled_solution(x), X)
    R = columns.B - dense(scaled.A) @ X
    norms = scaled.solution_norms(X), scaled.residual_norms(columns.B)
    found = backward_errors(scaled.residual_norms(R), scaled.norm, *norms)
    expected = exact.backward_error(A, x[:, 0], b)
    assert found[0] == pytest.approx(expected, rel=1e-6)
    measured = ErrorMeasure(LinearSystem(form(A), b)).backward(x[:, 0])
    assert measured == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_right_hand_sides_are_scaled_by_powers_of_two(kind):
    scaled = WAYS["moderate"](matrix(kind))
    rng = np.random.default_rng(2)
    B = rng.standard_normal((N, 4)) * [1.0, 1e-300, 1e300, 0.0]
    columns = scaled_columns(B, scaled)
    largest = np.abs(columns.B).max(axis=0)
    assert ((largest[:3] >= 0.5) & (largest[:3] < 1)).all()
    assert largest[3] == 0
    assert columns.B.flags.f_contiguous
    if scaled.rows is None:  # all rows by the same power: nothing vanishes
        shift = columns.exponents[0, :3].astype(int)
        np.testing.assert_array_equal(np.ldexp(columns.B[:, :3], shift), B[:, :3])
    solution = columns.solution(np.zeros((N, 4)))
    assert not solution.any()


def test_a_research_system_is_left_alone_if_it_can_be():
    A, b = matrix("plain"), np.ones(N)
    scaled, columns = scaled_system(A, b, BACKEND, equilibrate=False)
    assert scaled.A is A
    assert columns.exponents is None
    np.testing.assert_array_equal(columns.B, plain_columns(b).B)
    assert columns.solution(columns.B) is columns.B
    assert scaled_system(A, b, BACKEND, equilibrate=True)[1].exponents is not None


# Backward errors and the gate


def test_backward_errors_by_hand():
    residuals, sizes = np.array([1.0, 0.0, 3.0]), np.array([2.0, 0.0, 1.0])
    errors = backward_errors(residuals, 4.0, sizes, np.array([2.0, 0.0, 8.0]))
    np.testing.assert_array_equal(errors, [1 / 10, 0, 3 / 12])
    assert backward_errors(1.0, 4.0, 2.0, 2.0) == 1 / 10  # numbers as well as arrays


@pytest.mark.parametrize(
    ("residual", "norm_A", "x", "b", "expected"),
    [
        (0.0, 1.0, 0.0, 0.0, 0.0),  # x = 0 for b = 0
        (0.0, 0.0, 1.0, 0.0, 0.0),
        (1.0, 1.0, np.inf, 1.0, np.inf),  # nobody knows
        (1.0, np.inf, 1.0, 1.0, np.inf),
        (0.0, np.inf, 1.0, 1.0, np.inf),
        (1.0, 1e300, 1e300, 1.0, np.inf),  # the divisor overflows
        (np.inf, 1.0, 1.0, 1.0, np.inf),
        (1.0, 0.0, 1.0, 0.0, np.inf),
        (1.0, 1.0, np.nan, 1.0, np.inf),
        (np.nan, 1.0, 1.0, 1.0, np.nan),
    ],
)
def test_backward_errors_at_the_edges(residual, norm_A, x, b, expected):
    for kind in (float, np.float64, lambda value: np.array([value])):
        found = backward_errors(kind(residual), norm_A, kind(x), kind(b))
        np.testing.assert_array_equal(np.ravel(found), [expected])
        assert not passes(found, 1e-16) or expected == 0


def test_the_gate():
    assert passes(1e-16, 1e-16)
    assert passes([1e-17, 0.0], 1e-16)
    assert not passes([1e-17, 2e-16], 1e-16)
    assert not passes([0.0, np.nan], 1e-16)
    assert not passes(np.nan, np.inf)
    assert not passes(np.inf, 1e300)
    assert passes([], 1e-16)  # no columns, nothing wrong
    assert not passes(0.0, np.nan)
    assert default_tolerance(100) == 10 * 2.0**-53 == default_tolerance(100, FP64)
    assert default_tolerance(9, FP32) == 3 * 2.0**-24


def test_shifting_is_exact_where_the_power_of_two_is_out_of_range():
    x = np.array([[1.5e300, -3.0], [5e-324, 0.75]], order="F")
    down = shifted(x, np.array([-1030, 0]))
    np.testing.assert_array_equal(down, [[1.5e300 * 2.0**-515 * 2.0**-515, -3.0], [0.0, 0.75]])
    assert shifted(np.array([2.0**-1070]), 1072)[0] == 4.0
    assert down.flags.f_contiguous


def test_shifting_a_complex_block_shifts_both_parts():
    z = np.array([[1e300 - 2e-300j, 3j], [-0.5 + 0.25j, 1e-10 + 7j]], order="F")
    exponents = np.array([[-900, 4], [1000, 0]])
    moved = shifted(z, exponents)
    np.testing.assert_array_equal(moved.real, np.ldexp(z.real, exponents))
    np.testing.assert_array_equal(moved.imag, np.ldexp(z.imag, exponents))
    assert moved.flags.f_contiguous
    # A complex product would make NaN of infinity times a zero part; shifting keeps the zero.
    with np.errstate(over="ignore"):
        overflown = shifted(np.array([1e308 + 0j]), 10)
    assert (overflown.real[0], overflown.imag[0]) == (np.inf, 0.0)


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-200, 1.0, 1e200, 2.0**1022])
def test_backward_errors_do_not_depend_on_the_size_of_the_matrix(size):
    x = np.array([1.0, 0.5])
    measure = ErrorMeasure(LinearSystem(np.eye(2) * size, np.ones(2) * size))
    assert measure.backward(np.ones(2)) == 0
    assert measure.backward(x) == 0.25  # |b - A x| = 1/2, over |A| |x| + |b| = 2
    assert measure.componentwise(x) == 0.5 / 1.5


@pytest.mark.parametrize("density", [0.0, 0.1, 0.3, 1.0])
def test_sparse_lines_are_scaled_as_dense_ones(density):
    """Also lines without entries."""
    rng = np.random.default_rng(0)
    kept = rng.random((N, N)) < density
    dense = np.ldexp(rng.standard_normal((N, N)), rng.integers(-90, 90, (N, N))) * kept
    found, expected = equilibrated(sparse.csr_array(dense)), equilibrated(dense)
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.columns, expected.columns)


def test_one_backward_error_for_numbers_and_for_columns():
    values = (0.0, 5e-324, 1e-300, 1.0, 1e300, math.inf, math.nan)
    for residual, norm, x, b in itertools.product(values, repeat=4):
        with np.errstate(all="ignore"):
            columns = backward_errors(np.array([residual]), norm, np.array([x]), np.array([b]))
            number = backward_errors(residual, norm, x, b)
        assert passes(number, 0.5) == passes(columns, 0.5)
        assert number == columns[0] or (math.isnan(columns[0]) and not math.isfinite(number))
