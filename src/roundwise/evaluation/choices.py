"""Tables of one value per problem and action, and the values that a policy's choices pick."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]


def value_matrix(what: str, values: ArrayLike) -> Vector:
    """`values` as a float64 matrix, problems by actions; NaN is an action without a value."""
    M = np.asarray(values, dtype=np.float64)
    if M.ndim != 2 or 0 in M.shape:
        raise ValueError(
            f"{what} have shape {M.shape}; pass N problems by A actions, no empty axis"
        )
    if np.isnan(M).all(axis=1).any():
        raise ValueError(f"{what}: a problem has no action with a value; leave it out")
    return M


def picked(what: str, M: Vector, chosen: ArrayLike) -> Vector:
    """The values of the chosen actions, in the shape of `chosen`; checks the indices."""
    indices = np.asarray(chosen)
    count, actions = M.shape
    if indices.dtype.kind not in "iu" or indices.ndim not in (1, 2) or not indices.size:
        raise ValueError(f"{what}: chosen actions must be indices, shape (N,) or (S, N)")
    if indices.shape[-1] != count:
        raise ValueError(f"{what}: {indices.shape[-1]} choices for {count} problems")
    if indices.min() < 0 or indices.max() >= actions:
        raise ValueError(f"{what}: an index is outside 0 to {actions - 1}")
    found = np.asarray(M[np.arange(count), indices])
    if np.isnan(found).any():
        raise ValueError(f"{what}: a chosen action has no value; fill the outcome table")
    return found
