"""The functions of NumPy and SciPy that Roundwise can stand for, and where that pays.

A `Stand` says of one function: what of a call is plain (arrays of NumPy's own types, nothing that
only the original understands), how large it is, from which size on ours is expected to be faster,
and what ours does. What ours refuses, by an error or a warning, the original function is asked.

`solve` and `lstsq` return arrays. Where the original returns factors, ours returns an object that
the matching function knows, and that becomes the original's factors when anything else is done
with it: unpacked, indexed, asked for ``L``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np

import roundwise as rw  # whose functions are imported when the first call is large enough
from roundwise._inside import INSIDE
from roundwise.integrations.calls import Ledger, Place

REFUSED = (ArithmeticError, MemoryError, TypeError, ValueError, Warning)
"""What ours raises where the original is to be asked; a `SolveFailed` is a `ValueError`."""

PLAIN = tuple(map(np.dtype, (np.float64, np.float32, np.complex128, np.complex64)))

SOLVE_FROM, COMPLEX_FROM = 50, 200
"""From so many unknowns on ours is faster than `numpy.linalg.solve`: a price, as all that follow
(two Zen 5 cores, ``python benchmarks/bench_replacing.py``). `scipy.linalg.solve` takes two to four
times as long as ours from one unknown on."""

FACTOR_FROM, CHOLESKY_FROM = 500, 1000
"""For one factorization and few solves."""

SOLVES_PAID = 8
"""So many solves with dense factors take what the factorization has gained."""

LSTSQ_FROM = 2000
"""Entries of A."""

SPSOLVE_FROM, SPLU_FROM = 3000, 5000
"""Stored entries of A."""

LOADED = "roundwise.solver.front_door"
"""It is loaded when the first call is answered by ours, with all that it needs."""

LOADING, MOST = 0.3, 0.05
"""Seconds that loading takes (two Zen 5 cores; the table of ``python -m roundwise run --check``
tells them). It is loaded when originals have taken as long in calls that ours could answer, as
there will be more of them, and when it is at most this share of the time that the program has run:
one that solves nothing more has lost no more than that."""

SMALL, EVERY = SOLVE_FROM**2, 16
"""Of calls with arrays of fewer numbers, which ours cannot gain in, one in so many is timed: that
takes about as long as the call."""


@dataclass(frozen=True)
class Stand:
    """What stands for one function."""

    home: str
    name: str
    size: Callable[..., tuple[int, ...] | None]  # None if ours is not to be asked
    ours: Callable[..., Any] | None  # with the place, the original function, and the arguments

    def function(self, original: Any, ledger: Ledger) -> Any:
        """What a program calls instead of the original."""
        name = f"{self.home}.{self.name}"
        quick = 0

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal quick
            if INSIDE.replaced:
                return original(*args, **kwargs)
            try:
                size = self.size(*args, **kwargs)
            except TypeError:  # arguments that are none of the function's: it says so
                return original(*args, **kwargs)
            calls = 1
            if size is None and args and getattr(args[0], "size", 0) < SMALL:
                quick += 1
                if quick % EVERY:
                    return original(*args, **kwargs)
                calls = EVERY
            INSIDE.replaced = True
            try:
                place = ledger.place(sys._getframe(1), name)
                waits = not (
                    LOADED in sys.modules
                    or ledger.check
                    or ledger.is_worth_loading(LOADING, LOADING / MOST)
                )
                if size is None or place.avoided or waits:
                    start = perf_counter()
                    try:
                        return original(*args, **kwargs)
                    finally:
                        seconds = perf_counter() - start
                        with ledger.lock:
                            place.count(_shape(args), seconds, calls)
                            ledger.waited += seconds if size is not None else 0.0
                return self._answer(original, ledger, place, size, args, kwargs)
            finally:
                INSIDE.replaced = False

        call.__name__ = call.__qualname__ = self.name
        call.__doc__, call.__module__ = original.__doc__, self.home
        call.__wrapped__ = original  # type: ignore[attr-defined]
        return call

    def _answer(
        self,
        original: Any,
        ledger: Ledger,
        place: Place,
        size: tuple[int, ...],
        args: Any,
        kwargs: Any,
    ) -> Any:
        assert self.ours is not None
        if LOADED not in sys.modules:
            start = perf_counter()
            import_module(LOADED)
            ledger.loading += perf_counter() - start
        start = perf_counter()
        try:
            answer = self.ours(place, original, *args, **kwargs)
        except REFUSED:
            tried = perf_counter() - start
            try:
                return original(*args, **kwargs)
            finally:
                with ledger.lock:
                    place.count(size, perf_counter() - start)
                    place.refuse(tried)
        seconds = perf_counter() - start
        with ledger.lock:
            place.count(size, seconds)
            place.ours += 1
            place.seconds_ours += seconds
            compares = ledger.may_compare(place, seconds)
        if compares:
            kept = {name: value for name, value in kwargs.items() if "overwrite" not in name}
            start = perf_counter()
            theirs = original(*args, **kept)
            with ledger.lock:
                taken = perf_counter() - start
                place.ratios.append(taken / seconds)
                ledger.spent += taken
                if ledger.check and isinstance(answer, np.ndarray | AsTuple):
                    place.difference = max(place.difference, _difference(answer, theirs))
        return answer


def _difference(ours: Any, theirs: Any) -> float:
    """The largest one of two answers, relative to the largest number of theirs."""
    if isinstance(ours, AsTuple):
        ours, theirs = ours.first, theirs[0]
        if ours is None:
            return 0.0
    scale = float(np.max(np.abs(theirs), initial=0.0))
    gap = float(np.max(np.abs(ours - theirs), initial=0.0))
    return gap / scale if scale else gap


def _shape(args: Any) -> tuple[int, ...]:
    return tuple(getattr(args[0], "shape", ())) if args else ()


def _fits(A: Any, b: Any) -> bool:
    """Whether A is a plain square matrix, and b plain columns of its type."""
    return (
        type(A) is type(b) is np.ndarray
        and A.dtype == b.dtype
        and A.dtype in PLAIN
        and A.ndim == 2
        and b.ndim in (1, 2)
        and A.shape[0] == A.shape[1] == b.shape[0]
        and A.size > 0
        and b.size > 0
        and 2 * b.size <= max(A.size, 2 * len(A))
    )


def _numpy_size(a: Any, b: Any) -> tuple[int, ...] | None:
    if type(a) is not np.ndarray or len(a) < SOLVE_FROM or not _fits(a, b):
        return None
    return None if a.dtype.kind == "c" and len(a) < COMPLEX_FROM else a.shape


def _numpy_solve(place: Place, original: Any, a: Any, b: Any) -> Any:
    return rw.solve(a, b)


def _scipy_size(
    a: Any,
    b: Any,
    lower: Any = False,
    overwrite_a: Any = False,
    overwrite_b: Any = False,
    check_finite: Any = True,
    assume_a: Any = None,
    transposed: Any = False,
) -> tuple[int, ...] | None:
    if not _fits(a, b) or (transposed and a.dtype.kind == "c"):
        return None
    return a.shape if assume_a is None or type(assume_a) is str else None


def _scipy_solve(
    place: Place,
    original: Any,
    a: Any,
    b: Any,
    lower: Any = False,
    overwrite_a: Any = False,
    overwrite_b: Any = False,
    check_finite: Any = True,
    assume_a: Any = None,
    transposed: Any = False,
) -> Any:
    given = {"lower": bool(lower), "assume_a": assume_a, "transposed": bool(transposed)}
    return rw.solve(a, b, overwrite_b=bool(overwrite_b), **given)


class AsTuple(tuple[Any, ...]):
    """A tuple as the original function returns it, whose parts are found when they are read.

    `first` is its first part, if ours has found that; `parts` finds all.
    """

    first: Any
    factors: Any
    _parts: Callable[[], tuple[Any, ...]] | None
    _place: Place

    @classmethod
    def of(
        cls,
        length: int,
        place: Place,
        parts: Callable[[], tuple[Any, ...]],
        first: Any = None,
        factors: Any = None,
    ) -> AsTuple:
        made = cls((None,) * length)
        made._place, made._parts, made.first, made.factors = place, parts, first, factors
        made._found, made.solves = None, 0
        return made

    _found: tuple[Any, ...] | None
    solves: int

    def all(self) -> tuple[Any, ...]:
        """The original function's."""
        if self._found is None:
            assert self._parts is not None
            self._place.avoided = "its parts are read"
            before, INSIDE.replaced = INSIDE.replaced, True
            try:
                self._found = tuple(self._parts())
            finally:
                INSIDE.replaced = before
            self._parts = None
        return self._found

    def __getitem__(self, index: Any) -> Any:
        if self.first is not None and isinstance(index, int) and index in (0, -len(self)):
            return self.first
        return self.all()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.all())

    def __repr__(self) -> str:
        return repr(self.all())

    def __eq__(self, other: object) -> bool:
        return self.all() == other

    __hash__ = tuple.__hash__

    def __add__(self, other: Any) -> Any:
        return self.all() + other

    def __reduce__(self) -> Any:
        return tuple, (self.all(),)


def _lstsq_size(a: Any, b: Any, rcond: Any = None) -> tuple[int, ...] | None:
    plain = (
        type(a) is type(b) is np.ndarray
        and a.dtype == b.dtype == np.float64
        and a.ndim == 2
        and b.ndim in (1, 2)
        and len(a) == len(b)
        and b.size > 0
        and a.size >= LSTSQ_FROM
    )
    return a.shape if plain and (rcond is None or 0 < rcond < 1) else None


def _lstsq(place: Place, original: Any, a: Any, b: Any, rcond: Any = None, **kept: Any) -> Any:
    found = rw.lstsq(a, b, rcond, full_output=True)
    if found.rank < min(a.shape):
        raise ValueError("which singular values count as zero is for the original to say")
    A, B = a.copy(), b.copy()
    name = "rcond" if original.__module__.startswith("numpy") else "cond"
    return AsTuple.of(4, place, lambda: original(A, B, **{name: rcond}), found.x)


def _scipy_lstsq_size(
    a: Any,
    b: Any,
    cond: Any = None,
    overwrite_a: Any = False,
    overwrite_b: Any = False,
    check_finite: Any = True,
    lapack_driver: Any = None,
) -> tuple[int, ...] | None:
    return _lstsq_size(a, b, cond) if lapack_driver is None else None


def _scipy_lstsq(
    place: Place, original: Any, a: Any, b: Any, cond: Any = None, *rest: Any, **others: Any
) -> Any:
    return _lstsq(place, original, a, b, cond)


def _witnessed(F: Any) -> Any:
    """F, once it has solved: so it has factors, and an A that it cannot solve with is refused."""
    F.solve(np.ones(F.shape[0], dtype=F.dtype))
    return F


def _factored(A: Any, assume_a: Any, lower: bool = False) -> Any:
    """Factors of A itself, which nobody else changes."""
    from roundwise.solver.front_door import factor_system
    from roundwise.solver.prepare import asked_of

    asked = asked_of("default", None, assume_a, "backward", lower, False)
    return _witnessed(factor_system(asked, A, copy=False))


def _factor_size(least: int, a: Any) -> tuple[int, ...] | None:
    is_plain = type(a) is np.ndarray and a.dtype in PLAIN and a.ndim == 2
    return a.shape if is_plain and least <= len(a) == a.shape[1] else None


def _lu_factor_size(
    a: Any, overwrite_a: Any = False, check_finite: Any = True
) -> tuple[int, ...] | None:
    return _factor_size(FACTOR_FROM, a)


def _lu_factor(place: Place, original: Any, a: Any, *rest: Any, **others: Any) -> AsTuple:
    A = a.copy()
    return AsTuple.of(2, place, lambda: original(A), factors=_factored(A, "general"))


def _cho_factor_size(
    a: Any, lower: Any = False, overwrite_a: Any = False, check_finite: Any = True
) -> tuple[int, ...] | None:
    return _factor_size(CHOLESKY_FROM, a)


def _cho_factor(place: Place, original: Any, a: Any, lower: Any = False, *_: Any, **k: Any) -> Any:
    A = a.copy()
    F = _factored(A, "positive definite", bool(lower))
    if not F.action.method.startswith("cholesky"):
        raise ValueError("A is not positive definite, or nearly not: for the original to say")
    return AsTuple.of(2, place, lambda: original(A, lower), factors=F)


def _with_factors_size(factors: Any, b: Any, *rest: Any, **others: Any) -> tuple[int, ...] | None:
    if type(factors) is not AsTuple or factors.factors is None or type(b) is not np.ndarray:
        return None
    n = factors.factors.shape[0]
    fits = b.ndim in (1, 2) and b.size > 0 and len(b) == n and b.dtype == factors.factors.dtype
    return (n, n) if fits else None


def _solve_with(factors: AsTuple, b: Any, trans: Any) -> Any:
    F = factors.factors
    assert F is not None
    factors.solves += 1
    if factors.solves > SOLVES_PAID:
        factors._place.avoided = "many solves with the factors"
    return F.solve(b, trans)


def _lu_solve(
    place: Place, original: Any, lu_and_piv: Any, b: Any, trans: Any = 0, *_: Any, **k: Any
) -> Any:
    return _solve_with(lu_and_piv, b, trans)


def _cho_solve(place: Place, original: Any, c_and_lower: Any, b: Any, *_: Any, **k: Any) -> Any:
    return _solve_with(c_and_lower, b, "N")


def _sparse_size(least: int, A: Any) -> tuple[int, ...] | None:
    from scipy import sparse

    plain = sparse.issparse(A) and A.format in ("csc", "csr") and A.ndim == 2 and A.dtype in PLAIN
    if not plain or A.nnz < least or A.shape[0] != A.shape[1]:
        return None
    return A.shape


def _spsolve_size(
    A: Any, b: Any, permc_spec: Any = None, use_umfpack: Any = True
) -> tuple[int, ...] | None:
    fits = type(b) is np.ndarray and (b.ndim == 1 or (b.ndim == 2 and b.shape[1] > 1))
    if not fits or permc_spec is not None or len(b) != A.shape[0] or b.dtype != A.dtype:
        return None
    return _sparse_size(SPSOLVE_FROM, A)


def _spsolve(place: Place, original: Any, A: Any, b: Any, *rest: Any, **others: Any) -> Any:
    return rw.solve(A, b)


class AsSuperLU:
    """What `splu` returns: solves by ours, all else by the original's factors."""

    def __init__(self, place: Place, original: Any, A: Any) -> None:
        self._place, self._make, self._theirs = place, lambda: original(A), None
        self._F = _factored(A, None)
        self.shape, self._dtype = A.shape, A.dtype

    def _original(self) -> Any:
        if self._theirs is None:
            before, INSIDE.replaced = INSIDE.replaced, True
            try:
                self._theirs = self._make()
            finally:
                INSIDE.replaced = before
        return self._theirs

    def solve(self, rhs: Any, trans: Any = "N") -> Any:
        fits = type(rhs) is np.ndarray and rhs.dtype == self._dtype and rhs.ndim in (1, 2)
        if not fits or rhs.shape[0] != self.shape[0] or not rhs.size:
            return self._original().solve(rhs, trans)
        before, INSIDE.replaced = INSIDE.replaced, True
        try:
            return self._F.solve(rhs, trans)
        except REFUSED:
            return self._original().solve(rhs, trans)
        finally:
            INSIDE.replaced = before

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._place.avoided = f"its {name} is read"
        return getattr(self._original(), name)


def _splu_size(A: Any, **others: Any) -> tuple[int, ...] | None:
    if others or getattr(A, "format", "") != "csc":
        return None
    return _sparse_size(SPLU_FROM, A)


def _splu(place: Place, original: Any, A: Any) -> Any:
    return AsSuperLU(place, original, A.copy())


def _factorized(place: Place, original: Any, A: Any) -> Any:
    made = AsSuperLU(place, original, A.copy())
    made._original = lambda: _Solves(original(A))  # type: ignore[method-assign]
    return made.solve


@dataclass
class _Solves:
    """What `factorized` returns, with a name."""

    call: Any

    def solve(self, b: Any, trans: Any = "N") -> Any:
        return self.call(b)


def _never(*args: Any, **kwargs: Any) -> None:
    """For functions that ours is not expected to be faster than; their time is told, too."""


NUMPY, SCIPY, SPARSE = "numpy.linalg", "scipy.linalg", "scipy.sparse.linalg"
STANDS = (
    Stand(NUMPY, "solve", _numpy_size, _numpy_solve),
    Stand(NUMPY, "lstsq", _lstsq_size, _lstsq),
    Stand(NUMPY, "inv", _never, None),
    Stand(NUMPY, "det", _never, None),
    Stand(SCIPY, "solve", _scipy_size, _scipy_solve),
    Stand(SCIPY, "lstsq", _scipy_lstsq_size, _scipy_lstsq),
    Stand(SCIPY, "inv", _never, None),
    Stand(SCIPY, "det", _never, None),
    Stand(SCIPY, "lu_factor", _lu_factor_size, _lu_factor),
    Stand(SCIPY, "lu_solve", _with_factors_size, _lu_solve),
    Stand(SCIPY, "cho_factor", _cho_factor_size, _cho_factor),
    Stand(SCIPY, "cho_solve", _with_factors_size, _cho_solve),
    Stand(SCIPY, "solve_banded", _never, None),
    Stand(SPARSE, "spsolve", _spsolve_size, _spsolve),
    Stand(SPARSE, "splu", _splu_size, _splu),
    Stand(SPARSE, "factorized", _splu_size, _factorized),
)
