"""Prepare: the first of the four steps of a solve. From A and what is asked to a `System`.

A is checked, brought into a form that kernels take (float64, contiguous, canonical CSR; the real
form of a complex matrix) and, where its entries are far from 1, scaled by powers of two. Bad input
is refused here, before any work, with an error that names the fix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from roundwise._csr import canonical_csr, checked_sparse
from roundwise._forking import cached_property
from roundwise.algorithms.scaling import NOT_FINITE, ScaledMatrix, is_moderate, moderate
from roundwise.backends import Backend, NativeBackend
from roundwise.backends.arrays import is_sparse
from roundwise.backends.native.structured import Found
from roundwise.backends.real_form import (
    OVER_ROOT_2,
    RealForm,
    SparseRealForm,
    compressed_block,
    expanded,
    expanded_block,
)
from roundwise.features.probe import cholesky_from
from roundwise.formats import FP32, FP64, FP64X2
from roundwise.policies.neighbours import ALWAYS_SMALL
from roundwise.solver.express_structured import TOLD, UNKNOWN
from roundwise.solver.inputs import (
    check_complex,
    check_dtype,
    check_shape,
    dense_array,
    float64_form,
    given_array,
    is_complex,
    zeros_of_shape,
)
from roundwise.solver.memory_forecast import memory_in_bytes
from roundwise.solver.places import Place
from roundwise.solver.policy_argument import DEFAULT, Asker, Start, at_least, parse_policy
from roundwise.solver.structures import checked_name, named_part
from roundwise.solver.system import ComplexSystem, ExpandedSystem, System

Accuracy = Literal["backward", "forward"]
BACKEND = NativeBackend()


@cache
def backend_for(sparse_on: str) -> NativeBackend:
    """The processor's backend, with the engines for sparse matrices that are asked for."""
    return BACKEND if sparse_on == "cpu" else NativeBackend(sparse_on=sparse_on)


@dataclass(frozen=True)
class Options:
    """What a caller asks for, checked; `roundwise.solve` says what each means."""

    tol: float | None = None
    structure: str | None = None  # SciPy's long name
    accuracy: Accuracy = "backward"
    lower: bool = False
    transposed: bool = False
    memory: float | None = None  # bytes that may be taken beside A; None: what is free
    sparse_on: str = "cpu"  # which engines factorize a sparse A: `NativeBackend.sparse_on`

    @classmethod
    def checked(
        cls,
        tol: Any,
        assume_a: Any,
        accuracy: Any,
        lower: bool = False,
        transposed: bool = False,
        memory: Any = None,
    ) -> Options:
        if accuracy not in ("backward", "forward"):
            raise ValueError(f"accuracy = {accuracy!r}; choose 'backward' or 'forward'")
        structure = None if assume_a is None else checked_name(assume_a)
        room = None if memory is None else memory_in_bytes(memory)
        return cls(checked_tolerance(tol), structure, accuracy, lower, transposed, room)

    @property
    def forward(self) -> bool:
        """Whether x itself is to be right to a few units in the last place."""
        return self.accuracy == "forward"

    @property
    def definite(self) -> bool | None:
        """Whether A is said to be positive definite, or not to be looked at; None if unsaid."""
        return {"positive definite": True, "general": False}.get(self.structure or "")

    @property
    def rest(self) -> Options:
        """What is left to say of the matrix that `meant` has returned."""
        said = self.structure if self.definite is not None else None
        return replace(
            PLAIN,
            tol=self.tol,
            structure=said,
            accuracy=self.accuracy,
            memory=self.memory,
            sparse_on=self.sparse_on,
        )

    def meant(self, A: Any) -> Any:
        """The matrix to solve with: the part of A that is meant, transposed if so asked."""
        if self.structure not in (None, "general"):
            A = named_part(A, str(self.structure), self.lower)
        if self.transposed and not is_sparse(A):
            A = given_array("A", A)
            return np.swapaxes(A, -1, -2) if A.ndim > 1 else A
        return checked_sparse(A, "A").T if self.transposed else A


PLAIN = Options()

AT_ONCE = "FP64 at once: for so small a system, deciding takes longer than lower precision gains."
"""Why a small system is solved without a decision."""


class Wanted(NamedTuple):
    """What an express call is to do, besides what shapes and types say."""

    tol: float | None = None
    factor: str = FP64.name  # the format of the factors
    forward: bool = False  # whether x itself is to be right to the last place
    zeros: Found | None = None
    """What is known of a dense A's zeros, `UNKNOWN` if they are to be looked for; with None bands
    and triangles are left to the policy."""
    transposed: bool = False  # whether the call is to read the transpose: of a sparse A
    asker: Asker = DEFAULT
    small: float = ALWAYS_SMALL  # dense systems with fewer unknowns are taken without a question
    most: float = math.inf  # others only with fewer than that
    reason: str = AT_ONCE

    @property
    def is_low(self) -> bool:
        return self.factor != FP64.name

    def takes(self, size: float) -> bool:
        """Whether a dense system with so many unknowns is solved by LU at once."""
        return size < self.small or size < min(self.most, self.asker.express_below)


class Asked:
    """A policy and options, checked, and what they ask of express calls."""

    def __init__(self, asker: Asker, options: Options) -> None:
        self.asker, self.options = asker, options

    @cached_property
    def dense(self) -> Wanted:
        """What is asked of a dense system, or of each in a stack."""
        asker, options = self.asker, self.options
        is_start = isinstance(asker, Start)
        zeros: Found | None = TOLD.get(options.structure or "", UNKNOWN)
        if options.definite is not None or not asker.looks_for_structure:
            zeros = None  # not to be looked for, or left to the policy
        most: float = math.inf
        if options.definite:  # and where the caller names a format, it is meant for Cholesky
            most = 0 if is_start else cholesky_from()
        if options.memory is not None:  # nothing is taken without a forecast
            most, zeros = 0, None
        return Wanted(
            options.tol,
            asker.actions[0][0].name if isinstance(asker, Start) else FP64.name,
            options.forward,
            zeros.transpose if zeros is not None and options.transposed else zeros,
            asker=asker,
            small=ALWAYS_SMALL if asker is DEFAULT and options.memory is None else 0,
            most=most,
            reason=self._reason(),
        )

    @cached_property
    def sparse(self) -> Wanted | None:
        """What is asked of a sparse one; None if the policy decides, or its action does.

        Formats that sparse factors do not have are raised.
        """
        asker, options, factor = self.asker, self.options, FP64
        if options.memory is not None:
            return None
        if options.sparse_on != "cpu" or not (isinstance(asker, Start) or asker.express_below):
            return None
        if isinstance(asker, Start):
            first, residual = asker.actions[0], FP64X2 if options.forward else FP64
            if first.method or first[1:3] != (FP64, FP64) or first[3] not in (FP64, residual):
                return None
            if options.definite:
                return None  # the format is meant for Cholesky
            factor = at_least(first[0], (FP32, FP64))
        small = math.inf if factor != FP64 else self.dense.small
        return Wanted(
            *(options.tol, factor.name, options.forward, None, options.transposed, asker, small),
            reason=self._reason(factor.name),
        )

    def _reason(self, factor: str = "") -> str:
        asker = self.asker
        if not isinstance(asker, Start):
            return AT_ONCE
        reason = f"You asked for {asker.text} first."
        if factor and asker.actions[0][0].name != factor:
            reason += f" lu does not run in it here: {factor} instead."
        return reason

    def takes(self, A: Any) -> bool:
        """Whether an express call may take a dense A as it is given.

        Otherwise only a part of it is meant, which the call would not know of.
        """
        structure = self.options.structure
        if structure in (None, "general"):
            return True
        return (
            structure in TOLD
            and self.asker.looks_for_structure
            and A.ndim == 2
            and not (self.options.forward)
        )

    @cached_property
    def rest(self) -> Asked:
        """What is left to ask once `Options.meant` has returned the matrix."""
        return Asked(self.asker, self.options.rest)


def asked_of(policy: Any, *options: Any) -> Asked:
    """What `solve` is asked for; `options` are the arguments of `Options.checked`."""
    try:
        return _known_words(policy, *options)
    except TypeError:  # not in words, or some option cannot be hashed: it is refused, with its name
        return _asked_of(policy, *options)


def _asked_of(policy: Any, *options: Any) -> Asked:
    checked = Options.checked(*options)
    return Asked(parse_policy(policy), checked)


@lru_cache(maxsize=256)
def _known_words(policy: Any, *options: Any) -> Asked:
    if type(policy) is not str or policy.endswith(".json"):  # what a file says may change
        raise TypeError
    return _asked_of(policy, *options)


def checked_tolerance(tol: Any) -> float | None:
    """The tolerance as a float; None for the default."""
    if tol is None:
        return None
    if not isinstance(tol, Real):
        raise TypeError(f"tol is of type {type(tol).__name__}; pass a number, or None")
    try:
        tolerance = float(tol)
    except OverflowError:  # of an integer that float64 cannot hold
        tolerance = math.inf
    if not 0 < tolerance < 1:
        raise ValueError(f"tol = {tolerance:g}; choose 0 < tol < 1, or None for sqrt(n) u")
    return tolerance


def prepare(
    A: Any,
    columns: int = 1,
    place: Place | None = None,
    *,
    copy: bool = False,
    round_too: bool = False,
    backend: Backend = BACKEND,
) -> System:
    """A, ready to be solved with for so many columns, or an error that names the fix.

    The system refers to A's own memory, unless `copy` is set or the numbers must be converted,
    scaled or made contiguous. Then a dense A is copied once: a converted copy is scaled in place.
    A sparse A is factorized by the engines of `backend`. With `round_too`, the pass that finds A's
    size also writes a copy in FP32, if it can.
    """
    if place is not None:
        return _on_device(A, columns, place, copy)
    sparse_A = is_sparse(A)
    if is_complex(array := A if sparse_A else dense_array("A", A, real=False)):
        return _complex_system(array, columns, copy, backend)
    check_shape(array.shape)
    given, form = float64_matrix(array, copy=copy)
    rounded: list[Any] = []
    if round_too:
        sizes, copied = BACKEND.sizes_and_rounded(form)
        rounded = [] if copied is None else [copied]
    else:
        sizes = BACKEND.sizes(form)
    is_ours = not (sparse_A or form is A or np.may_share_memory(form, A))
    made = _moderate(form, sizes, own=is_ours)
    if copy and made.A is form and not (sparse_A or is_ours):
        made = replace(made, A=form.copy(order="K"))
    return _system(made, given.dtype, columns, backend, rounded=rounded if made.A is form else [])


def float64_matrix(A: Any, *, copy: bool = False) -> tuple[Any, Any]:
    """A real A in its own type, and as float64: contiguous, or in canonical compressed rows.

    A dense one is not copied unless it must be; a sparse one is, with `copy`.
    """
    if not is_sparse(A):
        given = dense_array("A", A)
        return given, float64_form(given)
    check_dtype("A", A.dtype)
    rows = canonical_csr(A, _single_or(A, np.float64), copy=copy)
    return rows, rows.astype(np.float64, copy=False)


def _single_or(A: Any, double: Any) -> Any:
    """The type of A's numbers if that is single precision, else the double one."""
    return A.dtype if A.dtype in (np.float32, np.complex64) else double


def _moderate(form: Any, sizes: tuple[float, float], own: bool) -> ScaledMatrix:
    check_finite(sizes)
    return moderate(form, *sizes, own=own)


def check_finite(sizes: tuple[float, float]) -> None:
    """Refuse an A whose largest entry is not finite."""
    if not math.isfinite(sizes[1]):
        raise ValueError(f"A {NOT_FINITE}")


def _system(
    made: ScaledMatrix, dtype: Any, columns: int, backend: Backend, **others: Any
) -> System:
    scaled = (made.A, made.norm, made.rows, made.columns, made.is_exact)
    single = np.float32 if dtype == np.float32 else np.float64
    return System(
        *scaled, dtype=single, b=zeros_of_shape(made.n, columns), backend=backend, **others
    )


def _on_device(A: Any, columns: int, place: Place, copy: bool) -> System:
    """An array of a GPU, which stays there."""
    backend = place.backend
    check_complex("A", A.dtype)
    check_shape(A.shape)
    if A.dtype.kind == "c":
        form = expanded_block(A, backend.xp)
        made = _moderate(form, backend.sizes(form), own=True)
        scaled = (made.A, made.norm * OVER_ROOT_2, made.rows, made.columns, made.is_exact)
        single = np.float32 if A.dtype == np.complex64 else np.float64
        b = zeros_of_shape(made.n, columns)
        return ExpandedSystem(*scaled, dtype=single, b=b, backend=backend, place=place)
    contiguous = A.flags.c_contiguous or A.flags.f_contiguous
    form = A
    if A.dtype != np.float64 or not contiguous:
        form = backend.xp.array(A, dtype=np.float64, order="K" if contiguous else "C")
    made = _moderate(form, backend.sizes(form), own=form is not A)
    if copy and made.A is A:
        made = replace(made, A=A.copy(order="K"))
    return _system(made, A.dtype, columns, backend, place=place)


def _complex_system(A: Any, columns: int, copy: bool, backend: Backend) -> ComplexSystem:
    """A in its real form; it refers to A's numbers where these are a C-ordered complex128 array."""
    if sparse.issparse(A):
        check_complex("A", A.dtype)
        check_shape(A.shape)
        given = canonical_csr(A, _single_or(A, np.complex128))
        made = _real_form(expanded(given.astype(np.complex128, copy=False)))
    else:
        given = dense_array("A", A, real=False)
        check_shape(given.shape)
        values = np.require(given, np.complex128, ["C", "A"])
        if copy and np.may_share_memory(values, given):
            values = values.copy()
        made = _real_form(RealForm(values))
    scaled = (made.A, made.norm * OVER_ROOT_2, made.rows, made.columns, made.is_exact)
    single = given.dtype in (np.complex64, np.float32)
    dtype, b = np.float32 if single else np.float64, zeros_of_shape(made.n, columns)
    return ComplexSystem(*scaled, dtype=dtype, b=b, backend=backend)


def _real_form(form: Any) -> ScaledMatrix:
    sizes = BACKEND.sizes(form)
    check_finite(sizes)
    if is_moderate(sizes[1]):
        return ScaledMatrix(form, sizes[0])
    if not isinstance(form, RealForm):
        made = moderate(form, *sizes)
        return replace(made, A=SparseRealForm(made.A))
    made = moderate(np.asarray(form), *sizes, own=True)
    return replace(made, A=RealForm(compressed_block(made.A)))
