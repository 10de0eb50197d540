"""What fits into memory: forecasts of the methods, compared with what a solve may take.

`Method.memory` tells the bytes that a solve takes beside A, from the counts that decide anyway.
What exceeds the caller's ``memory=``, or what is free, is chosen nowhere. Where nobody has named a
limit, only large solves ask what is free.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from roundwise._forking import cached_property
from roundwise.actions import Action
from roundwise.exceptions import RoundwiseError
from roundwise.formats import FP64
from roundwise.machine.threads import free_memory
from roundwise.methods import DEFAULT_METHOD, METHODS, SAFE
from roundwise.methods.contract import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roundwise.backends.engines.orderings import Orders
    from roundwise.solver.system import System


class InsufficientMemory(MemoryError, RoundwiseError):
    """No method fits into the memory that a solve may take, by forecasts before the work.

    Attributes
    ----------
    forecasts : dict
        Bytes by method and format, ``"lu:fp32"``, that each would take beside A.

    Examples
    --------
    >>> try:
    ...     x = rw.solve(np.eye(300) + 0.1, np.ones(300), memory="10kB")
    ... except MemoryError as error:
    ...     print(min(error.forecasts.values()) > 10_000)
    True
    """

    def __init__(self, message: str, forecasts: Mapping[str, float]) -> None:
        super().__init__(message)
        self.forecasts = dict(forecasts)


def memory_in_bytes(given: Any) -> float | None:
    """``memory=`` in bytes; None for what is free."""
    if given is None:
        return None
    number = given
    if isinstance(given, str):
        found = re.fullmatch(r"\s*(\d+\.?\d*)\s*([kmgt]?)((?<=[kmgt])i)?b?\s*", given, re.I)
        if found is None:
            raise ValueError(f"memory = {given!r}; pass bytes, or such as '4GB' or '512MiB'")
        power = " kmgt".index(found[2].lower() or " ")
        number = float(found[1]) * (1024.0 if found[3] else 1000.0) ** power
    elif isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"memory is of type {type(given).__name__}; pass bytes, or such as '4GB'")
    if not number > 0:
        raise ValueError(f"memory = {given!r}; pass more than 0 bytes")
    return float(number)


SPARSE_NAMES = {"lu": SAFE, "cholesky": "cholesky/amd"}
"""What the dense methods' names stand for where A is sparse."""


@dataclass(frozen=True, eq=False)
class Room:
    """The memory that a solve of one system may take, and what fits into it."""

    shape: Shape
    numbers: int  # 2 if those of A are complex, else 1
    is_sparse: bool
    methods: tuple[str, ...]  # that are for A
    limit: float | None  # bytes; None: what is free

    @cached_property
    def forecasts(self) -> dict[tuple[str, str], float]:
        """Bytes by method and format; infinite where nobody knows."""
        found = {}
        for name in self.methods:
            method = METHODS[name]
            if method.memory is not None:
                for fmt in dict.fromkeys((*method.formats, FP64)):
                    needed = self.numbers * method.memory(self.shape, fmt.name)
                    found[name, fmt.name] = needed
        return found

    @cached_property
    def free(self) -> float:
        return free_memory() if self.limit is None else self.limit

    @cached_property
    def lacking(self) -> frozenset[tuple[str, str]]:
        """The methods and formats whose forecasts exceed the memory."""
        known = {key: needed for key, needed in self.forecasts.items() if needed < math.inf}
        return frozenset(key for key, needed in known.items() if needed > self.free)

    def fits(self, action: Action) -> bool:
        """Whether an action is expected to fit, or nobody knows."""
        name = action.method or DEFAULT_METHOD
        if self.is_sparse:
            name = SPARSE_NAMES.get(name, name)
        wanted = name, action[0].name
        if not self.lacking or wanted in self.forecasts:
            return wanted not in self.lacking
        runs = [key for key in self.forecasts if key[0] == name]  # it is raised to one of these
        return not runs or not self.lacking.issuperset(runs)

    def error(self, asked: str) -> InsufficientMemory:
        """That no factorization fits of those that `asked` allows."""
        known = {":".join(key): one for key, one in self.forecasts.items() if one < math.inf}
        ordered = dict(sorted(known.items(), key=lambda pair: pair[1]))
        least: dict[str, str] = {}
        for key, needed in ordered.items():
            name, _, fmt = key.partition(":")
            least.setdefault(name, f"{name} {in_words(needed)} in {fmt}")
        told = ", ".join(least.values())
        return InsufficientMemory(
            f"no factorization that {asked} allows fits into {in_words(self.free)} of memory "
            f"beside A; forecasts: {told}. Pass a larger memory=, or, for a sparse A, another "
            "preconditioner as M=",
            ordered,
        )


def in_words(count: float) -> str:
    power = next((power for power in (4, 3, 2, 1) if count >= 1000.0**power), 0)
    return f"{count / 1000.0**power:.3g} {('', 'k', 'M', 'G', 'T')[power]}B"


def room_for(
    system: System, known: Mapping[str, float], orders: Orders | None, limit: float | None
) -> Room:
    """The room for a system on the processor; without `orders`, nothing sparse was counted."""
    matrix, columns = system.profiled, max(1, system.b.shape[1])
    n, backend = system.order, system.backend
    entries = matrix.A.nnz if system.is_sparse else n * n
    counts = {} if orders is None else orders.counts
    stored, dissected = (0.0, 0.0) if orders is None else orders.stored
    shape = Shape(
        *(n, entries, columns),
        filled=counts.get("factor_entries", 0.0),
        diagonals=int(known.get("diagonals", 0)),
        stored=stored,
        nd_stored=dissected,
    )
    there = backend.methods(*system.kind)
    names = tuple(
        name
        for name, method in METHODS.items()
        if name in there and method.sparse == system.is_sparse and method.suits({**known, **counts})
    )
    return Room(shape, 1 + system.is_complex, system.is_sparse, names, limit)
