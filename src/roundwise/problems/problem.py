"""`Problem`: what tables, features and rewards ask of an instance to solve."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from roundwise._csr import canonical_csr
from roundwise._forking import cached_property

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64] | sp.csr_array
"""A dense C-ordered array or a canonical `scipy.sparse.csr_array`, both float64."""


class Norms(NamedTuple):
    """``||A||_inf``, ``||x_true||_inf`` (NaN if not known), ``||b||_2`` (0 without b)."""

    A: float
    x_true: float
    b: float


class Problem:
    """An instance that an algorithm runs on; `LinearSystem` is one.

    A problem of your own is a frozen dataclass with ``eq=False`` that inherits from this class,
    has a field `A` (the square float64 matrix that features are computed from), and any others.
    If it has `b` or `x_true`, their norms are stored for rewards. `name`, for people, and `meta`,
    JSON-like values that tell how the problem came about, are no part of the fingerprint.

    Examples
    --------
    >>> isinstance(rw.problems.poisson_2d(3), rw.problems.Problem)
    True
    """

    A: Matrix
    name: str = ""
    meta: Mapping[str, Any] = MappingProxyType({})

    @property
    def n(self) -> int:
        """The number of unknowns."""
        return int(self.A.shape[0])

    @property
    def is_sparse(self) -> bool:
        """Whether A is stored as a `csr_array`."""
        return not isinstance(self.A, np.ndarray)

    @property
    def density(self) -> float:
        """The share of the entries of A that are nonzero."""
        A = self.A
        nonzeros = np.count_nonzero(A) if isinstance(A, np.ndarray) else A.nnz
        return float(nonzeros / (A.shape[0] * A.shape[1]))

    @cached_property
    def norms(self) -> Norms:
        """The sizes of A, x_true and b."""
        x_true, b = getattr(self, "x_true", None), getattr(self, "b", None)
        with np.errstate(over="ignore"):  # a norm beyond float64 is inf
            norm_A = float(np.asarray(abs(self.A).sum(axis=1)).max())
        return Norms(
            norm_A,
            math.nan if x_true is None else float(np.abs(x_true).max()),
            0.0 if b is None else math.hypot(*b.tolist()),  # no overflow, no BLAS
        )

    @cached_property
    def fingerprint(self) -> str:
        """A 128-bit BLAKE2b hash of the class's name and all fields but `name` and `meta`."""
        this: Any = self
        try:
            fields = dataclasses.fields(this)
        except TypeError:
            raise TypeError(
                f"{type(self).__name__} has no fields to tell it from others; make it a frozen "
                "dataclass, or define its fingerprint"
            ) from None
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{type(self).__module__}.{type(self).__qualname__}/1".encode())
        for field in fields:
            if field.name not in ("name", "meta"):
                digest.update(f" {field.name} ".encode())
                digest.update(_content(getattr(self, field.name)))
        return digest.hexdigest()


def _content(value: Any) -> bytes:
    """The bytes of a field's value, the same on every machine."""
    if sp.issparse(value):
        A = canonical_csr(value, value.dtype)
        parts = (np.array(A.shape), A.indptr.astype("<i8"), A.indices.astype("<i8"), A.data)
        return b"".join(_content(part) for part in parts)
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        return f"{array.shape} {array.dtype.str} ".encode() + array.tobytes()
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value).encode()
    raise TypeError(
        f"a field is a {type(value).__name__}; use arrays, numbers and texts, or define the "
        "problem's fingerprint"
    )
