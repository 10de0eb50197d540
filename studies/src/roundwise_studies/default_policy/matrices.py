"""Matrices as they arise in practice: statistics, integral equations, signals, grids, networks.

Each function draws one n-by-n float64 matrix from `rng`.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import linalg

from roundwise.problems import laplace_3d, poisson_2d
from roundwise.problems.generators import haar_orthogonal, singular_values

Array = NDArray[np.float64]


def positive_definite(kappa: float, mode: int, n: int, rng: np.random.Generator) -> Array:
    """``Q diag(s) Q^T``, Q Haar distributed, s the `singular_values` of `mode`."""
    Q = haar_orthogonal(n, rng=rng)
    return _symmetric((Q * singular_values(n, kappa, mode, rng=rng)) @ Q.T)


def heavy_diagonal(n: int, rng: np.random.Generator) -> Array:
    """``G + s D``: Gaussian G of spectral radius about 1, random signs D, s in 1/3..30."""
    A = rng.standard_normal((n, n)) / math.sqrt(n)
    shift = math.exp(rng.uniform(math.log(1 / 3), math.log(30.0)))
    return np.asarray(A + shift * np.diag(rng.choice([-1.0, 1.0], n)))


def badly_scaled(n: int, rng: np.random.Generator) -> Array:
    """Gaussian, its rows and its columns scaled over up to twelve decades each."""
    rows, columns = (10.0 ** rng.uniform(-decades, decades, n) for decades in rng.uniform(0, 6, 2))
    return np.asarray(rows[:, None] * rng.standard_normal((n, n)) * columns)


def wishart(n: int, rng: np.random.Generator) -> Array:
    """``X X^T`` with a Gaussian n-by-m X, m between n and 3 n."""
    X = rng.standard_normal((n, round(n * rng.uniform(1.0, 3.0))))
    return _symmetric(X @ X.T)


def gaussian_kernel(n: int, rng: np.random.Generator) -> Array:
    """Covariances of a Gaussian process at random points of the unit square, plus noise * I."""
    points = rng.random((n, 2))
    squares = np.sum((points[:, None] - points) ** 2, axis=2)
    noise = 10.0 ** rng.uniform(-10, 0)
    return np.asarray(np.exp(-squares / (2 * rng.uniform(0.02, 0.5) ** 2)) + noise * np.eye(n))


def integral_equation(n: int, rng: np.random.Generator) -> Array:
    """``I + c K`` with a smooth or a log-singular kernel K: a boundary integral equation."""
    t = (np.arange(n) + 0.5) / n
    distances = np.abs(t[:, None] - t) + 0.5 / n
    K = np.log(distances) if rng.random() < 0.5 else np.cos(3 * t[:, None] + t) / (0.1 + distances)
    return np.asarray(np.eye(n) + rng.uniform(-2, 2) * K / n)


def toeplitz(n: int, rng: np.random.Generator) -> Array:
    """Gaussian diagonals that decay like ``k**-p`` with their distance, p in 0.5..3."""
    decay = np.arange(1, n + 1) ** -rng.uniform(0.5, 3.0)
    column, row = decay * rng.standard_normal(n), decay * rng.standard_normal(n)
    row[0] = column[0] = rng.uniform(0.5, 3.0)
    return np.asarray(linalg.toeplitz(column, row))


def cauchy(n: int, rng: np.random.Generator) -> Array:
    """``1 / (x_i - y_j + c)``, c = 2 or -2, x and y sorted in 0..1: numerically singular."""
    x, y = np.sort(rng.random(n)), np.sort(rng.random(n))
    return np.asarray(1.0 / (x[:, None] - y + rng.choice([-2.0, 2.0])))


def _symmetric(A: Array) -> Array:
    """The lower triangle of A, mirrored: symmetric to the last bit."""
    return np.asarray(np.tril(A) + np.tril(A, -1).T)


def random_sparse(n: int, rng: np.random.Generator) -> sp.csr_array:
    """About three N(0, 1) entries per row, anywhere, plus s I with s in 1e-3..10."""
    A = sp.random(n, n, 3 / n, random_state=rng, data_rvs=rng.standard_normal)
    return sp.csr_array(A + 10 ** rng.uniform(-3, 1) * sp.identity(n))


def random_banded(n: int, rng: np.random.Generator) -> sp.csr_array:
    """N(0, 1) on the diagonal and one to four bands on each side, plus s I with s in 1e-3..10."""
    offsets = range(-int(rng.integers(1, 5)), int(rng.integers(2, 6)))
    bands = [rng.standard_normal(n - abs(k)) for k in offsets]
    A = sp.diags_array(bands, offsets=list(offsets))
    return sp.csr_array(A + 10 ** rng.uniform(-3, 1) * sp.identity(n))


def shifted_laplace_3d(m: int, rng: np.random.Generator) -> sp.csr_array:
    """`laplace_3d` plus s I: s = 0, s in 0..4 (an implicit time step) or in -1..0 (a wave)."""
    shift = rng.choice([0.0, rng.uniform(0, 4), -rng.uniform(0, 1)])
    return sp.csr_array(laplace_3d(m) + shift * sp.identity(m**3))


def saddle_point(m: int, rng: np.random.Generator) -> sp.csr_array:
    """Symmetric indefinite: a Laplacian bordered by random constraints, zeros on the diagonal."""
    A = poisson_2d(m).A
    n, count = A.shape[0], A.shape[0] // 4
    rows, columns = np.repeat(np.arange(count), 3), rng.integers(0, n, 3 * count)
    B = sp.csr_array((rng.standard_normal(3 * count), (rows, columns)), shape=(count, n))
    B = B + sp.csr_array((np.ones(count), (np.arange(count), 4 * np.arange(count))), B.shape)
    return sp.csr_array(sp.block_array([[A, B.T], [B, None]]))
