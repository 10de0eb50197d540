"""The verified front door: `solve`, `factor` and what they return."""

from roundwise.solver.factorization import Factorization
from roundwise.solver.front import factor, solve
from roundwise.solver.solution import Attempt, Solution, SolveFailed

__all__ = ["Attempt", "Factorization", "Solution", "SolveFailed", "factor", "solve"]
