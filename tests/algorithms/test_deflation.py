"""Directions that low factors have lost: found, counted, and corrected along."""

import numpy as np
import pytest
from scipy import sparse

from roundwise.algorithms.deflation import FEW_LOST, Deflation, deflated_corrector
from roundwise.algorithms.refinement import Substitution
from roundwise.algorithms.scaling import ScaledMatrix
from roundwise.algorithms.stage import Stage
from roundwise.algorithms.stopping import ForwardRule
from roundwise.backends import NativeBackend
from roundwise.formats import FP32, FP64, FP64X2

N = 120
BACKEND = NativeBackend()
FACTOR, RESIDUAL = Stage("factor", FP32, BACKEND), Stage("residual", FP64X2, BACKEND)


def with_singular_values(*tiny, seed=None):
    """A whose singular values are 1 and those given, and its left and right vectors of these."""
    rng = np.random.default_rng(len(tiny) if seed is None else seed)
    left, right = (np.linalg.qr(rng.standard_normal((N, N)))[0] for _ in range(2))
    values = np.ones(N)
    values[: len(tiny)] = tiny
    return left * values @ right.T, left[:, : len(tiny)], right[:, : len(tiny)]


def norm_of(A):
    return BACKEND.sizes(A)[0]


def found(A, most):
    return Deflation.of(A, norm_of(A), BACKEND.matrix(A, FP32).lu(), FACTOR, RESIDUAL, most)


def sine(space, vectors):
    """The sine of the largest angle between two subspaces of the same dimension."""
    P, Q = np.linalg.qr(space)[0], np.linalg.qr(vectors)[0]
    return np.linalg.norm(Q - P @ (P.T @ Q), 2)


@pytest.mark.parametrize("tiny", [(1e-9,), (1e-13,), (1e-8, 1e-11), (1e-9, 1e-9, 1e-12)])
def test_the_singular_vectors_are_found(tiny):
    A, left, right = with_singular_values(*tiny)
    directions = found(A, len(tiny))
    assert sine(directions.V, right) < 1e-3
    assert sine(directions.U, left) < 1e-3
    np.testing.assert_allclose(directions.images.T @ directions.V, np.eye(len(tiny)), atol=1e-6)


@pytest.mark.parametrize("tiny", [(1e-9,), (1e-13,), (1e-8, 1e-11)])
@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sparse.csr_array])
def test_corrections_shrink_any_error(tiny, kind):
    """Also one along a lost direction, of which substitution alone leaves nearly all.

    Of others the first may leave more, but along the directions found, where the next one removes
    it. Directions are found for most matrices: for the others better factors are made.
    """
    left_alone = []
    for seed in range(10):
        A, _, right = with_singular_values(*tiny, seed=seed)
        A = kind(A)
        factors = BACKEND.matrix(A, FP32).lu()
        directions = Deflation.of(A, norm_of(A), factors, FACTOR, RESIDUAL, len(tiny))
        if directions is None:
            continue
        substitute = Substitution(FACTOR, factors)
        errors = np.column_stack([right, np.random.default_rng(0).standard_normal((N, 2))])

        def left(errors, correct, A=A):
            R = -RESIDUAL.residual(RESIDUAL.matrix(A), errors, np.zeros_like(errors))
            return errors - correct(R).Z

        correct = directions.corrector(substitute)
        once = left(errors, correct)
        most = ForwardRule.slowest * abs(errors).max(axis=0)
        assert (abs(once).max(axis=0) < most)[: len(tiny)].all()
        assert (abs(left(once, correct)).max(axis=0) < most).all()
        left_alone.append(abs(left(right, substitute)[:, -1]).max() / abs(right[:, -1]).max())
    assert len(left_alone) > 5
    assert np.median(left_alone) > 0.5


def test_none_is_lost_of_a_well_conditioned_matrix():
    directions = found(with_singular_values(0.5)[0], 1)
    assert directions.V.shape == directions.U.shape == directions.images.shape == (N, 0)


@pytest.mark.parametrize("value", [3e-6, 1e-6])
def test_a_weak_direction_does_not_slow_corrections_down(value):
    """FP32 factors have not lost it, but leave far more of its errors than of others."""
    A, _, right = with_singular_values(value)
    factors = BACKEND.matrix(A, FP32).lu()
    directions = Deflation.of(A, norm_of(A), factors, FACTOR, RESIDUAL, 1)
    substitute = Substitution(FACTOR, factors)
    R = -RESIDUAL.residual(RESIDUAL.matrix(A), right, np.zeros_like(right))
    left = right - directions.corrector(substitute)(R).Z
    alone = right - substitute(R).Z
    assert abs(left).max() < 1e-4 * abs(right).max()
    assert abs(alone).max() > 10 * abs(left).max()


def test_many_weak_directions_are_left_to_substitution():
    """They are more than are looked for, but none of them is lost."""
    directions = found(with_singular_values(*(1e-5,) * (2 * FEW_LOST))[0], 1)
    assert directions.V.shape == (N, 0)


def test_more_than_were_looked_for_are_noticed():
    A, _, _ = with_singular_values(1e-9, 1e-10)
    assert found(A, 1) is None
    assert found(A, 2) is not None


@pytest.mark.parametrize("value", [0.0, 1e-17, 1e-25])
def test_what_residuals_cannot_resolve_is_not_claimed(value):
    """FP64X2 residuals are off by u^2, which such a matrix turns into more than u of x."""
    assert found(with_singular_values(value)[0], 1) is None


def test_better_factors_are_the_better_deal_if_many_are_lost():
    A, _, _ = with_singular_values(*(1e-10,) * (2 * FEW_LOST))
    matrix = ScaledMatrix(A, norm_of(A))
    assert deflated_corrector(matrix, BACKEND.matrix(A, FP32).lu(), FACTOR, RESIDUAL) is None


def test_fp64_factors_lose_directions_too():
    """A singular value of 2e-15 among ones: they are corrected along it in the same way."""
    A, _, right = with_singular_values(2e-15)
    stage, factors = Stage("factor", FP64, BACKEND), BACKEND.matrix(A, FP64).lu()
    directions = Deflation.of(A, norm_of(A), factors, stage, RESIDUAL, 1)
    R = -RESIDUAL.residual(RESIDUAL.matrix(A), right, np.zeros_like(right))
    left = right - directions.corrector(Substitution(stage, factors))(R).Z
    assert abs(left).max() < ForwardRule.slowest * abs(right).max()
