"""Roundwise: how little floating-point precision does each step of a solver need?

Names are imported when they are first asked for: ``import roundwise`` takes no time, and a solve
loads no more than it uses. What is not listed here is found in its package: ``rw.formats.E4M3``,
``rw.backends.get_backend``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roundwise._lazy import lazy_names

if TYPE_CHECKING:  # `as` tells type checkers that a name is exported
    from roundwise import problems as problems
    from roundwise.actions import Action as Action
    from roundwise.algorithms import Algorithm as Algorithm
    from roundwise.algorithms import CgIR as CgIR
    from roundwise.algorithms import GmresIR as GmresIR
    from roundwise.algorithms import LsIR as LsIR
    from roundwise.algorithms import LuIR as LuIR
    from roundwise.algorithms import Outcome as Outcome
    from roundwise.algorithms import OutcomeStatus as OutcomeStatus
    from roundwise.algorithms import VerifiedSolve as VerifiedSolve
    from roundwise.backends.cuda.device import DeviceUnavailable as DeviceUnavailable
    from roundwise.exceptions import IllConditionedWarning as IllConditionedWarning
    from roundwise.exceptions import RoundwiseError as RoundwiseError
    from roundwise.exceptions import UnknownNameError as UnknownNameError
    from roundwise.formats import BF16 as BF16
    from roundwise.formats import FP16 as FP16
    from roundwise.formats import FP32 as FP32
    from roundwise.formats import FP64 as FP64
    from roundwise.formats import FloatFormat as FloatFormat
    from roundwise.formats import get_format as get_format
    from roundwise.formats import register_format as register_format
    from roundwise.integrations.replacing import replacing_numpy as replacing_numpy
    from roundwise.machine.threads import get_num_threads as get_num_threads
    from roundwise.machine.threads import set_num_threads as set_num_threads
    from roundwise.outcomes import OutcomeTable as OutcomeTable
    from roundwise.outcomes import fill as fill
    from roundwise.policies.base import Policy as Policy
    from roundwise.problems import LinearSystem as LinearSystem
    from roundwise.rewards import Reward as Reward
    from roundwise.rounding import round_to as round_to
    from roundwise.solver.factorization import Factorization as Factorization
    from roundwise.solver.front_door import factor as factor
    from roundwise.solver.front_door import solve as solve
    from roundwise.solver.learning import Solver as Solver
    from roundwise.solver.least_squares import lstsq as lstsq
    from roundwise.solver.places import DeviceMemoryError as DeviceMemoryError
    from roundwise.solver.solution import Solution as Solution
    from roundwise.solver.solution import SolveFailed as SolveFailed
    from roundwise.solver.trust.knowledge import SystemChanged as SystemChanged
    from roundwise.tuning.tuner import Tuner as Tuner

__version__ = "0.2.0"

_HOMES = {
    "actions": ("Action",),
    "algorithms": (
        "Algorithm",
        "CgIR",
        "GmresIR",
        "LsIR",
        "LuIR",
        "Outcome",
        "OutcomeStatus",
        "VerifiedSolve",
    ),
    "backends.cuda.device": ("DeviceUnavailable",),
    "exceptions": ("IllConditionedWarning", "RoundwiseError", "UnknownNameError"),
    "formats": ("BF16", "FP16", "FP32", "FP64", "FloatFormat", "get_format", "register_format"),
    "integrations.replacing": ("replacing_numpy",),
    "machine.threads": ("get_num_threads", "set_num_threads"),
    "outcomes": ("OutcomeTable", "fill"),
    "policies.base": ("Policy",),
    "problems": ("LinearSystem",),
    "rewards": ("Reward",),
    "rounding": ("round_to",),
    "solver.factorization": ("Factorization",),
    "solver.front_door": ("factor", "solve"),
    "solver.learning": ("Solver",),
    "solver.least_squares": ("lstsq",),
    "solver.places": ("DeviceMemoryError",),
    "solver.solution": ("Solution", "SolveFailed"),
    "solver.trust.knowledge": ("SystemChanged",),
    "tuning.tuner": ("Tuner",),
}
__getattr__, __dir__, __all__ = lazy_names("roundwise", _HOMES)
__all__ += ["problems"]


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext roundwise``: solves of a notebook go through Roundwise (`replacing_numpy`)."""
    from roundwise.integrations.notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext roundwise``: NumPy's and SciPy's functions are their own again."""
    from roundwise.integrations.notebook import unload

    unload(shell)
