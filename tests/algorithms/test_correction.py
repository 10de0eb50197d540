"""A correction by one kernel, X + A^-1 R with its norms: what single steps give, bit for bit."""

import math

import numpy as np
import pytest
from hard_systems import spd

import roundwise as rw
from roundwise.algorithms.refinement import Substitution, with_unit_columns
from roundwise.algorithms.scaling import moderate, scaled_columns
from roundwise.algorithms.stage import Stage, Stages
from roundwise.backends import ArithmeticFailure, NativeBackend
from roundwise.backends.arrays import column_norms
from roundwise.backends.contract import ToRefine
from roundwise.backends.native import dense

native = NativeBackend(bf16_instructions="portable")
N = 310
SIZES = [1e-200, 1.0, 0.0, 1e150]
"""Of columns of R: very different ones, and zero."""

pytestmark = pytest.mark.skipif(not dense.has_own_lu(), reason="LAPACK does it here")


def general(n):
    return np.random.default_rng(n).uniform(-1, 1, (n, n))


@pytest.fixture
def many_threads(monkeypatch):
    """That a kernel of ours takes also small systems."""
    monkeypatch.setattr(dense, "factorization_threads", lambda: 3)
    monkeypatch.setattr(dense, "_LEAST_SHARED", 0)
    monkeypatch.setattr(dense, "_SHARED", 0)


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
@pytest.mark.parametrize("fmt", [rw.FP32, rw.FP64], ids=str)
@pytest.mark.parametrize(
    ("method", "order"), [("lu", "C"), ("lu", "F"), ("cholesky", "C"), ("cholesky", "F")]
)
def test_it_is_that_of_single_steps(many_threads, method, order, fmt, columns):
    A = np.array(general(N) if method == "lu" else spd(N, 100), order=order)
    factors = getattr(native.matrix(A, fmt), method)()
    rng = np.random.default_rng(columns)
    R = np.asfortranarray(rng.standard_normal((N, columns)) * SIZES[:columns])
    X = np.asfortranarray(rng.standard_normal((N, columns)))
    sizes = np.abs(R).max(axis=0)
    made = factors.corrected(X, R, sizes)
    assert made is not None
    Z = with_unit_columns(Substitution(Stage("factor", fmt, native), factors), R, sizes).Z
    for found, expected in zip(made, (X + Z, column_norms(Z), column_norms(X + Z)), strict=True):
        assert np.array_equal(found, expected)


def test_what_is_left_to_single_steps(monkeypatch):
    def is_left(n, columns, fmt):
        B = np.ones((n, columns), order="F")
        made = native.matrix(general(n), fmt).lu().corrected(B, B, np.ones(columns))
        return made is None

    monkeypatch.setattr(dense, "factorization_threads", lambda: 2)
    assert not is_left(900, 1, rw.FP32)
    assert is_left(100, 1, rw.FP32)  # LAPACK takes less time
    assert not is_left(900, 5, rw.FP32)
    assert is_left(900, 1, rw.BF16)  # vectors are rounded to 16 bits
    monkeypatch.setattr(dense, "factorization_threads", lambda: 1)
    assert is_left(900, 1, rw.FP32)


@pytest.mark.parametrize(
    ("scale", "value", "status"),
    [(1.0, math.nan, "NONFINITE_INPUT"), (1e-3, 1e308, "OVERFLOW"), (1e-309, 1.5, "OVERFLOW")],
)
def test_what_is_not_finite_is_a_failure(many_threads, scale, value, status):
    """NaN in R; a solution that cannot be scaled back; one that overflows in the substitution."""
    factors = native.matrix(scale * np.eye(N), rw.FP64).lu()
    X, R = np.zeros((N, 1), order="F"), np.full((N, 1), value, order="F")
    with pytest.raises(ArithmeticFailure) as failure:
        factors.corrected(X, R, np.abs(R).max(axis=0))
    assert failure.value.status.name == status


def attempted(A, b):
    """An attempt in FP32, and what each stage counted."""
    algorithm, action = rw.VerifiedSolve(), rw.Action(["fp32", "fp64", "fp64", "fp64"], "lu")
    stages = Stages(algorithm.stages, action, native)
    matrix = moderate(A, *native.sizes(A))
    factors = native.matrix(A, rw.FP32).lu()
    system = matrix, scaled_columns(b[:, None], matrix)
    outcome, _ = algorithm.attempt(system, factors, stages, lambda stage: stage.matrix(A))
    return outcome, {name: stage.tally for name, stage in stages.items()}


def test_refinement_takes_it_and_gets_the_same(monkeypatch):
    """The same answer and the same counts by one call, by a call a correction, and by steps."""
    monkeypatch.setattr(dense, "factorization_threads", lambda: 2)
    n = 900
    A, b = general(n), np.ones(n)
    made = []

    def watched(*arguments):
        made.append(original(*arguments))
        return made[-1]

    at_once, tally_at_once = attempted(A, b)
    monkeypatch.setattr(dense.DenseFactors, "refined", lambda *_: None)
    original = dense.DenseFactors.corrected
    monkeypatch.setattr(dense.DenseFactors, "corrected", watched)
    found, tally = attempted(A, b)
    assert len(made) == found.outer_iterations + 1
    assert None not in made
    monkeypatch.setattr(dense.DenseFactors, "corrected", lambda *_: None)
    expected, single = attempted(A, b)
    for other in (found, at_once):
        assert np.allclose(other.x, expected.x, rtol=1e-9)
        assert other.outer_iterations == expected.outer_iterations
        assert len(other.history) == len(expected.history)
    assert tally == tally_at_once == single


@pytest.mark.parametrize("fmt", [rw.FP32, rw.FP64])
@pytest.mark.parametrize("columns", [1, 3, 9])
@pytest.mark.parametrize("order", "CF")
def test_one_call_refines_every_column(fmt, columns, order):
    """Its residuals, errors and norms are those of the X that it returns."""
    rng = np.random.default_rng(columns)
    n, target = 300, 1e-15
    A = np.array(rng.standard_normal((n, n)), order=order)
    B = np.asfortranarray(rng.standard_normal((n, columns)))
    norm = float(np.abs(A).sum(axis=1).max())
    matrix = native.matrix(A, rw.FP64)
    found = native.matrix(A, fmt).lu().refined(ToRefine(matrix, norm, B, target))
    assert found is not None
    x_norms, b_norms = column_norms(found.X), column_norms(B)
    R = native.residual(matrix, found.X, B)
    errors = column_norms(R) / (norm * x_norms + b_norms)
    assert (errors <= 2 * target).all()
    assert np.allclose(found.errors, errors, rtol=0.0, atol=target)
    assert found.error == found.errors.max() <= target
    assert found.stretch == pytest.approx((norm * x_norms / b_norms).max())
    assert (len(found.history) > 0) == (fmt == rw.FP32)


def test_one_call_gives_up():
    """A target that no float64 x reaches, no steps left, NaN, and columns of extreme size."""
    A, norm = general(300), float(np.abs(general(300)).sum(axis=1).max())
    matrix, factors = native.matrix(A, rw.FP64), native.matrix(A, rw.FP32).lu()
    b = np.ones((300, 1), order="F")
    assert factors.refined(ToRefine(matrix, norm, b, 1e-20)) is None
    assert factors.refined(ToRefine(matrix, norm, b, 1e-15, 0)) is None
    for bad in (np.nan, np.inf, 1e300, 1e-300):
        assert factors.refined(ToRefine(matrix, norm, bad * b, 1e-15)) is None
