"""The structure of a dense A, as `assume_a` says it in SciPy's words."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends.arrays import array_module
from roundwise.backends.native.dense import is_symmetric
from roundwise.solver.inputs import given_array

Structure = Literal[
    "gen",
    "general",
    "sym",
    "symmetric",
    "her",
    "hermitian",
    "pos",
    "positive definite",
    "banded",
    "tridiagonal",
    "upper triangular",
    "lower triangular",
    "diagonal",
]
"""What `assume_a` takes, as `scipy.linalg.solve` does."""

LONG = {"gen": "general", "sym": "symmetric", "her": "hermitian", "pos": "positive definite"}
NAMES = (
    *LONG,
    *LONG.values(),
    *("banded", "tridiagonal", "upper triangular", "lower triangular", "diagonal"),
)
SYMMETRIC = ("symmetric", "hermitian", "positive definite")


def checked_name(assume_a: Any) -> str:
    """SciPy's long name of a structure."""
    if not isinstance(assume_a, str) or assume_a not in NAMES:
        raise ValueError(
            f"assume_a = {assume_a!r}; choose None or one of {', '.join(map(repr, NAMES))}"
        )
    return LONG.get(assume_a, assume_a)


def named_part(A: Any, name: str, lower: bool) -> Any:
    """The matrix that SciPy solves with: the entries which the name says are there.

    For a symmetric or Hermitian matrix these are the entries of one triangle, mirrored. If A has no
    other entries, A itself is returned. A sparse A is taken as it is.
    """
    if sparse.issparse(A):
        return A
    A = given_array("A", A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.size == 0:
        return A  # refused later, or empty
    if name in SYMMETRIC:
        is_plain = A.ndim == 2 and not np.iscomplexobj(A)
        return A if is_plain and is_symmetric(A) else _mirrored(A, lower, name != "symmetric")
    if name == "upper triangular":
        return _within(A, 0, None)
    if name == "lower triangular":
        return _within(A, None, 0)
    if name == "diagonal":
        return _within(A, 0, 0)
    return _within(A, 1, 1) if name == "tridiagonal" else A


def _mirrored(A: NDArray[Any], lower: bool, conjugate: bool) -> NDArray[Any]:
    one = np.tril(A, -1) if lower else np.triu(A, 1)
    other = np.swapaxes(one, -1, -2)
    diagonal = np.diagonal(A, axis1=-2, axis2=-1)
    full: NDArray[Any] = one + (other.conj() if conjugate else other)
    at = array_module(A).arange(A.shape[-1])
    full[..., at, at] = diagonal.real if conjugate else diagonal
    return full


def _within(A: NDArray[Any], below: int | None, above: int | None) -> NDArray[Any]:
    """A without the entries further below or above the diagonal; itself if there are none."""
    outside = (below is not None and np.tril(A, -below - 1).any()) or (
        above is not None and np.triu(A, above + 1).any()
    )
    if not outside:
        return A
    A = A if below is None else np.triu(A, -below)
    return A if above is None else np.tril(A, above)
