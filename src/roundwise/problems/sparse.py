"""Random sparse systems."""

from __future__ import annotations

import math

import scipy.sparse as sp

from roundwise.problems.arguments import RandomSource, as_generator, finite, integer_at_least
from roundwise.problems.linear_system import LinearSystem


def random_sparse_spd(
    n: int, density: float = 0.01, beta: float = 1e-8, *, rng: RandomSource
) -> LinearSystem:
    """A random sparse SPD system ``A = A0 A0^T + beta I`` of n unknowns, beta > 0.

    A0 has ``floor(density * n**2)`` entries from N(0, 1) at distinct random places;
    x_true has N(0, 1) entries and b = fl(A x_true), see `LinearSystem.from_solution`.
    A is symmetric to the last bit and denser than A0.

    Where A0 is singular (a few entries per row leave some rows empty), the smallest
    eigenvalue of A is beta, so that ``kappa(A) = 1 + norm(A0)**2 / beta``: beta sets
    the condition number.

    Parameters
    ----------
    n : int
    density : float
        Of A0.
    beta : float
        The shift.
    rng : numpy.random.Generator or int

    Returns
    -------
    LinearSystem

    References
    ----------
    P. Häusner, O. Öktem, J. Sjölund, Neural incomplete factorization: learning
    preconditioners for the conjugate gradient method, TMLR, 2024 (the construction).

    Examples
    --------
    >>> A = rw.problems.random_sparse_spd(30, beta=1e-3, rng=0).A.toarray()
    >>> bool(np.linalg.eigvalsh(A).min() > 0)
    True
    """
    n = integer_at_least(1, "n", n)
    density = finite("density", density, least=0)
    if density > 1:
        raise ValueError(f"density = {density}; pass a fraction between 0 and 1")
    beta = finite("beta", beta, above=0)
    generator = as_generator(rng)
    # round first: 0.29 * 100 is 28.999999999999996 in binary
    entries = math.floor(round(density * n * n, 6))
    places = generator.choice(n * n, size=entries, replace=False, shuffle=False)
    values = generator.standard_normal(entries)
    A0 = sp.csr_array((values, (places // n, places % n)), shape=(n, n))
    # With the columns of A0 sorted, entries (i, j) and (j, i) add the same products in
    # the same order: the sum is symmetric to the last bit.
    A0.sort_indices()
    A = sp.csr_array(A0 @ A0.T + beta * sp.identity(n, format="csr"))
    made_by = dict.fromkeys(("generator", "family"), "random_sparse_spd")
    return LinearSystem.from_solution(
        A,
        generator.standard_normal(n),
        name=f"random_sparse_spd-n{n}-beta{beta:.3g}",
        meta={**made_by, "density_of_A0": density, "beta": beta},
    )
