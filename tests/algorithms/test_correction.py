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
    """The same answer and the same counts as by single steps."""
    monkeypatch.setattr(dense, "factorization_threads", lambda: 2)
    n = 900
    A, b = general(n), np.ones(n)
    made = []

    def watched(*arguments):
        made.append(original(*arguments))
        return made[-1]

    original = dense.DenseFactors.corrected
    monkeypatch.setattr(dense.DenseFactors, "corrected", watched)
    found, tally = attempted(A, b)
    assert len(made) == found.outer_iterations + 1
    assert None not in made
    monkeypatch.setattr(dense.DenseFactors, "corrected", lambda *_: None)
    expected, single = attempted(A, b)
    assert np.allclose(found.x, expected.x, rtol=1e-9)
    assert found.outer_iterations == expected.outer_iterations
    assert tally == single
