"""The verified front door: `solve`, `factor`, `Solver` and what they return."""

from roundwise.solver.decide import Plan
from roundwise.solver.factorization import Factorization
from roundwise.solver.front_door import factor, solve
from roundwise.solver.iterating import IterativeSolution, Step
from roundwise.solver.learning import Solver
from roundwise.solver.least_squares import lstsq
from roundwise.solver.memory_forecast import InsufficientMemory
from roundwise.solver.policy_argument import default_policy
from roundwise.solver.solution import LeastSquaresSolution, Solution, SolveFailed
from roundwise.solver.stacks import StackedFactorization, StackedSolution
