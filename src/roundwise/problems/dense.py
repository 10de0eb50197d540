"""Random dense systems with prescribed singular values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from roundwise.problems.arguments import RandomSource, as_generator, finite, integer_at_least
from roundwise.problems.linear_system import LinearSystem
from roundwise.problems.problem import Vector


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

    Returns
    -------
    LinearSystem

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
