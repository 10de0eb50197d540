"""The tuner: learn a precision policy from outcomes, predict, save and load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roundwise._lazy import lazy_names

if TYPE_CHECKING:
    from roundwise.tuning.context import PAPER_CONTEXT, PROBE_CONTEXT, Context, DeployedPolicy
    from roundwise.tuning.files import TunerFileError
    from roundwise.tuning.training import TrainingCurves, train, view_contexts, view_rewards
    from roundwise.tuning.tuner import Tuner

__getattr__, __dir__, __all__ = lazy_names(
    "roundwise.tuning",
    {
        "context": ("PROBE_CONTEXT", "PAPER_CONTEXT", "Context", "DeployedPolicy"),
        "files": ("TunerFileError",),
        "training": ("TrainingCurves", "train", "view_contexts", "view_rewards"),
        "tuner": ("Tuner",),
    },
)
