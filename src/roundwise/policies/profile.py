"""A system as the features of `PROBE_CONTEXT` show it, for policies that compare systems."""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundwise.actions import ActionSpace
from roundwise.costs import Shape
from roundwise.features.probe import FLOORS, PROBE
from roundwise.methods import DEFAULT_METHOD, METHODS, Method

KINDS = {
    "dense": METHODS["lu"],
    "positive definite": METHODS["cholesky"],
    "sparse": METHODS["superlu/mmd"],
    "sparse unsymmetric": METHODS["superlu/colamd"],
}
"""The kinds of systems: dense; dense, symmetric with a positive diagonal; sparse with a nearly
symmetric pattern, diagonal included; other sparse ones. Each with the method that facts are
gathered with: how often a format suffices depends on the system far more than on the method.
Systems are factorized by any method that fits (`Profile.methods`)."""

OF_DENSE_KINDS = {method.name for method in KINDS.values() if not method.sparse}

STRUCTURE = (
    "symmetric_pattern",
    "looks_positive_definite",
    "symmetric",
    "strong_diagonal",
    "static_pivots",
    "banded",
    "triangular",
)
"""The features that `Method.needs` may name."""


def kind_of(sparse: bool, symmetric_pattern: bool, looks_positive_definite: bool) -> str:
    """The kind of a system with these features."""
    if sparse:
        return "sparse" if symmetric_pattern else "sparse unsymmetric"
    return "positive definite" if looks_positive_definite else "dense"


def fitting_actions(
    space: ActionSpace, features: Mapping[str, float], methods: Collection[str] | None = None
) -> tuple[int, ...]:
    """The actions of a space whose method fits a matrix with these features of its structure.

    If `methods` are given, it is one of these.
    """
    fitting: list[int] = []
    for method, actions in space.by_method.items():
        known = METHODS.get(method)
        runs = methods is None or (method or DEFAULT_METHOD) in methods
        if runs and (known is None or known.fits(features)):
            fitting += actions
    return tuple(sorted(fitting))


PLACE = ("n", "entries", "diagonal_share", "coherence", "remainder")
"""The numbers that the position of a system among others of its kind depends on."""

LARGEST_COHERENCE = 60.0
EDGES: dict[str, tuple[float, ...]] = {
    "coherence": (0.15, 2.5, 6.0, 11.0, 14.0, 17.0, 60.0),
    "remainder": (1e-6, 1e-4, 0.1),
    "entries per row": (4.5, 6.0, 12.0, 40.0),
    "diagonal share": (0.3, 0.6, 0.9),
    "n (dense)": (600, 1500),
    "n (sparse)": (1_000, 5_000, 20_000),
}
"""Between these values, systems count as alike when a solver learns from its own solves. Bins are
stored by number: append to `policies.memory_file._UPGRADES` when these change."""


@dataclass(frozen=True)
class Profile:
    """The probe's numbers of a system, which `roundwise.features.probe` defines."""

    kind: str
    n: int
    entries: int
    diagonal_share: float
    coherence: float = 0.0
    remainder: float = 1.0
    columns: int = 1
    structure: tuple[float, ...] = ()  # the features of `STRUCTURE`; empty if not known
    filled: float = 0.0  # entries of Cholesky's L in AMD's order; 0 if they were not counted
    flops: float = 0.0  # of this factorization
    nd_flops: float = 0.0  # in the order of nested dissection; 0 if they were not counted
    row_squares: float = 0.0  # sum of the squares of the rows' entries; 0 if not known
    diagonals: int = 0  # of a dense band; 0 if A is none
    tol: float | None = None  # the backward error that is asked for; None for the usual one

    @classmethod
    def of(cls, context: Sequence[float]) -> Profile:
        """The profile in a row of `PROBE_CONTEXT`, whose features with a floor are logarithms."""
        if len(context) != len(PROBE):
            raise ValueError(
                f"the profile of a system has {len(PROBE)} features, not {len(context)}: "
                f"{', '.join(PROBE)}; train the policy with context=PROBE_CONTEXT"
            )
        pairs = zip(PROBE, context, strict=True)
        return cls.seen({name: 10.0**x if name in FLOORS else x for name, x in pairs})

    @classmethod
    def seen(cls, features: Mapping[str, float]) -> Profile:
        """The profile with these features of `PROBE`, by name."""
        structure = tuple([features[name] for name in STRUCTURE])
        pattern, positive = structure[:2]
        return cls(
            kind_of(bool(features["sparse"]), bool(pattern), bool(positive)),
            n=round(features["n"]),
            entries=round(features["entries"]),
            diagonal_share=features["diagonal_share"],
            coherence=max(features["coherence"], FLOORS["coherence"]),
            remainder=max(features["remainder"], FLOORS["remainder"]),
            columns=round(features["columns"]),
            structure=structure,
            filled=_counted(features["factor_entries"]),
            flops=_counted(features["factor_flops"]),
            nd_flops=_counted(features["nd_flops"]),
            row_squares=_counted(features["row_squares"]),
            diagonals=round(features["diagonals"]) if features["banded"] else 0,
        )

    @property
    def method(self) -> Method:
        """The method that facts are gathered with."""
        return KINDS[self.kind]

    @property
    def fitting(self) -> tuple[str, ...]:
        """The methods that fit its structure; that of its kind if this is not known."""
        if not self.structure:
            return (self.method.name,)
        known = dict(zip(STRUCTURE, self.structure, strict=True))
        same_kind = (m for m in METHODS.values() if m.sparse == self.is_sparse)
        return tuple(method.name for method in same_kind if method.fits(known))

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods to choose from.

        Of LU and Cholesky of the whole matrix it is that of the system's kind. Methods whose price
        depends on counts are left out where these are not known (`Method.counts`).
        """
        named = [METHODS[name] for name in self.fitting]
        others = () if self.is_sparse else OF_DENSE_KINDS - {self.method.name}
        return tuple(
            method
            for method in named
            if method.name not in others and all(getattr(self, name) for name in method.counts)
        )

    @property
    def fill_is_known(self) -> bool:
        """Whether the counts hold for an LU factorization that may exchange rows.

        They do if pivots stay on the diagonal (then static pivoting fits), and in a narrow band.
        A symmetric A without a strong diagonal was counted for L D L' alone.
        """
        fitting = self.fitting
        symmetric = "ldl/amd" in fitting
        return "lu/amd" in fitting or (self.filled > 0 and not symmetric)

    @property
    def is_sparse(self) -> bool:
        return self.method.sparse

    def shape(self, fill: float = 1.0) -> Shape:
        """The sizes that prices depend on; `fill` is that of similar systems, if it must do."""
        filled = self.filled or fill * self.entries / 2
        flops = self.flops or filled**2 / self.n
        squares = self.row_squares or self.entries**2 / self.n
        counts = filled, flops, self.nd_flops, squares
        return Shape(self.n, self.entries, self.columns, *counts, self.diagonals)

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The numbers that decide methods and prices, beside the facts of similar systems."""
        counts = self.filled, self.flops, self.nd_flops, self.row_squares, self.diagonals
        asked = self.structure, self.tol
        return self.kind, self.n, self.entries, self.columns, *asked, *counts

    @property
    def place(self) -> list[float]:
        return [float(getattr(self, name)) for name in PLACE]

    @property
    def position(self) -> tuple[float, ...]:
        """The coordinates among systems of this kind."""
        return position_of(self.kind, self.place)

    @property
    def bin(self) -> str:
        """A key for the systems that count as alike, like ``dense/2.0.1.1``."""
        decay = self.coherence, self.remainder
        values = (self.entries / self.n,) if self.is_sparse else decay
        pairs = zip(_binned(self.kind), (*values, self.diagonal_share, self.n), strict=True)
        numbers = (bisect_right(EDGES[name], value) for name, value in pairs)
        return f"{self.kind}/{'.'.join(map(str, numbers))}"

    @property
    def series(self) -> str:
        """A key for systems of exactly this shape: steps of one Newton iteration, say."""
        return f"{self.kind}/n={self.n}" + (f",entries={self.entries}" if self.is_sparse else "")


def is_key(key: str) -> bool:
    """Whether this is a key of `Profile.bin` or `Profile.series`; foreign memories have others."""
    kind, _, numbers = key.partition("/")
    if kind not in KINDS:
        return False
    if re.fullmatch(r"n=\d+(,entries=\d+)?", numbers, re.ASCII):
        return True
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3})*", numbers, re.ASCII):
        return False
    names, places = _binned(kind), [int(number) for number in numbers.split(".")]
    return len(names) == len(places) and all(
        place <= len(EDGES[name]) for name, place in zip(names, places, strict=True)
    )


def bin_in_words(key: str) -> str:
    """The meaning of a key of `Profile.bin` or `Profile.series`, in words."""
    kind, _, numbers = key.partition("/")
    if "=" in numbers:
        return f"{kind}, " + numbers.replace("=", " = ").replace(",", ", ")
    places = zip(_binned(kind), map(int, numbers.split(".")), strict=True)
    return ", ".join([kind, *(_interval(*place) for place in places)])


def _binned(kind: str) -> tuple[str, ...]:
    """The names of the numbers that decide the bin of a system of this kind."""
    if KINDS[kind].sparse:
        return "entries per row", "diagonal share", "n (sparse)"
    return "coherence", "remainder", "diagonal share", "n (dense)"


def _interval(name: str, place: int) -> str:
    edges, label = EDGES[name], name.partition(" (")[0]
    if place == 0:
        return f"{label} < {edges[0]:g}"
    if place == len(edges):
        return f"{label} >= {edges[-1]:g}"
    return f"{label} {edges[place - 1]:g} to {edges[place]:g}"


def position_of(kind: str, place: Sequence[float]) -> tuple[float, ...]:
    """The coordinates of a system: two at a distance of 1 are rather unlike.

    `place` has the numbers of `PLACE`. A coherence beyond 60 tells of singular values that outweigh
    all others; how far, the remainder says.
    """
    n, entries, diagonal_share, coherence, remainder = place
    common = 2.0 * diagonal_share, 0.3 * _log(n)
    if KINDS[kind].sparse:
        return _log(max(entries, 1.0)) - _log(n), *common
    decay = 1.6 * math.log1p(min(coherence, LARGEST_COHERENCE))
    return decay, 0.8 * _log(remainder) / math.log(10), *common


def _counted(number: float) -> float:
    return number if number > FLOORS["factor_entries"] else 0.0


def _log(x: float) -> float:
    """The logarithm; of a zero, which only a foreign file can hold, that of a tiny number."""
    return math.log(max(x, sys.float_info.min))
