"""`System`: what a solve works on. A, scaled to moderate size, where and in which type it is.

`prepare` makes it. The system says what a policy sees of A (`features`), and how right-hand sides
come in and answers go out (`taken`): as columns of float64, or, for complex numbers, as their real
and imaginary parts; on the processor, or on the GPU that holds A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._csr import dense_from_sparse
from roundwise._forking import cached_property
from roundwise.actions import Action
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.algorithms.scaling import TINY, ScaledMatrix, given_norm
from roundwise.backends import Backend
from roundwise.backends.arrays import array_module, is_sparse, on_host
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.real_form import (
    OVER_ROOT_2,
    RealForm,
    SparseRealForm,
    complex_columns,
    compressed,
    real_columns,
)
from roundwise.features import PROBE
from roundwise.features.definitions import feature_numbers
from roundwise.features.probe import GROUPS, device_row_features
from roundwise.features.probe import probe as probe_of
from roundwise.formats import FP32, FP64
from roundwise.solver.inputs import check_complex, given_array, is_complex, is_transposed
from roundwise.solver.memory_forecast import Room
from roundwise.solver.places import Place, memory_needed, returned

Array = NDArray[np.float64]

AS_LARGE = 4.0 ** (1 / 3)
"""A complex system of n unknowns takes as many flops as a real one of so many times n: four times
those of n. (It moves 2 n^2 numbers instead of 2.5 n^2.)"""


@dataclass(frozen=True)
class Taken:
    """Right-hand sides as a solve takes them, and the way back for its answers."""

    columns: Any  # real: a vector or columns
    back: Callable[[Any], Any]  # x of these columns, as the caller has b
    share: float = 1.0  # of the tolerance, that each column must keep
    transposed: bool = False  # whether they are those of A'


@dataclass(frozen=True, eq=False, kw_only=True)
class System(ScaledMatrix):
    """A real A, scaled to moderate size, and what is to be solved with it."""

    dtype: Any  # float32 or float64: of the numbers of A as it was given
    b: Array  # stands for the right-hand sides: only its shape is looked at
    backend: Backend
    place: Place | None = None  # the GPU that holds A; None for the processor
    looked: Mapping[str, float] | None = None  # what rows of an A on a GPU were found to tell
    orders: Orders | None = None  # of a sparse A's pattern, as far as they were found before
    room: Room | None = None  # what fits into memory; None on a GPU, and where all does
    rounded: list[Any] = field(default_factory=list)
    """At most one copy of A in FP32, for the first factorization, which may overwrite it."""

    @property
    def order(self) -> int:
        """The number of equations, as the caller counts them."""
        return self.n

    @property
    def density(self) -> float:
        nonzeros = self.A.nnz if self.is_sparse else np.count_nonzero(self.A)
        return float(nonzeros) / self.n**2

    @property
    def profiled(self) -> Any:
        """The matrix whose features and structure policies see."""
        return self

    def entered(self, *arrays: Any) -> AbstractContextManager[None]:
        """Compute where A is."""
        return nullcontext() if self.place is None else self.place.entered(*arrays)

    def tolerance(self, given: float | None, dtype: Any) -> float | None:
        """The backward error to accept of answers of a type; None for that of n unknowns."""
        return given

    def features(
        self, names: Collection[str], known: Mapping[str, float], probe: bool = True
    ) -> dict[str, float]:
        """The features of these names that are not known yet, computed where A is.

        Without `probe` no entry of A is read: rows that nobody looked at count as hard.
        """
        rows = unread(self.n)
        if self.place is None:
            hard = {} if probe else {name: rows[name] for name in names if name in rows}
            missing = [name for name in names if name not in known and name not in hard]
            if all(name in GROUPS for name in missing):
                return probe_of(self.profiled, missing) | hard
            return feature_numbers(self.profiled, missing, "native") | hard
        found = {
            "n": float(self.n),
            "entries": float(self.n) ** 2,
            "sparse": 0.0,
            "columns": float(self.b.shape[1]),
            "norm_inf": self.norm,
        }
        wanted = set(names).difference(found, known)
        if lacking := sorted(wanted.difference(rows)):
            computed = sorted({*found, *known, *rows})
            raise ValueError(
                f"the policy sees {', '.join(lacking)}, which is not computed on a GPU; train it "
                f"with a Context of {', '.join(computed)}"
            )
        if wanted and probe:
            rows = device_row_features(self.A) if self.looked is None else dict(self.looked)
        return found | rows

    def fits(self, action: Action) -> bool:
        """Whether the memory that is free suffices for the factors of an action.

        On the processor that is known once somebody has asked for the `room`.
        """
        if self.room is not None:
            return self.room.fits(action)
        return self.place is None or memory_needed(action, self.n) <= self.memory_free

    @cached_property
    def memory_free(self) -> float:
        """Bytes for factors."""
        return math.inf if self.place is None else self.place.memory_free

    def taken(self, b: Any, trans: Any = "N") -> Taken:
        """b as columns, or an error that names the fix; `trans` as `Factorization.solve` has it."""
        transposed = is_transposed(trans)
        given, back = self._taken_there(b)
        if is_complex(given):
            shape = np.shape(given)
            return Taken(
                split_parts(given), lambda x: back(joined_parts(x, shape)), OVER_ROOT_2, transposed
            )
        return Taken(given, back, 1.0, transposed)

    def _taken_there(self, b: Any) -> tuple[Any, Callable[[Any], Any]]:
        """b where A is, and what brings answers back."""
        if (place := self.place) is not None:
            return place.array("b", b), lambda x: place.returned(x, b)
        if type(b) is np.ndarray:
            return b, _same
        return b, lambda x: returned(x, self.profiled.A, b)


@dataclass(frozen=True, eq=False, kw_only=True)
class ComplexSystem(System):
    """A complex A in its real form (`roundwise.backends.real_form`), scaled.

    n counts real and imaginary parts. The norms that the gate compares are those of moduli:
    ``||x|| = max |x_j|`` and ``||A|| = max_i sum_j |a_ij|``. The latter is taken as ``max_i sum_j
    (|Re a_ij| + |Im a_ij|)`` over the square root of 2, which is never larger: so the gate is never
    more lenient than with ``||A||``.
    """

    def __post_init__(self) -> None:
        assert self.is_complex  # a `csr_array` of the same numbers would be taken for a real matrix

    @property
    def order(self) -> int:
        return self.n // 2

    @property
    def has_plain_norms(self) -> bool:
        return False  # they are of moduli

    def transposed(self, backend: Backend) -> Self:
        """The conjugate transpose, scaled as this one is."""
        A = SparseRealForm(self.A.T.tocsr()) if self.is_sparse else self.A.T
        if self.columns is None:  # rows are all scaled alike, or not at all
            return replace(self, A=A, norm=backend.sizes(A)[0] * OVER_ROOT_2)
        form = np.asarray(A) if isinstance(A, RealForm) else A
        real = ScaledMatrix(form, 0.0, self.columns, self.rows)
        norm = given_norm(real) * OVER_ROOT_2
        return replace(self, A=A, norm=norm, rows=self.columns, columns=self.rows)

    def residual_norms(self, R: Array) -> Array:
        return moduli(R, self._row_weights)

    def solution_norms(self, X: Array) -> Array:
        norms = moduli(X, self._column_weights)
        return norms if self._row_weights is None else np.where(moduli(X) < TINY, 0.0, norms)

    def norms_of_solutions(self, *blocks: Array) -> list[Array]:
        return [self.solution_norms(X) for X in blocks]

    @cached_property
    def profiled(self) -> System:
        """The complex matrix itself if it is dense; if sparse, the real matrix of its moduli.

        On the moduli orders, counts and pivots depend alike. Those of the diagonal are negative, as
        no Cholesky factorization is to be tried.
        """
        A = self.A.values if not self.is_sparse else _signed_moduli(compressed(self.A))
        facts = {"dtype": self.dtype, "b": self.b, "rows": self.rows, "columns": self.columns}
        return ProfiledComplex(A, self.norm, backend=self.backend, **facts)

    def features(
        self, names: Collection[str], known: Mapping[str, float], probe: bool = True
    ) -> dict[str, float]:
        if unknown := set(names).difference(PROBE):
            raise TypeError(
                f"the policy asks for {', '.join(sorted(unknown))}, which real matrices alone have "
                "here; pass policy='default', or a Tuner that was fitted with PROBE_CONTEXT"
            )
        return super().features(names, known, probe)

    def tolerance(self, given: float | None, dtype: Any) -> float | None:
        if given is not None:
            return given
        return default_tolerance(self.order, FP32 if dtype == np.float32 else FP64)

    def taken(self, b: Any, trans: Any = "N") -> Taken:
        """b in real form. "T" or 1 stands for the transpose, "H" or 2 for the conjugate one."""
        given, there = self._taken_there(b)
        columns, transposed = real_right_hand_sides(given, self.order), is_transposed(trans)
        plain = transposed and trans in ("T", 1)  # A' x = b says that A* conj(x) = conj(b)
        if plain:
            columns = real_columns(np.conj(complex_columns(columns)))

        def back(x: NDArray[Any]) -> Any:
            z = complex_columns(x)
            return there(np.conj(z) if plain else z)

        return Taken(columns, back, 1.0, transposed)


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpandedSystem(ComplexSystem):
    """A complex A on a GPU, as the real matrix of twice the size that its real form is.

    For backends that is a real matrix: every method and format for these serves, and with the
    formats of a GPU's units twice as many operations take less time than complex ones in FP64.
    """

    is_complex = True

    @property
    def kind(self) -> tuple[bool, bool]:
        return False, False

    @property
    def profiled(self) -> Any:
        return self

    def features(
        self, names: Collection[str], known: Mapping[str, float], probe: bool = True
    ) -> dict[str, float]:
        return System.features(self, names, known, probe)


@dataclass(frozen=True, eq=False, kw_only=True)
class ProfiledComplex(System):
    """A complex matrix as features see it: n counts by work."""

    @cached_property
    def n(self) -> int:
        n = int(self.A.shape[0])
        return n if self.is_sparse else round(AS_LARGE * n)


def unread(n: int) -> dict[str, float]:
    """The features of rows that nobody has looked at: they count as hard."""
    return {"diagonal_share": 0.0, "coherence": float(n), "remainder": 0.0}


def _same(x: Any) -> Any:
    return x


def _signed_moduli(A: sparse.csr_array) -> sparse.csr_array:
    """The moduli of a sparse matrix's entries, those of the diagonal negative."""
    sizes = np.abs(A.data)
    sizes[np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)) == A.indices] *= -1.0
    real = sparse.csr_array((sizes, A.indices, A.indptr), shape=A.shape)
    real.has_canonical_format = True
    return real


def moduli(X: Any, weights: Any = None) -> Array:
    """The largest modulus in each column of complex numbers, each entry weighted."""
    if not isinstance(X, np.ndarray):
        found = np.hypot(X[0::2], X[1::2])  # both parts of a number weigh the same
        found = found if weights is None else found * weights[0::2, None]
        return on_host(found.max(axis=0)) if found.size else np.zeros(X.shape[1])
    sizes = np.empty(X.shape[1])
    _kernels.native_max_moduli(np.asfortranarray(X, dtype=np.float64), weights, sizes)
    return sizes


def real_right_hand_sides(b: Any, n: int) -> Any:
    """Right-hand sides of n complex equations, in real form; float32 if they were single."""
    array = _columns_of("b", b)
    check_complex("b", array.dtype)
    if len(array) != n:
        raise ValueError(f"b has {len(array)} rows, A has {n}; pass b with {n} rows")
    single = array.dtype in (np.complex64, np.float32)
    return real_columns(array.astype(np.complex64 if single else np.complex128, copy=False))


def split_parts(b: Any) -> Any:
    """Complex right-hand sides as real columns: all real parts, then all imaginary ones.

    If the backward errors of both are at most ``tol / sqrt(2)``, that of the complex x, with moduli
    in the norms, is at most tol (docs/accuracy.md); errors of x grow as much.
    """
    array = _columns_of("b", b)
    columns = array[:, None] if array.ndim == 1 else array
    return array_module(columns).concatenate([columns.real, columns.imag], axis=1)


def joined_parts(X: Any, shape: tuple[int, ...]) -> Any:
    """The complex answers of this shape, of which `split_parts` made the right-hand sides."""
    half = X.shape[1] // 2
    dtype = np.result_type(X.dtype, np.complex64)
    Z = array_module(X).empty((len(X), half), dtype=dtype, order="F")
    Z.real, Z.imag = X[:, :half], X[:, half:]
    return Z[:, 0] if len(shape) == 1 else Z


def _columns_of(name: str, b: Any) -> Any:
    array = given_array(name, dense_from_sparse(b, name) if is_sparse(b) else b)
    if array.ndim not in (1, 2):
        raise ValueError(f"b has {array.ndim} dimensions; pass a vector or a matrix of columns")
    return array
