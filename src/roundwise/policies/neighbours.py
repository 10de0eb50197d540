"""Which format to factorize in first: facts of other systems, priced for this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

from roundwise.backends import native_formats
from roundwise.costs.prices import Prices, current_prices
from roundwise.exceptions import UnknownNameError
from roundwise.formats import FP64
from roundwise.policies.facts import Climb, Experience, Facts, Work, shipped_facts
from roundwise.policies.look import Context, Kind, context_of, first_formats
from roundwise.solver.factorization import GMRES_BUDGET
from roundwise.solver.inputs import CheckedMatrix
from roundwise.solver.solution import Learn

SPARSE_CROSSOVER = 40_000
"""Sparse systems with fewer entries are factorized in FP64: analysing the pattern, which no format
speeds up, takes most of the time."""

INSPECTION = 1.5e-3
"""Seconds, about, that looking at a system and preparing refinement take if this is not in the
processor's cache."""

LARGEST = 100_000
UNKNOWN_FILL = 10.0
Pricing = Callable[[Climb], float]

EASY, WORST = Work(1, 1, 0), Work(1, 10, GMRES_BUDGET)
"""Work with factors that suffice at once, and, at most, with those that do not."""

CONFIDENT, TOLERATED = 0.9, 1.15
"""A start that failed on more than a tenth of the systems alike is not taken if failing would make
the solve longer than this many times FP64's LU."""


@dataclass(frozen=True)
class Choice:
    """The formats to factorize in, in turn, and why; `learn` is told what came of it."""

    formats: tuple[str, ...]
    reason: str
    learn: Learn | None = field(default=None, compare=False, repr=False)


class FormatPolicy(Protocol):
    """Chooses formats from what costs next to nothing to know of a system.

    A policy with an attribute ``at_once`` is not asked about most dense systems with fewer unknowns
    than that: these are factorized in FP64 at once.
    """

    def choose(
        self, matrix: CheckedMatrix, positive_definite: bool, columns: int = 1
    ) -> Choice: ...


@dataclass(frozen=True)
class Fixed:
    """Always the same format first."""

    fmt: str

    def choose(self, matrix: CheckedMatrix, positive_definite: bool, columns: int = 1) -> Choice:
        return Choice(ladder_from(self.fmt), f"You asked for {self.fmt} first.")


@dataclass(frozen=True)
class Expectation:
    """What starting in a format leads to, in seconds.

    Attributes
    ----------
    seconds : float
        Expected, climbs to higher formats included; what is risked, if that is intolerable.
    sufficed, systems : int
        How often the format sufficed on how many systems like this; zeros if none is known.
    sure : float
        If it suffices after one step of refinement: it will not be faster.
    worst : float
        If every format below FP64 fails after all the work that it is granted.
    intolerable : bool
        Whether it fails too often for what that would cost.
    """

    seconds: float
    sufficed: int
    systems: int
    sure: float
    worst: float
    intolerable: bool = False


class DefaultPolicy:
    """Starts in the format that is expected to take the least time, climbs included.

    Facts say how often each format sufficed on systems like this one, and how much work it was;
    prices say what this work takes on this machine.

    Parameters
    ----------
    facts : Facts, optional
        Those that come with the package unless given.
    prices : Prices, optional
        Those of this machine unless given.
    """

    def __init__(self, facts: Facts | None = None, prices: Prices | None = None) -> None:
        self._facts, self._prices = facts, prices
        self._crossovers: dict[Kind, int] = {}

    @cached_property
    def facts(self) -> Facts:
        return shipped_facts() if self._facts is None else self._facts

    @cached_property
    def prices(self) -> Prices:
        return current_prices() if self._prices is None else self._prices

    @property
    def at_once(self) -> int:
        """The size of the smallest dense systems to look at."""
        return self.crossover("dense")

    @cached_property
    def _runnable(self) -> frozenset[str]:
        return frozenset(fmt.name for fmt in native_formats())

    def choose(self, matrix: CheckedMatrix, positive_definite: bool, columns: int = 1) -> Choice:
        small = self.small(matrix, positive_definite)
        return small or self.choose_for(context_of(matrix, positive_definite, columns))

    def small(self, matrix: CheckedMatrix, positive_definite: bool) -> Choice | None:
        """FP64, without a closer look, if no lower format can gain time at this size."""
        if matrix.is_sparse:
            size, crossover, below = matrix.A.nnz, SPARSE_CROSSOVER, "entries"
        else:
            kind: Kind = "positive definite" if positive_definite else "dense"
            size, crossover, below = matrix.n, self.crossover(kind), "unknowns"
        if size >= crossover:
            return None
        reason = f"FP64 at once: below {crossover} {below}, lower precision gains no time."
        return Choice((FP64.name,), reason)

    def choose_for(self, context: Context) -> Choice:
        """The choice for a system that is not small."""
        expected = self.expectations(context)
        first = cheapest({fmt: known.seconds for fmt, known in expected.items()})
        return Choice(ladder_from(first), told(first, expected))

    def expectations(self, context: Context) -> dict[str, Expectation]:
        """What each first format leads to; the worst of it, if nothing is known of such systems."""
        known = self.facts.of(context)
        price = self._pricing(context, known)
        formats = [f for f in self.formats(context.kind) if known is None or f in known.starts]
        return {fmt: self._expected(context, fmt, known, price) for fmt in formats}

    def _expected(
        self, context: Context, fmt: str, known: Experience | None, price: Pricing
    ) -> Expectation:
        sure = price({fmt: EASY})
        worst = price({f: WORST if f != FP64.name else EASY for f in ladder_from(fmt)})
        if known is None:
            return Expectation(worst, 0, 0, sure, worst)
        start = known.starts[fmt]
        seconds, risked = price(start.work) / known.systems, 0.0
        if fmt != FP64.name and start.sufficed < CONFIDENT * known.systems:
            risked = price(dict.fromkeys(_uncertain(fmt, known), EASY))
        intolerable = risked > TOLERATED * self._fp64_lu(context, known)
        if intolerable:
            seconds = max(seconds, risked)
        return Expectation(seconds, start.sufficed, known.systems, sure, worst, intolerable)

    def _fp64_lu(self, context: Context, known: Experience) -> float:
        """What LU in FP64 takes, be the matrix symmetric or not."""
        if context.kind == "positive definite":
            context = replace(context, kind="dense")
        return self._pricing(context, known)({FP64.name: EASY})

    def price(self, context: Context, climb: Climb) -> float:
        """The seconds of this work."""
        known = self.facts.of(context) if context.is_sparse else None
        return self._pricing(context, known)(climb)

    def _pricing(self, context: Context, known: Experience | None) -> Pricing:
        fill = UNKNOWN_FILL if known is None else known.fill
        return partial(self.prices.seconds, context, fill=fill)

    def formats(self, kind: Kind) -> tuple[str, ...]:
        """The formats to choose from, lowest first."""
        priced = self.prices.profile.rates
        return tuple(f for f in first_formats(kind) if f in priced and f in self._runnable)

    def crossover(self, kind: Kind) -> int:
        """The smallest dense system that a lower format can solve sooner, with one step."""
        if kind not in self._crossovers:
            self._crossovers[kind] = self._find_crossover(kind)
        return self._crossovers[kind]

    def _find_crossover(self, kind: Kind) -> int:
        lower = self.formats(kind)[:-1]
        n = 64 if lower else LARGEST
        while n < LARGEST:
            context = Context(kind, n, 0.0, 0.0, n * n)
            highest = self.prices.seconds(context, {FP64.name: Work(1, 0, 0)})
            lowest = min(self.prices.seconds(context, {f: Work(1, 1, 0)}) for f in lower)
            if lowest + INSPECTION < highest:
                return n
            n += n // 16
        return LARGEST


def _uncertain(fmt: str, known: Experience) -> Iterator[str]:
    """This format and the next ones, up to the first that sufficed for nearly all systems."""
    for name in ladder_from(fmt):
        if name in known.starts:
            yield name
            if known.starts[name].sufficed >= CONFIDENT * known.systems:
                return


def cheapest(seconds: Mapping[str, float]) -> str:
    """The format with the least; the higher one of equals."""
    return min(reversed(list(seconds)), key=lambda fmt: seconds[fmt])


def told(first: str, expected: Mapping[str, Expectation]) -> str:
    """Why a format is first, in words."""
    chosen = expected[first]
    if not chosen.systems:
        return f"{first.upper()}: nothing is known of systems like this."
    ours = f"expected {milliseconds(chosen.seconds)}"
    share = f"{100 * chosen.sufficed / chosen.systems:.0f} % of {chosen.systems} systems like this"
    others = {fmt: e for fmt, e in expected.items() if fmt != first}
    if not others:
        return f"{first.upper()} first: it sufficed on {share}; {ours}."
    rival = FP64.name if first != FP64.name else cheapest({f: e.seconds for f, e in others.items()})
    against = f"against {milliseconds(others[rival].seconds)} in {rival.upper()}"
    if first != FP64.name:
        return f"{first.upper()} first: it sufficed on {share}; {ours} {against}."
    lower = others[rival]
    said = (
        f"FP64: {rival.upper()} sufficed on {100 * lower.sufficed / lower.systems:.0f} % of "
        f"{lower.systems} systems like this"
    )
    if lower.intolerable:
        return f"{said}: not risked, as it would take {milliseconds(lower.seconds)} if it failed."
    return f"{said}; {ours} {against} first."


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def ladder_from(fmt: str) -> tuple[str, ...]:
    """This format and the higher ones to climb to."""
    ladder = ("bf16", "fp32", "fp64") if fmt != "fp16" else ("fp16", "fp32", "fp64")
    return ladder[ladder.index(fmt) :]


_DEFAULT = DefaultPolicy()


def get_policy(policy: str | FormatPolicy) -> FormatPolicy:
    if not isinstance(policy, str):
        if not hasattr(policy, "choose"):
            raise TypeError(
                f"policy = {policy!r}; pass 'default', a format's name, or an object with `choose`"
            )
        return policy
    if policy == "default":
        return _DEFAULT
    names = [fmt.name for fmt in native_formats()]
    if policy not in names:
        raise UnknownNameError("policy", policy, ["default", *names])
    return Fixed(policy)
