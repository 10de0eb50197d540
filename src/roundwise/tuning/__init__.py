"""The tuner: learn a precision policy from outcomes, predict, save and load."""

from roundwise.tuning.context import LOOK_CONTEXT, PAPER_CONTEXT, Context
from roundwise.tuning.deployed import DeployedPolicy
from roundwise.tuning.files import TunerFileError
from roundwise.tuning.training import TrainingCurves, train, view_contexts, view_rewards
from roundwise.tuning.tuner import Tuner
