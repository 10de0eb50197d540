"""Large dense matrices, drawn where they are solved: by NumPy, or by CuPy on a GPU.

Orthogonal factors by QR take longer than the solves they are for. Here they are products of
``2 ceil(log2 n)`` steps, each of which permutes the rows at random, gives them random signs, and
replaces the pair of rows (i, i + n/2) by sum and difference over sqrt(2). That is a randomized
Hadamard transform for any n: each step is orthogonal, and after log2 n of them every row is a sum
of all rows. The second half mixes these sums, so that entries look like those of a Haar matrix.

`xp` is NumPy or CuPy. Both draw the same matrix up to rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from roundwise.problems import Vector
from roundwise.problems.generators import RandomSource, as_generator

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_AT_ONCE = 2**24  # entries: limits the memory that drawing takes


def with_singular_values(
    s: Vector, *, rng: RandomSource, xp: Any = np, symmetric: bool = False
) -> Any:
    """``U diag(s) V'`` with random orthogonal U and V; ``U diag(s) U'`` if `symmetric`.

    Its singular values are s up to rounding errors of some u times the largest.
    """
    seeds = as_generator(rng).integers(2**63, size=2).tolist()
    mixed = _mix_rows(xp.diag(xp.asarray(s)), seeds[0], xp)
    # ... = U diag(s); mixing the rows of its transpose, diag(s) U', gives V diag(s) U'.
    A = _mix_rows(xp.ascontiguousarray(mixed.T), seeds[0 if symmetric else 1], xp)
    return (A + A.T) / 2 if symmetric else A


def _mix_rows(M: Any, seed: int, xp: Any) -> Any:
    """Q M with a random orthogonal Q that the seed decides; M is overwritten."""
    rng, n = np.random.default_rng(seed), len(M)
    half, steps = n // 2, 2 * max(1, math.ceil(math.log2(n)))
    for _ in range(steps):
        taken = M[xp.asarray(rng.permutation(n))]
        taken *= xp.asarray(rng.choice([-1.0, 1.0], n))[:, None]
        upper, lower = taken[:half], taken[half : 2 * half]
        xp.add(upper, lower, out=M[:half])
        xp.subtract(upper, lower, out=M[half : 2 * half])
        if n % 2:  # a row without a partner, which is divided as the others are
            M[-1] = math.sqrt(2) * taken[-1]
    M *= 2.0 ** -(steps // 2)  # the divisions by sqrt(2), all at once, without an error
    return M


def gaussian(n: int, *, rng: RandomSource, xp: Any = np) -> Any:
    """An n-by-n matrix with independent N(0, 1) entries.

    The uniform numbers that they are made of (Box & Muller 1958) are SplitMix64's: a hash of the
    seed and the entry's number (Steele, Lea & Flood 2014), so that any device computes them.
    """
    seed = int(as_generator(rng).integers(2**63))
    A = xp.empty((n, n))
    rows = max(1, _AT_ONCE // n)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        numbers = xp.arange(2 * start * n, 2 * stop * n, 2, dtype=np.uint64)
        radii = xp.sqrt(-2 * xp.log(_uniform(numbers, seed)))
        angles = 2 * math.pi * _uniform(numbers + np.uint64(1), seed)
        A[start:stop] = (radii * xp.cos(angles)).reshape(stop - start, n)
    return A


def heavy_diagonal(n: int, weight: float, *, rng: RandomSource, xp: Any = np) -> Any:
    """A Gaussian matrix plus ``weight sqrt(n) I``; well conditioned where the weight is above 1.

    Its diagonal entries have about ``weight / sqrt(1 + weight^2)`` of their rows' lengths.
    """
    A = gaussian(n, rng=rng, xp=xp)
    diagonal = xp.arange(n)
    A[diagonal, diagonal] += weight * math.sqrt(n)
    return A


def _uniform(numbers: Any, seed: int) -> Any:
    """Numbers between 0 and 1, neither of them included, from integers and a seed."""
    offset = np.uint64(seed * _GOLDEN % 2**64)
    z = numbers * np.uint64(_GOLDEN) + offset
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
