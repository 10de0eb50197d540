"""The systems of the paper's native study: its released generator, and our harder variant.

The text names no generator. The released one makes a nearly diagonal matrix (``released``):
diagonal entries from 1 down to 1/kappa, in reverse for every second system, and a perturbation of
rank 8 that is small beside the smallest of them. Its LU hardly eliminates, so that forward errors
stay near u whatever kappa is. Its random numbers are followed, too: with the paper's seed and sizes
the systems are the paper's own, up to rounding (sizes and condition numbers agree with the released
result files; they are those of the split ``text``). ``randsvd`` is our own choice and harder: full
matrices with one small singular value (mode 2), where errors grow with kappa as theory has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from roundwise.problems import LinearSystem
from roundwise_studies.native.drawn import with_singular_values

REGIMES = {"low": (0, 3), "medium": (3, 6), "high": (6, 9)}
"""log10 of kappa is uniform in these."""

SPLITS = {
    "text": (("low", "medium"), ("low", "medium", "high")),
    "released": (("low", "medium", "high"), ("low", "medium")),
}
"""Regimes of the training and of the validation systems, taken in turn: as the text says, and the
defaults of the released code."""

RANK, SMALL = 8, 0.01

TRAINING = 50
"""Training systems of the paper; the released generator draws its test systems after them."""

Recipe = tuple[str, str, str, int]
"""Split (empty: any), half, regime, and the number of a system in the half or in the regime."""


def recipes(generator: str, split: str, half: str, count: int) -> list[Recipe]:
    """The systems of a half, regimes in turn; the splits of our harder variant share systems."""
    regimes = SPLITS[split][half == "test"]
    if generator == "released":
        return [(split, half, regimes[i % len(regimes)], i) for i in range(count)]
    return [("", half, regimes[i % len(regimes)], i // len(regimes)) for i in range(count)]


def released_matrix(
    n: int, kappa: float, reverse: bool, rng: np.random.Generator, xp: Any = np
) -> Any:
    """``diag(1, ..., 1/kappa) + 0.01/kappa U V' / sqrt(8 n)``, U and V Gaussian with 8 columns."""
    U, V = (xp.asarray(rng.standard_normal((n, RANK))) for _ in range(2))
    diagonal = np.geomspace(1.0, 1.0 / kappa, n)
    A = (SMALL / kappa / math.sqrt(RANK * n)) * (U @ V.T)
    places = xp.arange(n)
    A[places, places] += xp.asarray(diagonal[::-1].copy() if reverse else diagonal)
    return A


def randsvd_matrix(
    n: int, kappa: float, reverse: bool, rng: np.random.Generator, xp: Any = np
) -> Any:
    """All singular values 1 but the last, 1/kappa; there is nothing to reverse."""
    singular_values = np.ones(n)
    singular_values[-1] = 1.0 / kappa
    return with_singular_values(singular_values, rng=rng, xp=xp)


GENERATORS: dict[str, Callable[..., Any]] = {"released": released_matrix, "randsvd": randsvd_matrix}


def released_draw(recipe: Recipe, sizes: tuple[int, int], seed: int) -> tuple[int, float, int]:
    """n, kappa and the seed of a system: one stream for the training systems, then the others."""
    split, half, _, number = recipe
    rng = np.random.default_rng(seed)
    if half == "train" and number >= TRAINING:
        raise ValueError(f"system {number}; the paper has {TRAINING} training systems")
    drawn = 0, 0.0, 0
    for kind, count in (
        ("train", number + 1 if half == "train" else TRAINING),
        ("test", number + 1),
    ):
        regimes = SPLITS[split][kind == "test"]
        for i in range(count):
            n = int(rng.integers(sizes[0], sizes[1] + 1))
            kappa = 10.0 ** float(rng.uniform(*REGIMES[regimes[i % len(regimes)]]))
            drawn = n, kappa, int(rng.integers(0, np.iinfo(np.int32).max))
        if kind == half:
            break
    return drawn


def own_draw(recipe: Recipe, sizes: tuple[int, int], seed: int) -> tuple[int, float, Any]:
    """The same for our harder variant: a stream for each system."""
    _, half, regime, number = recipe
    key = (int(half == "test"), list(REGIMES).index(regime), number)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    n = int(rng.integers(*sizes, endpoint=True))
    return n, 10.0 ** rng.uniform(*REGIMES[regime]), rng


def system(
    generator: str, recipe: Recipe, sizes: tuple[int, int], seed: int, xp: Any = np
) -> LinearSystem:
    """n uniform in `sizes`, log10(kappa) uniform in its regime, x ~ N(0, 1), b = A x."""
    draw = released_draw if generator == "released" else own_draw
    n, kappa, stream = draw(recipe, sizes, seed)
    rng = np.random.default_rng(stream)
    split, half, regime, number = recipe
    A = GENERATORS[generator](n, kappa, number % 2 == 1, rng, xp)
    A = A if isinstance(A, np.ndarray) else A.get()
    x = rng.standard_normal(n)
    meta = {"generator": generator, "regime": regime, "kappa": kappa}
    name = "-".join(filter(None, (generator, split, half, regime, str(number))))
    return LinearSystem(A, A @ x, x_true=x, name=name, meta=meta)
