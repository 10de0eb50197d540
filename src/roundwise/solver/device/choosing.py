"""From prices to the ladder of actions that a solve on a GPU climbs.

64 rows of a matrix on a GPU tell which formats may suffice. Prices rank their actions, and a
`DeviceLearner` corrects them by what solves have taken. The safe action is cuSOLVER's LU in FP64;
whatever is chosen passes the same gate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from roundwise.actions import Action
from roundwise.algorithms import Outcome, VerifiedSolve
from roundwise.backends import Backend
from roundwise.backends.cuda.cublas import SPACE
from roundwise.backends.symmetry import is_symmetric
from roundwise.costs.device_prices import DevicePrices, device_prices
from roundwise.exceptions import UnknownNameError
from roundwise.features.device_look import device_row_features
from roundwise.formats import FP16, FP16X2, FP64, FloatFormat
from roundwise.methods import DEFAULT_METHOD, METHODS
from roundwise.policies.look import STRUCTURE, fitting_actions
from roundwise.solver.choosing import DEFAULT, Choice, Chooser, FixedStart, PolicyChooser
from roundwise.solver.device.devices import DeviceMemoryError
from roundwise.solver.inputs import GivenMatrix
from roundwise.tuning import Tuner

ALGORITHM = VerifiedSolve()

LEAST_N = 3000
"""Below this n panels and launches take most of the time in every format: FP64 at once gains more
than the look and more corrections cost."""

SYMMETRIC_FROM = 1500
"""Below this n symmetry is not looked for."""

HEAVY = 0.8
"""The share of the diagonal from which on 11 bits are expected to suffice, without pivoting:
singular values are close together then."""

NEARLY_ORTHOGONAL = 0.3
"""A coherence up to that is of rows that are nearly orthogonal: 11 bits are expected to suffice."""

MOST_COHERENT, LEAST_REMAINDER = 11.5, 4e-6
"""Beyond, 22 bits are not: singular values that fall geometrically fall below ``exp(-12.5)`` of the
largest. (docs/gpu.md: at ``exp(-6.9)`` they are worth it.)"""

HARD_COHERENCE, HARD_UP_TO, HARD_STEPS = 13.0, 24000, 20
"""Up to that coherence, ``exp(-14)`` of the largest singular value, 22 bits suffice for GMRES where
n is not too large: its iterations take about as long as so many corrections."""

LEAST_BUDGET = 6
"""GMRES iterations that are always granted."""

STEPS, LOW_STEPS = {"fp64": 1, "fp32": 2, "bf16x3": 2, "fp16x2": 3}, 4
"""Expected corrections by format of the factors; LOW_STEPS for all other formats."""

Key = tuple[str, int, int]  # kind of system, size, bits that may suffice


class DeviceLearner:
    """What solves on a GPU have taken, relative to their prices, by kind and size of system.

    Each price counts as one measurement. So an action whose measured time exceeds the price of
    another one gives way to it. Threads may share the object; of two that learn at the same moment,
    one may be lost.
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
        bits, steps, heavy = FP64.p, 0, False
        if n >= LEAST_N:
            features = device_row_features(matrix.A)
            bits, steps = bits_that_may_suffice(features, n)
            heavy = features["diagonal_share"] >= HEAVY
        kind = "definite" if definite else "heavy" if heavy else "general"
        key = kind, round(2 * math.log2(n)), bits
        priced = {
            action: self._seconds(action, matrix, steps) * self._ratio(key, action)
            for action in self._actions(definite, definite or heavy, bits)
            if memory_needed(action, n) <= self._free
        }
        if not priced:
            raise self._too_large(n)
        first = min(priced, key=lambda action: priced[action])
        ladder = self._fitting(ALGORITHM.climb(first, self._backend), n)
        learn = None
        if self._learner is not None:
            price = self._seconds(first, matrix, steps)
            learn = partial(self._learner.learn, key, first, price)
        reason = self._reason(first, priced, n, bits)
        return Choice(ladder, reason, learn, budget=self._budget(n))

    def _budget(self, n: int) -> int:
        """The number of GMRES iterations that take half as long as FP64 factors."""
        if not self._prices.prices("lu", FP64.name):
            return VerifiedSolve.budget
        factors = self._prices.factor_seconds("lu", FP64.name, n)
        iterations = round(factors / (2 * self._prices.step_seconds(FP64.name, n)))
        return min(max(LEAST_BUDGET, iterations), VerifiedSolve.budget)

    def _actions(self, definite: bool, on_diagonal: bool, bits: int) -> list[Action]:
        """The actions worth a try. The safe one comes first, so that it wins among equal prices.

        `on_diagonal` tells whether pivots on the diagonal are expected to do.
        """
        names = ["lu", "lu/local"]
        names += ["lu/diagonal"] if on_diagonal else []
        names += ["cholesky"] if definite else []
        return [
            Action((fmt, FP64, FP64, FP64), name)
            for name in names
            for fmt in reversed(METHODS[name].formats)
            if fmt.p >= bits
            and self._backend.runs(name, fmt)
            and self._prices.prices(name, fmt.name)
        ]

    def _ratio(self, key: Key, action: Action) -> float:
        return 1.0 if self._learner is None else self._learner.ratio(key, action)

    def _seconds(self, action: Action, matrix: GivenMatrix, least_steps: int) -> float:
        """The price of an action with the expected corrections.

        With factors below FP64 these are at least `least_steps`.
        """
        fmt, n, columns = action[0].name, matrix.n, matrix.b.shape[1]
        steps = STEPS.get(fmt, LOW_STEPS)
        steps = 1 + (steps if fmt == FP64.name else max(steps, least_steps))
        return self._prices.factor_seconds(action.method, fmt, n) + steps * (
            self._prices.step_seconds(fmt, n, columns)
        )

    def _fitting(self, ladder: Sequence[Action], n: int) -> tuple[Action, ...]:
        """The rungs whose factors fit into the memory; the first one does."""
        return tuple(action for action in ladder if memory_needed(action, n) <= self._free)

    def _too_large(self, n: int) -> DeviceMemoryError:
        needed = min(memory_needed(a, n) for a in self._actions(False, False, FP16X2.p))
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


class DevicePolicyChooser:
    """What a `Tuner` has learned from outcomes of a GPU: features, ranking, and the climb."""

    at_once = 0

    def __init__(self, tuner: Tuner, backend: Backend, free: int) -> None:
        if not tuner.arithmetic.startswith(backend.arithmetic):
            raise TypeError(
                f"the policy was trained in {tuner.arithmetic} arithmetic; on a GPU pass a Tuner "
                f"with arithmetic={backend.arithmetic!r}, 'default' or a format's name"
            )
        # As on the processor, a policy for other stages is refused.
        self._deployed = PolicyChooser(tuner.deployed).deployed
        self._backend, self._free = backend, free

    def choose(self, matrix: GivenMatrix, positive_definite: bool | None) -> Choice:
        definite = is_definite(matrix, positive_definite)
        policy, known = self._deployed.policy, self._features(matrix, definite)
        allowed = [
            i
            for i in fitting_actions(policy.space, known)
            if self._runs(policy.space[i], definite)
            and memory_needed(policy.space[i], matrix.n) <= self._free
        ]
        if not allowed:
            return DeviceChooser(self._backend, self._free).choose(matrix, positive_definite)
        ranking = self._deployed.rank(matrix, known, allowed)
        ladder = ALGORITHM.climb(policy.space[ranking.first], self._backend)
        fitting = tuple(a for a in ladder if memory_needed(a, matrix.n) <= self._free)
        return Choice(fitting, ranking.reason)

    def _runs(self, action: Action, definite: bool) -> bool:
        method = action.method or DEFAULT_METHOD
        return self._backend.runs(method, action[0]) and (method != "cholesky" or definite)

    def _features(self, matrix: GivenMatrix, definite: bool) -> dict[str, float]:
        """All that the policy sees, computed where A is; a `ValueError` if more is asked for."""
        known = dict.fromkeys(STRUCTURE, 0.0) | {
            "looks_positive_definite": float(definite),
            "n": float(matrix.n),
            "entries": float(matrix.n) ** 2,
            "sparse": 0.0,
            "columns": float(matrix.b.shape[1]),
            "norm_inf": matrix.norm,
        }
        wanted = set(self._deployed.context.features)
        if wanted - set(known):
            known |= device_row_features(matrix.A)
        if lacking := sorted(wanted - set(known)):
            raise ValueError(
                f"the policy sees {', '.join(lacking)}, which is not computed on a GPU; train it "
                f"with a Context of {', '.join(sorted(known))}"
            )
        return known


def device_chooser(
    policy: Any, backend: Backend, free: int, learner: DeviceLearner | None = None
) -> Chooser:
    """The chooser of what `solve` takes as `policy`, on a GPU."""
    if policy is DEFAULT or (isinstance(policy, str) and policy == "default"):
        return DeviceChooser(backend, free, learner=learner)
    if isinstance(policy, FixedStart):
        return FixedDeviceStart(policy.fmt, backend)
    if isinstance(policy, str | PathLike) and str(policy).endswith(".json"):
        policy = Tuner.load(Path(policy))
    if isinstance(policy, Tuner):
        return DevicePolicyChooser(policy, backend, free)
    if isinstance(policy, str):
        names = {fmt.name: fmt for fmt in backend.formats()}
        if policy not in names:
            raise UnknownNameError("policy on a GPU", policy, ["default", *names, "a .json file"])
        return FixedDeviceStart(names[policy], backend)
    if isinstance(policy, DeviceChooser | FixedDeviceStart):
        return policy
    raise TypeError(
        f"policy = {policy!r}; on a GPU pass 'default', a format's name, or a Tuner that was "
        f"trained with arithmetic={backend.arithmetic!r}, or its .json file"
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


def bits_that_may_suffice(features: Mapping[str, float], n: int) -> tuple[int, int]:
    """The bits of factors that refinement may get along with: FP16's, FP16X2's or FP64's.

    With them, how many corrections it takes at least. A rule of thumb about `look.row_features`,
    until solves are learned from.
    """
    share, coherence, remainder = (
        features[name] for name in ("diagonal_share", "coherence", "remainder")
    )
    if remainder >= 0.02 and (share >= HEAVY or coherence <= NEARLY_ORTHOGONAL):
        return FP16.p, 0
    if coherence <= MOST_COHERENT and remainder >= LEAST_REMAINDER:
        return FP16X2.p, 0
    if coherence <= HARD_COHERENCE and remainder >= LEAST_REMAINDER and n < HARD_UP_TO:
        return FP16X2.p, HARD_STEPS
    return FP64.p, 0


def memory_needed(action: Action, n: int) -> float:
    """Bytes that a factorization takes beside A: factors, inverted blocks, split operands."""
    if action.method == "qr":
        return 4 * 8.0 * n * n
    size = 8 if action[0] == FP64 else 4
    copies = 2 if action.method == "lu" else 1.1  # cuSOLVER's workspace
    spaces = 2 * SPACE if action.method.startswith("lu/") else 0  # cuBLAS's
    return copies * size * n * n + 2 * 256 * size * n + 6 * 512 * 2 * 2 * n + spaces
