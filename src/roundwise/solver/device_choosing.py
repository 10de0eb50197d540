"""From prices to the ladder of actions that a solve on a GPU climbs.

64 rows of a matrix on a GPU tell which formats may suffice. Prices rank their actions, and a
`DeviceLearner` corrects them by what solves have taken. The safe action is cuSOLVER's LU in FP64;
whatever is chosen passes the same gate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from roundwise.actions import Action
from roundwise.algorithms import Outcome, VerifiedSolve
from roundwise.algorithms.methods import METHODS, is_symmetric
from roundwise.backends import Backend
from roundwise.costs.device_prices import DevicePrices, device_prices
from roundwise.exceptions import UnknownNameError
from roundwise.features.device_look import device_row_features
from roundwise.formats import FP16, FP16X2, FP64, FloatFormat
from roundwise.solver.choosing import DEFAULT, Choice, Chooser, FixedStart
from roundwise.solver.devices import DeviceMemoryError
from roundwise.solver.inputs import GivenMatrix

ALGORITHM = VerifiedSolve()

LEAST_N = 6000
"""Below this n panels and launches take most of the time in every format: FP64 at once gains more
than the look and more corrections cost (docs/gpu.md: the best fixed action at n <= 4096)."""

SYMMETRIC_FROM = 1500
"""Below this n symmetry is not looked for."""

HEAVY = 0.8
"""The share of the diagonal from which on 11 bits are expected to suffice: singular values are
close together then."""

NEARLY_ORTHOGONAL = 0.3
"""A coherence up to that is of rows that are nearly orthogonal: 11 bits are expected to suffice."""

MOST_COHERENT, LEAST_REMAINDER = 11.5, 4e-6
"""Beyond, 22 bits are not: singular values that fall geometrically fall below ``exp(-12.5)`` of the
largest. On an H200 fp16x2 took more time than FP64 at ``exp(-13.8)``, and less at ``exp(-6.9)``
(docs/gpu.md)."""

MIXED_FROM = 12000
"""From that n on, butterflies before local pivoting in fp16x2 are worth their time: corrections
gain more digits."""

LEAST_BUDGET = 6
"""GMRES iterations that are always granted."""

STEPS, LOW_STEPS = {"fp64": 1, "fp32": 2, "bf16x3": 2, "fp16x2": 3}, 4
"""Corrections that are expected with factors in a format; those of others are the second."""

Key = tuple[str, int, int]  # kind of system, size, bits that may suffice


class DeviceLearner:
    """What solves on a GPU have taken, relative to their prices, by kind and size of system.

    Each price counts as one measurement, so that an action which turned out slower than others
    are priced gives way to them. Threads may share it: of two that learn at once, one may be
    forgotten.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[Key, str], tuple[int, float]] = {}  # solves, sum of the ratios

    def ratio(self, key: Key, action: Action) -> float:
        """The mean of measured over priced seconds."""
        count, total = self._seen.get((key, str(action)), (0, 0.0))
        return (1.0 + total) / (1 + count)

    def learn(
        self,
        key: Key,
        action: Action,
        price: float,
        attempts: Sequence[Outcome],
        seconds: float,
    ) -> None:
        """A solve that began with this action took so many seconds, all attempts together."""
        count, total = self._seen.get((key, str(action)), (0, 0.0))
        self._seen[key, str(action)] = count + 1, total + seconds / price


class DeviceChooser:
    """Ranks the actions of a GPU by their prices."""

    at_once = 0

    def __init__(
        self,
        backend: Backend,
        free: int,
        prices: DevicePrices | None = None,
        learner: DeviceLearner | None = None,
    ) -> None:
        self._backend, self._free, self._learner = backend, free, learner
        machine = backend.machine
        assert machine is not None
        self._prices = device_prices(machine) if prices is None else prices

    def choose(self, matrix: GivenMatrix, positive_definite: bool | None) -> Choice:
        n, definite = matrix.n, is_definite(matrix, positive_definite)
        bits = FP64.p if n < LEAST_N else bits_that_may_suffice(device_row_features(matrix.A))
        key = "definite" if definite else "general", round(2 * math.log2(n)), bits
        priced = {
            action: self._seconds(action, matrix) * self._ratio(key, action)
            for action in self._actions(definite, bits, n)
            if memory_needed(action, n) <= self._free
        }
        if not priced:
            raise self._too_large(n)
        first = min(priced, key=lambda action: priced[action])
        ladder = self._fitting(ALGORITHM.climb(first, self._backend), n)
        learn = None
        if self._learner is not None:
            price = self._seconds(first, matrix)
            learn = partial(self._learner.learn, key, first, price)
        reason = self._reason(first, priced, n, bits)
        return Choice(ladder, reason, learn, budget=self._budget(n))

    def _budget(self, n: int) -> int:
        """As many GMRES iterations as take half as long as FP64 factors."""
        if not self._prices.prices("lu", FP64.name):
            return VerifiedSolve.budget
        factors = self._prices.factor_seconds("lu", FP64.name, n)
        iterations = round(factors / (2 * self._prices.step_seconds(FP64.name, n)))
        return min(max(LEAST_BUDGET, iterations), VerifiedSolve.budget)

    def _actions(self, definite: bool, bits: int, n: int) -> list[Action]:
        """Those that are worth a try, the safe one first: prices that are equal choose it."""
        methods = ["lu", "lu/tournament", "lu/local", "lu/butterfly"]
        methods += ["cholesky"] if definite else []
        found = [
            Action((fmt, FP64, FP64, FP64), name)
            for name in methods
            for fmt in reversed(METHODS[name].formats)
            if fmt.p >= bits and self._backend.runs(name, fmt)
        ]
        mixes = n >= MIXED_FROM and self._prices.prices("lu/butterfly", FP16X2.name)
        # What local pivoting does not get along with in low formats is better done in FP64.
        return [
            action
            for action in found
            if self._prices.prices(action.method, action[0].name)
            and (action.method != "lu/tournament" or action[0] == FP64)
            and (action.method != "lu/butterfly" or (action[0] == FP16X2 and mixes))
            and (action.method != "lu/local" or action[0] != FP16X2 or not mixes)
        ]

    def _ratio(self, key: Key, action: Action) -> float:
        return 1.0 if self._learner is None else self._learner.ratio(key, action)

    def _seconds(self, action: Action, matrix: GivenMatrix) -> float:
        fmt, n, columns = action[0].name, matrix.n, matrix.b.shape[1]
        steps = STEPS.get(fmt, LOW_STEPS) + 1
        return self._prices.factor_seconds(action.method, fmt, n) + steps * (
            self._prices.step_seconds(fmt, n, columns)
        )

    def _fitting(self, ladder: Sequence[Action], n: int) -> tuple[Action, ...]:
        """The rungs whose factors fit into the memory; the first one does."""
        return tuple(action for action in ladder if memory_needed(action, n) <= self._free)

    def _too_large(self, n: int) -> DeviceMemoryError:
        needed = min(memory_needed(a, n) for a in self._actions(False, FP16X2.p, n))
        return DeviceMemoryError(
            f"factors of a {n} x {n} matrix take {needed / 1e9:.1f} GB, of which "
            f"{self._free / 1e9:.1f} GB are free on the GPU; free memory there, or solve on the CPU"
        )

    def _reason(self, first: Action, priced: dict[Action, float], n: int, bits: int) -> str:
        others = [seconds for action, seconds in priced.items() if action != first]
        text = f"On the GPU {first.method} in {first[0]} is priced {1e3 * priced[first]:.3g} ms"
        text += f", the next best choice {1e3 * min(others):.3g} ms." if others else "."
        if n < LEAST_N:
            text += f" Below n = {LEAST_N} no lower format gains time there."
        elif bits < FP64.p:
            text += f" By 64 of its rows, {bits} bits may suffice."
        else:
            text += " By 64 of its rows, no lower format suffices."
        return text


class FixedDeviceStart:
    """Always the same format first: with local pivoting, or cuSOLVER's where that is its own."""

    at_once = 0

    def __init__(self, fmt: FloatFormat, backend: Backend) -> None:
        self._fmt, self._backend = fmt, backend

    def choose(self, matrix: GivenMatrix, positive_definite: bool | None) -> Choice:
        method = "cholesky" if positive_definite else "lu"
        if not self._backend.runs(method, self._fmt) or (method == "lu" and self._fmt != FP64):
            method = "lu/local"
        first = Action((self._fmt, FP64, FP64, FP64), method)
        ladder = ALGORITHM.climb(first, self._backend)
        return Choice(ladder, f"You asked for {self._fmt} first.")


def device_chooser(
    policy: Any, backend: Backend, free: int, learner: DeviceLearner | None = None
) -> Chooser:
    """The chooser of what `solve` takes as `policy`, on a GPU."""
    if policy is DEFAULT or (isinstance(policy, str) and policy == "default"):
        return DeviceChooser(backend, free, learner=learner)
    if isinstance(policy, FixedStart):
        return FixedDeviceStart(policy.fmt, backend)
    if isinstance(policy, str):
        names = {fmt.name: fmt for fmt in backend.formats()}
        if policy not in names:
            raise UnknownNameError("policy on a GPU", policy, ["default", *names])
        return FixedDeviceStart(names[policy], backend)
    if isinstance(policy, DeviceChooser | FixedDeviceStart):
        return policy
    raise TypeError(
        f"policy = {policy!r} was trained on the processor; on a GPU pass 'default' or a format's "
        "name"
    )


def is_definite(matrix: GivenMatrix, said: bool | None) -> bool:
    """Whether Cholesky is worth a try: as the caller says, or A is symmetric, its diagonal > 0."""
    if matrix.columns is not None:
        return False  # rows and columns are scaled: A is no longer symmetric
    if said is not None:
        return said
    if matrix.n < SYMMETRIC_FROM:
        return False
    return bool((matrix.A.diagonal() > 0).all()) and is_symmetric(matrix.A)


def bits_that_may_suffice(features: Mapping[str, float]) -> int:
    """The bits of factors that refinement may get along with: FP16's, FP16X2's or FP64's.

    A rule of thumb about `look.row_features`, until solves are learned from.
    """
    share, coherence, remainder = (
        features[name] for name in ("diagonal_share", "coherence", "remainder")
    )
    if remainder >= 0.02 and (share >= HEAVY or coherence <= NEARLY_ORTHOGONAL):
        return FP16.p
    if coherence <= MOST_COHERENT and remainder >= LEAST_REMAINDER:
        return FP16X2.p
    return FP64.p


def memory_needed(action: Action, n: int) -> float:
    """Bytes that a factorization takes beside A: factors, inverted blocks, split operands."""
    if action.method == "qr":
        return 4 * 8.0 * n * n
    size = 8 if action[0] == FP64 else 4
    copies = 2 if action.method == "lu" else 1.1  # cuSOLVER's workspace
    return copies * size * n * n + 2 * 256 * size * n + 6 * 512 * 2 * 2 * n
