"""`Problem`, what algorithms are run on; `LinearSystem`, a square real system Ax = b: checked once
and then left unchanged."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
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
        for one in fields:
            if one.name not in ("name", "meta"):
                digest.update(f" {one.name} ".encode())
                digest.update(_content(getattr(self, one.name)))
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


@dataclass(frozen=True, eq=False, repr=False)
class LinearSystem(Problem):
    """A problem: the real square system Ax = b, and its solution where it is known.

    The data are copied, brought into one canonical form and made read-only, so that
    a fingerprint once taken stays true. Two systems with the same content have the
    same `fingerprint`; ``==`` compares identity.

    Parameters
    ----------
    A : array_like or sparse
        n-by-n. Dense input becomes a C-ordered float64 array, sparse input of any
        format a float64 `csr_array` with sorted indices, duplicates summed and
        explicit zeros dropped (indices int32 where that is enough). Integers and lower
        precisions are converted; complex, extended precision and object entries are
        refused, and so are NaN and infinity.
    b : array_like
        The right-hand side, n entries.
    x_true : array_like, optional
        The solution, n entries, where it is known; see `from_solution`.
    name, meta : str, mapping of str to JSON-like values
        As in `Problem`, e.g. ``{"generator": "randsvd", "kappa": 1e3}``.

    Examples
    --------
    >>> rw.LinearSystem([[4, 1], [1, 3]], [1, 2], name="tiny")
    LinearSystem('tiny', dense 2 x 2)
    """

    A: Matrix
    b: Vector
    x_true: Vector | None = None
    name: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The class is frozen: object.__setattr__ is the documented way to normalise fields.
        object.__setattr__(self, "A", square_matrix(self.A))
        object.__setattr__(self, "b", canonical_vector("b", self.b, self.n))
        if self.x_true is not None:
            object.__setattr__(self, "x_true", canonical_vector("x_true", self.x_true, self.n))
        object.__setattr__(self, "meta", dict(self.meta))

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays come out of a pickle writeable; the constructor freezes them again.
        return LinearSystem, (self.A, self.b, self.x_true, self.name, self.meta)

    @classmethod
    def from_solution(
        cls, A: Matrix, x_true: Vector, *, name: str = "", meta: Mapping[str, Any] | None = None
    ) -> LinearSystem:
        """The system whose solution is `x_true`: ``b = fl(A x_true)``.

        b is one product in float64 arithmetic with the canonical A (BLAS for a dense A,
        SciPy's row by row loop for a sparse one), without extra precision. Its rounding
        errors make x_true solve the stored system only up to a relative error of order
        ``kappa(A) * u``, u the unit roundoff of float64.

        Parameters
        ----------
        A : array_like or sparse
        x_true : array_like
        name, meta : str, mapping
            As for `LinearSystem`.

        Examples
        --------
        >>> rw.LinearSystem.from_solution([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0]).b
        array([6., 7.])
        """
        A = square_matrix(A)
        x_true = canonical_vector("x_true", x_true, A.shape[0])
        return cls(A, A @ x_true, x_true, name=name, meta=meta or {})

    @cached_property
    def fingerprint(self) -> str:
        """A 128-bit BLAKE2b hash of the content, as 32 hexadecimal digits.

        It covers the storage kind (dense or sparse: they take different algorithms),
        n, and the values of A, b and x_true as little-endian float64 with -0.0 taken
        as 0.0. It depends neither on the machine, nor on the memory order or sparse
        format the data came in, nor on `name` and `meta`.
        """
        A = self.A
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"roundwise.LinearSystem/1 {self.is_sparse:d} {self.n}".encode())
        if not isinstance(A, np.ndarray):
            digest.update(A.indptr.astype("<i8").tobytes())
            digest.update(A.indices.astype("<i8").tobytes())
        for array in (A if isinstance(A, np.ndarray) else A.data, self.b, self.x_true):
            if array is not None:
                digest.update((array + 0.0).astype("<f8").tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        label = f"{self.name!r}, " if self.name else ""
        kind = "sparse" if self.is_sparse else "dense"
        density = f", density {100 * self.density:.3g} %" if self.is_sparse else ""
        solution = "" if self.x_true is None else ", x_true known"
        return f"LinearSystem({label}{kind} {self.n} x {self.n}{density}{solution})"


def square_matrix(A: Any) -> Matrix:
    """A as a `LinearSystem` has it."""
    A = canonical_matrix(A)
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"A has shape {A.shape}; pass a square matrix")
    return A


def canonical_matrix(A: Any) -> Matrix:
    """A read-only float64 copy: a C-ordered array, or a `csr_array` in canonical form."""
    if not sp.issparse(A):
        A = np.asarray(A)
    _check_dtype("A", A.dtype)
    if A.ndim != 2:
        raise ValueError(f"A has shape {A.shape}; pass a matrix")
    if A.shape[0] == 0:
        raise ValueError("A is empty; pass a system with at least one unknown")
    if not sp.issparse(A):
        return frozen_copy("A", A)
    csr = canonical_csr(A, copy=True)
    csr.eliminate_zeros()
    check_finite("A", csr.data)
    if max(csr.nnz, csr.shape[0]) <= np.iinfo(np.int32).max:  # one index type for the kernels
        csr.indices = csr.indices.astype(np.int32, copy=False)
        csr.indptr = csr.indptr.astype(np.int32, copy=False)
    for part in (csr.data, csr.indices, csr.indptr):
        part.flags.writeable = False
    return csr


def canonical_vector(name: str, values: Any, n: int) -> Vector:
    if sp.issparse(values):
        raise TypeError(f"{name} is sparse; pass {name}.toarray().ravel()")
    vector = np.asarray(values)
    _check_dtype(name, vector.dtype)
    if vector.ndim == 2 and 1 in vector.shape and vector.size == n:
        raise ValueError(f"{name} has shape {vector.shape}; pass a vector: {name}.ravel()")
    if vector.ndim != 1:
        raise ValueError(f"{name} has shape {vector.shape}; pass one vector with {n} entries")
    if vector.size != n:
        raise ValueError(f"{name} has {vector.size} rows, A has {n}; pass {name} with {n} rows")
    return frozen_copy(name, vector)


def _check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    if np.issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"{name} is complex ({dtype}), and a LinearSystem is real: roundwise.solve(A, b) takes "
            f"complex ones, studies do not; pass {name}.real if that is meant"
        )
    if not np.can_cast(dtype, np.float64):
        raise TypeError(
            f"{name} has dtype {dtype}, which float64 cannot hold; "
            f"pass {name}.astype(numpy.float64) if that is meant"
        )


def check_finite(name: str, values: NDArray[np.float64]) -> None:
    """Refuse NaN and infinity."""
    if bad := np.count_nonzero(~np.isfinite(values)):
        raise ValueError(f"{name} has {bad} NaN or infinite entries; replace or remove them first")


def frozen_copy(name: str, values: Any) -> NDArray[np.float64]:
    """A C-ordered copy in float64 that cannot be written to."""
    copy = np.array(values, dtype=np.float64, order="C", copy=True)
    check_finite(name, copy)
    copy.flags.writeable = False
    return copy
