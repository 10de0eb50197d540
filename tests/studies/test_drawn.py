"""Large matrices that are drawn where they are solved."""

import math

import numpy as np
import pytest
from scipy import linalg

from roundwise.problems.generators import singular_values
from roundwise_studies.native.drawn import gaussian, heavy_diagonal, with_singular_values


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 101])
@pytest.mark.parametrize("mode", [1, 2, 3, 4, 5])
def test_singular_values_are_those_that_were_asked_for(n, mode):
    s = singular_values(n, 1e9, mode, rng=0)
    A = with_singular_values(s, rng=1)
    assert np.allclose(linalg.svdvals(A), np.sort(s)[::-1], rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [8, 33])
def test_a_symmetric_matrix_has_them_as_eigenvalues(n):
    s = singular_values(n, 1e3, 3, rng=0)
    A = with_singular_values(s, rng=1, symmetric=True)
    assert np.array_equal(A, A.T)
    assert np.allclose(linalg.eigvalsh(A), np.sort(s), rtol=0, atol=1e-14)


def test_orthogonal_factors_have_no_structure():
    n = 512
    Q = with_singular_values(np.ones(n), rng=0)
    assert np.allclose(Q @ Q.T, np.eye(n), atol=1e-13)
    entries = Q.ravel() * math.sqrt(n)  # of Haar's Q they are nearly N(0, 1)
    assert abs(np.mean(entries**4) - 3) < 0.15
    assert np.abs(entries).max() < 7
    assert np.abs(np.diagonal(Q)).max() < 6 / math.sqrt(n)


def test_gaussian_entries_are_independent_and_normal():
    A = gaussian(400, rng=0)
    moments = [np.mean(A**k) for k in (1, 2, 3, 4)]
    assert np.allclose(moments, [0, 1, 0, 3], atol=0.06)  # some 3 standard errors of the last
    for neighbours in (A[:, :-1] * A[:, 1:], A[:-1] * A[1:], A * A.T - np.diag(np.diag(A) ** 2)):
        assert abs(neighbours.mean()) < 0.015
    assert linalg.norm(A, 2) < 2.1 * math.sqrt(400)
    assert not np.array_equal(A, gaussian(400, rng=1))


def test_the_heavy_diagonal_has_its_share():
    A = heavy_diagonal(300, 2.0, rng=0)
    shares = np.diagonal(A) / np.linalg.norm(A, axis=1)
    assert np.median(shares) == pytest.approx(2 / math.sqrt(5), abs=0.02)
    assert np.linalg.cond(A) < 10
