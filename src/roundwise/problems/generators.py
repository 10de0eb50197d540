"""Random systems, dense and sparse, and the checks of arguments that all generators share."""

from __future__ import annotations

import math
import operator
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import linalg

from roundwise.problems.linear_system import LinearSystem, Vector

RandomSource: TypeAlias = np.random.Generator | int
"""A generator, or a seed for one; global random state is never used."""


def as_generator(rng: RandomSource) -> np.random.Generator:
    """Return `rng` itself, or ``numpy.random.default_rng(rng)`` for a seed."""
    # NumPy would take None, too, but nobody could repeat the run.
    if not isinstance(rng, np.random.Generator | int | np.integer):
        raise TypeError(f"rng is {rng!r}; pass a numpy.random.Generator or an integer seed")
    return np.random.default_rng(rng)


def integer_at_least(lowest: int, name: str, value: int) -> int:
    """Return `value` as an int that is at least `lowest`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; pass an integer") from None
    if number < lowest:
        raise ValueError(f"{name} = {number}; pass {name} >= {lowest}")
    return number


def finite(name: str, value: float, *, least: float = -math.inf, above: float = -math.inf) -> float:
    """Return `value` as a finite float that is at least `least` and greater than `above`."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} = {number}; pass a finite number")
    if number < least:
        raise ValueError(f"{name} = {number}; pass {name} >= {least:g}")
    if number <= above:
        raise ValueError(f"{name} = {number}; pass {name} > {above:g}")
    return number


def randsvd(n: int, kappa: float, mode: int = 2, *, rng: RandomSource) -> LinearSystem:
    """A random dense system of n unknowns with 2-norm condition number `kappa` >= 1.

    ``A = U diag(s) V^T`` with independent Haar-distributed orthogonal U and V, as in
    MATLAB's ``gallery('randsvd')``; x_true has N(0, 1) entries and b = fl(A x_true), see
    `LinearSystem.from_solution`.

    ========  ======================================================
    mode      singular values, i = 1..n
    ========  ======================================================
    1         one large: s_1 = 1, the others 1/kappa
    2         one small: s_n = 1/kappa, the others 1
    3         geometric: s_i = kappa**(-(i-1)/(n-1))
    4         arithmetic: s_i = 1 - (i-1)/(n-1) * (1 - 1/kappa)
    5         random: log s_i uniform between log(1/kappa) and 0
    ========  ======================================================

    Modes 1 to 4 have condition number kappa by construction (up to rounding errors of
    order u in A, which hide an s_n below u); mode 5 has at most kappa. For n = 1,
    A = +1 or -1 in every mode.

    Parameters
    ----------
    n : int
    kappa : float
        The condition number in the 2-norm.
    mode : int
        How singular values are spread, see above.
    rng : numpy.random.Generator or int
        A generator, or a seed.

    References
    ----------
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM, 2002,
    section 28.3.

    Examples
    --------
    >>> system = rw.problems.randsvd(20, kappa=1e3, rng=0)
    >>> print(f"{np.linalg.cond(system.A):.6g}")
    1000
    """
    n = integer_at_least(1, "n", n)
    kappa = finite("kappa", kappa, least=1)
    generator = as_generator(rng)
    s = singular_values(n, kappa, mode, rng=generator)
    U, V = haar_orthogonal(n, rng=generator), haar_orthogonal(n, rng=generator)
    return LinearSystem.from_solution(
        (U * s) @ V.T,
        generator.standard_normal(n),
        name=f"randsvd-n{n}-kappa{kappa:.3g}-mode{mode}",
        meta={"generator": "randsvd", "family": "randsvd", "kappa": kappa, "mode": mode},
    )


def singular_values(n: int, kappa: float, mode: int, *, rng: RandomSource) -> Vector:
    """The singular values of `randsvd`, largest first (mode 5: in random order)."""
    if mode not in (1, 2, 3, 4, 5):
        raise ValueError(f"mode = {mode!r}; pass 1, 2, 3, 4 or 5")
    if n == 1:
        return np.ones(1)
    if mode == 5:
        return np.asarray(kappa ** -as_generator(rng).random(n))
    if mode == 3:
        return np.asarray(kappa ** -np.linspace(0.0, 1.0, n))
    if mode == 4:
        return np.linspace(1.0, 1.0 / kappa, n)
    s = np.ones(n)
    s[slice(1, None) if mode == 1 else -1] = 1.0 / kappa
    return s


def haar_orthogonal(n: int, *, rng: RandomSource) -> NDArray[np.float64]:
    """A random orthogonal n-by-n matrix from the Haar (uniform) distribution.

    The Q of the QR factorization of a Gaussian matrix, its columns multiplied by the
    signs of diag(R): without that step Q depends on LAPACK's sign convention and is
    not Haar distributed.

    References
    ----------
    F. Mezzadri, How to generate random matrices from the classical compact groups,
    Notices of the AMS 54 (2007), 592-604.
    """
    gaussian = as_generator(rng).standard_normal((n, n))
    Q, R = linalg.qr(gaussian, overwrite_a=True, check_finite=False)
    return np.asarray(Q * np.copysign(1.0, np.diagonal(R)))


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
