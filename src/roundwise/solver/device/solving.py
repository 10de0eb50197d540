"""`solve` and `factor` on a GPU, from A to the gate: no array leaves the device."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Literal, Self

import numpy as np

from roundwise.algorithms.scaling import Array
from roundwise.solver.choosing import Choice
from roundwise.solver.device.choosing import DeviceLearner, device_chooser
from roundwise.solver.device.devices import Place
from roundwise.solver.factorization import Factorization
from roundwise.solver.inputs import GivenMatrix, checked_matrix, checked_shapes
from roundwise.solver.solution import SolveFailed

Accuracy = Literal["backward", "forward"]


class DeviceFactorization(Factorization):
    """A matrix that is factored on a GPU; answers are of the kind of b, on the same device."""

    def __init__(
        self,
        place: Place,
        matrix: GivenMatrix,
        choice: Choice,
        tol: float | None,
        seconds: float,
        accuracy: Accuracy,
    ) -> None:
        super().__init__(matrix, choice, place.backend, tol, seconds, accuracy)
        self._place = place

    def refactor(self, A: Any) -> Self:
        with self._place.entered(A):
            return super().refactor(self._place.array("A", A))

    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any:
        with self._place.entered(b):
            columns = self._place.array("b", b)
            try:
                answer = super().solve(columns, trans, full_output=full_output)
            except SolveFailed as failure:
                raise self._place.failed(failure, b) from None
            return self._place.returned(answer, b)


def solve_on_device(
    place: Place,
    A: Any,
    b: Any,
    *,
    tol: float | None,
    policy: Any,
    full_output: bool,
    positive_definite: bool | None,
    accuracy: Accuracy,
    learner: DeviceLearner | None = None,
) -> Any:
    """As `roundwise.solve`, for operands that are on a GPU, or are to go there."""
    with place.entered(A, b):
        matrices, columns = place.array("A", A), place.array("b", b)
        options = (tol, policy, positive_definite, accuracy, learner)
        if matrices.ndim <= 2 and columns.ndim <= 2:
            count = max(1, columns.shape[1]) if columns.ndim == 2 else 1
            F = _factored(place, matrices, count, False, *options)
            try:
                answer = Factorization.solve(F, columns, full_output=full_output)
            except SolveFailed as failure:
                raise place.failed(failure, b) from None
            return place.returned(answer, b)
        if full_output:
            raise ValueError("full_output describes one system; loop over the stacked ones")
        return place.returned(_stacked(place, matrices, columns, *options), b)


def factor_on_device(
    place: Place,
    A: Any,
    *,
    tol: float | None,
    policy: Any,
    positive_definite: bool | None,
    columns: int,
    accuracy: Accuracy,
    learner: DeviceLearner | None = None,
) -> DeviceFactorization:
    """As `roundwise.factor`."""
    with place.entered(A):
        options = (tol, policy, positive_definite, accuracy, learner)
        return _factored(place, place.array("A", A), columns, True, *options)


def _factored(
    place: Place,
    A: Any,
    columns: int,
    copy: bool,
    tol: float | None,
    policy: Any,
    positive_definite: bool | None,
    accuracy: Accuracy,
    learner: DeviceLearner | None,
) -> DeviceFactorization:
    start, backend = perf_counter(), place.backend
    matrix = checked_matrix(A, backend, columns, copy)
    free: int = backend.device.memory_free  # type: ignore[attr-defined]
    choice = device_chooser(policy, backend, free, learner).choose(matrix, positive_definite)
    return DeviceFactorization(place, matrix, choice, tol, perf_counter() - start, accuracy)


def _stacked(place: Place, A: Any, b: Any, *options: Any) -> Array:
    """System by system; a b with one dimension is one vector for all, as in NumPy."""
    xp, (stack, columns) = place.backend.xp, checked_shapes(A, b)
    matrices = xp.broadcast_to(A, stack + A.shape[-2:])
    blocks = xp.broadcast_to(columns, stack + columns.shape[-2:])
    answers = [
        Factorization.solve(
            _factored(place, matrices[i], max(1, blocks.shape[-1]), False, *options), blocks[i]
        )
        for i in np.ndindex(stack)
    ]
    if not answers:
        raise ValueError(f"A and b stack to shape {stack}, no system at all; pass at least one")
    X = xp.stack(answers).reshape(stack + answers[0].shape)
    return X[..., 0] if b.ndim == 1 else X  # type: ignore[no-any-return]
