"""The verified front door: `solve`, `factor`, `Solver` and what they return."""

from roundwise.policies.memory import MemoryFileError
from roundwise.policies.neighbours import Choice, DefaultPolicy, FormatPolicy
from roundwise.solver.factorization import Factorization
from roundwise.solver.front_door import factor, solve
from roundwise.solver.learning import Solver
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
