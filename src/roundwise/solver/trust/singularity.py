"""Whether a matrix is singular: a question that rounded numbers cannot answer, and integers can.

The entries of A are integers times powers of two. Modulo an odd prime p each of them is a number
from 0 to p - 1, and so is A's determinant:

- if it is not zero modulo one prime, A is nonsingular. That is proved;
- if it is zero modulo more primes than can divide a number of the determinant's size, A is
  singular. That is proved, too;
- large determinants could have more prime factors than one wants to try. The primes are drawn at
  random from 513 708, so that enough of them leave a chance below `RISK` that A is not singular
  after all.

Residues are kept in float64, between -p/2 and p/2 with p < 2**24: sums of 64 products of two are
below 2**53, and so exact, in whatever order BLAS adds them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.emulated.ordering import has_regular_pattern

Array = NDArray[np.float64]

EXAMINED_UP_TO = 1000
"""The largest n for which the determinant is computed, modulo some primes: half a second."""

RISK = 1e-12
"""The largest probability with which "singular" may be wrong."""

_LOW, _HIGH = 2**23, 2**24
_PRIMES = 513708  # between these two
_BLOCK = 64
_SEED = 20250716
_EXPONENTS = range(-1073, 1025)  # of numpy.frexp


class Singularity(enum.Enum):
    """What is known about a matrix."""

    SINGULAR = "singular"
    NONSINGULAR = "nonsingular"
    UNDECIDED = "singular to working precision"


def examine(A: Any) -> Singularity:
    """Whether a finite float64 matrix, dense or sparse, is singular: in exact arithmetic.

    Undecided are matrices with n above `EXAMINED_UP_TO`, except sparse ones whose pattern alone
    makes them singular. The primes depend on nothing, so the same A gets the same answer always.
    """
    n = A.shape[0]
    if n > EXAMINED_UP_TO:
        deficient = sparse.issparse(A) and not has_regular_pattern(_without_zeros(A))
        return Singularity.SINGULAR if deficient else Singularity.UNDECIDED
    dense = A.toarray() if sparse.issparse(A) else np.asarray(A)
    if not (dense.any(axis=0).all() and dense.any(axis=1).all()):
        return Singularity.SINGULAR
    fractions, exponents = np.frexp(dense)
    integers = np.ldexp(fractions, 53).astype(np.int64)
    suffice, primes = _primes_needed(integers, exponents), _random_primes()
    for _ in range(suffice):
        p = next(primes)
        powers = np.array(_powers_of_two(p))[exponents - _EXPONENTS[0]]
        if not vanishes_modulo(p, ((integers % p) * powers % p).astype(np.float64)):
            return Singularity.NONSINGULAR
    return Singularity.SINGULAR


def vanishes_modulo(p: int, A: Array) -> bool:
    """Whether the determinant of an integer matrix is zero modulo a prime below 2**24.

    Gaussian elimination by blocks of columns. The entries of A, from 0 to p - 1, are overwritten.
    """
    n = len(A)
    _reduce(A, p)
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        for j in range(start, end):
            pivots = np.flatnonzero(A[j:, j])
            if not len(pivots):
                return True
            if pivots[0]:  # whole rows: the multipliers to the left move, too
                A[[j, j + pivots[0]]] = A[[j + pivots[0], j]]
            A[j + 1 :, j] *= pow(int(A[j, j]), -1, p)
            _reduce(A[j + 1 :, j], p)
            rest = A[j + 1 :, j + 1 : end]
            rest -= np.outer(A[j + 1 :, j], A[j, j + 1 : end])
            _reduce(rest, p)
        if end < n:
            triangle, right = A[start:end, start:end], A[start:end, end:]
            for j in range(1, end - start):  # forward substitution
                right[j] -= triangle[j, :j] @ right[:j]
                _reduce(right[j], p)
            below = A[end:, end:]
            below -= A[end:, start:end] @ right
            _reduce(below, p)
    return False


def _reduce(values: Array, p: int) -> None:
    """Bring integers below 2**53 between -p/2 and p/2, in place; multiples of p become 0.

    The quotient is below 2**30, so that its rounding error cannot turn a multiple of p into
    anything else; others may end a little beyond p/2.
    """
    quotients = values * (1.0 / p)
    np.rint(quotients, out=quotients)
    quotients *= p
    values -= quotients


def _primes_needed(integers: NDArray[np.int64], exponents: NDArray[np.int32]) -> int:
    """After how many random primes that all divide the determinant it is taken for zero.

    The entries are ``integers * 2**(exponents - 53)``. Rows, then columns, are multiplied by powers
    of two that make all entries integers; Hadamard bounds the determinant by the product of the
    rows' norms, and a number below ``2**(23 m)`` has fewer than m prime factors above ``2**23``.
    """
    used = integers != 0
    lowest = np.frexp((integers & -integers).astype(np.float64))[1] + exponents  # set bit, up to 54
    top = np.where(used, exponents, np.iinfo(np.int32).min)
    shift = np.where(used, lowest, np.iinfo(np.int32).max).min(axis=1, keepdims=True)
    columns = np.where(used, lowest - shift, np.iinfo(np.int32).max).min(axis=0)
    bits = (top.max(axis=1) - shift[:, 0] + 54 + 0.5 * np.log2(used.sum(axis=1))).sum()
    factors = max(0, math.floor(float(bits - columns.sum()) / math.log2(_LOW)))
    if factors == 0:
        return 1
    by_chance = math.ceil(math.log(RISK) / math.log(factors / _PRIMES))
    return min(factors + 1, by_chance)


def _random_primes() -> Iterator[int]:
    """Primes between 2**23 and 2**24, none twice."""
    rng, known = np.random.default_rng(_SEED), set[int]()
    sieve = np.ones(4096, dtype=bool)
    sieve[:2] = False
    for i in range(2, 64):
        sieve[i * i :: i] = False
    small = np.flatnonzero(sieve)
    while True:
        candidate = int(rng.integers(_LOW, _HIGH))
        if (candidate % small).all() and candidate not in known:
            known.add(candidate)
            yield candidate


def _powers_of_two(p: int) -> list[int]:
    powers = [1]
    for _ in _EXPONENTS[1:]:
        powers.append(2 * powers[-1] % p)
    return powers


def _without_zeros(A: Any) -> sparse.csr_array:
    pattern = sparse.csr_array(A, copy=True)
    pattern.eliminate_zeros()
    return pattern
