"""Finite-difference discretisations of four elliptic model problems on the unit square.

The grid has m x m interior points ``(x_i, y_j) = (i h, j h)``, ``h = 1/(m + 1)``, and
homogeneous Dirichlet values around them; unknown ``k = (j - 1) m + (i - 1)`` sits at
``(x_i, y_j)``: x runs fastest. All four problems have the manufactured solution

    x_true(i, j) = sin(pi x_i) sin(pi y_j) + 1/4 sin(2 pi x_i) sin(3 pi y_j)

on the grid and b = fl(A x_true), see `LinearSystem.from_solution`: x_true solves the
*discrete* system.

Scaling: the paper's text leaves it open and condition numbers do not depend on it, but
``norm_inf(A)`` does, which its policy sees. We scale as its data set does:
`poisson_2d` and `high_contrast_2d` are multiplied by h**2 (the stencil has no h),
`anisotropic_2d` and `convection_diffusion_2d` are not (diffusion terms carry 1/h**2).

References: E. Carson and X. Chen, Precision autotuning for linear solvers via contextual
bandit-based RL, section "Simulations on PDE matrices".

Matrices in three dimensions, which the paper has not, stand at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from roundwise.problems.arguments import (
    RandomSource,
    as_generator,
    finite,
    integer_at_least,
    positive,
    real_at_least,
)
from roundwise.problems.linear_system import LinearSystem
from roundwise.problems.problem import Vector


def poisson_2d(m: int) -> LinearSystem:
    """``-Laplace u = f``: the five-point stencil, 4 on the diagonal and -1 beside it.

    ``kappa(A) = cot(pi h / 2)**2``; the eigenvalues are
    ``4 sin(p pi h / 2)**2 + 4 sin(q pi h / 2)**2``, p, q = 1..m.

    Parameters
    ----------
    m : int
        Interior grid points per direction; n = m**2.
    """
    m = integer_at_least(1, "m", m)
    A = five_point_matrix(m, centre=4.0, west=-1.0, east=-1.0, south=-1.0, north=-1.0)
    return _manufactured("poisson_2d", m, A, {})


def anisotropic_2d(m: int, eps: float) -> LinearSystem:
    """``-div(diag(eps, 1) grad u) = f``: weak coupling in x when eps is small.

    Row: ``(2 (eps + 1) u_ij - eps (u_{i-1,j} + u_{i+1,j}) - (u_{i,j-1} + u_{i,j+1})) / h**2``.
    Its condition number is that of `poisson_2d`, for every eps.

    Parameters
    ----------
    m : int
        Interior grid points per direction; n = m**2.
    eps : float
        Diffusion in x, > 0; the paper takes 1e-8 to 1e-3.
    """
    m = integer_at_least(1, "m", m)
    eps = positive("eps", eps)
    y_link = float((m + 1) ** 2)
    x_link = eps * y_link
    A = five_point_matrix(
        m,
        centre=2.0 * (x_link + y_link),
        west=-x_link,
        east=-x_link,
        south=-y_link,
        north=-y_link,
    )
    return _manufactured("anisotropic_2d", m, A, {"eps": eps})


def high_contrast_2d(m: int, contrast: float, *, rng: RandomSource) -> LinearSystem:
    """``-div(c grad u) = f`` with a rough random coefficient c, times h**2.

    One coefficient per grid point, ``log c`` uniform between 0 and ``log(contrast)``;
    see `diffusion_matrix` for the discretisation. The condition number grows with the
    contrast, roughly in proportion.

    Parameters
    ----------
    m : int
        Interior grid points per direction; n = m**2.
    contrast : float
        Largest possible coefficient (the smallest is 1), >= 1; the paper takes up to 1e13.
    rng : numpy.random.Generator or int
        The source of randomness, or a seed.
    """
    m = integer_at_least(1, "m", m)
    contrast = real_at_least(1, "contrast", contrast)
    coefficient = contrast ** as_generator(rng).random((m, m))
    return _manufactured(
        "high_contrast_2d", m, diffusion_matrix(coefficient), {"contrast": contrast}
    )


def convection_diffusion_2d(m: int, eps: float, beta: tuple[float, float]) -> LinearSystem:
    """``-eps Laplace u + beta . grad u = f`` with first-order upwind differences.

    Each component of beta adds ``|beta| / h`` to the diagonal and ``-|beta| / h`` to the
    neighbour the flow comes from (west for beta_x > 0, east for beta_x < 0, south for
    beta_y > 0, north for beta_y < 0). A is a nonsymmetric M-matrix for every h.

    Parameters
    ----------
    m : int
        Interior grid points per direction; n = m**2.
    eps : float
        Diffusion, > 0; the paper takes 1e-3 to 1.
    beta : (float, float)
        Velocity (beta_x, beta_y); the paper takes components between -10 and 10.
    """
    m = integer_at_least(1, "m", m)
    eps = positive("eps", eps)
    if len(beta) != 2:
        raise ValueError(f"beta has {len(beta)} components; pass (beta_x, beta_y)")
    beta_x, beta_y = (finite("beta", component) for component in beta)
    diffusion = eps * (m + 1) ** 2
    flow_x, flow_y = beta_x * (m + 1), beta_y * (m + 1)
    A = five_point_matrix(
        m,
        centre=4.0 * diffusion + abs(flow_x) + abs(flow_y),
        west=-diffusion - max(flow_x, 0.0),
        east=-diffusion + min(flow_x, 0.0),
        south=-diffusion - max(flow_y, 0.0),
        north=-diffusion + min(flow_y, 0.0),
    )
    return _manufactured("convection_diffusion_2d", m, A, {"eps": eps, "beta": [beta_x, beta_y]})


def diffusion_matrix(coefficient: NDArray[np.float64]) -> sp.csr_array:
    """h**2 times the five-point discretisation of ``-div(c grad u)``, symmetric.

    Neighbours with coefficients a and c are linked by their harmonic mean
    ``2 / (1/a + 1/c)``; a grid point next to the boundary is linked to the (zero)
    boundary value by its own coefficient, which stays on the diagonal.

    Parameters
    ----------
    coefficient : (m, m) array
        Positive, ``coefficient[j - 1, i - 1]`` at ``(x_i, y_j)``.
    """
    m = coefficient.shape[0]
    # Links of all points to the west and to the south, one more than there are points.
    x_links = np.empty((m, m + 1))
    x_links[:, 0], x_links[:, -1] = coefficient[:, 0], coefficient[:, -1]
    x_links[:, 1:-1] = 2.0 / (1.0 / coefficient[:, :-1] + 1.0 / coefficient[:, 1:])
    y_links = np.empty((m + 1, m))
    y_links[0], y_links[-1] = coefficient[0], coefficient[-1]
    y_links[1:-1] = 2.0 / (1.0 / coefficient[:-1] + 1.0 / coefficient[1:])
    west, east, south, north = x_links[:, :-1], x_links[:, 1:], y_links[:-1], y_links[1:]
    return five_point_matrix(
        m, centre=west + east + south + north, west=-west, east=-east, south=-south, north=-north
    )


def five_point_matrix(
    m: int,
    *,
    centre: ArrayLike,
    west: ArrayLike,
    east: ArrayLike,
    south: ArrayLike,
    north: ArrayLike,
) -> sp.csr_array:
    """The matrix of a five-point stencil on the m-by-m grid.

    Each argument is one number or an (m, m) array (row j, column i: the stencil's
    coefficient in the equation of that point). Links that leave the grid are dropped.
    """
    k = np.arange(m * m).reshape(m, m)
    inner_left, inner_right = np.s_[:, :-1], np.s_[:, 1:]
    inner_low, inner_high = np.s_[:-1, :], np.s_[1:, :]
    whole = np.s_[:, :]
    links = [
        (centre, whole, whole),
        (west, inner_right, inner_left),
        (east, inner_left, inner_right),
        (south, inner_high, inner_low),
        (north, inner_low, inner_high),
    ]
    values = [np.broadcast_to(value, (m, m))[here].ravel() for value, here, _ in links]
    rows = [k[here].ravel() for _, here, _ in links]
    columns = [k[there].ravel() for _, _, there in links]
    indices = (np.concatenate(rows), np.concatenate(columns))
    return sp.csr_array((np.concatenate(values), indices), shape=(m * m, m * m))


def manufactured_solution(m: int) -> Vector:
    """The x_true of this module on the m-by-m grid, x running fastest."""
    t = np.pi * np.arange(1, m + 1) / (m + 1)
    smooth = np.outer(np.sin(t), np.sin(t))
    return np.asarray(smooth + 0.25 * np.outer(np.sin(3.0 * t), np.sin(2.0 * t))).ravel()


def _manufactured(family: str, m: int, A: sp.csr_array, parameters: dict[str, Any]) -> LinearSystem:
    x_true = manufactured_solution(m)
    shown = "".join(
        f"-{key}{value:.3g}" for key, value in parameters.items() if isinstance(value, float)
    )
    return LinearSystem.from_solution(
        A,
        x_true,
        name=f"{family}-m{m}{shown}",
        meta={"generator": family, "family": family, "m": m, **parameters},
    )


def laplace_3d(m: int) -> sp.csr_array:
    """The seven-point stencil, 6 and -1, on the m x m x m grid; n = m**3."""
    T = sp.diags_array([-np.ones(m - 1), np.full(m, 2.0), -np.ones(m - 1)], offsets=[-1, 0, 1])
    return sp.csr_array(sp.kronsum(sp.kronsum(T, T), T))


def shifted_laplace_3d(m: int, rng: np.random.Generator) -> sp.csr_array:
    """`laplace_3d` plus s I: s = 0, s in 0..4 (an implicit time step) or in -1..0 (a wave)."""
    shift = rng.choice([0.0, rng.uniform(0, 4), -rng.uniform(0, 1)])
    return sp.csr_array(laplace_3d(m) + shift * sp.identity(m**3))


def convection_diffusion_3d(m: int, speed: float) -> sp.csr_array:
    """`laplace_3d` plus h times a first-order upwind flow of that speed along x."""
    D = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(m, m))
    eye = sp.eye_array(m)
    return sp.csr_array(laplace_3d(m) + speed / (m + 1) * sp.kron(sp.kron(eye, eye), D))
