"""One express call, for tests that ask for nothing else."""

from roundwise.solver.express import answered, attempt
from roundwise.solver.prepare import Wanted


def express(A, b, tol=None, **wanted):
    """What one call answers; None if it refuses, or is not for A and b."""
    return answered(attempt(A, b, Wanted(tol, **wanted)))
