"""The tuner: learn a precision policy from outcomes, predict, save and load."""

from roundwise.tuning.context import PAPER_CONTEXT, Context
from roundwise.tuning.files import TunerFileError
from roundwise.tuning.training import TrainingCurves, train, view_contexts, view_rewards
from roundwise.tuning.tuner import Tuner

__all__ = [
    "PAPER_CONTEXT",
    "Context",
    "TrainingCurves",
    "Tuner",
    "TunerFileError",
    "train",
    "view_contexts",
    "view_rewards",
]
