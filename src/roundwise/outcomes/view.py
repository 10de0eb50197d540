"""`OutcomeView`: the outcomes of some problems and actions as arrays, in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise._forking import cached_property
from roundwise.actions import Action
from roundwise.algorithms import Outcome, OutcomeStatus
from roundwise.outcomes.records import (
    StoredArithmetic,
    StoredProblem,
    history_from_json,
    operations_from_json,
)
from roundwise.outcomes.schema import FILE, DamagedText

STATUSES = tuple(OutcomeStatus)
"""The status that each code in `OutcomeView.status` stands for."""


@dataclass(frozen=True, eq=False)
class OutcomeView:
    """N problems by A actions, read once from a table; what rewards and policies replay on.

    Arrays have a row for each problem and a column for each action, in the order that was asked
    for. Only runs of a timed backend are measured: `seconds`, `timings` and `peak_bytes` are NaN,
    and `repeats` 0, where none was.

    Parameters
    ----------
    algorithm, arithmetic : str
        What was run.
    stages, problems, actions : tuple
    others
        Arrays of facts; `OutcomeTable.view` makes them.

    Examples
    --------
    >>> import tempfile
    >>> from roundwise.outcomes import OutcomeTable, fill
    >>> problems, actions = [rw.problems.randsvd(10, 10.0, rng=0)], ["fp64-fp64-fp64-fp64"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = OutcomeTable(f"{folder}/outcomes.sqlite")
    ...     done = fill(table, rw.GmresIR(), problems, actions)
    ...     view = table.view(rw.GmresIR(), problems, actions)
    >>> view.row(0)[0].action, bool(view.nbe[0, 0] < 1e-15)
    ('fp64-fp64-fp64-fp64', True)
    """

    algorithm: str  # with its settings, as canonical JSON
    arithmetic: str
    stages: tuple[str, ...]
    problems: tuple[StoredProblem, ...]
    actions: tuple[Action, ...]
    status: NDArray[np.int8]  # indices into `STATUSES`
    ferr: NDArray[np.float64]
    nbe: NDArray[np.float64]
    cbe: NDArray[np.float64]
    outer: NDArray[np.int64]  # iterations
    inner: NDArray[np.int64]
    feature_names: tuple[str, ...]
    features: NDArray[np.float64]  # (N, number of features)
    feature_seconds: NDArray[np.float64]  # what each took to compute
    seconds: NDArray[np.float64]  # the median over the repeats
    repeats: NDArray[np.int64]
    timing_names: tuple[str, ...]  # the stages and "verify"
    timings: NDArray[np.float64]  # (N, A, timing names); medians need not add up to `seconds`
    peak_bytes: NDArray[np.float64]  # memory beyond that of the problem, largest of the repeats
    # (N, A) arrays of JSON texts, parsed on request only: most rewards do not read them.
    reasons: NDArray[Any] = field(repr=False)
    operations_json: NDArray[Any] = field(repr=False)
    history_json: NDArray[Any] = field(repr=False)
    source: Path | None = None  # the table that it was read from

    @property
    def shape(self) -> tuple[int, int]:
        """(N, A)."""
        return len(self.problems), len(self.actions)

    @cached_property
    def action_names(self) -> tuple[str, ...]:
        """The actions as text, like ``bf16-fp32-fp64-fp64``."""
        return tuple(str(action) for action in self.actions)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Where an arithmetic failure broke the run off, (N, A)."""
        return np.array([status.failed for status in STATUSES])[self.status]

    def outcome(self, problem: int, action: int) -> Outcome:
        """One outcome, as the algorithm returned it but for x, which is not stored.

        Of measured runs, `seconds` and `timings` are medians.
        """
        at = problem, action
        measured = bool(self.repeats[at])
        timings = zip(self.timing_names, self.timings[at].tolist(), strict=True)
        try:
            history = history_from_json(self.history_json[at])
            operations = operations_from_json(self.operations_json[at])
        except DamagedText as error:
            raise FILE.damaged(self.source, error) from error
        return Outcome(
            STATUSES[self.status[at]],
            None,
            ferr=float(self.ferr[at]),
            nbe=float(self.nbe[at]),
            cbe=float(self.cbe[at]),
            outer_iterations=int(self.outer[at]),
            inner_iterations=int(self.inner[at]),
            history=history,
            reason=self.reasons[at],
            action=self.action_names[action],
            arithmetic=StoredArithmetic.parse(self.arithmetic).model,
            operations=operations,
            seconds=float(self.seconds[at]) if measured else None,
            timings=dict(timings) if measured else {},
        )

    def row(self, problem: int) -> list[Outcome]:
        """The outcomes of one problem, in the order of the actions."""
        return [self.outcome(problem, action) for action in range(len(self.actions))]

    def features_of(self, problem: int) -> dict[str, float]:
        """The features of one problem by name."""
        return dict(zip(self.feature_names, self.features[problem].tolist(), strict=True))

    def take(self, problems: Iterable[int]) -> OutcomeView:
        """The view of some of the problems, given by index; for splits and bootstraps."""
        rows = np.asarray(list(problems), dtype=np.intp)
        arrays: dict[str, Any] = {
            f.name: getattr(self, f.name)[rows]
            for f in dataclasses.fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        chosen = tuple(self.problems[row] for row in rows)
        return dataclasses.replace(self, problems=chosen, **arrays)
