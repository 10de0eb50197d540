"""What callers pass as `policy=`, to `solve`, `factor`, `lstsq` and `Solver`, on any device.

`parse_policy` makes an `Asker` of it: something that is asked for the policy of a backend. A bad
policy costs time, never digits: every answer passes the same gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from roundwise.actions import Action
from roundwise.algorithms import LsIR, VerifiedSolve
from roundwise.backends import Backend, get_backend
from roundwise.costs.prices import device_prices
from roundwise.exceptions import UnknownNameError
from roundwise.formats import FP64, FP64X2, FloatFormat
from roundwise.methods import METHODS
from roundwise.policies import NeighbourPolicy, Policy, shipped_facts
from roundwise.policies.device import DEVICE_FEATURES, DeviceLearner, DevicePolicy
from roundwise.tuning.context import PROBE_CONTEXT, Context, DeployedPolicy

ALGORITHM = VerifiedSolve()
DEVICE_CONTEXT = Context(DEVICE_FEATURES, (None,) * len(DEVICE_FEATURES))


LOW_AT_ONCE_BELOW = 257
"""Systems with fewer unknowns, of which low factors are asked for, are solved by one compiled call
on one thread. (A taste, as `express.ONE_THREAD_UP_TO`.)"""


class Asker(Protocol):
    """What a policy argument stands for."""

    @property
    def express_below(self) -> int:
        """Dense systems on the processor with fewer unknowns are solved in FP64 without asking."""

    @property
    def looks_for_structure(self) -> bool:
        """Whether bands and triangles are solved by the express call, of any size."""

    def on(self, backend: Backend) -> Start | DeployedPolicy:
        """What decides for systems of a backend; an error that names the fix if it cannot."""


@dataclass(frozen=True)
class Start:
    """Actions to begin with, as the caller says: a format's name, an action's text, or several."""

    actions: tuple[Action, ...]  # without a method: by the one that suits the system
    text: str
    looks_for_structure: ClassVar[bool] = False  # what was asked for comes first

    @property
    def express_below(self) -> int:
        """The express call runs LU with factors in a native format, and FP64 for all else."""
        first = self.actions[0]
        if first.method or tuple(first[1:]) != (FP64,) * 3:
            return 0
        if first[0] == FP64:
            return default_policy().express_below
        return LOW_AT_ONCE_BELOW if first[0] in get_backend("native").formats() else 0

    def with_method(self, suited: str) -> list[Action]:
        """The actions; those without a method by the one that suits the system."""
        return [Action(action, action.method or suited) for action in self.actions]

    def on(self, backend: Backend) -> Start:
        # What complex and sparse systems lack is raised to the next format that they have.
        known = get_backend("native").formats() if backend.on_host else backend.formats()
        always = (FP64, FP64X2)  # the latter of residuals
        for fmt in (fmt for action in self.actions for fmt in action):
            if fmt not in known and fmt not in always:
                names = ["default", *(f.name for f in known), "an action", "a .json file"]
                where = "policy" if backend.on_host else "policy on a GPU"
                raise UnknownNameError(where, self.text, names)
        return self


def default_policy() -> NeighbourPolicy:
    """The policy that comes with the package.

    Examples
    --------
    >>> from roundwise.solver import default_policy
    >>> default_policy().name
    'neighbours'
    """
    return _default_policy(tuple(METHODS))


@lru_cache(maxsize=4)
def _default_policy(methods: tuple[str, ...]) -> NeighbourPolicy:
    """The default policy over the actions of these methods: others may be added at any time."""
    policy = NeighbourPolicy(shipped_facts())
    policy.start(np.empty((0, len(PROBE_CONTEXT.features))), ALGORITHM.starts((False, True)))
    return policy


def device_policy(backend: Backend, learner: DeviceLearner | None = None) -> DevicePolicy:
    """The prices of a GPU as a policy; the same one as long as prices and methods are the same."""
    machine = backend.machine
    assert machine is not None
    prices = device_prices(machine)
    key = backend, id(prices), learner, tuple(METHODS)
    policy = _DEVICE_POLICIES.get(key)
    if policy is None:
        if len(_DEVICE_POLICIES) >= MOST_DEVICE_POLICIES:
            _DEVICE_POLICIES.clear()
        policy = _DEVICE_POLICIES[key] = DevicePolicy(prices, learner)  # it keeps the prices
        contexts = np.empty((0, len(DEVICE_FEATURES)))
        policy.start(contexts, ALGORITHM.starts((False,), backend=backend))
    return policy


MOST_DEVICE_POLICIES = 16
"""How many of these are kept. A taste: a program has few devices and few `Solver`s at a time."""

_DEVICE_POLICIES: dict[Any, DevicePolicy] = {}


class _Default:
    """The shipped policy, read when first asked: importing stays light."""

    looks_for_structure = True

    @property
    def express_below(self) -> int:
        return default_policy().express_below

    def on(self, backend: Backend) -> DeployedPolicy:
        if backend.on_host:
            return DeployedPolicy(default_policy(), PROBE_CONTEXT)
        return DeployedPolicy(device_policy(backend), DEVICE_CONTEXT)

    def __repr__(self) -> str:
        return "'default'"


DEFAULT = _Default()


@dataclass(frozen=True)
class _Trained:
    """A policy with the features that it sees."""

    deployed: DeployedPolicy
    looks_for_structure: ClassVar[bool] = False  # it was trained to choose

    @property
    def express_below(self) -> int:
        return self.deployed.policy.express_below

    def on(self, backend: Backend) -> DeployedPolicy:
        trained = self.deployed.arithmetic
        if not backend.on_host and not trained.startswith(backend.arithmetic):
            raise TypeError(
                f"the policy was trained in {trained} arithmetic; on a GPU pass a Tuner with "
                f"arithmetic={backend.arithmetic!r}, 'default' or a format's name"
            )
        return self.deployed


def parse_policy(policy: Any, algorithm: type[VerifiedSolve | LsIR] = VerifiedSolve) -> Asker:
    """What `policy` stands for, or an error that names the fix.

    "default", a format's name, an action's text (``"lu:fp32-fp64-fp64-fp64"``), a list of actions,
    a fitted `Tuner`, its ``.json`` file, a `DeployedPolicy`, or a `NeighbourPolicy`.
    """
    if isinstance(policy, str):
        if policy == "default":
            return DEFAULT
        if not policy.endswith(".json"):
            return _named(policy, algorithm)
    if isinstance(policy, str | PathLike) and str(policy).endswith(".json"):
        from roundwise.tuning.tuner import Tuner  # and all of training, which a solve does without

        policy = Tuner.load(Path(policy))
    if hasattr(type(policy), "deployed"):  # a Tuner, fitted or not
        _check_trained_for(policy.algorithm, algorithm)
        policy = policy.deployed
    elif isinstance(policy, NeighbourPolicy):
        policy = DeployedPolicy(policy, PROBE_CONTEXT)
    if isinstance(policy, DeployedPolicy):
        return _Trained(_checked(policy, algorithm))
    if isinstance(policy, Action):
        return Start((_action(policy, algorithm),), str(policy))
    if isinstance(policy, Sequence) and policy:
        texts = ", ".join(map(str, policy))
        return Start(tuple(_action(one, algorithm) for one in policy), texts)
    if hasattr(policy, "on") and not isinstance(policy, Policy):
        return policy  # type: ignore[no-any-return]
    raise TypeError(
        f"policy = {policy!r}; pass 'default', a format's name, an action's text, a list of "
        "actions, a fitted Tuner or its .json file (a Policy alone does not know which features it "
        "sees: pass the Tuner that trained it)"
    )


@lru_cache(maxsize=256)
def _named(policy: str, algorithm: type[VerifiedSolve | LsIR]) -> Start:
    return Start((_action(policy, algorithm),), policy)


def _checked(deployed: DeployedPolicy, algorithm: type[VerifiedSolve | LsIR]) -> DeployedPolicy:
    _check_trained_for(deployed.algorithm, algorithm)
    stages = deployed.policy.space.stages
    if stages != algorithm.stages:
        raise ValueError(
            f"the policy chooses formats for {', '.join(stages)}, solve needs them for "
            f"{', '.join(algorithm.stages)}; train it for VerifiedSolve or GmresIR"
        )
    return deployed


def _check_trained_for(trained_for: Any, algorithm: type[VerifiedSolve | LsIR]) -> None:
    if isinstance(trained_for, LsIR) != (algorithm is LsIR):
        needed = "LsIR" if algorithm is LsIR else "VerifiedSolve or GmresIR"
        raise ValueError(f"the Tuner is for {type(trained_for).__name__}; fit one for {needed}")


def _action(text: str | Action, algorithm: type[VerifiedSolve | LsIR]) -> Action:
    """An action; a format's name alone is that of the first stage, FP64 of the others."""
    if isinstance(text, Action):
        action = text
    elif not isinstance(text, str):
        raise TypeError(f"an action is of type {type(text).__name__}; pass its text, or an Action")
    else:
        method, _, formats = text.rpartition(":")
        names = formats.split("-")
        if len(names) == 1:
            names += [FP64.name] * (len(algorithm.stages) - 1)
        try:
            action = Action(names, method)
        except UnknownNameError:
            raise UnknownNameError("policy", text, ["default", *_NAMES]) from None
    if len(action) != len(algorithm.stages):
        stages = ", ".join(algorithm.stages)
        raise ValueError(f"policy {str(action)!r} has {len(action)} formats; give one for {stages}")
    return action


_NAMES = ("a format's name", "an action such as lu:fp32-fp64-fp64-fp64", "a .json file")


def at_least(fmt: FloatFormat, formats: Sequence[FloatFormat]) -> FloatFormat:
    """The format itself if it is there, else the lowest that has its bits and its range."""
    if fmt in formats:
        return fmt
    return next((f for f in formats if f.p >= fmt.p and f.emax >= fmt.emax), FP64)
