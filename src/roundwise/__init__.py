"""Roundwise: how little floating-point precision does each step of a solver need?

Names are imported when they are first asked for: ``import roundwise`` takes no time, and a solve
loads no more than it uses. What is not listed here is found in its package: ``rw.formats.E4M3``,
``rw.backends.get_backend``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roundwise._lazy import lazy_names

if TYPE_CHECKING:
    from roundwise import problems
    from roundwise.actions import Action
    from roundwise.algorithms import (
        Algorithm,
        CgIR,
        GmresIR,
        LsIR,
        LuIR,
        Outcome,
        OutcomeStatus,
        VerifiedSolve,
    )
    from roundwise.backends.cuda.device import DeviceUnavailable
    from roundwise.exceptions import IllConditionedWarning, RoundwiseError, UnknownNameError
    from roundwise.formats import BF16, FP16, FP32, FP64, FloatFormat, get_format, register_format
    from roundwise.integrations.replacing import replacing_numpy
    from roundwise.machine.threads import get_num_threads, set_num_threads
    from roundwise.outcomes import OutcomeTable, fill
    from roundwise.policies.base import Policy
    from roundwise.problems import LinearSystem
    from roundwise.rewards import Reward
    from roundwise.rounding import round_to
    from roundwise.solver.factorization import Factorization
    from roundwise.solver.front_door import factor, solve
    from roundwise.solver.learning import Solver
    from roundwise.solver.least_squares import lstsq
    from roundwise.solver.places import DeviceMemoryError
    from roundwise.solver.solution import Solution, SolveFailed
    from roundwise.solver.trust.knowledge import SystemChanged
    from roundwise.tuning.tuner import Tuner

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
