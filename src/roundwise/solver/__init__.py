"""The verified front door: `solve`, `factor`, `Solver` and what they return."""

from roundwise.solver.choice import Choice, DefaultPolicy, FormatPolicy
from roundwise.solver.factorization import Factorization
from roundwise.solver.front import factor, solve
from roundwise.solver.memory import MemoryFileError
from roundwise.solver.online import Solver
from roundwise.solver.solution import Attempt, Solution, SolveFailed

__all__ = [
    "Attempt",
    "Choice",
    "DefaultPolicy",
    "Factorization",
    "FormatPolicy",
    "MemoryFileError",
    "Solution",
    "SolveFailed",
    "Solver",
    "factor",
    "solve",
]
