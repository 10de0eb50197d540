"""Finite-difference discretisations of four elliptic model problems on the unit square.

The grid has m x m interior points ``(x_i, y_j) = (i h, j h)``, ``h = 1/(m + 1)``, and
homogeneous Dirichlet values around them, so that n = m**2; unknown ``k = (j - 1) m + (i - 1)``
sits at ``(x_i, y_j)``: x runs fastest. All four problems have the manufactured solution

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

from roundwise.problems.generators import RandomSource, as_generator, finite, integer_at_least
from roundwise.problems.linear_system import LinearSystem, Vector


def poisson_2d(m: int) -> LinearSystem:
    """``-Laplace u = f``: the five-point stencil, 4 on the diagonal and -1 beside it.

    ``kappa(A) = cot(pi h / 2)**2``; the eigenvalues are
    ``4 sin(p pi h / 2)**2 + 4 sin(q pi h / 2)**2``, p, q = 1..m.

    Parameters
    ----------
    m : int
        Inner grid points in each direction; n = m**2.

    Examples
    --------
    >>> system = rw.problems.poisson_2d(3)  # h = 1/4
    >>> kappa = np.linalg.cond(system.A.toarray())
    >>> bool(np.isclose(kappa, 1 / np.tan(np.pi / 8) ** 2))
    True
    """
    m = integer_at_least(1, "m", m)
    return _manufactured("poisson_2d", m, five_point_matrix(m, 4.0, -1.0, -1.0, -1.0, -1.0))


def anisotropic_2d(m: int, eps: float) -> LinearSystem:
    """``-div(diag(eps, 1) grad u) = f``: weak coupling in x when eps is small.

    Row: ``(2 (eps + 1) u_ij - eps (u_{i-1,j} + u_{i+1,j}) - (u_{i,j-1} + u_{i,j+1})) / h**2``.
    Its condition number is that of `poisson_2d`, for every eps > 0; the paper takes 1e-8 to 1e-3.

    Parameters
    ----------
    m : int
        Inner grid points in each direction; n = m**2.
    eps : float
        Strength of the coupling in x.

    Examples
    --------
    >>> rw.problems.anisotropic_2d(4, eps=1e-4).n
    16
    """
    m = integer_at_least(1, "m", m)
    eps = finite("eps", eps, above=0)
    y_link = float((m + 1) ** 2)
    x_link = eps * y_link
    A = five_point_matrix(m, 2.0 * (x_link + y_link), -x_link, -x_link, -y_link, -y_link)
    return _manufactured("anisotropic_2d", m, A, eps=eps)


def high_contrast_2d(m: int, contrast: float, *, rng: RandomSource) -> LinearSystem:
    """``-div(c grad u) = f`` with a rough random coefficient c, times h**2.

    One coefficient per grid point, ``log c`` uniform between 0 and ``log(contrast)``,
    contrast >= 1 (the paper takes up to 1e13); see `diffusion_matrix` for the discretisation.
    The condition number grows with the contrast, roughly in proportion.

    Parameters
    ----------
    m : int
        Inner grid points in each direction; n = m**2.
    contrast : float
        Largest over smallest possible coefficient.
    rng : numpy.random.Generator or int

    Examples
    --------
    >>> rw.problems.high_contrast_2d(4, contrast=1e6, rng=0).n
    16
    """
    m = integer_at_least(1, "m", m)
    contrast = finite("contrast", contrast, least=1)
    A = diffusion_matrix(contrast ** as_generator(rng).random((m, m)))
    return _manufactured("high_contrast_2d", m, A, contrast=contrast)


def convection_diffusion_2d(m: int, eps: float, beta: tuple[float, float]) -> LinearSystem:
    """``-eps Laplace u + beta' grad u = f`` with first-order upwind differences.

    Each component of beta adds ``|beta| / h`` to the diagonal and ``-|beta| / h`` to the
    neighbour the flow comes from (west for beta_x > 0, east for beta_x < 0, south for
    beta_y > 0, north for beta_y < 0). A is a nonsymmetric M-matrix for every h. The paper
    takes eps, which is > 0, from 1e-3 to 1, and both components of beta from -10 to 10.

    Parameters
    ----------
    m : int
        Inner grid points in each direction; n = m**2.
    eps : float
        Diffusion.
    beta : (float, float)
        Velocity.

    Examples
    --------
    >>> A = rw.problems.convection_diffusion_2d(4, 0.1, (1.0, -2.0)).A
    >>> bool((A - A.T).nnz)  # not symmetric
    True
    """
    m = integer_at_least(1, "m", m)
    eps = finite("eps", eps, above=0)
    if len(beta) != 2:
        raise ValueError(f"beta has {len(beta)} components; pass (beta_x, beta_y)")
    beta_x, beta_y = (finite("beta", component) for component in beta)
    diffusion = eps * (m + 1) ** 2
    flow_x, flow_y = beta_x * (m + 1), beta_y * (m + 1)
    centre = 4.0 * diffusion + abs(flow_x) + abs(flow_y)
    west, east = -diffusion - max(flow_x, 0.0), -diffusion + min(flow_x, 0.0)
    south, north = -diffusion - max(flow_y, 0.0), -diffusion + min(flow_y, 0.0)
    A = five_point_matrix(m, centre, west, east, south, north)
    return _manufactured("convection_diffusion_2d", m, A, eps=eps, beta=[beta_x, beta_y])


def diffusion_matrix(coefficient: NDArray[np.float64]) -> sp.csr_array:
    """h**2 times the five-point discretisation of ``-div(c grad u)``, symmetric.

    Neighbours with coefficients a and c are linked by their harmonic mean
    ``2 / (1/a + 1/c)``; a grid point next to the boundary is linked to the (zero)
    boundary value by its own coefficient, which stays on the diagonal.
    ``coefficient[j - 1, i - 1]``, positive, is that at ``(x_i, y_j)``; the array is m by m.
    """

    def links(c: NDArray[np.float64]) -> NDArray[np.float64]:
        """Links along the rows of c, one more than there are points in a row."""
        return np.hstack([c[:, :1], 2.0 / (1.0 / c[:, :-1] + 1.0 / c[:, 1:]), c[:, -1:]])

    x_links, y_links = links(coefficient), links(coefficient.T).T
    west, east, south, north = x_links[:, :-1], x_links[:, 1:], y_links[:-1], y_links[1:]
    centre = west + east + south + north
    return five_point_matrix(len(coefficient), centre, -west, -east, -south, -north)


def five_point_matrix(m: int, *stencil: ArrayLike) -> sp.csr_array:
    """The matrix of a five-point stencil on the m-by-m grid.

    `stencil` has the coefficients of centre, west, east, south and north, each one number or
    an (m, m) array (row j, column i: the coefficient in the equation of that point). Links
    that leave the grid are dropped.
    """
    k = np.arange(m * m).reshape(m, m)
    here = [k, k[:, 1:], k[:, :-1], k[1:], k[:-1]]
    there = [k, k[:, :-1], k[:, 1:], k[:-1], k[1:]]
    values = [
        np.broadcast_to(value, (m, m)).ravel()[places.ravel()]
        for value, places in zip(stencil, here, strict=True)
    ]
    rows, columns = (np.concatenate([p.ravel() for p in places]) for places in (here, there))
    return sp.csr_array((np.concatenate(values), (rows, columns)), shape=(m * m, m * m))


def manufactured_solution(m: int) -> Vector:
    """The x_true of this module on the m-by-m grid, x running fastest."""
    t = np.pi * np.arange(1, m + 1) / (m + 1)
    smooth = np.outer(np.sin(t), np.sin(t))
    return np.asarray(smooth + 0.25 * np.outer(np.sin(3.0 * t), np.sin(2.0 * t))).ravel()


def _manufactured(family: str, m: int, A: sp.csr_array, **parameters: Any) -> LinearSystem:
    shown = [f"-{key}{value:.3g}" for key, value in parameters.items() if isinstance(value, float)]
    return LinearSystem.from_solution(
        A,
        manufactured_solution(m),
        name=f"{family}-m{m}{''.join(shown)}",
        meta={"generator": family, "family": family, "m": m, **parameters},
    )


def laplace_3d(m: int) -> sp.csr_array:
    """The seven-point stencil, 6 and -1, on the m x m x m grid; n = m**3.

    Parameters
    ----------
    m : int
        Grid points in each direction.

    Examples
    --------
    >>> A = rw.problems.laplace_3d(3)
    >>> A.shape, A.diagonal()[:3]
    ((27, 27), array([6., 6., 6.]))
    """
    T = sp.diags_array([-np.ones(m - 1), np.full(m, 2.0), -np.ones(m - 1)], offsets=[-1, 0, 1])
    return sp.csr_array(sp.kronsum(sp.kronsum(T, T), T))


def convection_diffusion_3d(m: int, speed: float) -> sp.csr_array:
    """`laplace_3d` plus h times a first-order upwind flow of that speed along x."""
    D = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(m, m))
    eye = sp.eye_array(m)
    return sp.csr_array(laplace_3d(m) + speed / (m + 1) * sp.kron(sp.kron(eye, eye), D))
