"""What the study on a GPU runs and times: actions of the front door, the front door, cuSOLVER."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

from roundwise.actions import Action, ActionLike, ActionSpace
from roundwise.algorithms import (
    Algorithm,
    GmresIR,
    Outcome,
    OutcomeStatus,
    Shared,
    Stages,
    VerifiedSolve,
)
from roundwise.backends import ArithmeticFailure, Backend
from roundwise.backends.arrays import on_host
from roundwise.features.definitions import FeatureValue, condition_estimate
from roundwise.features.probe import device_row_features
from roundwise.formats import FP32, FP64
from roundwise.methods import METHODS
from roundwise.solver import SolveFailed, solve
from roundwise_studies.native.device import FEATURE_FORMAT, RESTART, RULE
from roundwise_studies.native.gpu_systems import DeviceErrors, DeviceSystem

PROBE = ("diagonal_share", "coherence", "remainder")
FEATURES = ("n", "norm_inf", "kappa_est", *PROBE)
REPEATS = 3  # of features; the median of their seconds counts


@dataclass(frozen=True)
class DeviceSolve(VerifiedSolve):
    """`VerifiedSolve` of a `DeviceSystem`, whose errors are measured on the device."""

    def execute(self, problem: Any, stages: Stages, shared: Shared) -> Outcome:
        _measure(problem, shared)
        return super().execute(problem, stages, shared)


@dataclass(frozen=True)
class DeviceGmresIR(GmresIR):
    """The paper's algorithm with a `DeviceSystem`; its runs share nothing.

    What is shared may have been launched, not done, when its time is taken: the first run that uses
    it would be charged for all of it, and the others for nothing.
    """

    def run(
        self,
        problem: Any,
        action: ActionLike,
        backend: str | Backend = "operation",
        shared: Shared | None = None,
    ) -> Outcome:
        return super().run(problem, action, backend)

    def execute(self, problem: Any, stages: Stages, shared: Shared) -> Outcome:
        _measure(problem, shared)
        return super().execute(problem, stages, shared)


def _measure(problem: DeviceSystem, shared: Shared) -> DeviceErrors:
    """The measure that algorithms ask `shared` for, made here as theirs is for the processor."""
    with shared.diagnostics():
        return shared.get("errors", lambda: DeviceErrors(problem))


ALGORITHM = DeviceSolve()
PAPERS = DeviceGmresIR(tolerance=1e-4, restart=RESTART, cycles=1, stop=RULE)

SPACE = ActionSpace(
    VerifiedSolve.stages,
    tuple(
        Action((fmt, FP64, FP64, FP64), method.name)
        for method in METHODS.values()
        if not method.sparse and method.name.partition("/")[0] == "lu"
        for fmt in method.formats
        if method.name != "lu" or fmt in (FP32, FP64)
    ),
)
"""The actions of the front door on a GPU for systems that are not symmetric."""


def _cusolver(A: Any, b: Any, backend: Backend) -> Any:
    return backend.xp.linalg.solve(A, b)


def _front_door(A: Any, b: Any, backend: Backend) -> Any:
    return solve(A, b)


CUSOLVER, FRONT_DOOR = "cupy.linalg.solve", "roundwise.solve"
ROUTINES: dict[str, Callable[[Any, Any, Backend], Any]] = {
    CUSOLVER: _cusolver,
    FRONT_DOOR: _front_door,
}


@dataclass(frozen=True)
class DeviceCall(Algorithm):
    """One call of a key of `ROUTINES`, as users call it, timed until the device is done."""

    stages: ClassVar[tuple[str, ...]] = ("factor",)

    routine: str

    def __post_init__(self) -> None:
        if self.routine not in ROUTINES:
            raise ValueError(f"routine = {self.routine!r}; choose one of {', '.join(ROUTINES)}")

    def execute(self, problem: DeviceSystem, stages: Stages, shared: Shared) -> Outcome:
        backend: Any = problem.backend
        measure = _measure(problem, shared)
        with shared.diagnostics():
            backend.device.synchronize()
        try:
            x = ROUTINES[self.routine](problem.A, problem.b, backend)
        except SolveFailed as failure:
            return Outcome(OutcomeStatus.HOPELESS, None, reason=str(failure))
        backend.device.synchronize()
        with shared.diagnostics():
            values = on_host(x)
            return Outcome(
                OutcomeStatus.CONVERGED,
                values,
                ferr=measure.forward(values),
                nbe=measure.backward(values),
                cbe=measure.componentwise(values),
                reason=self._tried(problem),
            )

    def _tried(self, problem: DeviceSystem) -> str:
        """The actions that the front door tried, the last one with success."""
        if self.routine != FRONT_DOOR:
            return ""
        solution = solve(problem.A, problem.b, full_output=True)
        return " > ".join(outcome.action for outcome in solution.attempts)


def measured_features(system: DeviceSystem) -> dict[str, FeatureValue]:
    """All of `FEATURES` with the seconds that each takes alone; those of a look come together."""
    runs = [_features(system) for _ in range(REPEATS)]
    return {
        name: FeatureValue(name, runs[0][name][0], statistics.median(run[name][1] for run in runs))
        for name in FEATURES
    }


def _features(system: DeviceSystem) -> dict[str, tuple[float, float]]:
    backend: Any = system.backend

    def timed(compute: Callable[[], Any]) -> tuple[Any, float]:
        backend.device.synchronize()
        start = perf_counter()
        return compute(), perf_counter() - start

    look, seconds = timed(lambda: device_row_features(system.A))
    found = {name: (look[name], seconds if name == PROBE[0] else 0.0) for name in PROBE}
    found["n"] = float(system.n), 0.0
    found["norm_inf"] = timed(lambda: backend.sizes(system.A)[0])
    found["kappa_est"] = timed(lambda: _condition(system))
    return found


def _condition(system: DeviceSystem) -> float:
    """`features.kappa_est` with factors on the device; infinite if A is singular in FP32."""
    try:
        factors = system.backend.matrix(system.A, FEATURE_FORMAT).lu()
    except ArithmeticFailure:
        return float("inf")
    norm = float(abs(system.A).sum(axis=0).max())
    return condition_estimate(system.A, factors.to(FP64), norm)
